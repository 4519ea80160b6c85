/* hal_sim.c: the register map in front of hw_sim. */
#include "hal_sim.h"

#include <string.h>

#include "wia/gen/wia_errors.h"

/* The runtime's name for what stopped the machine. */
static int error_of(int fault)
{
    switch (fault) {
    case WIA_SIM_E_OPCODE:
    case WIA_SIM_E_PAYLOAD:
    case WIA_SIM_E_FIELD:
    case WIA_SIM_E_UNSET:
        return WIA_E_OPCODE;
    case WIA_SIM_E_END:
        return WIA_E_PROGRAM_END;
    case WIA_SIM_E_SRAM:
    case WIA_SIM_E_ACC:
    case WIA_SIM_E_EXTERNAL:
        return WIA_E_BOUNDS;
    case WIA_SIM_E_LOOP:
        return WIA_E_LOOP;
    case WIA_SIM_E_TOKEN:
        return WIA_E_TOKEN;
    case WIA_SIM_E_LIMIT:
        return WIA_E_TIMEOUT;
    default:
        return WIA_E_ARGUMENT;
    }
}

static int run_program(wia_hal_sim_t *self)
{
    wia_sim_buffer_t buffers[WIA_MAX_BUFFERS];
    wia_sim_program_t program = {0};
    int fault;
    uint32_t i;

    for (i = 0u; i < WIA_MAX_BUFFERS; i++) {
        const wia_device_binding_t *binding = &self->device.bindings[i];

        buffers[i].data = wia_device_pointer(binding->address);
        buffers[i].bytes = binding->access != 0u ? binding->bytes : 0u;
        buffers[i].writable = (binding->access & WIA_BINDING_ACCESS_WRITE) != 0u;
    }
    program.code = (const uint8_t *)wia_device_pointer(self->device.program_address);
    program.code_bytes = self->device.program_bytes;
    program.buffers = buffers;
    program.buffer_count = WIA_MAX_BUFFERS;
    program.total = self->total;
    program.spans = self->spans;
    program.layers = self->layers;
    program.span_count = self->span_count;
    program.cache = self->cache;
    program.cache_bytes = self->cache_bytes;
    fault = wia_sim_load(self->sim, &program);
    return fault == WIA_SIM_OK ? wia_sim_run(self->sim) : fault;
}

static void start(wia_hal_sim_t *self)
{
    wia_sim_stats_t stats;
    int fault = run_program(self);

    wia_sim_stats(self->sim, &stats);
    self->now_cycles += stats.total.cycles;
    self->device.cycles = stats.total.cycles;
    self->device.status = fault == WIA_SIM_OK ? WIA_STATUS_DONE : WIA_STATUS_FAULT;
    self->device.fault_code = fault == WIA_SIM_OK ? 0u : (uint32_t)error_of(fault);
    self->device.fault_offset = stats.fault_offset;
}

static uint32_t read_register(void *ctx, uint32_t offset)
{
    return wia_device_read(&((const wia_hal_sim_t *)ctx)->device, offset);
}

static void write_register(void *ctx, uint32_t offset, uint32_t value)
{
    wia_hal_sim_t *self = (wia_hal_sim_t *)ctx;

    if (offset != WIA_REG_CONTROL) {
        wia_device_write(&self->device, offset, value);
        return;
    }
    if ((value & (WIA_CONTROL_ABORT | WIA_CONTROL_ACKNOWLEDGE)) != 0u)
        self->device.status = 0u;
    if ((value & WIA_CONTROL_START) != 0u)
        start(self);
}

static uint64_t cycle_counter(void *ctx)
{
    return ((const wia_hal_sim_t *)ctx)->now_cycles;
}

int wia_hal_sim_init(wia_hal_sim_t *device, const wia_sim_desc_t *desc, const uint8_t *digest, void *memory,
                     size_t bytes)
{
    int fault;

    memset(device, 0, sizeof *device); /* an empty one to copy from would stand in every exported library */
    device->sim = (wia_sim_t *)memory;
    fault = wia_sim_init(device->sim, bytes, desc);
    if (fault != WIA_SIM_OK)
        return fault;
    wia_device_init(&device->device, desc->target, digest);
    device->hal.read_register = read_register;
    device->hal.write_register = write_register;
    device->hal.cycle_counter = cycle_counter;
    device->hal.ctx = device;
    return WIA_SIM_OK;
}
