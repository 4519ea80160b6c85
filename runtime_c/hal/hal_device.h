/* hal_device.h: the registers of a device in software; what the simulator and the recording fake share. */
#ifndef WIA_HAL_DEVICE_H
#define WIA_HAL_DEVICE_H

#include "wia/gen/wia_format.h"
#include "wia/gen/wia_isa.h"
#include "wia/gen/wia_regs.h"
#include "wia/gen/wia_target.h"
#include "wia/wia_hal.h"

/* One external buffer as the registers describe it. */
typedef struct wia_device_binding {
    uint64_t address;
    uint32_t bytes;
    uint32_t access; /* WIA_BINDING_ACCESS_* */
} wia_device_binding_t;

/* Register contents. Everything may be changed between runs to play a broken device. */
typedef struct wia_device {
    uint32_t id;
    uint32_t isa_version;
    uint8_t digest[16];
    uint8_t numbers[WIA_TARGET_BYTES];
    uint32_t status;
    uint32_t fault_code;
    uint32_t fault_offset;
    uint64_t cycles;
    uint64_t program_address;
    uint32_t program_bytes;
    uint32_t binding_index;
    wia_device_binding_t bindings[WIA_MAX_BUFFERS];
} wia_device_t;

/* A device after reset, of the target with these numbers and digest (as an image holds them). */
void wia_device_init(wia_device_t *device, const uint8_t *numbers, const uint8_t *digest);

uint32_t wia_device_read(const wia_device_t *device, uint32_t offset);

/* Writes to CONTROL have no effect here; they are the owner's business. */
void wia_device_write(wia_device_t *device, uint32_t offset, uint32_t value);

/* The CPU pointer of a device address. */
static inline void *wia_device_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
