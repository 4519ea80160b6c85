/* exec_lanes.c: wtab, and conv and dwc of codec lanes. Decoded weights are kept in the caller's cache, if there is one:
 * an instruction that runs again (in a loop, or in the next run of the program) is not decoded again.
 *
 * What a decoder holds before an instruction follows from the program alone: a stretch begins with a fresh wtab and is
 * a straight line, since loop and endl end it. Only the geometry may differ from one time to the next, so an entry is
 * used if its instruction has the same geometry, and the instruction before it in the stretch was taken from its entry
 * too. The decoder itself stands still meanwhile; when it is needed after all, the stretch is decoded from its wtab. */
#include <string.h>

#include "lane_cache.h"

void wia_lanes_reset(wia_sim_t *sim)
{
    wia_replay_t *replay = &sim->replay;

    memset(replay, 0, sizeof *replay);
    replay->cached = wia_cache_ready(sim);
    wia_lanes_init(&sim->lanes, sim->target.array_columns, sim->target.decoder_rows_per_cycle, WIA_SIM_KERNEL_PORTABLE);
    sim->lanes.kernel = sim->kernel;
}

/* ---- wtab ---- */

/* A fresh one begins a stretch; the decoder takes its table when it is needed. */
static void take_table(wia_sim_t *sim, const wia_wtab_t *wtab, const uint8_t *payload)
{
    wia_replay_t *replay = &sim->replay;

    if (wtab->fresh != 0u) {
        replay->open = true;
        replay->wtab = sim->core.offset;
        replay->ageo = sim->core.ageo;
        replay->current = false;
        replay->broken = !replay->cached;
        replay->before = WIA_NO_ENTRY;
    } else if (replay->current) {
        wia_lanes_set_table(&sim->lanes, payload, wtab->centre, wtab->masks != 0u, false);
    }
}

int wia_exec_wtab(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_sim_event_t event;
    wia_replay_t *replay = &sim->replay;
    const uint8_t *payload = bytes + sim->core.shape.head_bytes;
    wia_wtab_t wtab;

    wia_exec_event(sim, bytes, 1u, &event);
    wia_decode_wtab(&wtab, bytes);
    if (!wia_lanes_table_ok(payload))
        return WIA_SIM_E_PAYLOAD;
    if (wtab.fresh == 0u && !replay->open)
        return WIA_SIM_E_UNSET;
    event.payload_bytes = sim->core.shape.payload_bytes;
    wia_exec_raise(sim, &event);
    take_table(sim, &wtab, payload);
    return WIA_SIM_OK;
}

void wia_lanes_close(wia_sim_t *sim)
{
    sim->replay.open = false;
}

/* ---- decoding ---- */

/* Decode the instruction at `bytes` again, without any use of its weights. */
static void decode_again(wia_sim_t *sim, const uint8_t *bytes, const wia_ageo_t *geo)
{
    wia_work_t work = {.runs = 1u, .run_rows = geo->runs_x * geo->runs_y};
    uint32_t run, slice;

    wia_decode_conv(&work.fields, bytes);
    if (bytes[0] == WIA_OP_CONV) {
        work.runs = geo->runs_y * geo->runs_x;
        work.run_rows = geo->run_bytes;
    }
    wia_lanes_begin(&sim->lanes, wia_payload(bytes), work.fields.payload_bytes, work.fields.columns);
    for (run = 0; run < work.runs; run++)
        for (slice = 0; (uint64_t)slice * sim->target.array_rows < work.run_rows; slice++)
            (void)wia_lanes_tile(&sim->lanes, wia_tile_rows(sim, &work, slice), NULL, sim->replay.words);
    (void)wia_lanes_end(&sim->lanes);
}

/* Bring the decoder from the wtab of the stretch to the current instruction. */
static void catch_up(wia_sim_t *sim)
{
    wia_replay_t *replay = &sim->replay;
    wia_ageo_t geo = replay->ageo;
    uint32_t offset = replay->wtab;

    while (offset < sim->core.offset) {
        const uint8_t *bytes = sim->program.code + offset;

        if (bytes[0] == WIA_OP_AGEO)
            wia_decode_ageo(&geo, bytes);
        if (bytes[0] == WIA_OP_WTAB) {
            wia_wtab_t wtab;

            wia_decode_wtab(&wtab, bytes);
            wia_lanes_set_table(&sim->lanes, wia_payload(bytes), wtab.centre, wtab.masks != 0u,
                                offset == replay->wtab);
        } else if (bytes[0] == WIA_OP_CONV || bytes[0] == WIA_OP_DWC) {
            wia_conv_t work;

            wia_decode_conv(&work, bytes);
            if (work.codec == WIA_CODEC_LANES)
                decode_again(sim, bytes, &geo);
        }
        offset += wia_head_bytes(bytes) + wia_payload_bytes(bytes);
    }
    replay->current = true;
}

