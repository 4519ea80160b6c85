/* exec_lanes.c: wtab, and conv and dwc of codec lanes. Decoded weights are kept in the caller's cache, if there is one:
 * an instruction that runs again (in a loop, or in the next run of the program) is not decoded again.
 *
 * What a decoder holds before an instruction follows from the program alone: a stretch begins with a fresh wtab and is
 * a straight line, since loop and endl end it. Only the geometry may differ from one time to the next, so an entry is
 * used if its instruction has the same geometry, and the instruction before it in the stretch was taken from its entry
 * too. The decoder itself stands still meanwhile; when it is needed after all, the stretch is decoded from its wtab. */
#include "exec_mac.h"

#include <string.h>

enum { NO_ENTRY = 0, FIRST_ENTRY = 1 }; /* numbers of entries count from 1 */

/* One decoded instruction. `steps_at` and `values_at` are offsets in the cache: for each tile a uint32
 * that says if it has a pass, and a wia_sim_steps_t; rows x columns weights of each tile with a pass. */
typedef struct {
    uint32_t offset;    /* in the program; entries ascend, as code runs first in that order */
    uint32_t runs;
    uint32_t run_rows;
    uint32_t before;    /* entry of the instruction before it in its stretch, NO_ENTRY if it is the first */
    uint32_t carried;   /* words that the decoder held before it */
    uint32_t unused;
    uint64_t steps_at;
    uint64_t values_at;
} entry_t;

/* Entries follow the head and grow up, their data grows down from the end. All zero: empty. */
typedef struct {
    uint64_t key;       /* of the machine and program that it belongs to */
    uint64_t entries;
    uint64_t data_at;
    uint64_t widths;    /* of the machine, as far as wia_sim_steps_t depends on them */
} head_t;

static wia_sim_steps_t *steps_at(uint32_t *at)
{
    return (wia_sim_steps_t *)(void *)at;
}

static head_t *head_of(const wia_sim_t *sim)
{
    return (head_t *)sim->program.cache;
}

static entry_t *entry_of(const wia_sim_t *sim, uint32_t number)
{
    return (entry_t *)(void *)((char *)sim->program.cache + sizeof(head_t)) + (number - FIRST_ENTRY);
}

/* Space that the data of a work takes at most, in whole uint64. */
static uint64_t data_bytes(const wia_target_t *target, bool values, uint64_t runs, uint64_t run_rows, uint64_t columns)
{
    uint64_t slices = wia_ceil_div(run_rows, target->array_rows);
    uint64_t steps = wia_ceil_div(target->array_rows, target->decoder_rows_per_cycle);
    uint64_t words = runs * slices * (1u + WIA_STEPS_WORDS(steps)); /* below 2^8 * 2^8 * 2^24 * 2^5 */

    return wia_ceil_div(words, 2u) * 8u + (values ? wia_ceil_div(runs * run_rows * columns, 8u) * 8u : 0u);
}

size_t wia_sim_cache_size(const wia_sim_desc_t *desc, const uint8_t *code, size_t code_bytes)
{
    wia_target_t target;
    uint64_t total = sizeof(head_t);
    wia_ageo_t geo = {0};
    size_t offset;
    bool any = false;

    if (desc == NULL || desc->target == NULL || code == NULL)
        return 0u;
    wia_target_read(&target, desc->target);
    if (wia_target_check(&target) != 0u)
        return 0u;
    for (offset = 0u; wia_exec_check(code, code_bytes, offset) == WIA_SIM_OK;
         offset += wia_head_bytes(code + offset) + wia_payload_bytes(code + offset)) {
        uint8_t opcode = code[offset];
        wia_conv_t work;

        if (opcode == WIA_OP_AGEO)
            wia_decode_ageo(&geo, code + offset);
        if ((opcode != WIA_OP_CONV && opcode != WIA_OP_DWC) || geo.runs_x == 0u)
            continue;
        wia_decode_conv(&work, code + offset);
        if (work.codec != WIA_CODEC_LANES)
            continue;
        any = true;
        total += sizeof(entry_t) + data_bytes(&target, desc->mode != WIA_SIM_COUNTS,
                                              opcode == WIA_OP_DWC ? 1u : (uint64_t)geo.runs_y * geo.runs_x,
                                              opcode == WIA_OP_DWC ? geo.runs_y * geo.runs_x : geo.run_bytes,
                                              work.columns);
        if (total > SIZE_MAX / 2u)
            return 0u;
    }
    return any ? (size_t)total : 0u;
}

