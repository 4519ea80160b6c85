/* hal_device.c: register map in software. */
#include "hal_device.h"

void wia_device_init(wia_device_t *device, const uint8_t *numbers, const uint8_t *digest)
{
    static const wia_device_t empty;
    uint32_t i;

    *device = empty;
    device->id = WIA_DEVICE_ID;
    device->isa_version = WIA_ISA_VERSION;
    for (i = 0u; i < WIA_TARGET_BYTES; i++)
        device->numbers[i] = numbers[i];
    for (i = 0u; i < sizeof device->digest; i++)
        device->digest[i] = digest[i];
}

static uint32_t word(const uint8_t *bytes)
{
    return wia_target_word(bytes);
}

static void set_low(uint64_t *value, uint32_t low)
{
    *value = *value >> 32 << 32 | low;
}

static void set_high(uint64_t *value, uint32_t high)
{
    *value = (*value & 0xffffffffu) | (uint64_t)high << 32;
}

uint32_t wia_device_read(const wia_device_t *device, uint32_t offset)
{
    const wia_device_binding_t *binding = &device->bindings[device->binding_index];

    if (offset >= WIA_REG_TARGET_NUMBER && offset < WIA_REG_TARGET_NUMBER + WIA_TARGET_BYTES)
        return word(device->numbers + (offset - WIA_REG_TARGET_NUMBER));
    if (offset >= WIA_REG_TARGET_DIGEST && offset < WIA_REG_TARGET_DIGEST + sizeof device->digest)
        return word(device->digest + (offset - WIA_REG_TARGET_DIGEST));
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

void wia_device_write(wia_device_t *device, uint32_t offset, uint32_t value)
{
    wia_device_binding_t *binding = &device->bindings[device->binding_index];

    switch (offset) {
    case WIA_REG_PROGRAM_ADDRESS_LOW:
        set_low(&device->program_address, value);
        break;
    case WIA_REG_PROGRAM_ADDRESS_HIGH:
        set_high(&device->program_address, value);
        break;
    case WIA_REG_PROGRAM_BYTES:
        device->program_bytes = value;
        break;
    case WIA_REG_BINDING_INDEX:
        device->binding_index = value % WIA_MAX_BUFFERS;
        break;
    case WIA_REG_BINDING_ADDRESS_LOW:
        set_low(&binding->address, value);
        break;
    case WIA_REG_BINDING_ADDRESS_HIGH:
        set_high(&binding->address, value);
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
