/* hal_mmio.c: 32-bit accesses to a register window. The fences keep them behind earlier writes to memory (the
 * tensors) and before later reads of it, as a device that bypasses the CPU's order needs. */
#include "hal_mmio.h"

#if defined(__GNUC__)
#define WIA_FENCE() __sync_synchronize()
#else
#define WIA_FENCE() ((void)0) /* other compilers: put the barrier of the CPU here */
#endif

static uint32_t read_register(void *ctx, uint32_t offset)
{
    uint32_t value = ((volatile uint32_t *)ctx)[offset / 4u];

    WIA_FENCE();
    return value;
}

static void write_register(void *ctx, uint32_t offset, uint32_t value)
{
    WIA_FENCE();
    ((volatile uint32_t *)ctx)[offset / 4u] = value;
}

void wia_hal_mmio(wia_hal_t *hal, volatile uint32_t *base)
{
    static const wia_hal_t empty;

    *hal = empty;
    hal->read_register = read_register;
    hal->write_register = write_register;
    hal->ctx = (void *)(uintptr_t)base;
}
