/* trace.h: bounded text trace, one line per event. */
#ifndef WIA_SIM_TRACE_H
#define WIA_SIM_TRACE_H

#include "wia_sim.h"

void wia_trace_reset(wia_sim_t *sim);
void wia_trace_event(wia_sim_t *sim, const wia_sim_event_t *event);

#endif