/* The cache can be used; makes an empty one ready. */
static bool cache_ready(wia_sim_t *sim)
{
    head_t *head = head_of(sim);
    uint64_t key = (uint64_t)sim->program.code_bytes << 24 | (uint64_t)sim->target.array_columns << 16 |
                   (uint64_t)sim->target.array_rows << 8 | sim->target.decoder_rows_per_cycle << 2 |
                   (uint64_t)(wia_arithmetic(sim) ? 2 : 0) | 1u;
    uint64_t widths = (uint64_t)sim->target.fetch_bytes_per_cycle << 32 | sim->target.decoder_lane_bytes_per_cycle;

    if (head == NULL || sim->program.cache_bytes < sizeof *head)
        return false;
    if (head->key == 0u) {
        head->key = key;
        head->widths = widths;
        head->entries = 0u;
        head->data_at = sim->program.cache_bytes / 8u * 8u;
    }
    return head->key == key && head->widths == widths && head->data_at <= sim->program.cache_bytes;
}

void wia_lanes_reset(wia_sim_t *sim)
{
    wia_replay_t *replay = &sim->replay;

    memset(replay, 0, sizeof *replay);
    replay->cached = cache_ready(sim);
    wia_lanes_init(&sim->lanes, sim->target.array_columns, sim->target.decoder_rows_per_cycle, WIA_SIM_KERNEL_PORTABLE);
    sim->lanes.kernel = sim->kernel;
}

/* Number of the entry of the instruction at `offset`, NO_ENTRY if there is none. */
static uint32_t find_entry(const wia_sim_t *sim, uint32_t offset)
{
    uint32_t low = FIRST_ENTRY, high = (uint32_t)head_of(sim)->entries + FIRST_ENTRY, count = high;

    /* Mostly it is the one after the last one. */
    if (sim->replay.entry + 1u < count && entry_of(sim, sim->replay.entry + 1u)->offset == offset)
        return sim->replay.entry + 1u;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2u;

        if (entry_of(sim, middle)->offset < offset)
            low = middle + 1u;
        else
            high = middle;
    }
    return low < count && entry_of(sim, low)->offset == offset ? low : NO_ENTRY;
}

/* ---- wtab ---- */

