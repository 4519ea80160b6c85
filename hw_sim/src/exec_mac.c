/* exec_mac.c: ageo, conv, dwc. Weights come one tile at a time; a pass is one tile over all positions. */
#include "exec_mac.h"

#include "coast.h"

int wia_exec_ageo(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_sim_event_t event;

    wia_exec_event(sim, bytes, 1u, &event);
    wia_decode_ageo(&sim->core.ageo, bytes);
    sim->core.ageo_set = true;
    wia_exec_raise(sim, &event);
    return WIA_SIM_OK;
}

/* Fields and addresses; `extent` is the number of bytes that position (0, 0) reads from its first one on. */
static int check_fields(wia_sim_t *sim, wia_work_t *work, uint64_t extent)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    uint64_t address, sram_bytes = sim->target.sram_bytes;
    int fault;

    if (work->fields.columns > sim->target.array_columns)
        return WIA_SIM_E_FIELD;
    fault = wia_exec_address(sim, work->fields.ifm_address, work->fields.ifm_reg, &address);
    if (fault != WIA_SIM_OK)
        return fault;
    extent = wia_extent(geo->height, geo->y_step, geo->width, geo->x_step, extent);
    if (address > sram_bytes || extent > sram_bytes - address)
        return WIA_SIM_E_SRAM;
    work->positions = (uint64_t)geo->width * geo->height;
    if (work->fields.acc_base + work->positions > wia_acc_entries(sim))
        return WIA_SIM_E_ACC;
    work->ifm = wia_sram(sim) + address;
    return WIA_SIM_OK;
}

/* ---- passes ---- */

/* Sums of zero into the columns in use. */
static void clear(wia_sim_t *sim, const wia_work_t *work)
{
    int32_t *acc = wia_acc(sim) + (size_t)work->fields.acc_base * sim->acc_stride;
    uint64_t position;
    uint32_t column;

    for (position = 0; position < work->positions; position++, acc += sim->acc_stride)
        for (column = 0; column < work->fields.columns; column++)
            acc[column] = 0;
}

static void run_kernel(wia_sim_t *sim, const wia_work_t *work, const wia_tile_t *tile, const int8_t *ifm)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    wia_pass_t pass;

    pass.ifm = ifm;
    pass.weights = tile->weights;
    pass.taps = work->taps;
    pass.acc = wia_acc(sim) + (size_t)work->fields.acc_base * sim->acc_stride;
    pass.acc_stride = sim->acc_stride;
    pass.lanes = tile->rows;
    pass.columns = work->fields.columns;
    pass.width = geo->width;
    pass.height = geo->height;
    pass.x_step = geo->x_step;
    pass.y_step = geo->y_step;
    pass.accumulate = work->passed || work->fields.accumulate != 0u;
    if (work->taps == NULL)
        sim->kernel->conv(&pass);
    else
        sim->kernel->dwc(&pass);
}

/* The event of all tiles: what they have in common. */
static void begin_event(wia_sim_t *sim, wia_work_t *work)
{
    wia_exec_event(sim, work->bytes, 0u, work->event);
    work->event->header_bytes = 0u;
    work->event->latency = WIA_SIM_LATENCY_ARRAY;
    work->event->row_bytes = work->fields.columns;
    work->flags = (uint8_t)((work->fields.chain ? WIA_SIM_FLAG_CHAIN : 0) |
                            (work->fields.codec == WIA_CODEC_LANES ? WIA_SIM_FLAG_LANES : 0));
    work->wait = work->event->wait;
    work->signal = work->event->signal;
}

/* A pass with a tile, or without one if there are no weights. */
static void raise_pass(wia_sim_t *sim, wia_work_t *work, const wia_tile_t *tile, uint64_t busy)
{
    wia_sim_event_t *event = work->event;
    uint32_t rows = tile->weights != NULL ? tile->rows : 0u, bytes = rows * work->fields.columns;

    event->kind = WIA_SIM_EVENT_PASS;
    event->flags = (uint8_t)(work->flags | (tile->last ? WIA_SIM_FLAG_LAST : 0) |
                             (work->passed ? 0 : WIA_SIM_FLAG_FIRST));
    event->wait = work->passed ? 0u : work->wait;
    event->signal = tile->last ? work->signal : 0u;
    event->busy_cycles = busy;
    event->lead_cycles = wia_lead_cycles(work, busy);
    event->steps = tile->steps;
    event->words = tile->words;
    event->rows = rows;
    event->payload_bytes = tile->steps != NULL || rows == 0u ? 0u : bytes + (tile->last ? work->padding_bytes : 0u);
    event->read_bytes = rows != 0u ? work->pass_reads * (work->by_row ? rows : 1u) : 0u;
    event->macs = bytes * work->positions;
    event->zero_tiles = 0u;
    event->skipped_macs = 0u;
    wia_event_raise(sim, event);
}

