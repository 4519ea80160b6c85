/* exec_post.c: par, addp, lut, pgeo, post. */
#include <string.h>

#include "exec.h"

enum { COLUMNS = WIA_KERNEL_COLUMNS, SHIFT_MIN = 1, SHIFT_MAX = 62, LEFT_SHIFT_MAX = 23 };
#define MULTIPLIER_END 0x80000000u

/* A checked post: addresses of position (0, 0). */
typedef struct {
    wia_post_t fields;
    const int8_t *a;
    const int8_t *r;
    int8_t *out;
    const int32_t *acc;
} work_t;

/* Raise the event of an instruction that streams `payload_bytes` and then replaces state in one cycle. */
static void raise_set(wia_sim_t *sim, const uint8_t *bytes, uint32_t payload_bytes)
{
    wia_sim_event_t event;

    wia_exec_event(sim, bytes, 1u, &event);
    event.payload_bytes = payload_bytes;
    event.flags = (uint8_t)(payload_bytes != 0u ? WIA_SIM_FLAG_ACTIVATES : 0);
    wia_exec_raise(sim, &event);
}

static bool scale_ok(uint32_t multiplier, uint32_t shift)
{
    return multiplier < MULTIPLIER_END && shift >= SHIFT_MIN && shift <= SHIFT_MAX;
}

/* Whatever the payload is: its multipliers are below 2^31. */
static bool always_ok(const wia_par_t *par)
{
    return par->shift_base >= SHIFT_MIN && par->shift_base + (1u << par->shift_bits) - 1u <= SHIFT_MAX;
}

int wia_exec_par(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_core_t *core = &sim->core;
    const uint8_t *payload = bytes + core->shape.head_bytes;
    wia_channel_t channels[COLUMNS];
    wia_par_t par;
    uint32_t column;

    wia_decode_par(&par, bytes);
    if (par.columns > sim->target.array_columns)
        return WIA_SIM_E_FIELD;
    for (column = wia_arithmetic(sim) || !always_ok(&par) ? 0u : par.columns; column < par.columns; column++) {
        wia_par_channel(&channels[column], &par, payload, column);
        if (!scale_ok(channels[column].multiplier, channels[column].shift))
            return WIA_SIM_E_FIELD;
    }
    if (!wia_par_padding_ok(&par, payload))
        return WIA_SIM_E_PAYLOAD;
    raise_set(sim, bytes, sim->core.shape.payload_bytes);
    core->par = par;
    core->par_set = true;
    for (column = 0; column < (wia_arithmetic(sim) ? par.columns : 0u); column++) {
        core->bias[column] = channels[column].bias;
        core->multiplier[column] = channels[column].multiplier;
        core->shift[column] = channels[column].shift;
    }
    return WIA_SIM_OK;
}

int wia_exec_addp(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_addp_t addp;

    wia_decode_addp(&addp, bytes);
    if (!scale_ok(addp.multiplier_a, addp.shift_a) || !scale_ok(addp.multiplier_b, addp.shift_b) ||
        !scale_ok(addp.multiplier_out, addp.shift_out) || addp.left_shift > LEFT_SHIFT_MAX)
        return WIA_SIM_E_FIELD;
    raise_set(sim, bytes, 0u);
    sim->core.addp = addp;
    sim->core.addp_set = true;
    return WIA_SIM_OK;
}

int wia_exec_lut(wia_sim_t *sim, const uint8_t *bytes)
{
    raise_set(sim, bytes, sim->core.shape.payload_bytes);
    memcpy(sim->core.table, bytes + sim->core.shape.head_bytes, sizeof sim->core.table);
    sim->core.table_set = true;
    return WIA_SIM_OK;
}

int wia_exec_pgeo(wia_sim_t *sim, const uint8_t *bytes)
{
    raise_set(sim, bytes, 0u);
    wia_decode_pgeo(&sim->core.pgeo, bytes);
    sim->core.pgeo_set = true;
    return WIA_SIM_OK;
}

/* Offset in the SRAM of an operand, whose positions read or write `extent` bytes from their address on. */
static int operand(wia_sim_t *sim, uint32_t field, uint32_t reg, uint32_t x_step, uint32_t y_step, uint64_t extent,
                   uint64_t *address)
{
    const wia_pgeo_t *geo = &sim->core.pgeo;
    uint64_t sram_bytes = sim->target.sram_bytes;
    int fault = wia_exec_address(sim, field, reg, address);

    if (fault != WIA_SIM_OK)
        return fault;
    extent = wia_extent(geo->height, y_step, geo->width, x_step, extent);
    return *address <= sram_bytes && extent <= sram_bytes - *address ? WIA_SIM_OK : WIA_SIM_E_SRAM;
}

