/* verify_work.c: what one instruction of a unit may touch. Sums have 64 bits: a 24- or 32-bit stride times a
 * 16-bit count, at most four of them, cannot overflow. */
#include "verify.h"

/* A set of equally spaced blocks: `bytes` at every combination of two or four strides. */
typedef struct {
    uint32_t count;
    uint32_t stride;
} axis_t;

/* Field plus register. OPCODE: no such register, or it was never set. */
static int resolve(const wia_verifier_t *v, uint32_t field, uint32_t reg, uint64_t *address)
{
    if ((v->register_set >> reg & 1u) == 0u)
        return wia_refuse(v, WIA_E_OPCODE);
    *address = (uint64_t)field + v->registers[reg];
    return WIA_OK;
}

/* Bytes from the first one touched to the last one. */
static uint64_t extent(const axis_t *axes, unsigned count, uint64_t bytes)
{
    unsigned i;

    for (i = 0u; i < count; i++)
        bytes += (uint64_t)(axes[i].count - 1u) * axes[i].stride;
    return bytes;
}

static int check_sram(const wia_verifier_t *v, uint32_t field, uint32_t reg, uint64_t bytes)
{
    uint64_t address = 0u;
    int code = resolve(v, field, reg, &address);

    if (code != WIA_OK)
        return code;
    if (address + bytes > v->wia->target.sram_bytes)
        return wia_refuse(v, WIA_E_BOUNDS);
    return WIA_OK;
}

static int check_accumulators(const wia_verifier_t *v, uint32_t base, uint32_t width, uint32_t height)
{
    const wia_target_t *t = &v->wia->target;
    uint64_t entries = (uint64_t)t->accumulator_banks * t->accumulator_entries_per_bank;

    return base + (uint64_t)width * height > entries ? wia_refuse(v, WIA_E_BOUNDS) : WIA_OK;
}

static int check_columns(const wia_verifier_t *v, uint32_t columns, uint32_t limit)
{
    return columns > limit ? wia_refuse(v, WIA_E_OPCODE) : WIA_OK;
}

/* load and store have the same fields; `forbidden` is the kind of buffer that the direction excludes. */
static int check_transfer(const wia_verifier_t *v, const uint8_t *bytes, uint32_t forbidden)
{
    uint32_t buffers = v->wia->bytes_[WIA_SECTION_BUFFERS] / WIA_SIZE_BUFFER;
    const uint8_t *buffer;
    axis_t axes[2];
    wia_load_t x;
    uint64_t address = 0u;
    int code;

    wia_decode_load(&x, bytes);
    if (x.binding >= buffers)
        return wia_refuse(v, WIA_E_BOUNDS);
    buffer = wia_record(v->wia, WIA_SECTION_BUFFERS, x.binding, WIA_SIZE_BUFFER);
    if (wia_u32(buffer + WIA_AT_BUFFER_KIND) == forbidden)
        return wia_refuse(v, WIA_E_BOUNDS);
    code = resolve(v, x.external_offset, x.external_reg, &address);
    if (code != WIA_OK)
        return code;
    axes[0].count = x.planes;
    axes[0].stride = x.external_plane_stride;
    axes[1].count = x.rows;
    axes[1].stride = x.external_row_stride;
    if (address + extent(axes, 2u, x.row_bytes) > wia_u32(buffer + WIA_AT_BUFFER_BYTES))
        return wia_refuse(v, WIA_E_BOUNDS);
    axes[0].stride = x.sram_plane_stride;
    axes[1].stride = x.sram_row_stride;
    return check_sram(v, x.sram_address, x.sram_reg, extent(axes, 2u, x.row_bytes));
}

static int check_fill(const wia_verifier_t *v, const uint8_t *bytes)
{
    axis_t axes[2];
    wia_fill_t x;

    wia_decode_fill(&x, bytes);
    axes[0].count = x.planes;
    axes[0].stride = x.sram_plane_stride;
    axes[1].count = x.rows;
    axes[1].stride = x.sram_row_stride;
    return check_sram(v, x.sram_address, x.sram_reg, extent(axes, 2u, x.row_bytes));
}

/* Zero bytes from `bytes` up to the next whole word. */
static bool padding_ok(const uint8_t *payload, uint64_t bytes)
{
    for (; bytes % 4u != 0u; bytes++)
        if (payload[bytes] != 0u)
            return false;
    return true;
}

/* Codec raw: mask, present tiles, zero padding, exactly payload_bytes. `per_run` tiles of `tile_bytes`, the last
 * one of `last_bytes`, for each of `runs` runs. */
