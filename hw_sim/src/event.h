/* event.h: the one place where the functional core and the observers (timing, statistics, trace, user) meet.
 *
 * The core executes in program order and raises one wia_sim_event_t per step: which unit, which tokens, how many
 * cycles of occupancy, which bytes. It never asks when something happens; the observers never look at memories.
 */
#ifndef WIA_SIM_EVENT_H
#define WIA_SIM_EVENT_H

#include "wia_sim.h"

/* Show `event` to timing (which fills in its cycles), statistics, trace and the user's observer, in this order. */
void wia_event_raise(wia_sim_t *sim, wia_sim_event_t *event);

#endif
