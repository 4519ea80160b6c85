/* coast.c: tiles in a few steps, where nobody sees them one by one: without an observer or a trace.
 *
 * If each tile is decoded before the pass in front of it ends, and its bytes are in the FIFO when its decoding begins,
 * then tile i + 1 begins to be decoded when pass i starts, and all clocks and counters follow from sums over the tiles.
 * Other tiles go one by one, but without events. */
#include "coast.h"

#include "stats.h"

/* Sums over tiles. */
typedef struct {
    uint64_t rows, cycles, bytes, steps;
} sums_t;

static uint32_t group_cycles(const wia_sim_t *sim, uint32_t rows)
{
    return (rows + sim->target.decoder_rows_per_cycle - 1u) / sim->target.decoder_rows_per_cycle;
}

/* Of the first `tile` tiles of codec raw, all of them stored. */
static sums_t raw_until(const wia_sim_t *sim, const wia_work_t *work, uint64_t tile)
{
    uint64_t runs = tile / work->slices, slices = tile % work->slices;
    uint32_t full = sim->target.array_rows, last = wia_tile_rows(sim, work, work->slices - 1u);
    sums_t sums = {.rows = runs * work->run_rows + slices * full};

    sums.cycles = (runs * (work->slices - 1u) + slices) * group_cycles(sim, full) + runs * group_cycles(sim, last);
    sums.bytes = sums.rows * work->fields.columns;
    return sums;
}

/* Of the next `tiles` tiles of codec raw, or their rows. */
static sums_t raw_ahead(const wia_sim_t *sim, const wia_work_t *work, uint32_t tiles)
{
    sums_t sums, before;

    if (work->each_rows != 0u) {
        sums.rows = (uint64_t)tiles * work->each_rows;
        sums.cycles = (uint64_t)tiles * work->bounds.most_cycles;
        sums.bytes = sums.rows * work->fields.columns;
        sums.steps = 0u;
        return sums;
    }
    sums = raw_until(sim, work, work->tile + tiles);
    before = raw_until(sim, work, work->tile);
    sums.rows -= before.rows;
    sums.cycles -= before.cycles;
    sums.bytes -= before.bytes;
    return sums;
}

static sums_t sums_ahead(const wia_sim_t *sim, const wia_work_t *work, uint32_t tiles)
{
    sums_t sums = raw_ahead(sim, work, tiles);

    if (work->steps != NULL) {
        const wia_sim_steps_t *steps = work->steps + work->tile;
        bool all = work->tile + tiles == work->tiles;

        sums.cycles = (all ? work->bounds.cycles : steps[tiles].cycles_before) - steps->cycles_before;
        sums.bytes = (all ? work->bounds.bytes : steps[tiles].bytes_before) - steps->bytes_before;
        sums.steps = (all ? work->bounds.steps : steps[tiles].steps_before) - steps->steps_before;
    }
    return sums;
}

/* Bounds of codec raw: a group of rows a cycle. */
static wia_tile_bounds_t raw_bounds(const wia_sim_t *sim, const wia_work_t *work)
{
    uint32_t columns = work->fields.columns, group = sim->target.decoder_rows_per_cycle;
    uint32_t most = work->slices > 1u ? sim->target.array_rows : work->run_rows;
    wia_tile_bounds_t bounds = {.alike = true};
    int32_t slack = wia_timing_items(sim, group_cycles(sim, most), group * columns, most * columns).slack;

    bounds.most_cycles = (uint16_t)group_cycles(sim, most);
    bounds.most_bytes = (uint16_t)(most * columns);
    bounds.least_slack_bytes = (int16_t)(slack < INT16_MAX ? slack : INT16_MAX);
    return bounds;
}

/* Passes of the next tiles, without a gap, of which the last one ends at `end`. */
static void count_passes(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_work_t *work, uint32_t tiles,
                         uint64_t rows, int64_t end)
{
    wia_timing_t *timing = &sim->timing;
    wia_unit_t *array = &timing->unit[WIA_UNIT_ARRAY];
    uint64_t busy = tiles * work->pass_cycles;

    array->end = end;
    array->visible = end + sim->target.array_latency_cycles;
    timing->pass_given = array->visible;
    if (work->fields.chain)
        timing->pass_given -= (int64_t)wia_lead_cycles(work, work->pass_cycles);
    timing->shadow_free = end - (int64_t)work->pass_cycles;
    if (array->visible > timing->run_end) {
        counters->cycles += (uint64_t)(array->visible - timing->run_end);
        timing->run_end = array->visible;
    }
    counters->busy[WIA_SIM_ARRAY] += busy;
    counters->bytes[WIA_SIM_BYTES_ARRAY_READ] += work->pass_reads * (work->by_row ? rows : tiles);
    counters->macs += rows * work->fields.columns * work->positions;
    counters->slots += busy * sim->target.array_rows * sim->target.array_columns;
    counters->tiles += tiles;
}

