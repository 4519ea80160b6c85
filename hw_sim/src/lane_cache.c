/* lane_cache.c: where decoded instructions of codec lanes are kept. */
#include "lane_cache.h"

#include <string.h>

enum { FIRST_ENTRY = 1, HAS_VALUES = 2 };

/* Where the next ones go: both grow down. Timing reads tiles alone, so they lie apart from the values, of which there
 * are many more; when one part is full, the other takes both. */
typedef struct {
    uint64_t tiles_at;  /* in the front part, behind the entries */
    uint64_t values_at; /* in the back part */
} room_t;

/* Entries follow the head and grow up. All zero: empty. */
typedef struct {
    uint64_t key;       /* of the machine and program that it belongs to */
    uint64_t entries;
    uint64_t widths;    /* of the machine, as far as wia_sim_steps_t depends on them */
    uint64_t back_at;   /* the back part begins */
    room_t room, next;  /* now, and when the reserved entry is kept */
} head_t;

static head_t *head_of(const wia_sim_t *sim)
{
    return (head_t *)sim->program.cache;
}

wia_lane_entry_t *wia_cache_entry(const wia_sim_t *sim, uint32_t number)
{
    return (wia_lane_entry_t *)(void *)((char *)sim->program.cache + sizeof(head_t)) + (number - FIRST_ENTRY);
}

bool wia_cache_values(const wia_sim_t *sim)
{
    return (head_of(sim)->key & HAS_VALUES) != 0u;
}

/* Space that the data of an entry takes at most, in whole uint64. */
typedef struct {
    uint64_t steps, words, values;
} space_t;

static uint64_t whole(uint64_t bytes)
{
    return wia_ceil_div(bytes, 8u) * 8u;
}

static space_t space_of(const wia_target_t *target, bool values, uint64_t runs, uint64_t run_rows, uint64_t columns)
{
    uint64_t tiles = runs * wia_ceil_div(run_rows, target->array_rows); /* below 2^16 * 2^24 */
    uint64_t steps = tiles * wia_ceil_div(target->array_rows, target->decoder_rows_per_cycle);
    space_t space;

    space.steps = whole(tiles * sizeof(wia_sim_steps_t));
    space.words = whole(steps * sizeof(uint16_t));
    space.values = values ? whole(runs * run_rows * columns) : 0u;
    return space;
}

/* Sums over all instructions of codec lanes. */
static void measure(const wia_target_t *target, bool values, const uint8_t *code, size_t code_bytes, uint64_t *front,
                    uint64_t *back, uint64_t *most)
{
    wia_ageo_t geo = {0};
    wia_shape_t shape;
    size_t offset;

    *front = sizeof(head_t);
    *back = *most = 0u;
    for (offset = 0u; wia_exec_check(code, code_bytes, offset, &shape) == WIA_SIM_OK;
         offset += shape.head_bytes + shape.payload_bytes) {
        bool conv = code[offset] == WIA_OP_CONV;
        wia_conv_t work;
        space_t space;

        if (code[offset] == WIA_OP_AGEO)
            wia_decode_ageo(&geo, code + offset);
        if ((!conv && code[offset] != WIA_OP_DWC) || geo.runs_x == 0u)
            continue;
        wia_decode_conv(&work, code + offset);
        if (work.codec != WIA_CODEC_LANES)
            continue;
        space = space_of(target, values, conv ? (uint64_t)geo.runs_y * geo.runs_x : 1u,
                         conv ? geo.run_bytes : geo.runs_y * geo.runs_x, work.columns);
        *front += sizeof(wia_lane_entry_t) + space.steps + space.words;
        *back += space.values;
        if (space.steps + space.words + space.values > *most)
            *most = space.steps + space.words + space.values;
    }
}

size_t wia_sim_cache_size(const wia_sim_desc_t *desc, const uint8_t *code, size_t code_bytes)
{
    wia_target_t target;
    uint64_t front, back, most;

    if (desc == NULL || desc->target == NULL || code == NULL)
        return 0u;
    wia_target_read(&target, desc->target);
    if (wia_target_check(&target) != 0u)
        return 0u;
    measure(&target, desc->mode != WIA_SIM_COUNTS, code, code_bytes, &front, &back, &most);
    if (most == 0u || front > SIZE_MAX / 4u || back > SIZE_MAX / 4u)
        return 0u;
    return (size_t)(front + back + most); /* neither part need be full to its last byte */
}

void wia_tile_bounds(wia_tile_bounds_t *bounds, wia_sim_steps_t *steps)
{
    steps->steps_before = bounds->steps;
    steps->cycles_before = bounds->cycles;
    steps->bytes_before = bounds->bytes;
    bounds->steps += steps->steps;
    bounds->cycles += steps->cycles;
    bounds->bytes += steps->bytes;
    if (bounds->tiles++ == 0u) {
        bounds->alike = true;
        bounds->least_slack_bytes = INT16_MAX;
        return;
    }
    bounds->alike = bounds->alike && steps->passes && steps->slack_bytes > INT16_MIN &&
                    (bounds->steps | bounds->cycles | bounds->bytes) <= INT32_MAX;
    if (steps->cycles > bounds->most_cycles)
        bounds->most_cycles = steps->cycles;
    if (steps->bytes > bounds->most_bytes)
        bounds->most_bytes = steps->bytes;
    if (steps->slack_bytes < bounds->least_slack_bytes)
        bounds->least_slack_bytes = steps->slack_bytes;
}

