/* stats.h: counters of a run, kept per layer and summed up at its end. */
#ifndef WIA_SIM_STATS_H
#define WIA_SIM_STATS_H

#include "wia_sim.h"

/* Counters of the layer that the program byte at `offset` belongs to. */
wia_sim_counters_t *wia_stats_select(wia_sim_t *sim, uint32_t offset);

/* Zero all counters before a run. */
void wia_stats_reset(wia_sim_t *sim);

/* Count an event whose cycles are known. */
void wia_stats_count(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_sim_event_t *event);

/* Sum up the layers. */
void wia_stats_total(const wia_sim_t *sim, wia_sim_counters_t *total);

#endif