static int check_weights(wia_verifier_t *v, const uint8_t *payload, uint32_t payload_bytes, uint64_t runs,
                         uint32_t per_run, uint64_t tile_bytes, uint64_t last_bytes)
{
    uint64_t tiles = runs * per_run;
    uint64_t mask_bytes = (tiles + 31u) / 32u * 4u;
    uint64_t end = mask_bytes;
    uint32_t slice = 0u;
    uint64_t tile;
    int code = wia_spend(v, tiles / 8u); /* the loop below takes host time */

    if (code != WIA_OK)
        return code;
    if (mask_bytes > payload_bytes)
        return wia_refuse(v, WIA_E_OPCODE);
    for (tile = 0u; tile < mask_bytes * 8u; tile++) {
        bool present = (payload[tile / 8u] >> (tile % 8u) & 1u) != 0u;

        if (present && tile >= tiles)
            return wia_refuse(v, WIA_E_OPCODE);
        slice++;
        if (present)
            end += slice == per_run ? last_bytes : tile_bytes;
        if (slice == per_run)
            slice = 0u;
    }
    if ((end + 3u) / 4u * 4u != payload_bytes || !padding_ok(payload, end))
        return wia_refuse(v, WIA_E_OPCODE);
    return WIA_OK;
}

/* Codec lanes. Any bits decode to weights of the right number, since every table is a complete code, and the decoder
 * takes payload_bytes bytes, which lie inside the program, whatever they say; so there is nothing to decode here. */
static int check_lanes(const wia_verifier_t *v)
{
    return v->stretch ? WIA_OK : wia_refuse(v, WIA_E_OPCODE);
}

/* What conv and dwc share: columns, addresses, accumulators. `bytes` is what one run or tap reads. */
static int check_array(const wia_verifier_t *v, const wia_conv_t *x, uint32_t bytes)
{
    const wia_ageo_t *g = &v->ageo;
    axis_t axes[4];
    int code = check_columns(v, x->columns, v->wia->target.array_columns);

    if (code != WIA_OK)
        return code;
    axes[0].count = g->height;
    axes[0].stride = g->y_step;
    axes[1].count = g->width;
    axes[1].stride = g->x_step;
    axes[2].count = g->runs_y;
    axes[2].stride = g->run_y_stride;
    axes[3].count = g->runs_x;
    axes[3].stride = g->run_x_stride;
    code = check_sram(v, x->ifm_address, x->ifm_reg, extent(axes, 4u, bytes));
    return code != WIA_OK ? code : check_accumulators(v, x->acc_base, g->width, g->height);
}

static int check_conv(wia_verifier_t *v, const uint8_t *bytes)
{
    uint32_t rows = v->wia->target.array_rows;
    uint32_t slices;
    wia_conv_t x;
    int code;

    if (!v->ageo_set)
        return wia_refuse(v, WIA_E_OPCODE);
    wia_decode_conv(&x, bytes);
    code = check_array(v, &x, v->ageo.run_bytes);
    if (code != WIA_OK)
        return code;
    if (x.codec == WIA_CODEC_LANES)
        return check_lanes(v);
    slices = (v->ageo.run_bytes + rows - 1u) / rows;
    return check_weights(v, wia_payload(bytes), x.payload_bytes, (uint64_t)v->ageo.runs_y * v->ageo.runs_x,
                         slices, (uint64_t)rows * x.columns,
                         (uint64_t)(v->ageo.run_bytes - (slices - 1u) * rows) * x.columns);
}

/* Input positions that the window of a dwc passes along one axis; 0 if steps and strides do not fit. */
static uint64_t window_positions(uint32_t count, uint32_t step, uint32_t taps, uint32_t stride)
{
    uint64_t dense;

    if (taps == 1u)
        return count;
    if (stride == 0u || step % stride != 0u)
        return 0u;
    dense = (uint64_t)(count - 1u) * (step / stride) + taps;
    return dense < (uint64_t)count * taps ? dense : (uint64_t)count * taps;
}

static int check_dwc(wia_verifier_t *v, const uint8_t *bytes)
{
    const wia_ageo_t *g = &v->ageo;
    const wia_target_t *t = &v->wia->target;
    uint64_t columns_in;
    uint64_t tile_bytes;
    wia_conv_t x;
    int code;

    if (!v->ageo_set)
        return wia_refuse(v, WIA_E_OPCODE);
    wia_decode_conv(&x, bytes); /* the table gives conv and dwc one list of fields */
    columns_in = window_positions(g->width, g->x_step, g->runs_x, g->run_x_stride);
    if (g->runs_x * g->runs_y > t->array_rows || g->runs_y - 1u > t->line_buffer_rows || columns_in == 0u
        || window_positions(g->height, g->y_step, g->runs_y, g->run_y_stride) == 0u
        || (g->runs_y > 1u && columns_in > t->line_buffer_positions))
        return wia_refuse(v, WIA_E_OPCODE);
    code = check_array(v, &x, x.columns);
    if (code != WIA_OK)
        return code;
    if (x.codec == WIA_CODEC_LANES)
        return check_lanes(v);
    tile_bytes = (uint64_t)g->runs_x * g->runs_y * x.columns;
    return check_weights(v, wia_payload(bytes), x.payload_bytes, 1u, 1u, tile_bytes, tile_bytes);
}

