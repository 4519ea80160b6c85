/* exec_mac.c: ageo, conv, dwc. Weights come one tile at a time; a pass is one tile over all positions. */
#include "exec.h"

/* A checked conv or dwc. */
typedef struct {
    const uint8_t *bytes;   /* the instruction */
    wia_conv_t fields;      /* dwc has the same ones */
    const uint8_t *mask;
    const uint8_t *tile;    /* next tile in the payload */
    uint64_t tiles;         /* stored and all-zero ones */
    uint64_t stored;        /* tiles that have not been passed yet */
    uint64_t pass_cycles;
    uint64_t positions;
    uint64_t skipped_macs;  /* that all-zero tiles save */
    uint32_t padding_bytes; /* after the last tile */
    const int8_t *ifm;
    bool first;             /* no pass yet */
} work_t;

int wia_exec_ageo(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_sim_event_t event = wia_exec_event(sim, bytes, 1u);

    wia_decode_ageo(&sim->core.ageo, bytes);
    sim->core.ageo_set = true;
    wia_exec_raise(sim, &event);
    return WIA_SIM_OK;
}

static uint32_t slices(const wia_sim_t *sim)
{
    return (uint32_t)wia_ceil_div(sim->core.ageo.run_bytes, sim->target.array_rows);
}

static uint32_t lanes_of_slice(const wia_sim_t *sim, uint32_t slice)
{
    uint32_t left = sim->core.ageo.run_bytes - slice * sim->target.array_rows;

    return left < sim->target.array_rows ? left : sim->target.array_rows;
}

static bool stored(const uint8_t *mask, uint64_t tile)
{
    return ((uint32_t)mask[tile / 8u] >> (tile % 8u) & 1u) != 0u;
}

/* Fields and addresses; `extent` is the number of bytes that position (0, 0) reads from its first one on. */
static int check_fields(wia_sim_t *sim, work_t *work, uint64_t extent)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    uint64_t address, sram_bytes = sim->target.sram_bytes;
    int fault;

    if (work->fields.codec != WIA_CODEC_RAW) /* a format that the table has and this simulator does not */
        return WIA_SIM_E_OPCODE;
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

/* Length of the payload against the mask. `tile_bytes` of a full slice and of the last one of each run. */
static int check_payload(wia_sim_t *sim, work_t *work, uint64_t tile_bytes, uint64_t last_bytes, uint32_t per_run)
{
    uint64_t mask_bytes = wia_ceil_div(work->tiles, 32u) * 4u, bytes = 0u, tile;
    uint64_t all_bytes = work->tiles / per_run * ((per_run - 1u) * tile_bytes + last_bytes);

    if (mask_bytes > work->fields.payload_bytes)
        return WIA_SIM_E_PAYLOAD;
    if (wia_exec_work(sim, work->tiles / 8u) != WIA_SIM_OK) /* the loop below takes host time */
        return WIA_SIM_E_LIMIT;
    for (tile = work->tiles; tile < mask_bytes * 8u; tile++)
        if (stored(work->mask, tile))
            return WIA_SIM_E_PAYLOAD;
    for (tile = 0; tile < work->tiles; tile++)
        if (stored(work->mask, tile)) {
            bytes += tile % per_run == per_run - 1u ? last_bytes : tile_bytes;
            work->stored++;
        }
    work->tile = work->mask + mask_bytes;
    if (mask_bytes + wia_ceil_div(bytes, 4u) * 4u != work->fields.payload_bytes ||
        !wia_padding_zero(work->tile, bytes))
        return WIA_SIM_E_PAYLOAD;
    work->skipped_macs = (all_bytes - bytes) * work->positions;
    work->padding_bytes = (uint32_t)(wia_ceil_div(bytes, 4u) * 4u - bytes);
    return WIA_SIM_OK;
}

/* The dispatch of the instruction with its mask. */
static void raise_header(wia_sim_t *sim, const work_t *work)
{
    wia_sim_event_t event = wia_exec_event(sim, work->bytes, 0u);
    uint64_t zero_tiles = work->tiles - work->stored;

    event.wait = event.signal = 0u; /* tokens belong to the first and the last pass */
    event.flags = WIA_SIM_FLAG_PASSES;
    event.payload_bytes = (uint32_t)(work->tile - work->mask);
    event.zero_tiles = (uint32_t)(zero_tiles < UINT32_MAX ? zero_tiles : UINT32_MAX);
    event.skipped_macs = work->skipped_macs;
    wia_exec_raise(sim, &event);
}

/* A pass with a tile of `lanes` rows, or without one if lanes is 0. */
static void raise_pass(wia_sim_t *sim, work_t *work, uint32_t lanes, uint64_t busy, uint64_t read_bytes)
{
    wia_sim_event_t event = wia_exec_event(sim, work->bytes, busy);
    bool last = work->stored == 0u;

    event.kind = WIA_SIM_EVENT_PASS;
    event.header_bytes = 0u;
    event.latency = WIA_SIM_LATENCY_ARRAY;
    event.flags = (uint8_t)((work->first ? WIA_SIM_FLAG_FIRST : 0) | (last ? WIA_SIM_FLAG_LAST : 0) |
                            (work->fields.chain ? WIA_SIM_FLAG_CHAIN : 0));
    event.lead_cycles = busy < work->positions ? busy : work->positions;
    event.rows = lanes;
    event.row_bytes = work->fields.columns;
    event.payload_bytes = lanes * work->fields.columns + (last && lanes != 0u ? work->padding_bytes : 0u);
    event.read_bytes = read_bytes;
    event.macs = (uint64_t)lanes * work->fields.columns * work->positions;
    if (!work->first)
        event.wait = 0u;
    if (!last)
        event.signal = 0u;
    work->first = false;
    wia_exec_raise(sim, &event);
}

