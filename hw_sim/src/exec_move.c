/* exec_move.c: load, fill, store. */
#include <string.h>

#include "exec.h"

/* load and store have the same fields; the checked transfer. */
typedef struct {
    uint8_t *external;
    int8_t *sram;
    uint32_t planes, rows, row_bytes;
    uint32_t external_row_stride, external_plane_stride;
    uint32_t sram_row_stride, sram_plane_stride;
    uint64_t bytes;
} transfer_t;

static int sram_range(const wia_sim_t *sim, uint64_t address, uint64_t extent)
{
    return address <= sim->target.sram_bytes && extent <= sim->target.sram_bytes - address ? WIA_SIM_OK
                                                                                            : WIA_SIM_E_SRAM;
}

static int external_range(const wia_sim_buffer_t *buffer, uint64_t offset, uint64_t extent)
{
    return offset <= buffer->bytes && extent <= buffer->bytes - offset ? WIA_SIM_OK : WIA_SIM_E_EXTERNAL;
}

static int prepare(wia_sim_t *sim, const wia_load_t *fields, bool writes_external, transfer_t *out)
{
    const wia_sim_buffer_t *buffer;
    uint64_t external, sram;
    int fault;

    if (fields->binding >= sim->program.buffer_count)
        return WIA_SIM_E_EXTERNAL;
    buffer = &sim->program.buffers[fields->binding];
    if (writes_external && !buffer->writable)
        return WIA_SIM_E_EXTERNAL;
    fault = wia_exec_address(sim, fields->external_offset, fields->external_reg, &external);
    if (fault == WIA_SIM_OK)
        fault = wia_exec_address(sim, fields->sram_address, fields->sram_reg, &sram);
    if (fault == WIA_SIM_OK)
        fault = external_range(buffer, external, wia_extent(fields->planes, fields->external_plane_stride, fields->rows,
                                                            fields->external_row_stride, fields->row_bytes));
    if (fault == WIA_SIM_OK)
        fault = sram_range(sim, sram, wia_extent(fields->planes, fields->sram_plane_stride, fields->rows,
                                                 fields->sram_row_stride, fields->row_bytes));
    if (fault != WIA_SIM_OK)
        return fault;
    out->external = (uint8_t *)buffer->data + external;
    out->sram = wia_sram(sim) + sram;
    out->planes = fields->planes;
    out->rows = fields->rows;
    out->row_bytes = fields->row_bytes;
    out->external_row_stride = fields->external_row_stride;
    out->external_plane_stride = fields->external_plane_stride;
    out->sram_row_stride = fields->sram_row_stride;
    out->sram_plane_stride = fields->sram_plane_stride;
    out->bytes = (uint64_t)fields->planes * fields->rows * fields->row_bytes;
    return WIA_SIM_OK;
}

static void copy(const transfer_t *transfer, bool to_external)
{
    size_t plane, row;

    for (plane = 0; plane < transfer->planes; plane++)
        for (row = 0; row < transfer->rows; row++) {
            uint8_t *external = transfer->external + plane * transfer->external_plane_stride +
                                row * transfer->external_row_stride;
            int8_t *sram = transfer->sram + plane * transfer->sram_plane_stride + row * transfer->sram_row_stride;

            if (to_external)
                memcpy(external, sram, transfer->row_bytes);
            else
                memcpy(sram, external, transfer->row_bytes);
        }
}

static int transfer(wia_sim_t *sim, const uint8_t *bytes, const wia_load_t *fields, bool to_external)
{
    wia_sim_event_t event;
    transfer_t work;
    uint64_t busy = (uint64_t)fields->planes * fields->rows *
                    wia_ceil_div(fields->row_bytes, sim->target.dma_bytes_per_cycle);
    int fault = prepare(sim, fields, to_external, &work);

    if (fault == WIA_SIM_OK)
        fault = wia_exec_work(sim, busy);
    if (fault != WIA_SIM_OK)
        return fault;
    wia_exec_event(sim, bytes, busy, &event);
    event.latency = WIA_SIM_LATENCY_DMA;
    event.read_bytes = work.bytes;
    event.write_bytes = work.bytes;
    wia_exec_raise(sim, &event);
    if (wia_arithmetic(sim))
        copy(&work, to_external);
    return WIA_SIM_OK;
}

int wia_exec_load(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_load_t load;

    wia_decode_load(&load, bytes);
    return transfer(sim, bytes, &load, false);
}

int wia_exec_store(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_load_t fields; /* the table gives load and store one list of fields */

    wia_decode_load(&fields, bytes);
    return transfer(sim, bytes, &fields, true);
}

int wia_exec_fill(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_sim_event_t event;
    wia_fill_t fill;
    uint64_t address, busy;
    size_t plane, row;
    int fault;

    wia_decode_fill(&fill, bytes);
    busy = (uint64_t)fill.planes * fill.rows * wia_ceil_div(fill.row_bytes, sim->target.sram_port_bytes);
    fault = wia_exec_address(sim, fill.sram_address, fill.sram_reg, &address);
    if (fault == WIA_SIM_OK)
        fault = sram_range(sim, address, wia_extent(fill.planes, fill.sram_plane_stride, fill.rows,
                                                    fill.sram_row_stride, fill.row_bytes));
    if (fault == WIA_SIM_OK)
        fault = wia_exec_work(sim, busy);
    if (fault != WIA_SIM_OK)
        return fault;
    wia_exec_event(sim, bytes, busy, &event);
    event.flags = WIA_SIM_FLAG_ORDERED;
    event.write_bytes = (uint64_t)fill.planes * fill.rows * fill.row_bytes;
    wia_exec_raise(sim, &event);
    if (wia_arithmetic(sim))
        for (plane = 0; plane < fill.planes; plane++)
            for (row = 0; row < fill.rows; row++)
                memset(wia_sram(sim) + address + plane * fill.sram_plane_stride + row * fill.sram_row_stride,
                       fill.value, fill.row_bytes);
    return WIA_SIM_OK;
}