static bool scaling_ok(uint32_t multiplier, uint32_t shift)
{
    return multiplier <= 0x7fffffffu && shift >= 1u && shift <= 62u;
}

static int check_par(wia_verifier_t *v, const uint8_t *bytes)
{
    const uint8_t *payload = wia_payload(bytes);
    wia_channel_t channel;
    wia_par_t x;
    uint32_t i;

    wia_decode_par(&x, bytes);
    if (x.columns > v->wia->target.array_columns || x.clamp_low > x.clamp_high)
        return wia_refuse(v, WIA_E_OPCODE);
    for (i = 0u; i < x.columns; i++) {
        wia_par_channel(&channel, &x, payload, i);
        if (!scaling_ok(channel.multiplier, channel.shift))
            return wia_refuse(v, WIA_E_OPCODE);
    }
    if (!wia_par_padding_ok(&x, payload))
        return wia_refuse(v, WIA_E_OPCODE);
    v->par_columns = x.columns;
    return WIA_OK;
}

static int check_addp(wia_verifier_t *v, const uint8_t *bytes)
{
    wia_addp_t x;

    wia_decode_addp(&x, bytes);
    if (!scaling_ok(x.multiplier_a, x.shift_a) || !scaling_ok(x.multiplier_b, x.shift_b)
        || !scaling_ok(x.multiplier_out, x.shift_out) || x.left_shift > 23u || x.clamp_low > x.clamp_high)
        return wia_refuse(v, WIA_E_OPCODE);
    v->addp_set = true;
    return WIA_OK;
}

/* One operand or the result of a post: `columns` bytes at every position and place of the window. */
static int check_operand(const wia_verifier_t *v, uint32_t field, uint32_t reg, uint32_t x_step, uint32_t y_step,
                         bool window, uint32_t columns)
{
    const wia_pgeo_t *g = &v->pgeo;
    axis_t axes[4];

    axes[0].count = g->height;
    axes[0].stride = y_step;
    axes[1].count = g->width;
    axes[1].stride = x_step;
    axes[2].count = window ? g->window_y : 1u;
    axes[2].stride = g->window_y_stride;
    axes[3].count = window ? g->window_x : 1u;
    axes[3].stride = g->window_x_stride;
    return check_sram(v, field, reg, extent(axes, 4u, columns));
}

static int check_post(const wia_verifier_t *v, const uint8_t *bytes)
{
    const wia_pgeo_t *g = &v->pgeo;
    wia_post_t x;
    int code;

    wia_decode_post(&x, bytes);
    if (!v->pgeo_set || x.columns > v->par_columns || (x.residual != 0u && !v->addp_set)
        || (x.table != 0u && !v->lut_set))
        return wia_refuse(v, WIA_E_OPCODE);
    if (x.source_sram != 0u)
        code = check_operand(v, x.a_address, x.a_reg, g->a_x_step, g->a_y_step, true, x.columns);
    else
        code = check_accumulators(v, x.acc_base, g->width, g->height);
    if (code == WIA_OK && x.residual != 0u)
        code = check_operand(v, x.r_address, x.r_reg, g->r_x_step, g->r_y_step, false, x.columns);
    if (code == WIA_OK)
        code = check_operand(v, x.out_address, x.out_reg, g->out_x_step, g->out_y_step, false, x.columns);
    return code;
}

int wia_verify_work(wia_verifier_t *v, const uint8_t *bytes)
{
    switch (bytes[0]) {
    case WIA_OP_LOAD:
        return check_transfer(v, bytes, WIA_BUFFER_OUTPUT);
    case WIA_OP_STORE:
        return check_transfer(v, bytes, WIA_BUFFER_INPUT);
    case WIA_OP_FILL:
        return check_fill(v, bytes);
    case WIA_OP_AGEO:
        wia_decode_ageo(&v->ageo, bytes);
        v->ageo_set = true;
        return WIA_OK;
    case WIA_OP_CONV:
        return check_conv(v, bytes);
    case WIA_OP_DWC:
        return check_dwc(v, bytes);
    case WIA_OP_PAR:
        return check_par(v, bytes);
    case WIA_OP_ADDP:
        return check_addp(v, bytes);
    case WIA_OP_LUT:
        v->lut_set = true;
        return WIA_OK;
    case WIA_OP_PGEO:
        wia_decode_pgeo(&v->pgeo, bytes);
        v->pgeo_set = true;
        return WIA_OK;
    case WIA_OP_POST:
        return check_post(v, bytes);
    case WIA_OP_SYNC_IN:
    case WIA_OP_SYNC_OUT:
    case WIA_OP_SYNC_ARRAY:
    case WIA_OP_SYNC_POST:
        return WIA_OK;
    default:
        return wia_refuse(v, WIA_E_OPCODE);
    }
}