/* Sums of zero into the columns in use. */
static void clear(wia_sim_t *sim, const work_t *work)
{
    int32_t *acc = wia_acc(sim) + (size_t)work->fields.acc_base * sim->acc_stride;
    uint64_t position;
    uint32_t column;

    for (position = 0; position < work->positions; position++, acc += sim->acc_stride)
        for (column = 0; column < work->fields.columns; column++)
            acc[column] = 0;
}

/* No stored tile: one pass that writes zeros, or one cycle that only passes tokens on. */
static int run_empty(wia_sim_t *sim, work_t *work)
{
    uint64_t busy = work->fields.accumulate ? 1u : work->positions;

    if (wia_exec_work(sim, busy) != WIA_SIM_OK)
        return WIA_SIM_E_LIMIT;
    raise_header(sim, work);
    raise_pass(sim, work, 0u, busy, 0u);
    if (wia_arithmetic(sim) && !work->fields.accumulate)
        clear(sim, work);
    return WIA_SIM_OK;
}

static void run_kernel(wia_sim_t *sim, const work_t *work, const int8_t *ifm, uint32_t lanes, const uint32_t *taps,
                       bool accumulate)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    wia_pass_t pass;

    pass.ifm = ifm;
    pass.weights = (const int8_t *)work->tile;
    pass.taps = taps;
    pass.acc = wia_acc(sim) + (size_t)work->fields.acc_base * sim->acc_stride;
    pass.acc_stride = sim->acc_stride;
    pass.lanes = lanes;
    pass.columns = work->fields.columns;
    pass.width = geo->width;
    pass.height = geo->height;
    pass.x_step = geo->x_step;
    pass.y_step = geo->y_step;
    pass.accumulate = accumulate;
    if (taps == NULL)
        sim->kernel->conv(&pass);
    else
        sim->kernel->dwc(&pass);
}

static int run_tiles(wia_sim_t *sim, work_t *work)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    uint32_t run_y, run_x, slice, per_run = slices(sim);
    uint64_t tile = 0u;
    bool accumulate = work->fields.accumulate != 0u;

    raise_header(sim, work);
    for (run_y = 0; run_y < geo->runs_y; run_y++)
        for (run_x = 0; run_x < geo->runs_x; run_x++)
            for (slice = 0; slice < per_run; slice++, tile++) {
                uint32_t lanes = lanes_of_slice(sim, slice);

                if (!stored(work->mask, tile))
                    continue;
                if (wia_exec_work(sim, work->pass_cycles) != WIA_SIM_OK)
                    return WIA_SIM_E_LIMIT;
                work->stored--;
                raise_pass(sim, work, lanes, work->pass_cycles, work->positions * lanes);
                if (wia_arithmetic(sim))
                    run_kernel(sim, work,
                               work->ifm + (size_t)run_y * geo->run_y_stride + (size_t)run_x * geo->run_x_stride +
                                   (size_t)slice * sim->target.array_rows,
                               lanes, NULL, accumulate);
                accumulate = true;
                work->tile += lanes * work->fields.columns;
            }
    return WIA_SIM_OK;
}

int wia_exec_conv(wia_sim_t *sim, const uint8_t *bytes)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    work_t work = {.bytes = bytes, .mask = bytes + WIA_BYTES_CONV, .first = true};
    uint64_t runs, extent;
    uint32_t last_lanes;
    int fault;

    if (!sim->core.ageo_set)
        return WIA_SIM_E_UNSET;
    wia_decode_conv(&work.fields, bytes);
    runs = (uint64_t)geo->runs_y * geo->runs_x;
    extent = wia_extent(geo->runs_y, geo->run_y_stride, geo->runs_x, geo->run_x_stride, geo->run_bytes);
    fault = check_fields(sim, &work, extent);
    if (fault != WIA_SIM_OK)
        return fault;
    last_lanes = lanes_of_slice(sim, slices(sim) - 1u);
    work.tiles = runs * slices(sim);
    work.pass_cycles = work.positions;
    fault = check_payload(sim, &work, (uint64_t)sim->target.array_rows * work.fields.columns,
                          (uint64_t)last_lanes * work.fields.columns, slices(sim));
    if (fault != WIA_SIM_OK)
        return fault;
    return work.stored == 0u ? run_empty(sim, &work) : run_tiles(sim, &work);
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
    work_t work = {.bytes = bytes, .mask = bytes + WIA_BYTES_DWC, .tiles = 1u, .first = true};
    uint32_t taps[WIA_KERNEL_LANES], lanes, lane;
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
    lanes = geo->runs_x * geo->runs_y;
    fault = check_payload(sim, &work, (uint64_t)lanes * work.fields.columns, (uint64_t)lanes * work.fields.columns, 1u);
    if (fault != WIA_SIM_OK)
        return fault;
    if (work.stored == 0u)
        return run_empty(sim, &work);
    work.pass_cycles = window_cycles > work.positions ? window_cycles : work.positions;
    if (wia_exec_work(sim, work.pass_cycles) != WIA_SIM_OK)
        return WIA_SIM_E_LIMIT;
    raise_header(sim, &work);
    work.stored = 0u;
    raise_pass(sim, &work, lanes, work.pass_cycles, window_cycles * work.fields.columns);
    for (lane = 0; lane < lanes; lane++)
        taps[lane] = lane / geo->runs_x * geo->run_y_stride + lane % geo->runs_x * geo->run_x_stride;
    if (wia_arithmetic(sim))
        run_kernel(sim, &work, work.ifm, lanes, taps, work.fields.accumulate != 0u);
    return WIA_SIM_OK;
}
