/* run.c: device context, loading, binding of tensors, start, wait, abort. */
#include "wia_internal.h"

/* Register reads that an abort may take before the device counts as dead. */
#define WIA_ABORT_READS 100000u

#define WIA_STATUS_ALL (WIA_STATUS_BUSY | WIA_STATUS_DONE | WIA_STATUS_FAULT)

static uint32_t read_register(const wia_t *wia, uint32_t offset)
{
    return wia->hal_.read_register(wia->hal_.ctx, offset);
}

static void write_register(const wia_t *wia, uint32_t offset, uint32_t value)
{
    wia->hal_.write_register(wia->hal_.ctx, offset, value);
}

/* A low and a high register hold a device address. */
static void write_address(const wia_t *wia, uint32_t low_offset, uint32_t high_offset, const void *address)
{
    uint64_t device = (uint64_t)(uintptr_t)address + wia->config_.address_offset;

    write_register(wia, low_offset, (uint32_t)(device & 0xffffffffu));
    write_register(wia, high_offset, (uint32_t)(device >> 32));
}

static void clean_cache(const wia_t *wia, const void *address, size_t bytes)
{
    if (wia->hal_.clean_cache != NULL)
        wia->hal_.clean_cache(wia->hal_.ctx, address, bytes);
}

static void invalidate_cache(const wia_t *wia, void *address, size_t bytes)
{
    if (wia->hal_.invalidate_cache != NULL)
        wia->hal_.invalidate_cache(wia->hal_.ctx, address, bytes);
}

/* The device answers, speaks this instruction set, and its numbers are those of a possible target. */
static int check_device(wia_t *wia)
{
    uint8_t numbers[WIA_TARGET_BYTES];
    uint32_t value = read_register(wia, WIA_REG_ID);
    unsigned bad;
    uint32_t i;

    if (value != WIA_DEVICE_ID)
        return wia_fail(wia, WIA_E_DEVICE, WIA_REG_ID, value, WIA_DEVICE_ID);
    value = read_register(wia, WIA_REG_ISA_VERSION);
    if (value != WIA_ISA_VERSION)
        return wia_fail(wia, WIA_E_VERSION, WIA_REG_ISA_VERSION, value, WIA_ISA_VERSION);
    for (i = 0u; i < WIA_TARGET_BYTES; i++) {
        if (i % 4u == 0u)
            value = read_register(wia, WIA_REG_TARGET_NUMBER + i);
        numbers[i] = (uint8_t)(value & 0xffu);
        value >>= 8;
    }
    wia_target_read(&wia->target, numbers);
    bad = wia_target_check(&wia->target);
    if (bad != 0u)
        return wia_fail(wia, WIA_E_DEVICE, WIA_REG_TARGET_NUMBER + 4u * (uint32_t)(bad - 1u), 0u, 0u);
    return WIA_OK;
}

int wia_init(wia_t *wia, const wia_hal_t *hal, const wia_config_t *config)
{
    static const wia_t empty;
    int code;

    if (wia == NULL)
        return WIA_E_ARGUMENT;
    *wia = empty;
    if (config != NULL)
        wia->config_ = *config;
    if (hal == NULL)
        return WIA_OK;
    if (hal->read_register == NULL || hal->write_register == NULL)
        return WIA_E_ARGUMENT;
    wia->hal_ = *hal;
    code = check_device(wia);
    wia->device_ = code == WIA_OK;
    return code;
}

int wia_load(wia_t *wia, const void *image, size_t image_bytes)
{
    static const wia_summary_t empty;
    int code;

    if (wia == NULL || image == NULL || (uintptr_t)image % WIA_IMAGE_ALIGNMENT_BYTES != 0u)
        return WIA_E_ARGUMENT;
    if (wia->state_ == WIA_STATE_RUNNING)
        return WIA_E_STATE;
    wia->state_ = WIA_STATE_EMPTY;
    wia->summary = empty;
    code = wia_parse(wia, (const uint8_t *)image, image_bytes);
    if (code == WIA_OK)
        code = wia_verify(wia);
    if (code != WIA_OK) {
        wia->summary = empty;
        return code;
    }
    clean_cache(wia, image, wia->summary.image_bytes); /* the device fetches it from memory */
    wia->state_ = WIA_STATE_LOADED;
    return WIA_OK;
}

static const uint8_t *port_record(const wia_t *wia, uint32_t port)
{
    return wia_record(wia, WIA_SECTION_PORTS, port, WIA_SIZE_PORT);
}

static const uint8_t *buffer_record(const wia_t *wia, uint32_t buffer)
{
    return wia_record(wia, WIA_SECTION_BUFFERS, buffer, WIA_SIZE_BUFFER);
}

static const wia_tensor_t *port_tensor(const wia_t *wia, uint32_t port)
{
    if (port < wia->summary.inputs)
        return &wia->tensors_.inputs[port];
    return &wia->tensors_.outputs[port - wia->summary.inputs];
}

