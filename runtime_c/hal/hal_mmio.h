/* hal_mmio.h: a memory-mapped device. Register access only; a board adds its cache, interrupt and timer
 * callbacks to the struct afterwards (docs/porting.md). */
#ifndef WIA_HAL_MMIO_H
#define WIA_HAL_MMIO_H

#include "wia/wia_hal.h"

/* Fill `hal` for the register window at `base`; all optional callbacks become NULL. */
void wia_hal_mmio(wia_hal_t *hal, volatile uint32_t *base);

#endif