static int check_state(const wia_sim_t *sim, const wia_post_t *post)
{
    const wia_core_t *core = &sim->core;

    if (post->columns > sim->target.array_columns)
        return WIA_SIM_E_FIELD;
    if (!core->pgeo_set || !core->par_set || post->columns > core->par.columns)
        return WIA_SIM_E_UNSET;
    if ((post->residual && !core->addp_set) || (post->table && !core->table_set))
        return WIA_SIM_E_UNSET;
    return WIA_SIM_OK;
}

static int check_operands(wia_sim_t *sim, work_t *work)
{
    const wia_pgeo_t *geo = &sim->core.pgeo;
    const wia_post_t *post = &work->fields;
    uint64_t a = 0u, r = 0u, out = 0u;
    uint64_t window = wia_extent(geo->window_y, geo->window_y_stride, geo->window_x, geo->window_x_stride,
                                 post->columns);
    int fault = operand(sim, post->out_address, post->out_reg, geo->out_x_step, geo->out_y_step, post->columns, &out);

    if (fault == WIA_SIM_OK && post->source_sram)
        fault = operand(sim, post->a_address, post->a_reg, geo->a_x_step, geo->a_y_step, window, &a);
    if (fault == WIA_SIM_OK && post->residual)
        fault = operand(sim, post->r_address, post->r_reg, geo->r_x_step, geo->r_y_step, post->columns, &r);
    if (fault != WIA_SIM_OK)
        return fault;
    if (!post->source_sram && post->acc_base + (uint64_t)geo->width * geo->height > wia_acc_entries(sim))
        return WIA_SIM_E_ACC;
    work->a = wia_sram(sim) + a;
    work->r = wia_sram(sim) + r;
    work->out = wia_sram(sim) + out;
    work->acc = post->source_sram ? NULL : wia_acc(sim) + (size_t)post->acc_base * sim->acc_stride;
    return WIA_SIM_OK;
}

static void compute(wia_sim_t *sim, const work_t *work)
{
    const wia_core_t *core = &sim->core;
    const wia_post_t *post = &work->fields;
    wia_post_pass_t pass;

    pass.acc = work->acc;
    pass.acc_stride = sim->acc_stride;
    pass.a = work->a;
    pass.r = post->residual ? work->r : NULL;
    pass.out = work->out;
    pass.columns = post->columns;
    pass.geo = &core->pgeo;
    pass.par = &core->par;
    pass.bias = core->bias;
    pass.multiplier = core->multiplier;
    pass.shift = core->shift;
    pass.addp = &core->addp;
    pass.table = post->table ? core->table : NULL;
    sim->kernel->post(&pass);
}

int wia_exec_post(wia_sim_t *sim, const uint8_t *bytes)
{
    const wia_pgeo_t *geo = &sim->core.pgeo;
    wia_sim_event_t event;
    work_t work;
    uint64_t reads, positions;
    int fault;

    wia_decode_post(&work.fields, bytes);
    fault = check_state(sim, &work.fields);
    if (fault == WIA_SIM_OK)
        fault = check_operands(sim, &work);
    if (fault != WIA_SIM_OK)
        return fault;
    positions = (uint64_t)geo->width * geo->height;
    reads = (work.fields.source_sram ? (uint64_t)geo->window_x * geo->window_y : 0u) + work.fields.residual;
    wia_exec_event(sim, bytes, positions * (reads > 1u ? reads : 1u), &event);
    fault = wia_exec_work(sim, event.busy_cycles);
    if (fault != WIA_SIM_OK)
        return fault;
    event.latency = WIA_SIM_LATENCY_POST;
    event.flags = (uint8_t)(reads != 0u ? WIA_SIM_FLAG_ORDERED : 0);
    event.read_bytes = positions * reads * work.fields.columns;
    event.write_bytes = positions * work.fields.columns;
    wia_exec_raise(sim, &event);
    if (wia_arithmetic(sim))
        compute(sim, &work);
    return WIA_SIM_OK;
}