static bool tensor_ok(const wia_t *wia, const wia_tensor_t *tensor, uint64_t bytes)
{
    return tensor->data != NULL && tensor->bytes >= bytes
           && (uintptr_t)tensor->data % wia->summary.alignment_bytes == 0u;
}

/* All tensors are there, aligned and large enough. */
static int check_tensors(wia_t *wia)
{
    const wia_tensors_t *t = &wia->tensors_;
    uint32_t i;

    if (t->input_count != wia->summary.inputs || (t->input_count != 0u && t->inputs == NULL))
        return wia_fail(wia, WIA_E_BINDING, 0u, t->input_count, wia->summary.inputs);
    if (t->output_count != wia->summary.outputs || t->outputs == NULL)
        return wia_fail(wia, WIA_E_BINDING, wia->summary.inputs, t->output_count, wia->summary.outputs);
    for (i = 0u; i < wia->summary.inputs + wia->summary.outputs; i++) {
        const uint8_t *buffer = buffer_record(wia, wia_u32(port_record(wia, i) + WIA_AT_PORT_BUFFER));
        uint32_t bytes = wia_u32(buffer + WIA_AT_BUFFER_BYTES);

        if (!tensor_ok(wia, port_tensor(wia, i), bytes))
            return wia_fail(wia, WIA_E_BINDING, i, (uint32_t)port_tensor(wia, i)->bytes, bytes);
    }
    if (wia->summary.scratch_bytes != 0u && !tensor_ok(wia, &t->scratch, wia->summary.scratch_bytes))
        return wia_fail(wia, WIA_E_SCRATCH, 0u, (uint32_t)t->scratch.bytes, (uint32_t)wia->summary.scratch_bytes);
    if (t->staging.data != NULL && !tensor_ok(wia, &t->staging, wia->summary.staging_bytes))
        return wia_fail(wia, WIA_E_SCRATCH, 1u, (uint32_t)t->staging.bytes, (uint32_t)wia->summary.staging_bytes);
    return WIA_OK;
}

/* First port of a buffer that has one. */
static uint32_t port_of(const wia_t *wia, uint32_t buffer)
{
    uint32_t port = 0u;

    while (wia_u32(port_record(wia, port) + WIA_AT_PORT_BUFFER) != buffer)
        port++;
    return port;
}

/* Where the device finds a buffer: a tensor, or its place in scratch or staging. */
static uint8_t *buffer_data(const wia_t *wia, uint32_t buffer)
{
    uint32_t kind = wia_u32(buffer_record(wia, buffer) + WIA_AT_BUFFER_KIND);
    bool in_tensor = kind == WIA_BUFFER_INPUT || (kind == WIA_BUFFER_OUTPUT && wia->tensors_.staging.data == NULL);
    uint64_t offset = 0u;
    uint32_t i;

    if (in_tensor)
        return (uint8_t *)port_tensor(wia, port_of(wia, buffer))->data;
    for (i = 0u; i < buffer; i++) {
        const uint8_t *record = buffer_record(wia, i);

        if (wia_u32(record + WIA_AT_BUFFER_KIND) == kind)
            offset += wia_round_up(wia_u32(record + WIA_AT_BUFFER_BYTES), wia->summary.alignment_bytes);
    }
    return (uint8_t *)(kind == WIA_BUFFER_SCRATCH ? wia->tensors_.scratch : wia->tensors_.staging).data + (size_t)offset;
}

/* Tell the device about a buffer. All are cleaned: no dirty line may reach memory during the run. */
static void bind(const wia_t *wia, uint32_t buffer)
{
    const uint8_t *record = buffer_record(wia, buffer);
    uint32_t kind = wia_u32(record + WIA_AT_BUFFER_KIND);
    uint32_t bytes = wia_u32(record + WIA_AT_BUFFER_BYTES);
    uint8_t *data = buffer_data(wia, buffer);

    clean_cache(wia, data, bytes);
    write_register(wia, WIA_REG_BINDING_INDEX, buffer);
    write_address(wia, WIA_REG_BINDING_ADDRESS_LOW, WIA_REG_BINDING_ADDRESS_HIGH, data);
    write_register(wia, WIA_REG_BINDING_BYTES, bytes);
    write_register(wia, WIA_REG_BINDING_ACCESS, (kind != WIA_BUFFER_OUTPUT ? WIA_BINDING_ACCESS_READ : 0u)
                                                    | (kind != WIA_BUFFER_INPUT ? WIA_BINDING_ACCESS_WRITE : 0u));
}

