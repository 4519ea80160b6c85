/* exec.h: the functional core: one function per instruction, in program order. 0 or a WIA_SIM_E_* fault.
 *
 * A function decodes, checks everything, then raises its events and does the work: a faulting instruction has no
 * effect. `bytes` is the instruction, whose encoding and length have been checked.
 */
#ifndef WIA_SIM_EXEC_H
#define WIA_SIM_EXEC_H

#include "event.h"
#include "machine.h"

/* Run from core.pc to halt. */
int wia_exec_run(wia_sim_t *sim);

/* The instruction at `at` lies inside the program with its payload and is a legal encoding. */
int wia_exec_check(const uint8_t *code, size_t code_bytes, size_t at, wia_shape_t *shape);

/* Codec lanes: the state at the start of a run; what loop and endl do to it. */
void wia_lanes_reset(wia_sim_t *sim);
void wia_lanes_close(wia_sim_t *sim);

/* Decode the program in program order into its cache, as far as that makes sense. Changes `core`. */
void wia_lanes_prepare(wia_sim_t *sim);

int wia_exec_wtab(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_load(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_fill(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_store(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_ageo(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_conv(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_dwc(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_par(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_addp(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_lut(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_pgeo(wia_sim_t *sim, const uint8_t *bytes);
int wia_exec_post(wia_sim_t *sim, const uint8_t *bytes);

/* field + register, not wrapped, into `address`. */
int wia_exec_address(const wia_sim_t *sim, uint32_t field, uint32_t reg, uint64_t *address);

/* Make `event` that of the current instruction, for a unit that keeps `busy_cycles`; other fields are zero. */
void wia_exec_event(const wia_sim_t *sim, const uint8_t *bytes, uint64_t busy_cycles, wia_sim_event_t *event);

/* Count the occupancy; WIA_SIM_E_LIMIT when the limit is reached. */
int wia_exec_work(wia_sim_t *sim, uint64_t cycles);

/* Raise `event` unless timing is off. */
static inline void wia_exec_raise(wia_sim_t *sim, wia_sim_event_t *event)
{
    if (wia_timed(sim))
        wia_event_raise(sim, event);
}

/* Bytes from the first to the last one that `counts[i]` steps of `strides[i]` and a row of `row` bytes touch. */
static inline uint64_t wia_extent(uint64_t count_1, uint64_t stride_1, uint64_t count_2, uint64_t stride_2,
                                  uint64_t row)
{
    return (count_1 - 1u) * stride_1 + (count_2 - 1u) * stride_2 + row;
}

/* The 0..3 padding bytes after `bytes` bytes are zero. */
static inline bool wia_padding_zero(const uint8_t *at, uint64_t bytes)
{
    uint64_t i;

    for (i = bytes; i % 4u != 0u; i++)
        if (at[i] != 0u)
            return false;
    return true;
}

#endif