/* Decode the next tile. */
static void decode_tile(wia_sim_t *sim, uint32_t rows, int8_t *values, uint16_t *words, wia_sim_steps_t *steps)
{
    uint32_t groups = wia_lanes_tile(&sim->lanes, rows, values, words);

    steps->passes = groups != 0u;
    steps->steps = (uint8_t)(groups != 0u ? groups : 1u);
}

/* Decode all tiles of `work`, with which the decoder has begun, into its entry. */
static void fill_entry(wia_sim_t *sim, const wia_work_t *work, uint32_t number)
{
    wia_lane_entry_t *entry = wia_cache_entry(sim, number);
    wia_sim_steps_t *steps = wia_entry_steps(sim, entry);
    uint16_t *words = wia_entry_words(sim, entry);
    int8_t *values = wia_entry_values(sim, entry);
    bool keep = wia_cache_values(sim);
    uint32_t run, slice;

    for (run = 0; run < work->runs; run++)
        for (slice = 0; (uint64_t)slice * sim->target.array_rows < work->run_rows; slice++, steps++) {
            uint32_t rows = wia_tile_rows(sim, work, slice);

            decode_tile(sim, rows, keep ? values : NULL, words, steps);
            wia_timing_sum_up(&sim->target, steps, words);
            wia_tile_bounds(&entry->bounds, steps);
            words += steps->steps;
            values += keep && steps->passes ? (size_t)rows * work->fields.columns : 0u;
        }
    wia_cache_keep(sim, number);
}

/* Find the instruction in the cache, or decode all of it into it; WIA_NO_ENTRY: it has to be decoded tile by tile. */
static uint32_t entry_of(wia_sim_t *sim, const wia_work_t *work)
{
    wia_replay_t *replay = &sim->replay;
    uint32_t number = replay->broken ? WIA_NO_ENTRY : wia_cache_find(sim, sim->core.offset, replay->entry);
    bool room = number == WIA_NO_ENTRY && !replay->broken;

    if (number != WIA_NO_ENTRY) {
        const wia_lane_entry_t *entry = wia_cache_entry(sim, number);

        if (entry->before == replay->before && entry->runs == work->runs && entry->run_rows == work->run_rows) {
            replay->current = false;
            wia_cache_prefetch(sim, number + 1u);
            return number;
        }
    }
    if (!replay->current)
        catch_up(sim);
    number = room ? wia_cache_reserve(sim, work, sim->core.offset) : WIA_NO_ENTRY;
    replay->broken = number == WIA_NO_ENTRY;
    wia_lanes_begin(&sim->lanes, work->payload, work->fields.payload_bytes, work->fields.columns);
    if (number != WIA_NO_ENTRY) {
        wia_cache_entry(sim, number)->before = replay->before;
        wia_cache_entry(sim, number)->carried = sim->lanes.carries;
        fill_entry(sim, work, number);
        (void)wia_lanes_end(&sim->lanes); /* words that no encoder leaves over are dropped */
    }
    return number;
}

static void raise_header(wia_sim_t *sim, const wia_work_t *work, uint32_t carried)
{
    wia_sim_event_t event;

    wia_exec_event(sim, work->bytes, 0u, &event);
    event.wait = event.signal = 0u;
    event.flags = WIA_SIM_FLAG_PASSES | WIA_SIM_FLAG_LANES;
    event.payload_bytes = work->fields.payload_bytes;
    event.carried_words = (uint8_t)carried;
    wia_exec_raise(sim, &event);
}

int wia_lanes_work_begin(wia_sim_t *sim, wia_work_t *work)
{
    wia_replay_t *replay = &sim->replay;
    uint32_t number, carried;

    if (!replay->open)
        return WIA_SIM_E_UNSET;
    number = entry_of(sim, work);
    carried = sim->lanes.carries;
    replay->hit = number != WIA_NO_ENTRY;
    if (replay->hit) {
        const wia_lane_entry_t *entry = wia_cache_entry(sim, number);

        replay->before = replay->entry = number;
        replay->next_words = wia_entry_words(sim, entry);
        replay->next_values = wia_entry_values(sim, entry);
        work->steps = wia_entry_steps(sim, entry);
        work->bounds = entry->bounds;
        carried = entry->carried;
    }
    raise_header(sim, work, carried);
    return WIA_SIM_OK;
}

