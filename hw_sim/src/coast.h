/* coast.h: tiles of a conv or dwc without events, many of them in one step where that is possible. */
#ifndef WIA_SIM_COAST_H
#define WIA_SIM_COAST_H

#include "exec_mac.h"

#ifdef WIA_SIM_SMALL /* without coast.c: tiles go one by one */

static inline void wia_coast_begin(const wia_sim_t *sim, wia_work_t *work)
{
    (void)sim;
    work->coasts = false;
}

static inline uint32_t wia_coast(wia_sim_t *sim, const wia_work_t *work)
{
    (void)sim;
    (void)work;
    return 0u;
}

#else

/* Whether tiles of `work` may be taken so. */
void wia_coast_begin(const wia_sim_t *sim, wia_work_t *work);

/* Account for the next tiles of a work with a pass behind it; their number, 0 if the next one needs an event. */
uint32_t wia_coast(wia_sim_t *sim, const wia_work_t *work);

#endif

#endif
