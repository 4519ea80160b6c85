/* hal_device.h: the registers of a device in software; what the simulator and the recording fake share.
 * Header only, so that each of them stays one file to link. */
#ifndef WIA_HAL_DEVICE_H
#define WIA_HAL_DEVICE_H

#include <string.h>

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
static inline void wia_device_init(wia_device_t *device, const uint8_t *numbers, const uint8_t *digest)
{
    memset(device, 0, sizeof *device);
    device->id = WIA_DEVICE_ID;
    device->isa_version = WIA_ISA_VERSION;
    memcpy(device->numbers, numbers, sizeof device->numbers);
    memcpy(device->digest, digest, sizeof device->digest);
}

static inline void wia_device_set_low(uint64_t *value, uint32_t low)
{
    *value = *value >> 32 << 32 | low;
}

static inline void wia_device_set_high(uint64_t *value, uint32_t high)
{
    *value = (*value & 0xffffffffu) | (uint64_t)high << 32;
}

static inline uint32_t wia_device_read(const wia_device_t *device, uint32_t offset)
{
    const wia_device_binding_t *binding = &device->bindings[device->binding_index];

    if (offset >= WIA_REG_TARGET_NUMBER && offset < WIA_REG_TARGET_NUMBER + WIA_TARGET_BYTES)
        return wia_target_word(device->numbers + (offset - WIA_REG_TARGET_NUMBER));
    if (offset >= WIA_REG_TARGET_DIGEST && offset < WIA_REG_TARGET_DIGEST + sizeof device->digest)
        return wia_target_word(device->digest + (offset - WIA_REG_TARGET_DIGEST));
    switch (offset) {
    case WIA_REG_ID:
        return device->id;
    case WIA_REG_ISA_VERSION:
        return device->isa_version;
    case WIA_REG_STATUS:
        return device->status;
    case WIA_REG_FAULT_CODE:
        return device->fault_code;
    case WIA_REG_FAULT_OFFSET:
        return device->fault_offset;
    case WIA_REG_PROGRAM_ADDRESS_LOW:
        return (uint32_t)(device->program_address & 0xffffffffu);
    case WIA_REG_PROGRAM_ADDRESS_HIGH:
        return (uint32_t)(device->program_address >> 32);
    case WIA_REG_PROGRAM_BYTES:
        return device->program_bytes;
    case WIA_REG_CYCLES_LOW:
        return (uint32_t)(device->cycles & 0xffffffffu);
    case WIA_REG_CYCLES_HIGH:
        return (uint32_t)(device->cycles >> 32);
    case WIA_REG_BINDING_INDEX:
        return device->binding_index;
    case WIA_REG_BINDING_ADDRESS_LOW:
        return (uint32_t)(binding->address & 0xffffffffu);
    case WIA_REG_BINDING_ADDRESS_HIGH:
        return (uint32_t)(binding->address >> 32);
    case WIA_REG_BINDING_BYTES:
        return binding->bytes;
    case WIA_REG_BINDING_ACCESS:
        return binding->access;
    default:
        return 0u;
    }
}

/* Writes to CONTROL have no effect here; they are the owner's business. */
static inline void wia_device_write(wia_device_t *device, uint32_t offset, uint32_t value)
{
    wia_device_binding_t *binding = &device->bindings[device->binding_index];

    switch (offset) {
    case WIA_REG_PROGRAM_ADDRESS_LOW:
        wia_device_set_low(&device->program_address, value);
        break;
    case WIA_REG_PROGRAM_ADDRESS_HIGH:
        wia_device_set_high(&device->program_address, value);
        break;
    case WIA_REG_PROGRAM_BYTES:
        device->program_bytes = value;
        break;
    case WIA_REG_BINDING_INDEX:
        device->binding_index = value % WIA_MAX_BUFFERS;
        break;
    case WIA_REG_BINDING_ADDRESS_LOW:
        wia_device_set_low(&binding->address, value);
        break;
    case WIA_REG_BINDING_ADDRESS_HIGH:
        wia_device_set_high(&binding->address, value);
        break;
    case WIA_REG_BINDING_BYTES:
        binding->bytes = value;
        break;
    case WIA_REG_BINDING_ACCESS:
        binding->access = value;
        break;
    default:
        break;
    }
}

/* The CPU pointer of a device address. */
static inline void *wia_device_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