/* The work limit leaves room for these tiles. */
static bool within(const wia_sim_t *sim, const wia_work_t *work, uint32_t tiles, uint64_t steps)
{
    return tiles * work->pass_cycles + steps < sim->work_limit - sim->core.work;
}

/* ---- tiles together ---- */

typedef struct {
    const wia_sim_t *sim;
    const wia_work_t *work;
    uint32_t tiles;     /* that are left */
    uint32_t bytes;     /* for them: the last one takes them all */
} context_t;

static uint32_t bytes_until(const void *data, uint32_t tiles)
{
    const context_t *context = (const context_t *)data;

    if (tiles == context->tiles)
        return context->bytes;
    if (context->work->steps != NULL)
        return context->work->steps[context->work->tile + tiles].bytes_before -
               context->work->steps[context->work->tile].bytes_before;
    return (uint32_t)raw_ahead(context->sim, context->work, tiles).bytes;
}

static wia_fetch_train_t train_of(const wia_sim_t *sim, const context_t *context)
{
    const wia_work_t *work = context->work;
    int32_t width = (int32_t)sim->target.fetch_bytes_per_cycle, slack = work->bounds.least_slack_bytes;
    wia_fetch_train_t train;

    train.begin = sim->timing.shadow_free;
    train.period = work->pass_cycles;
    train.tiles = context->tiles;
    train.most_bytes = work->bounds.most_bytes + (work->steps != NULL ? 2u : 0u); /* with a word too many at the end */
    train.late_cycles = slack < 0 ? (uint32_t)((width - 1 - slack) / width) : 0u;
    train.each_bytes = work->steps == NULL ? work->each_rows * work->fields.columns : 0u;
    train.bytes_until = bytes_until;
    train.context = context;
    return train;
}

/* Clocks and counters but for those of the fetch. */
static void count_train(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_work_t *work, uint32_t tiles)
{
    wia_timing_t *timing = &sim->timing;
    sums_t sums = sums_ahead(sim, work, tiles);
    uint64_t last_cycles = sums.cycles - sums_ahead(sim, work, tiles - 1u).cycles, stalled;
    int64_t last = timing->shadow_free + (int64_t)((tiles - 1u) * work->pass_cycles); /* its decoding begins */
    int64_t decoded = last + (int64_t)last_cycles;

    stalled = (uint64_t)(decoded - timing->decoder_end) - sums.cycles;
    counters->busy[WIA_SIM_DECODER] += sums.cycles;
    counters->busy[WIA_SIM_DISPATCH] += sums.cycles;
    counters->stall[WIA_SIM_DECODER][WIA_SIM_SHADOW] += stalled;
    counters->stall[WIA_SIM_DISPATCH][WIA_SIM_SHADOW] += stalled;
    timing->decoder_end = timing->dispatcher_free = decoded;
    count_passes(sim, counters, work, tiles, sums.rows, last + 2 * (int64_t)work->pass_cycles);
}

/* Codec lanes: as many of the tiles that are left as the payload has all bytes for. */
static uint32_t paid_tiles(const wia_sim_t *sim, const wia_work_t *work)
{
    uint32_t low = 0u, high = (uint32_t)(work->tiles - work->tile), middle = high;

    for (; low < high; middle = high - (high - low) / 2u)
        if (sums_ahead(sim, work, middle).bytes <= sim->timing.payload_left)
            low = middle;
        else
            high = middle - 1u;
    return low;
}