int wia_start(wia_t *wia, const wia_tensors_t *tensors)
{
    uint32_t buffers;
    uint32_t i;
    int code;

    if (wia == NULL || tensors == NULL)
        return WIA_E_ARGUMENT;
    if (wia->state_ != WIA_STATE_LOADED || !wia->device_)
        return WIA_E_STATE;
    wia->tensors_ = *tensors;
    code = check_tensors(wia);
    if (code != WIA_OK)
        return code;
    if ((read_register(wia, WIA_REG_STATUS) & WIA_STATUS_BUSY) != 0u)
        return WIA_E_STATE;
    write_register(wia, WIA_REG_CONTROL, WIA_CONTROL_ACKNOWLEDGE);
    write_address(wia, WIA_REG_PROGRAM_ADDRESS_LOW, WIA_REG_PROGRAM_ADDRESS_HIGH,
                  wia->image_ + wia->offset_[WIA_SECTION_PROGRAM]);
    write_register(wia, WIA_REG_PROGRAM_BYTES, wia->summary.program_bytes);
    buffers = wia->bytes_[WIA_SECTION_BUFFERS] / WIA_SIZE_BUFFER;
    for (i = 0u; i < buffers; i++)
        bind(wia, i);
    wia->start_cycles_ = wia->hal_.cycle_counter != NULL ? wia->hal_.cycle_counter(wia->hal_.ctx) : 0u;
    wia->state_ = WIA_STATE_RUNNING;
    write_register(wia, WIA_REG_CONTROL, WIA_CONTROL_START);
    return WIA_OK;
}

/* Make the outputs visible to the CPU, from staging or where a second port wants the same buffer by copying. */
static void deliver(const wia_t *wia)
{
    uint32_t port;
    size_t i;

    for (port = wia->summary.inputs; port < wia->summary.inputs + wia->summary.outputs; port++) {
        uint32_t buffer = wia_u32(port_record(wia, port) + WIA_AT_PORT_BUFFER);
        uint32_t bytes = wia_u32(buffer_record(wia, buffer) + WIA_AT_BUFFER_BYTES);
        uint8_t *from = buffer_data(wia, buffer);
        uint8_t *to = (uint8_t *)port_tensor(wia, port)->data;

        invalidate_cache(wia, from, bytes);
        for (i = 0u; to != from && i < bytes; i++)
            to[i] = from[i];
    }
}

static int finish(wia_t *wia)
{
    wia->cycles = (uint64_t)read_register(wia, WIA_REG_CYCLES_HIGH) << 32;
    wia->cycles |= read_register(wia, WIA_REG_CYCLES_LOW);
    write_register(wia, WIA_REG_CONTROL, WIA_CONTROL_ACKNOWLEDGE);
    wia->state_ = WIA_STATE_LOADED;
    deliver(wia);
    return WIA_OK;
}

static int fault(wia_t *wia)
{
    wia_fail(wia, WIA_E_DEVICE, read_register(wia, WIA_REG_FAULT_OFFSET), read_register(wia, WIA_REG_FAULT_CODE), 0u);
    write_register(wia, WIA_REG_CONTROL, WIA_CONTROL_ACKNOWLEDGE);
    wia->state_ = WIA_STATE_LOADED;
    return WIA_E_DEVICE;
}

int wia_poll(wia_t *wia)
{
    uint32_t status;
    int code;

    if (wia == NULL)
        return WIA_E_ARGUMENT;
    if (wia->state_ != WIA_STATE_RUNNING)
        return WIA_E_STATE;
    status = read_register(wia, WIA_REG_STATUS);
    if (status == WIA_STATUS_DONE)
        return finish(wia);
    if (status == WIA_STATUS_FAULT)
        return fault(wia);
    if (status != WIA_STATUS_BUSY) { /* off the bus, reset behind our back */
        wia->state_ = WIA_STATE_LOADED;
        return wia_fail(wia, WIA_E_DEVICE, WIA_REG_STATUS, status, WIA_STATUS_BUSY);
    }
    if (wia->config_.timeout_cycles == 0u || wia->hal_.cycle_counter == NULL
        || wia->hal_.cycle_counter(wia->hal_.ctx) - wia->start_cycles_ <= wia->config_.timeout_cycles)
        return WIA_BUSY;
    code = wia_abort(wia);
    return code == WIA_OK ? WIA_E_TIMEOUT : code;
}

int wia_run(wia_t *wia, const wia_tensors_t *tensors)
{
    int code = wia_start(wia, tensors);

    if (code != WIA_OK)
        return code;
    code = wia_poll(wia);
    while (code == WIA_BUSY) {
        if (wia->hal_.wait_for_interrupt != NULL)
            wia->hal_.wait_for_interrupt(wia->hal_.ctx);
        code = wia_poll(wia);
    }
    return code;
}

int wia_abort(wia_t *wia)
{
    uint32_t reads = 0u;
    uint32_t status;

    if (wia == NULL)
        return WIA_E_ARGUMENT;
    if (wia->state_ != WIA_STATE_RUNNING)
        return WIA_E_STATE;
    wia->state_ = WIA_STATE_LOADED;
    write_register(wia, WIA_REG_CONTROL, WIA_CONTROL_ABORT);
    do {
        status = read_register(wia, WIA_REG_STATUS);
        reads++;
    } while ((status & WIA_STATUS_ALL) != 0u && reads < WIA_ABORT_READS);
    if ((status & WIA_STATUS_ALL) != 0u)
        return wia_fail(wia, WIA_E_TIMEOUT, WIA_REG_STATUS, status, 0u);
    return WIA_OK;
}