/* The sums of every tile for a machine with other widths. */
static void sum_up_again(wia_sim_t *sim)
{
    uint32_t number, last = (uint32_t)head_of(sim)->entries;

    for (number = FIRST_ENTRY; number <= last; number++) {
        wia_lane_entry_t *entry = wia_cache_entry(sim, number);
        wia_sim_steps_t *steps = wia_entry_steps(sim, entry);
        const uint16_t *words = wia_entry_words(sim, entry);
        uint64_t tile, tiles = entry->runs * wia_ceil_div(entry->run_rows, sim->target.array_rows);

        memset(&entry->bounds, 0, sizeof entry->bounds);
        for (tile = 0; tile < tiles; words += steps[tile].steps, tile++) {
            wia_timing_sum_up(&sim->target, &steps[tile], words);
            wia_tile_bounds(&entry->bounds, &steps[tile]);
        }
    }
}

/* End of the front part of an empty cache of `bytes` bytes. */
static uint64_t front_end(const wia_sim_t *sim, uint64_t bytes)
{
    const wia_sim_program_t *program = &sim->program;
    uint64_t front, back, most;

    if (!wia_arithmetic(sim))
        return bytes;
    measure(&sim->target, true, program->code, program->code_bytes, &front, &back, &most);
    for (; front + back > bytes; front /= 2u, back /= 2u) /* in proportion, at least nearly */
        ;
    return front / 8u * 8u;
}

bool wia_cache_ready(wia_sim_t *sim)
{
    head_t *head = head_of(sim);
    uint64_t key = (uint64_t)sim->program.code_bytes << 24 | (uint64_t)sim->target.array_columns << 16 |
                   (uint64_t)sim->target.array_rows << 8 | sim->target.decoder_rows_per_cycle << 2 |
                   (uint64_t)(wia_arithmetic(sim) ? HAS_VALUES : 0) | 1u;
    uint64_t widths = (uint64_t)sim->target.fetch_bytes_per_cycle << 32 | sim->target.decoder_lane_bytes_per_cycle;

    if (head == NULL || sim->program.cache_bytes < sizeof *head)
        return false;
    if (head->key == 0u) {
        memset(head, 0, sizeof *head);
        head->key = key;
        head->widths = widths;
        head->room.values_at = sim->program.cache_bytes / 8u * 8u;
        head->room.tiles_at = head->back_at = front_end(sim, head->room.values_at);
    }
    if ((head->key | HAS_VALUES) != (key | HAS_VALUES) || (head->key & key) != key ||
        head->room.values_at > sim->program.cache_bytes)
        return false;
    if (head->widths != widths) {
        head->widths = widths;
        sum_up_again(sim);
    }
    return true;
}

uint32_t wia_cache_find(const wia_sim_t *sim, uint32_t offset, uint32_t last)
{
    uint32_t low = FIRST_ENTRY, high = (uint32_t)head_of(sim)->entries + FIRST_ENTRY, count = high;

    /* Mostly it is the one after the last one. */
    if (last + 1u < count && wia_cache_entry(sim, last + 1u)->offset == offset)
        return last + 1u;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2u;

        if (wia_cache_entry(sim, middle)->offset < offset)
            low = middle + 1u;
        else
            high = middle;
    }
    return low < count && wia_cache_entry(sim, low)->offset == offset ? low : WIA_NO_ENTRY;
}

void wia_cache_prefetch(const wia_sim_t *sim, uint32_t number)
{
    const wia_lane_entry_t *entry = wia_cache_entry(sim, number);

    if (number > head_of(sim)->entries)
        return;
    WIA_PREFETCH(wia_entry_steps(sim, entry));
    WIA_PREFETCH(wia_entry_steps(sim, entry) + entry->bounds.tiles - 1u);
}

/* Take `bytes` bytes that end at *at and begin at `begin` at the earliest. */
static bool take(uint64_t *at, uint64_t begin, uint64_t bytes, uint64_t *from)
{
    if (begin > *at || bytes > *at - begin)
        return false;
    *from = *at -= bytes;
    return true;
}

uint32_t wia_cache_reserve(wia_sim_t *sim, const wia_work_t *work, uint32_t offset)
{
    head_t *head = head_of(sim);
    uint64_t entries_end = sizeof *head + (head->entries + 1u) * sizeof(wia_lane_entry_t), tiles_at, values_at;
    uint32_t number = (uint32_t)head->entries + FIRST_ENTRY;
    space_t space = space_of(&sim->target, wia_cache_values(sim), work->runs, work->run_rows, work->fields.columns);
    room_t *next = &head->next;
    wia_lane_entry_t *entry;

    *next = head->room;
    if (entries_end > head->room.tiles_at || head->entries >= UINT32_MAX - 2u ||
        !(take(&next->tiles_at, entries_end, space.steps + space.words, &tiles_at) ||
          take(&next->values_at, head->back_at, space.steps + space.words, &tiles_at)) ||
        !(take(&next->values_at, head->back_at, space.values, &values_at) ||
          take(&next->tiles_at, entries_end, space.values, &values_at)))
        return WIA_NO_ENTRY;
    if (head->entries > 0u && wia_cache_entry(sim, number - 1u)->offset >= offset)
        return WIA_NO_ENTRY; /* found no room the first time */
    entry = wia_cache_entry(sim, number);
    memset(entry, 0, sizeof *entry);
    entry->offset = offset;
    entry->runs = work->runs;
    entry->run_rows = work->run_rows;
    entry->steps_at = tiles_at;
    entry->words_at = tiles_at + space.steps;
    entry->values_at = values_at;
    return number;
}

void wia_cache_keep(wia_sim_t *sim, uint32_t number)
{
    head_of(sim)->entries = number;
    head_of(sim)->room = head_of(sim)->next;
}