/* As many of the tiles that are left as can be taken together. */
static uint32_t take_train(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_work_t *work)
{
    wia_timing_t *timing = &sim->timing;
    uint32_t left = (uint32_t)(work->tiles - work->tile), taken;
    context_t context = {sim, work, work->steps != NULL ? paid_tiles(sim, work) : left, 0u};
    wia_fetch_train_t train;
    sums_t sums;

    if (timing->dispatcher_free > timing->shadow_free ||
        timing->unit[WIA_UNIT_ARRAY].end != timing->shadow_free + (int64_t)work->pass_cycles || context.tiles == 0u)
        return 0u;
    sums = sums_ahead(sim, work, context.tiles);
    context.bytes = (uint32_t)sums.bytes;
    if (work->steps != NULL && context.tiles == left)
        context.bytes = timing->payload_left; /* with a word too many */
    if (!within(sim, work, context.tiles, sums.steps) || context.bytes > sums.bytes + 2u)
        return 0u;
    train = train_of(sim, &context);
    taken = wia_fetch_take_train(sim, counters, &train);
    if (taken != 0u) {
        count_train(sim, counters, work, taken);
        timing->payload_left -= work->steps != NULL ? bytes_until(&context, taken) : 0u;
        if (taken == left)
            wia_timing_give(sim, work->signal);
    }
    return taken;
}

/* ---- one tile ---- */

static wia_fetch_items_t items_of(const wia_sim_t *sim, const wia_work_t *work, uint32_t rows)
{
    uint32_t columns = work->fields.columns;
    wia_fetch_items_t items;

    if (work->steps == NULL)
        return wia_timing_items(sim, group_cycles(sim, rows), sim->target.decoder_rows_per_cycle * columns,
                                rows * columns);
    items.count = work->steps[work->tile].cycles;
    items.bytes = work->steps[work->tile].bytes;
    items.first = work->steps[work->tile].first_bytes;
    items.peak = work->steps[work->tile].peak_bytes;
    items.slack = work->steps[work->tile].slack_bytes;
    return items;
}

/* The next tile, which is not the last one; false: nothing but stalls has been counted. */
static bool take_tile(wia_sim_t *sim, wia_sim_counters_t *counters, const wia_work_t *work)
{
    wia_timing_t *timing = &sim->timing;
    uint32_t rows = wia_tile_rows(sim, work, work->slice);
    wia_fetch_items_t items = items_of(sim, work, rows);
    int64_t start = timing->unit[WIA_UNIT_ARRAY].end;

    if (!within(sim, work, 1u, work->steps != NULL ? work->steps[work->tile].steps : 0u) ||
        (work->steps != NULL && items.bytes > timing->payload_left))
        return false;
    wia_timing_stall(counters, WIA_SIM_DECODER, WIA_SIM_SHADOW, &timing->decoder_end, timing->shadow_free);
    wia_timing_stall(counters, WIA_SIM_DISPATCH, WIA_SIM_SHADOW, &timing->dispatcher_free, timing->shadow_free);
    if (!wia_timing_stream(sim, counters, &items, true))
        return false;
    timing->payload_left -= work->steps != NULL ? items.bytes : 0u;
    wia_timing_stall(counters, WIA_SIM_ARRAY, WIA_SIM_WEIGHTS, &start,
                     timing->dispatcher_free + sim->target.decoder_latency_cycles);
    count_passes(sim, counters, work, 1u, rows, start + (int64_t)work->pass_cycles);
    return true;
}

/* ---- both ---- */

void wia_coast_begin(const wia_sim_t *sim, wia_work_t *work)
{
    bool lanes = work->fields.codec == WIA_CODEC_LANES;
    context_t context = {sim, work, 0u, 0u};
    wia_fetch_train_t train;

    work->coasts = wia_timed(sim) && sim->trace == NULL && sim->observer == NULL && work->tiles <= INT32_MAX &&
                   (lanes ? work->steps != NULL && work->bounds.alike : work->stored == work->tiles);
    if (!work->coasts)
        return;
    if (!lanes)
        work->bounds = raw_bounds(sim, work);
    if (work->slices == 1u || work->run_rows % sim->target.array_rows == 0u)
        work->each_rows = work->slices == 1u ? work->run_rows : sim->target.array_rows;
    train = train_of(sim, &context);
    work->trains = work->bounds.most_cycles + sim->target.decoder_latency_cycles <= work->pass_cycles &&
                   work->padding_bytes == 0u && wia_fetch_keeps_up(sim, &train);
}

uint32_t wia_coast(wia_sim_t *sim, const wia_work_t *work)
{
    wia_sim_counters_t *counters = wia_stats_select(sim, sim->core.offset);
    uint32_t tiles = 0u;

    if (work->steps != NULL && sim->timing.carried_words != 0u)
        return 0u;
    if (work->trains)
        tiles = take_train(sim, counters, work);
    if (tiles == 0u && work->tile + 1u < work->tiles)
        tiles = take_tile(sim, counters, work) ? 1u : 0u;
    return tiles;
}
