/* timing.h: state of the scoreboard. All times are cycles from the start of the run. */
#ifndef WIA_SIM_TIMING_H
#define WIA_SIM_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fetch.h"
#include "wia/gen/wia_isa.h"
#include "wia/gen/wia_target.h"
#include "wia_sim.h"

enum { WIA_TOKENS = 256 }; /* a counter holds up to 255 tokens */

typedef struct {
    int64_t dispatched;  /* of the instruction at work: it may start one cycle later */
    int64_t end;         /* first cycle after the last work */
    int64_t visible;     /* when everything so far is visible */
    uint64_t all;        /* instructions dispatched */
    uint32_t count;      /* the same, at most fetch.queue_depth */
    uint32_t slot;       /* in `starts`, a ring of that many: of the next one, and of the one that was there before */
    uint32_t last;       /* of the last one */
    int64_t starts[WIA_TARGET_FETCH_QUEUE_DEPTH_MAX];
} wia_unit_t;

/* Times at which tokens were given, oldest at `head`. */
typedef struct {
    int64_t at[WIA_TOKENS];
    uint8_t head;
    uint8_t tail;
} wia_tokens_t;

typedef struct {
    wia_fetch_t fetch;
    int64_t dispatcher_free; /* end of the dispatcher's last work: instruction or payload stream */
    int64_t decoder_end;     /* end of the decoder's last work */
    int64_t shadow_free;     /* when the shadow weight buffer may be overwritten */
    uint32_t payload_left;   /* codec lanes: bytes of the payload that are not taken */
    uint32_t carried_words;  /* and words that the decoder holds already */
    int64_t pass_given;      /* when the tokens of the last pass are given if it is the last of its instruction */
    int64_t set_free;        /* when the shadow parameter set may be overwritten */
    int64_t set_ready;       /* when the parameters streamed last are complete */
    int64_t run_end;         /* latest time of anything so far */
    wia_unit_t unit[WIA_UNIT_COUNT];
    wia_tokens_t tokens[WIA_UNIT_COUNT][WIA_UNIT_COUNT]; /* [from][to] */
} wia_timing_t;

/* Cycle 0 of a run. */
void wia_timing_reset(wia_sim_t *sim);

/* Fill in the cycles of `event`; stalls and busy cycles go to `counters`. */
void wia_timing_event(wia_sim_t *sim, wia_sim_counters_t *counters, wia_sim_event_t *event);

/* Cycles of a payload stream in one step, of dispatcher and decoder or of the dispatcher alone; false, and nothing
 * happens, if it has to be done one by one. */
bool wia_timing_stream(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_fetch_items_t *items, bool decoder);

/* Items of `step` bytes, the last one of what is left of `bytes`. */
wia_fetch_items_t wia_timing_items(const wia_sim_t *sim, uint32_t count, uint32_t step, uint32_t bytes);

/* The array gives the tokens of its instruction. */
void wia_timing_give(wia_sim_t *sim, uint8_t signal);

/* Count the cycles from *at until `until` as a stall of `unit`, if there are any, and move *at there. */
static inline void wia_timing_stall(wia_sim_counters_t *counters, unsigned unit, unsigned reason, int64_t *at,
                                    int64_t until)
{
    if (until > *at) {
        counters->stall[unit][reason] += (uint64_t)(until - *at);
        *at = until;
    }
}

/* Fill in what follows from the `words` of the steps of a tile, but for the sums over the tiles before. */
void wia_timing_sum_up(const wia_target_t *target, wia_sim_steps_t *steps, const uint16_t *words);

#endif
