/* machine.h: the whole state, one block without pointers into itself: a copy of the block is a snapshot. */
#ifndef WIA_SIM_MACHINE_H
#define WIA_SIM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"
#include "laps.h"
#include "lanes.h"
#include "timing.h"
#include "wia/gen/wia_isa.h"
#include "wia/gen/wia_target.h"
#include "wia_sim.h"

typedef struct {
    uint32_t body;      /* program offset of the first instruction */
    uint32_t remaining; /* iterations after the current one */
} wia_loop_state_t;

/* An instruction that lies inside the program and is a legal encoding. */
typedef struct {
    const wia_info_t *info;
    uint32_t head_bytes;
    uint32_t payload_bytes;
} wia_shape_t;

/* One that has been executed. */
typedef struct {
    uint32_t offset;
    wia_shape_t shape;  /* info: NULL if there is none */
} wia_seen_t;

enum { WIA_SEEN = 256 };

/* Everything that instructions set, undefined at the start of a run: `*_set` says what has been set since. */
typedef struct {
    uint32_t pc;        /* program offset of the next instruction */
    uint32_t offset;    /* of the current one */
    wia_shape_t shape;  /* of the current one */
    wia_seen_t seen[WIA_SEEN]; /* by offset / 4 modulo their number */
    bool halted;
    uint32_t loops;
    wia_loop_state_t loop[WIA_TARGET_FETCH_LOOP_DEPTH_MAX];
    uint32_t reg[WIA_TARGET_FETCH_ADDRESS_REGISTERS_MAX];
    uint32_t reg_set;   /* bit per register; bit 0 always */
    uint8_t tokens[WIA_UNIT_COUNT][WIA_UNIT_COUNT]; /* in program order, [from][to] */
    uint64_t work;      /* cycles of occupancy so far */

    bool ageo_set, pgeo_set, par_set, addp_set, table_set;
    wia_ageo_t ageo;
    wia_pgeo_t pgeo;
    wia_par_t par;
    int32_t bias[WIA_KERNEL_COLUMNS];
    int64_t multiplier[WIA_KERNEL_COLUMNS];
    uint32_t shift[WIA_KERNEL_COLUMNS];
    wia_addp_t addp;
    int8_t table[256];
} wia_core_t;

/* Where the decoder of codec lanes stands, and what the cache has to do with it (exec_lanes.c). */
typedef struct {
    bool cached;        /* there is a cache that can be used */
    bool open;          /* a stretch has begun: lanes may be used */
    bool current;       /* the decoder has seen all of the stretch so far */
    bool broken;        /* the rest of the stretch is not in the cache */
    bool hit;           /* the instruction comes from the cache */
    uint32_t wtab;      /* program offset of the wtab that began the stretch */
    uint32_t entry;     /* of the cache: the last one that was used */
    uint32_t before;    /* entry of the last instruction of the stretch */
    wia_ageo_t ageo;    /* at the wtab */
    const uint16_t *next_words; /* of the next tile */
    const int8_t *next_values;
    wia_sim_steps_t steps; /* one tile */
    uint16_t words[WIA_LANES_STEPS];
    int8_t values[WIA_KERNEL_LANES * WIA_KERNEL_COLUMNS];
} wia_replay_t;

struct wia_sim {
    wia_target_t target;
    int mode;
    int fill;
    uint64_t noise_seed;
    uint64_t work_limit;
    const wia_kernel_t *kernel;
    wia_sim_observer_t observer;
    void *observer_context;
    char *trace;
    size_t trace_room;
    size_t trace_used;
    uint64_t trace_lost;

    wia_sim_program_t program;
    bool loaded;
    bool known;                  /* the counters are those of an earlier run: no events */
    bool plain;                  /* every iteration has its events */
    wia_core_t core;
    wia_timing_t timing;
    wia_lap_t lap;
    wia_lanes_t lanes;
    wia_replay_t replay;
    int fault;
    size_t layer;                /* index into program.spans, span_count: none */
    wia_sim_counters_t outside;  /* counters of program bytes that belong to no layer */
    wia_sim_counters_t total;

    uint32_t acc_stride;         /* int32 per accumulator entry: columns rounded up to vector width */
    size_t freed_offset;         /* wia_freed_t for each word of fetch.fifo */
    size_t acc_offset;           /* int32 accumulator entries x acc_stride */
    size_t sram_offset;          /* int8 sram.bytes + WIA_KERNEL_SLACK */
    size_t bytes;                /* of the block */
};

#if defined(__GNUC__)
#define WIA_PREFETCH(at) __builtin_prefetch(at)
#else
#define WIA_PREFETCH(at) ((void)(at))
#endif

static inline uint64_t wia_ceil_div(uint64_t value, uint64_t by)
{
    return (value + by - 1u) / by;
}

static inline int8_t *wia_sram(wia_sim_t *sim)
{
    return (int8_t *)sim + sim->sram_offset;
}

static inline int32_t *wia_acc(wia_sim_t *sim)
{
    return (int32_t *)(void *)((char *)sim + sim->acc_offset);
}

static inline wia_freed_t *wia_freed(wia_sim_t *sim)
{
    return (wia_freed_t *)(void *)((char *)sim + sim->freed_offset);
}

static inline uint32_t wia_acc_entries(const wia_sim_t *sim)
{
    return sim->target.accumulator_banks * sim->target.accumulator_entries_per_bank;
}

/* Events are raised. */
static inline bool wia_timed(const wia_sim_t *sim)
{
    return sim->mode != WIA_SIM_FUNCTIONAL && !sim->known && sim->lap.skip == 0u;
}

/* Data moves and is computed. */
static inline bool wia_arithmetic(const wia_sim_t *sim)
{
    return sim->mode != WIA_SIM_COUNTS;
}

#endif