/* Codec lanes: a tile of zeros that went through the decoder. */
static void raise_empty(wia_sim_t *sim, wia_work_t *work, const wia_tile_t *tile)
{
    wia_sim_event_t *event = work->event;

    event->kind = WIA_SIM_EVENT_EMPTY;
    event->flags = (uint8_t)(work->flags | (tile->last ? WIA_SIM_FLAG_LAST : 0));
    event->wait = 0u;
    event->signal = tile->last && work->passed ? work->signal : 0u; /* if not, a pass without a tile follows */
    event->busy_cycles = event->lead_cycles = event->read_bytes = event->macs = 0u;
    event->steps = tile->steps;
    event->words = tile->words;
    event->rows = event->payload_bytes = 0u;
    event->zero_tiles = 1u;
    event->skipped_macs = (uint64_t)tile->rows * work->fields.columns * work->positions;
    wia_event_raise(sim, event);
}

/* No tile: one pass that writes zeros, or one cycle that only passes tokens on. */
static int run_empty(wia_sim_t *sim, wia_work_t *work)
{
    const wia_tile_t none = {.last = true};
    uint64_t busy = work->fields.accumulate ? 1u : work->positions;

    if (wia_exec_work(sim, busy) != WIA_SIM_OK)
        return WIA_SIM_E_LIMIT;
    if (wia_timed(sim))
        raise_pass(sim, work, &none, busy);
    if (wia_arithmetic(sim) && !work->fields.accumulate)
        clear(sim, work);
    return WIA_SIM_OK;
}

/* ---- tiles ---- */

/* From position (0, 0) of the first tile to that of the current one. */
static size_t tile_offset(const wia_sim_t *sim, const wia_work_t *work)
{
    const wia_ageo_t *geo = &sim->core.ageo;

    return work->taps != NULL ? 0u
                              : (size_t)(work->run / geo->runs_x) * geo->run_y_stride +
                                    (size_t)(work->run % geo->runs_x) * geo->run_x_stride +
                                    (size_t)work->slice * sim->target.array_rows;
}

static void next_tile(wia_work_t *work)
{
    work->tile++;
    work->counted -= work->counted != 0u;
    work->slice = work->slice + 1u == work->slices ? 0u : work->slice + 1u;
    work->run += work->slice == 0u;
}

static int run_tile(wia_sim_t *sim, wia_work_t *work)
{
    wia_tile_t tile = {.rows = wia_tile_rows(sim, work, work->slice)};
    bool raise = wia_timed(sim) && work->counted == 0u;
    int fault = WIA_SIM_OK;

    if (work->fields.codec == WIA_CODEC_RAW)
        wia_raw_tile(work, &tile);
    else
        fault = wia_lanes_work_tile(sim, work, &tile);
    if (fault != WIA_SIM_OK)
        return fault;
    if (tile.weights == NULL) {
        if (tile.steps != NULL && raise)
            raise_empty(sim, work, &tile);
        return WIA_SIM_OK;
    }
    if (wia_exec_work(sim, work->pass_cycles) != WIA_SIM_OK)
        return WIA_SIM_E_LIMIT;
    if (raise)
        raise_pass(sim, work, &tile, work->pass_cycles);
    if (wia_arithmetic(sim))
        run_kernel(sim, work, &tile, work->ifm + tile_offset(sim, work));
    work->passed = true;
    return WIA_SIM_OK;
}

/* Counts only: leave out tiles that timing has seen. */
static void skip_tiles(wia_sim_t *sim, wia_work_t *work)
{
    uint64_t cycles = work->counted * work->pass_cycles;

    if (work->steps != NULL)
        cycles += wia_lanes_work_skip(sim, work, work->counted);
    else
        work->stored -= work->counted;
    (void)wia_exec_work(sim, cycles); /* coasting stays within the limit */
    if (work->counted == 1u) {
        next_tile(work);
        return;
    }
    work->tile += work->counted;
    work->run = (uint32_t)(work->tile / work->slices);
    work->slice = (uint32_t)(work->tile % work->slices);
    work->counted = 0u;
}

/* Counts only, in an iteration without events: all tiles at once; false: one after the other. */
static bool skip_all(wia_sim_t *sim, wia_work_t *work)
{
    uint64_t passes = work->stored, cycles;

    if (wia_timed(sim) || wia_arithmetic(sim))
        return false;
    if (work->fields.codec == WIA_CODEC_LANES) {
        if (work->steps == NULL || !work->bounds.alike)
            return false;
        passes = work->tiles - 1u + work->steps->passes;
    }
    cycles = passes * work->pass_cycles + work->bounds.steps;
    work->passed = passes != 0u;
    return wia_exec_work(sim, cycles) == WIA_SIM_OK;
}

