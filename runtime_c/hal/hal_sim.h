/* hal_sim.h: the simulator hw_sim as a device. START runs the program to its end; the caller owns all memory.
 *
 *     wia_sim_desc_t desc = {0};
 *     desc.target = target_section;                          numbers, as in an image
 *     bytes = wia_sim_size(&desc);                           0: not a possible target
 *     wia_hal_sim_init(&device, &desc, digest, malloc(bytes), bytes);
 *     wia_init(&wia, &device.hal, NULL); */
#ifndef WIA_HAL_SIM_H
#define WIA_HAL_SIM_H

#include "hal_device.h"
#include "wia_sim.h"

typedef struct wia_hal_sim {
    wia_hal_t hal; /* give this to wia_init */
    wia_device_t device;
    wia_sim_t *sim;
    uint64_t now_cycles; /* cycles of all runs so far: the cycle counter */

    /* Counters per layer, set before a run or NULL; see wia_sim_program_t. */
    const wia_sim_span_t *spans;
    wia_sim_counters_t *layers;
    size_t span_count;

    /* Memory for decoded weights of the loaded image, set before a run or NULL; see wia_sim_program_t. */
    void *cache;
    size_t cache_bytes;

    /* Counters of an earlier run of the loaded image, all zero before the first one, or NULL; see wia_sim_program_t. */
    wia_sim_counters_t *total;
} wia_hal_sim_t;

/* Make `device` (which must not move afterwards) a simulated device. `memory` has at least wia_sim_size(desc)
 * bytes at an 8-byte alignment. Returns a WIA_SIM_* code. */
int wia_hal_sim_init(wia_hal_sim_t *device, const wia_sim_desc_t *desc, const uint8_t *digest, void *memory,
                     size_t bytes);

#endif
