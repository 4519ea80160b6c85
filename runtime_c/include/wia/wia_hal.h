/* wia_hal.h: what the runtime needs from a board. Fill in the struct; docs/porting.md has an example.
 *
 * All callbacks get `ctx`. They run on the thread that calls the runtime. */
#ifndef WIA_HAL_H
#define WIA_HAL_H

#include <stddef.h>
#include <stdint.h>

typedef struct wia_hal {
    /* Required. Register access by byte offset (wia_regs.h), in program order, not combined or cached. */
    uint32_t (*read_register)(void *ctx, uint32_t offset);
    void (*write_register)(void *ctx, uint32_t offset, uint32_t value);

    /* Write dirty lines back to memory, so that the device sees them. NULL: memory is coherent. */
    void (*clean_cache)(void *ctx, const void *address, size_t bytes);

    /* Drop lines, so that the CPU sees what the device wrote. NULL: memory is coherent. Lines at the ends
     * belong to the tensor alone if it is aligned to lines and padded to them. */
    void (*invalidate_cache)(void *ctx, void *address, size_t bytes);

    /* Sleep until the interrupt line may be high; must return at once when it already is, and from time to time
     * when it never gets there, if timeouts are to work. NULL: poll. */
    void (*wait_for_interrupt)(void *ctx);

    /* Monotonic time in the unit of wia_config.timeout_cycles. NULL: no timeouts. */
    uint64_t (*cycle_counter)(void *ctx);

    void *ctx;
} wia_hal_t;

#endif