/* Every tile: runs along y, along x, slices of array.rows. */
static int run_tiles(wia_sim_t *sim, wia_work_t *work)
{
    int fault = WIA_SIM_OK;

    if (skip_all(sim, work))
        return WIA_SIM_OK;
    work->passed = false;
    wia_coast_begin(sim, work);
    while (fault == WIA_SIM_OK && work->tile < work->tiles) {
        if (work->coasts && work->passed && work->counted == 0u)
            work->counted = wia_coast(sim, work);
        if (work->counted != 0u && !wia_arithmetic(sim)) {
            skip_tiles(sim, work);
        } else {
            fault = run_tile(sim, work);
            next_tile(work);
        }
    }
    return fault;
}

static int run_work(wia_sim_t *sim, wia_work_t *work)
{
    bool lanes = work->fields.codec == WIA_CODEC_LANES;
    wia_sim_event_t event;
    int fault;

    work->event = &event;
    work->slices = (work->run_rows + sim->target.array_rows - 1u) / sim->target.array_rows;
    work->tiles = (uint64_t)work->runs * work->slices;
    begin_event(sim, work);
    fault = lanes ? wia_lanes_work_begin(sim, work) : wia_raw_begin(sim, work);
    if (fault == WIA_SIM_OK)
        fault = run_tiles(sim, work);
    if (fault == WIA_SIM_OK && lanes)
        wia_lanes_work_end(sim);
    return fault == WIA_SIM_OK && !work->passed ? run_empty(sim, work) : fault;
}

/* ---- the two instructions ---- */

int wia_exec_conv(wia_sim_t *sim, const uint8_t *bytes)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    wia_work_t work = {.bytes = bytes, .payload = bytes + sim->core.shape.head_bytes, .by_row = true};
    int fault;

    if (!sim->core.ageo_set)
        return WIA_SIM_E_UNSET;
    wia_decode_conv(&work.fields, bytes);
    fault = check_fields(sim, &work, wia_extent(geo->runs_y, geo->run_y_stride, geo->runs_x, geo->run_x_stride,
                                                geo->run_bytes));
    if (fault != WIA_SIM_OK)
        return fault;
    work.runs = geo->runs_y * geo->runs_x;
    work.run_rows = geo->run_bytes;
    work.pass_cycles = work.pass_reads = work.positions;
    return run_work(sim, &work);
}

/* Positions that the window passes along one axis, rows_in or columns_in of the manual; 0 if the steps do not
 * fit together. */
static uint64_t window_positions(uint32_t count, uint32_t step, uint32_t taps, uint32_t stride)
{
    uint64_t overlapping;

    if (taps == 1u)
        return count;
    if (stride == 0u || step % stride != 0u)
        return 0u;
    overlapping = (uint64_t)(count - 1u) * (step / stride) + taps;
    return overlapping < (uint64_t)count * taps ? overlapping : (uint64_t)count * taps;
}

static int check_window(const wia_sim_t *sim, uint64_t *cycles)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    uint64_t rows_in = window_positions(geo->height, geo->y_step, geo->runs_y, geo->run_y_stride);
    uint64_t columns_in = window_positions(geo->width, geo->x_step, geo->runs_x, geo->run_x_stride);

    if (geo->runs_x * geo->runs_y > sim->target.array_rows || geo->runs_y - 1u > sim->target.line_buffer_rows)
        return WIA_SIM_E_FIELD;
    if (rows_in == 0u || columns_in == 0u)
        return WIA_SIM_E_FIELD;
    if (geo->runs_y > 1u && columns_in > sim->target.line_buffer_positions)
        return WIA_SIM_E_FIELD;
    *cycles = rows_in * columns_in;
    return WIA_SIM_OK;
}

int wia_exec_dwc(wia_sim_t *sim, const uint8_t *bytes)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    wia_work_t work = {.bytes = bytes, .payload = bytes + sim->core.shape.head_bytes, .runs = 1u};
    uint32_t taps[WIA_KERNEL_LANES], row;
    uint64_t window_cycles = 0u;
    int fault;

    if (!sim->core.ageo_set)
        return WIA_SIM_E_UNSET;
    wia_decode_conv(&work.fields, bytes); /* the table gives conv and dwc one list of fields */
    fault = check_window(sim, &window_cycles);
    if (fault == WIA_SIM_OK)
        fault = check_fields(sim, &work, wia_extent(geo->runs_y, geo->run_y_stride, geo->runs_x, geo->run_x_stride,
                                                    work.fields.columns));
    if (fault != WIA_SIM_OK)
        return fault;
    work.run_rows = geo->runs_x * geo->runs_y;
    for (row = 0; row < work.run_rows; row++)
        taps[row] = row / geo->runs_x * geo->run_y_stride + row % geo->runs_x * geo->run_x_stride;
    work.taps = taps;
    work.pass_cycles = window_cycles > work.positions ? window_cycles : work.positions;
    work.pass_reads = window_cycles * work.fields.columns;
    return run_work(sim, &work);
}
