/* lane_cache.h: decoded instructions of codec lanes in memory of the caller, for later iterations, runs, machines. */
#ifndef WIA_SIM_LANE_CACHE_H
#define WIA_SIM_LANE_CACHE_H

#include "exec_mac.h"

enum { WIA_NO_ENTRY = 0 }; /* numbers of entries count from 1 */

/* One decoded instruction: its tiles, the words of their steps one after the other, and rows x columns weights of each
 * tile with a pass. `*_at` are offsets in the cache. */
typedef struct {
    uint32_t offset;    /* in the program; entries ascend, as code runs first in that order */
    uint32_t runs;
    uint32_t run_rows;
    uint32_t before;    /* entry of the instruction before it in its stretch, WIA_NO_ENTRY if it is the first */
    uint32_t carried;   /* words that the decoder held before it */
    wia_tile_bounds_t bounds;
    uint64_t steps_at;
    uint64_t words_at;
    uint64_t values_at;
} wia_lane_entry_t;

/* The cache of the loaded program can be used; makes an empty one ready. */
bool wia_cache_ready(wia_sim_t *sim);

/* It holds weights, not only steps. */
bool wia_cache_values(const wia_sim_t *sim);

wia_lane_entry_t *wia_cache_entry(const wia_sim_t *sim, uint32_t number);

/* Number of the entry of the instruction at `offset`, WIA_NO_ENTRY if there is none. `last`: the one found before. */
uint32_t wia_cache_find(const wia_sim_t *sim, uint32_t offset, uint32_t last);

/* Room for a new entry, which becomes the last one with wia_cache_keep; WIA_NO_ENTRY if there is none. */
uint32_t wia_cache_reserve(wia_sim_t *sim, const wia_work_t *work, uint32_t offset);
void wia_cache_keep(wia_sim_t *sim, uint32_t number);

/* What entry `number` leads to will be needed soon, if there is one. */
void wia_cache_prefetch(const wia_sim_t *sim, uint32_t number);

static inline wia_sim_steps_t *wia_entry_steps(const wia_sim_t *sim, const wia_lane_entry_t *entry)
{
    return (wia_sim_steps_t *)(void *)((char *)sim->program.cache + entry->steps_at);
}

static inline uint16_t *wia_entry_words(const wia_sim_t *sim, const wia_lane_entry_t *entry)
{
    return (uint16_t *)(void *)((char *)sim->program.cache + entry->words_at);
}

static inline int8_t *wia_entry_values(const wia_sim_t *sim, const wia_lane_entry_t *entry)
{
    return (int8_t *)sim->program.cache + entry->values_at;
}

#endif
