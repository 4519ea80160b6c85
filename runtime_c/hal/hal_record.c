/* hal_record.c: recording fake. */
#include "hal_record.h"

static void record(wia_hal_record_t *self, wia_record_kind_t kind, uint32_t offset, uint32_t value,
                   const void *address, size_t bytes)
{
    if (self->count < self->capacity) {
        wia_record_call_t *call = &self->calls[self->count];

        call->kind = kind;
        call->offset = offset;
        call->value = value;
        call->address = address;
        call->bytes = bytes;
    }
    self->count++;
    self->now_cycles++;
}

static void play(wia_hal_record_t *self)
{
    if (self->execute != NULL)
        self->execute(self);
}

/* The run is over, as planned. */
static void end(wia_hal_record_t *self)
{
    self->started = false;
    switch (self->plan) {
    case WIA_RECORD_FINISHES:
        play(self);
        self->device.cycles = self->now_cycles;
        self->device.status = WIA_STATUS_DONE;
        break;
    case WIA_RECORD_FAULTS:
        play(self);
        self->device.status = WIA_STATUS_FAULT;
        break;
    case WIA_RECORD_RESETS:
        self->device.status = 0u;
        break;
    default:
        self->started = true;
        break;
    }
}

static uint32_t read_register(void *ctx, uint32_t offset)
{
    wia_hal_record_t *self = (wia_hal_record_t *)ctx;
    uint32_t value;

    if (offset == WIA_REG_STATUS && self->started) {
        if (self->busy_left == 0u)
            end(self);
        else
            self->busy_left--;
    }
    value = wia_device_read(&self->device, offset);
    if (self->started && self->plan == WIA_RECORD_VANISHES)
        value = 0xffffffffu;
    record(self, WIA_RECORD_READ, offset, value, NULL, 0u);
    return value;
}

static void write_register(void *ctx, uint32_t offset, uint32_t value)
{
    wia_hal_record_t *self = (wia_hal_record_t *)ctx;

    record(self, WIA_RECORD_WRITE, offset, value, NULL, 0u);
    if (offset != WIA_REG_CONTROL) {
        wia_device_write(&self->device, offset, value);
        return;
    }
    if ((value & (WIA_CONTROL_ABORT | WIA_CONTROL_ACKNOWLEDGE)) != 0u && self->plan != WIA_RECORD_STUCK) {
        self->device.status = 0u;
        self->started = false;
    }
    if ((value & WIA_CONTROL_START) != 0u) {
        self->device.status = WIA_STATUS_BUSY;
        self->started = true;
        self->busy_left = self->busy_reads;
    }
}

static void clean_cache(void *ctx, const void *address, size_t bytes)
{
    record((wia_hal_record_t *)ctx, WIA_RECORD_CLEAN, 0u, 0u, address, bytes);
}

static void invalidate_cache(void *ctx, void *address, size_t bytes)
{
    record((wia_hal_record_t *)ctx, WIA_RECORD_INVALIDATE, 0u, 0u, address, bytes);
}

static void wait_for_interrupt(void *ctx)
{
    record((wia_hal_record_t *)ctx, WIA_RECORD_WAIT, 0u, 0u, NULL, 0u);
}

static uint64_t cycle_counter(void *ctx)
{
    return ((const wia_hal_record_t *)ctx)->now_cycles;
}

void wia_hal_record_init(wia_hal_record_t *device, const uint8_t *numbers, const uint8_t *digest,
                         wia_record_call_t *calls, size_t capacity)
{
    static const wia_hal_record_t empty;

    *device = empty;
    wia_device_init(&device->device, numbers, digest);
    device->calls = calls;
    device->capacity = capacity;
    device->hal.read_register = read_register;
    device->hal.write_register = write_register;
    device->hal.clean_cache = clean_cache;
    device->hal.invalidate_cache = invalidate_cache;
    device->hal.wait_for_interrupt = wait_for_interrupt;
    device->hal.cycle_counter = cycle_counter;
    device->hal.ctx = device;
}