int wia_lanes_work_tile(wia_sim_t *sim, wia_work_t *work, wia_tile_t *tile)
{
    wia_replay_t *replay = &sim->replay;
    const wia_sim_steps_t *steps = replay->hit ? work->steps + work->tile : &replay->steps;

    tile->words = replay->hit ? replay->next_words : replay->words;
    tile->weights = replay->hit ? replay->next_values : replay->values;
    if (replay->hit) {
        replay->next_words += steps->steps;
        if (steps->passes && wia_arithmetic(sim))
            replay->next_values += (size_t)tile->rows * work->fields.columns;
    } else {
        decode_tile(sim, tile->rows, wia_arithmetic(sim) ? replay->values : NULL, replay->words, &replay->steps);
        if (wia_timed(sim))
            wia_timing_sum_up(&sim->target, &replay->steps, replay->words);
    }
    tile->steps = steps;
    if (!steps->passes)
        tile->weights = NULL;
    tile->last = work->tile + 1u == work->tiles;
    return wia_exec_work(sim, steps->steps); /* cycles of the decoder */
}

uint32_t wia_lanes_work_skip(wia_sim_t *sim, const wia_work_t *work, uint32_t tiles)
{
    uint64_t tile = work->tile + tiles;
    uint32_t steps = tile == work->tiles ? work->bounds.steps : work->steps[tile].steps_before;

    steps -= work->steps[work->tile].steps_before;
    sim->replay.next_words += steps;
    return steps;
}

void wia_lanes_work_end(wia_sim_t *sim)
{
    if (!sim->replay.hit)
        (void)wia_lanes_end(&sim->lanes);
}

/* ---- all of a program before it runs ---- */

/* Decode the instruction at `bytes`; false: it would fault, or there is no room. */
static bool prepare_work(wia_sim_t *sim, const uint8_t *bytes)
{
    const wia_ageo_t *geo = &sim->core.ageo;
    wia_work_t work = {.bytes = bytes, .payload = bytes + sim->core.shape.head_bytes, .runs = 1u};
    bool conv = bytes[0] == WIA_OP_CONV;

    wia_decode_conv(&work.fields, bytes);
    if (work.fields.codec != WIA_CODEC_LANES)
        return true;
    work.runs = conv ? geo->runs_y * geo->runs_x : 1u;
    work.run_rows = conv ? geo->run_bytes : geo->runs_y * geo->runs_x;
    if (!sim->core.ageo_set || !sim->replay.open || work.fields.columns > sim->target.array_columns ||
        (!conv && work.run_rows > sim->target.array_rows))
        return false;
    sim->replay.before = sim->replay.entry = entry_of(sim, &work);
    return sim->replay.entry != WIA_NO_ENTRY;
}

/* One instruction, of which only what matters to the decoder is done; false: no use going on. */
static bool prepare_step(wia_sim_t *sim, const uint8_t *bytes)
{
    const uint8_t *payload = bytes + sim->core.shape.head_bytes;
    wia_wtab_t wtab;

    switch (bytes[0]) {
    case WIA_OP_HALT:
        return false;
    case WIA_OP_LOOP:
    case WIA_OP_ENDL:
        wia_lanes_close(sim);
        return true;
    case WIA_OP_AGEO:
        wia_decode_ageo(&sim->core.ageo, bytes);
        sim->core.ageo_set = true;
        return true;
    case WIA_OP_WTAB:
        wia_decode_wtab(&wtab, bytes);
        if (!wia_lanes_table_ok(payload) || (wtab.fresh == 0u && !sim->replay.open))
            return false;
        take_table(sim, &wtab, payload);
        return true;
    case WIA_OP_CONV:
    case WIA_OP_DWC:
        return prepare_work(sim, bytes);
    default:
        return true;
    }
}

void wia_lanes_prepare(wia_sim_t *sim)
{
    wia_core_t *core = &sim->core;
    bool more = sim->replay.cached;

    for (; more; core->pc += core->shape.head_bytes + core->shape.payload_bytes) {
        core->offset = core->pc;
        more = wia_exec_check(sim->program.code, sim->program.code_bytes, core->pc, &core->shape) == WIA_SIM_OK &&
               prepare_step(sim, sim->program.code + core->pc);
    }
}