int wia_exec_wtab(wia_sim_t *sim, const uint8_t *bytes)
{
    wia_sim_event_t event = wia_exec_event(sim, bytes, 1u);
    wia_replay_t *replay = &sim->replay;
    wia_wtab_t wtab;

    wia_decode_wtab(&wtab, bytes);
    if (!wia_lanes_table_ok(wia_payload(bytes)))
        return WIA_SIM_E_PAYLOAD;
    if (wtab.fresh == 0u && !replay->open)
        return WIA_SIM_E_UNSET;
    event.payload_bytes = wia_payload_bytes(bytes);
    wia_exec_raise(sim, &event);
    if (wtab.fresh != 0u) { /* the decoder takes the table when it is needed */
        replay->open = true;
        replay->wtab = sim->core.offset;
        replay->ageo = sim->core.ageo;
        replay->current = false;
        replay->broken = !replay->cached;
        replay->before = NO_ENTRY;
    } else if (replay->current) {
        wia_lanes_set_table(&sim->lanes, wia_payload(bytes), wtab.centre, wtab.masks != 0u, false);
    }
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
            (void)wia_lanes_tile(&sim->lanes, wia_tile_rows(sim, &work, slice), sim->replay.values,
                                 steps_at(sim->replay.steps + 1)->words);
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

/* Room for a new entry of `work`, the last one, and its data; false if there is none. */
static bool reserve(wia_sim_t *sim, const wia_work_t *work)
{
    head_t *head = head_of(sim);
    wia_replay_t *replay = &sim->replay;
    uint64_t entries_end = sizeof *head + (head->entries + 1u) * sizeof(entry_t), steps_bytes;
    uint64_t bytes = data_bytes(&sim->target, wia_arithmetic(sim), work->runs, work->run_rows, work->fields.columns);
    entry_t *entry;

    if (entries_end > head->data_at || bytes > head->data_at - entries_end || head->entries >= UINT32_MAX - 2u)
        return false;
    if (head->entries > 0u && entry_of(sim, (uint32_t)head->entries)->offset >= sim->core.offset)
        return false; /* found no room the first time */
    steps_bytes = data_bytes(&sim->target, false, work->runs, work->run_rows, work->fields.columns);
    entry = entry_of(sim, (uint32_t)head->entries + FIRST_ENTRY);
    memset(entry, 0, sizeof *entry);
    entry->offset = sim->core.offset;
    entry->runs = work->runs;
    entry->run_rows = work->run_rows;
    entry->before = replay->before;
    entry->carried = sim->lanes.carries;
    entry->steps_at = head->data_at - bytes;
    entry->values_at = entry->steps_at + steps_bytes;
    replay->data_at = entry->steps_at;
    return true;
}

static void raise_header(wia_sim_t *sim, const wia_work_t *work, uint32_t carried)
{
    wia_sim_event_t event = wia_exec_event(sim, work->bytes, 0u);

    event.wait = event.signal = 0u;
    event.flags = WIA_SIM_FLAG_PASSES | WIA_SIM_FLAG_LANES;
    event.payload_bytes = work->fields.payload_bytes;
    event.carried_words = (uint8_t)carried;
    wia_exec_raise(sim, &event);
}

int wia_lanes_work_begin(wia_sim_t *sim, wia_work_t *work)
{
    wia_replay_t *replay = &sim->replay;
    uint32_t number;
    const entry_t *entry;

    if (!replay->open)
        return WIA_SIM_E_UNSET;
    number = replay->broken ? NO_ENTRY : find_entry(sim, sim->core.offset);
    replay->hit = replay->store = false;
    if (number != NO_ENTRY) {
        entry = entry_of(sim, number);
        replay->hit = entry->before == replay->before && entry->runs == work->runs && entry->run_rows == work->run_rows;
    }
    if (!replay->hit) {
        if (!replay->current)
            catch_up(sim);
        replay->store = number == NO_ENTRY && !replay->broken && reserve(sim, work);
        replay->broken = !replay->store;
        if (replay->store)
            number = (uint32_t)head_of(sim)->entries + FIRST_ENTRY;
        wia_lanes_begin(&sim->lanes, work->payload, work->fields.payload_bytes, work->fields.columns);
    } else {
        replay->current = false;
    }
    if (replay->hit || replay->store) {
        entry = entry_of(sim, number);
        replay->before = replay->entry = number;
        replay->next_steps = (uint32_t *)(void *)((char *)sim->program.cache + entry->steps_at);
        replay->next_values = (int8_t *)sim->program.cache + entry->values_at;
    }
    raise_header(sim, work, replay->hit ? entry_of(sim, number)->carried : sim->lanes.carries);
    return WIA_SIM_OK;
}

/* Decode the next tile; false if it has no pass. */
static bool decode_tile(wia_sim_t *sim, uint32_t rows, int8_t *values, wia_sim_steps_t *steps)
{
    uint32_t groups = wia_lanes_tile(&sim->lanes, rows, values, steps->words);

    steps->steps = groups != 0u ? groups : 1u;
    if (wia_timed(sim) || sim->replay.store)
        wia_timing_sum_up(&sim->target, steps);
    return groups != 0u;
}

int wia_lanes_work_tile(wia_sim_t *sim, wia_work_t *work, wia_tile_t *tile)
{
    wia_replay_t *replay = &sim->replay;
    bool cached = replay->hit || replay->store, keep = cached && wia_arithmetic(sim), passes;
    uint32_t *flag = cached ? replay->next_steps : replay->steps;
    wia_sim_steps_t *steps = steps_at(flag + 1);
    int8_t *values = keep ? replay->next_values : replay->values;

    if (!replay->hit)
        *flag = decode_tile(sim, tile->rows, values, steps);
    passes = *flag != 0u;
    tile->steps = steps;
    tile->weights = passes ? values : NULL;
    tile->last = work->tile + 1u == work->tiles;
    if (cached)
        replay->next_steps = flag + 1u + WIA_STEPS_WORDS(steps->steps);
    if (keep && passes)
        replay->next_values += (size_t)tile->rows * work->fields.columns;
    return wia_exec_work(sim, steps->steps); /* cycles of the decoder */
}

void wia_lanes_work_end(wia_sim_t *sim)
{
    if (!sim->replay.hit)
        (void)wia_lanes_end(&sim->lanes); /* words that no encoder leaves over are dropped */
    if (sim->replay.store) {
        head_of(sim)->entries++;
        head_of(sim)->data_at = sim->replay.data_at;
    }
}
