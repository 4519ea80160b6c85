/* laps.h: iterations of a loop that repeat in time. */
#ifndef WIA_SIM_LAPS_H
#define WIA_SIM_LAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "wia/gen/wia_target.h"
#include "wia_sim.h"

enum {
    WIA_LAP_TOKENS = 16, /* of a pair of units, that are given and not taken */
    WIA_LAP_LAYERS = 4,  /* that a loop touches */
    WIA_LAP_PAIRS = 4 * 4,
    WIA_LAP_GROUPS = 8 + 4 + WIA_LAP_PAIRS,
    WIA_LAP_CLOCKS = 8 + 4 * (3 + WIA_TARGET_FETCH_QUEUE_DEPTH_MAX) + WIA_LAP_PAIRS * WIA_LAP_TOKENS
};

/* Clocks and counters when an iteration began. A group of clocks moved together or not at all: `mark` says which. */
typedef struct {
    bool valid;
    uint32_t body;      /* program offset that the jump went to */
    uint32_t loops;     /* loops open there */
    uint32_t skip;      /* iterations that have been accounted for: the core goes through them without events */
    uint32_t clocks, groups;
    uint32_t first_layer, layers;
    int64_t clock[WIA_LAP_CLOCKS];
    uint64_t mark[WIA_LAP_GROUPS];
    wia_sim_counters_t counters[WIA_LAP_LAYERS + 1]; /* of these layers, and outside of all */
} wia_lap_t;

/* The innermost loop jumps back to core.pc, with so many iterations to follow on the one that begins, and the events
 * of the one before have been counted. If it took as long as that before it in every respect, the next `remaining` ones
 * will. */
#ifdef WIA_SIM_SMALL /* without laps.c: every iteration is stepped through */
static inline void wia_lap(wia_sim_t *sim, uint32_t remaining)
{
    (void)sim;
    (void)remaining;
}
#else
void wia_lap(wia_sim_t *sim, uint32_t remaining);
#endif

#endif
