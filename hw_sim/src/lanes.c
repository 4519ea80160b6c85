/* lanes.c: the decoder of codec lanes, as docs/ISA.md describes it; isa/lane_decode.py says the same in Python. */
#include "lanes.h"

#include <string.h>

enum {
    RUN_CLASSES = 6,    /* classes of zero runs: 2^class .. 2^(class + 1) - 1 */
    REST = 6,           /* zeros to the end of the instruction */
    FIRST_VALUE = 7,
    EXACT_VALUES = 8,   /* value classes of one magnitude each; then four an octave */
    PEAK = 31,          /* magnitude 127 */
    PEAK_MAGNITUDE = 126,
    WORD_BITS = WIA_LANES_WORD_BITS,
    LANE_BITS = WIA_LANES_BITS,
    CONTROL_BITS = 48
};

static uint32_t table_entry(uint32_t class, uint32_t length)
{
    uint32_t extra, kind = WIA_LANES_VALUE, base, index = class - FIRST_VALUE;

    if (class < RUN_CLASSES) {
        extra = class;
        kind = WIA_LANES_RUN;
        base = 1u << class;
    } else if (class == REST) {
        extra = 0u;
        kind = WIA_LANES_REST;
        base = 0u;
    } else if (class == PEAK) {
        extra = 1u;
        base = PEAK_MAGNITUDE;
    } else if (index < EXACT_VALUES) {
        extra = 1u;
        base = index;
    } else {
        extra = (index - 4u) / 4u + 1u;
        base = (4u + index % 4u) << (extra - 1u);
    }
    return (length + extra) | (32u - extra) << 8 | length << 16 | kind << 20 | base << 24;
}

static uint32_t code_length(const uint8_t *payload, uint32_t class)
{
    return (uint32_t)payload[class / 2u] >> class % 2u * 4u & 15u;
}

size_t wia_lanes_size(void)
{
    return sizeof(wia_lanes_t);
}

void wia_lanes_init(wia_lanes_t *lanes, uint32_t array_columns, uint32_t rows_per_cycle, int kernel)
{
    memset(lanes, 0, sizeof *lanes);
    lanes->kernel = wia_kernel_choose(kernel);
    lanes->array_columns = array_columns;
    lanes->rows_per_cycle = rows_per_cycle;
}

bool wia_lanes_table_ok(const uint8_t *payload)
{
    uint32_t class, length, filled = 0u;

    for (class = 0; class < WIA_LANES_CLASSES; class++) {
        length = code_length(payload, class);
        if (length > WIA_LANES_CODE_BITS)
            return false;
        filled += length != 0u ? 1u << (WIA_LANES_CODE_BITS - length) : 0u;
    }
    return filled == 1u << WIA_LANES_CODE_BITS;
}

/* Code words are given out ascending by length, then by class, so they fill the windows from 0 on. */
static void build_table(wia_lanes_t *lanes, const uint8_t *payload)
{
    uint32_t class, length, count, value, at = 0u, words = 0u;

    for (length = 1u; length <= WIA_LANES_CODE_BITS; length++) {
        lanes->place[length] = words - (at >> (WIA_LANES_CODE_BITS - length));
        for (class = 0; class < WIA_LANES_CLASSES; class++) {
            if (code_length(payload, class) != length)
                continue;
            value = table_entry(class, length);
            lanes->sorted[words++] = value;
            for (count = 1u << (WIA_LANES_CODE_BITS - length); count > 0u; count--)
                lanes->table[at++] = value;
        }
        lanes->limit[length] = at;
    }
}

/* The same in other words. */
static void build_brief(wia_lanes_t *lanes)
{
    wia_lanes_brief_t *brief = &lanes->brief;
    uint32_t length, i;

    memset(brief, 0, sizeof *brief);
    for (length = WIA_LANES_CODE_BITS; length > 0u && lanes->limit[length] != 0u; length--)
        brief->shortest = (uint8_t)length;
    for (length = brief->shortest; length < WIA_LANES_CODE_BITS; length++) {
        int32_t last = (int32_t)(lanes->limit[length] << (16 - WIA_LANES_CODE_BITS)) - 1 + INT16_MIN;

        if (last < INT16_MAX)
            brief->limit[brief->limits++] = (int16_t)last;
    }
    for (length = 1u; length <= WIA_LANES_CODE_BITS; length++)
        brief->place[length] = (uint8_t)lanes->place[length];
    for (i = 0; i < WIA_LANES_CLASSES; i++) {
        uint32_t entry = lanes->sorted[i], bits = entry & 31u;

        brief->entry[i] = (uint8_t)(bits % 16u | (bits == 16u ? WIA_LANES_BRIEF_LONG : 0u) |
                                    ((entry >> 20 & 3u) != WIA_LANES_VALUE ? WIA_LANES_BRIEF_ZEROS : 0));
    }
}

void wia_lanes_set_table(wia_lanes_t *lanes, const uint8_t *payload, int32_t centre, bool masks, bool fresh)
{
    uint32_t count = lanes->array_columns * lanes->rows_per_cycle;

    build_table(lanes, payload);
    if (lanes->kernel->lanes_words != NULL)
        build_brief(lanes);
    lanes->centre = centre;
    lanes->masks = masks;
    memset(lanes->remembered, 0xff, sizeof lanes->remembered);
    if (!fresh)
        return;
    lanes->control = 0u;
    lanes->control_held = 0u;
    memset(lanes->next, 0, count * sizeof lanes->next[0]);
    memset(lanes->after, 0, count * sizeof lanes->after[0]);
    memset(lanes->held, 0, count * sizeof lanes->held[0]);
    lanes->dry = lanes->carries = false;
}

void wia_lanes_begin(wia_lanes_t *lanes, const uint8_t *payload, size_t bytes, uint32_t columns)
{
    wia_lanes_source_t *source = &lanes->source;

    source->at = lanes->carried;
    source->end = lanes->carried + (lanes->carries ? 2 : 0);
    source->payload = payload;
    source->payload_end = payload + bytes;
    source->exhausted = false;
    lanes->columns = columns;
    lanes->tile = 0u;
    lanes->first = true;
    lanes->has_payload = bytes != 0u;
    memset(lanes->idle, 0, lanes->array_columns * lanes->rows_per_cycle * sizeof lanes->idle[0]);
}

/* The next word when `at` has reached `end`. */
static uint64_t word_after_end(wia_lanes_source_t *source)
{
    const uint8_t *at;

    if (source->payload != NULL) {
        source->at = source->payload;
        source->end = source->payload_end;
        source->payload = NULL;
    }
    if (source->at == source->end) {
        source->exhausted = true;
        return 0u;
    }
    at = source->at;
    source->at += 2;
    return (uint64_t)at[0] | (uint64_t)at[1] << 8;
}

static inline uint64_t next_word(wia_lanes_source_t *source)
{
    const uint8_t *at = source->at;

    if (at == source->end)
        return word_after_end(source);
    source->at = at + 2;
    return (uint64_t)at[0] | (uint64_t)at[1] << 8;
}

/* ---- control lane ---- */

static uint32_t top_up_control(wia_lanes_t *lanes)
{
    uint32_t words = 0u;

    for (; lanes->control_held < CONTROL_BITS; lanes->control_held += WORD_BITS, words++)
        lanes->control |= next_word(&lanes->source) << (48u - lanes->control_held);
    return words;
}

/* 1 to 32 bits. */
static uint32_t read_control(wia_lanes_t *lanes, uint32_t bits)
{
    uint32_t value = (uint32_t)(lanes->control >> (64u - bits));

    lanes->control <<= bits;
    lanes->control_held -= bits;
    return value;
}

static uint32_t all_ones(uint32_t bits)
{
    return 0xffffffffu >> (32u - bits);
}

/* Column mask before the first tile; the words it asked for. */
static uint32_t read_columns(wia_lanes_t *lanes)
{
    uint32_t words = 0u, mask = all_ones(lanes->columns), column;

    if (lanes->masks) {
        words = top_up_control(lanes);
        if (read_control(lanes, 1u) != 0u)
            mask = read_control(lanes, lanes->columns); /* column 0 first */
    }
    memset(lanes->live, 0, sizeof lanes->live);
    lanes->live_columns = 0u;
    for (column = 0; column < lanes->columns; column++)
        if ((mask >> (lanes->columns - 1u - column) & 1u) != 0u) {
            lanes->live[column] = -1;
            lanes->live_columns |= 1u << column;
        }
    return words;
}

/* Rows of the tile with symbols, row 0 in bit 31; `words` are added to. */
static uint32_t read_rows(wia_lanes_t *lanes, uint32_t rows, uint32_t *words)
{
    uint32_t mask = lanes->remembered[lanes->tile];

    if (!lanes->masks)
        return all_ones(rows) << (32u - rows);
    *words += top_up_control(lanes);
    if (read_control(lanes, 1u) != 0u)
        mask = read_control(lanes, 1u) != 0u ? read_control(lanes, rows) << (32u - rows) : 0u;
    mask &= all_ones(rows) << (32u - rows);
    lanes->remembered[lanes->tile] = mask;
    return mask;
}

/* ---- weight lanes ---- */

/* Take a word for the lane `window`, which holds `held` bits, if it asks for one. Words are sure to be there. */
static inline const uint8_t *top_up(const uint8_t *at, uint64_t *window, uint32_t *held)
{
    uint32_t asks = *held < LANE_BITS;

    *window |= (uint64_t)(((uint32_t)at[0] | (uint32_t)at[1] << 8) & (0u - asks)) << (48u - *held);
    *held += asks * WORD_BITS;
    return at + asks * 2u;
}

/* Spend one zero of a run. */
static inline uint32_t spend(uint32_t idle)
{
    return idle - (idle != WIA_LANES_FOREVER);
}

/* Take the first symbol from a lane and return its weight; `idle` becomes the zeros of a run that are left. */
static inline int8_t symbol(const uint32_t *table, uint32_t centre, uint64_t *window, uint32_t *held, uint32_t *idle)
{
    uint32_t entry = table[*window >> (64 - WIA_LANES_CODE_BITS)];
    uint64_t bits = (uint32_t)(*window >> 32) << (entry >> 16 & 15u) & 0xffffffffu;
    uint32_t extra = (uint32_t)(bits >> (entry >> 8 & 63u));
    uint32_t kind = entry >> 20 & 3u, negative = extra & 1u;

    *window <<= entry & 31u;
    *held -= entry & 31u;
    if (kind != WIA_LANES_VALUE) {
        *idle = kind == WIA_LANES_REST ? WIA_LANES_FOREVER : (entry >> 24) + extra - 1u;
        return (int8_t)centre;
    }
    /* A negative value is the complement of its magnitude - 1. */
    return (int8_t)(uint8_t)(centre + (((entry >> 24) + (extra >> 1)) ^ (0u - negative)) + 1u - negative);
}

static inline uint64_t window_of(const wia_lanes_t *lanes, uint32_t lane)
{
    return (uint64_t)lanes->next[lane] << 32 | lanes->after[lane];
}

static inline void keep_window(wia_lanes_t *lanes, uint32_t lane, uint64_t window)
{
    lanes->next[lane] = (uint32_t)(window >> 32);
    lanes->after[lane] = (uint32_t)window;
}

/* A row in the lanes from `first` on, if all columns are live and there are two words for each of them. */
static uint32_t decode_full_row(wia_lanes_t *lanes, uint32_t first, int8_t *restrict values)
{
    const uint32_t *table = lanes->table;
    const uint8_t *at = lanes->source.at, *begin = at;
    uint32_t column, columns = lanes->columns, centre = (uint32_t)lanes->centre;

    for (column = 0; column < columns; column++) {
        uint32_t lane = first + column, bits = lanes->held[lane];
        uint64_t window = window_of(lanes, lane);

        if (lanes->idle[lane] != 0u) {
            lanes->idle[lane] = spend(lanes->idle[lane]);
            values[column] = (int8_t)centre;
            continue;
        }
        at = top_up(at, &window, &bits);
        if (bits < LANE_BITS) /* the first symbol of a stretch */
            at = top_up(at, &window, &bits);
        values[column] = symbol(table, centre, &window, &bits, &lanes->idle[lane]);
        keep_window(lanes, lane, window);
        lanes->held[lane] = bits;
    }
    lanes->source.at = at;
    return (uint32_t)(at - begin) / 2u;
}

/* A row where columns are dead, or words may run out. */
static uint32_t decode_any_row(wia_lanes_t *lanes, uint32_t first, int8_t *values)
{
    uint32_t column, words = 0u, centre = (uint32_t)lanes->centre;

    for (column = 0; column < lanes->columns; column++) {
        uint32_t lane = first + column, bits = lanes->held[lane];
        uint64_t window = window_of(lanes, lane);

        values[column] = 0;
        if (lanes->live[column] == 0)
            continue;
        values[column] = (int8_t)centre;
        if (lanes->idle[lane] != 0u) {
            lanes->idle[lane] = spend(lanes->idle[lane]);
            continue;
        }
        for (; bits < LANE_BITS; bits += WORD_BITS, words++)
            window |= next_word(&lanes->source) << (48u - bits);
        values[column] = symbol(lanes->table, centre, &window, &bits, &lanes->idle[lane]);
        keep_window(lanes, lane, window);
        lanes->held[lane] = bits;
    }
    return words;
}

/* The next row of the lanes of `parity`; the words it asks for. */
static uint32_t decode_row(wia_lanes_t *lanes, uint32_t parity, int8_t *values)
{
    size_t left = (size_t)(lanes->source.end - lanes->source.at);
    uint32_t first = parity * lanes->array_columns, words;

    if (lanes->kernel->lanes_row != NULL && left >= 2u * lanes->columns + WIA_KERNEL_WORDS) {
        words = lanes->kernel->lanes_row(lanes, first, values);
        if (words != WIA_LANES_NOT_YET)
            return words;
    }
    if (left >= 4u * (size_t)lanes->columns && lanes->live_columns == all_ones(lanes->columns))
        return decode_full_row(lanes, first, values);
    return decode_any_row(lanes, first, values);
}

/* Rows of a tile in groups, of which there are some; words[0] is added to. */
static uint32_t decode_rows(wia_lanes_t *lanes, uint32_t rows, uint32_t live, int8_t *values, uint16_t *words)
{
    uint32_t asked = words[0], row, parity = 0u, groups = 0u;

    for (row = 0; row < rows; row++, values += lanes->columns) {
        if ((live << row & 0x80000000u) == 0u) {
            memset(values, 0, lanes->columns);
            continue;
        }
        asked += decode_row(lanes, parity, values);
        words[groups] = (uint16_t)asked;
        parity = parity + 1u == lanes->rows_per_cycle ? 0u : parity + 1u;
        if (parity == 0u) {
            groups++;
            asked = 0u;
        }
    }
    return groups + (parity != 0u);
}

/* A kernel decodes the whole tile; WIA_LANES_NOT_YET if none can. */
static uint32_t decode_at_once(wia_lanes_t *lanes, uint32_t rows, uint32_t live, int8_t *values, uint16_t *words)
{
    const wia_kernel_t *kernel = lanes->kernel;

    if (lanes->columns > WIA_KERNEL_TILE_COLUMNS || lanes->rows_per_cycle != 2u ||
        (size_t)(lanes->source.end - lanes->source.at) < 2u * rows * lanes->columns + WIA_KERNEL_WORDS)
        return WIA_LANES_NOT_YET;
    if (values == NULL && kernel->lanes_words != NULL)
        return kernel->lanes_words(lanes, rows, live, words);
    if (values != NULL && kernel->lanes_tile != NULL)
        return kernel->lanes_tile(lanes, rows, live, values, words);
    return WIA_LANES_NOT_YET;
}

uint32_t wia_lanes_tile(wia_lanes_t *lanes, uint32_t rows, int8_t *values, uint16_t *words)
{
    int8_t unused[WIA_KERNEL_LANES * WIA_KERNEL_COLUMNS];
    uint32_t asked = 0u, live, groups;

    if (lanes->first)
        asked = read_columns(lanes);
    lanes->first = false;
    live = read_rows(lanes, rows, &asked);
    lanes->tile = (lanes->tile + 1u) % WIA_LANES_SLOTS;
    words[0] = (uint16_t)asked;
    if (live == 0u)
        return 0u;
    groups = decode_at_once(lanes, rows, live, values, words);
    return groups != WIA_LANES_NOT_YET ? groups
                                       : decode_rows(lanes, rows, live, values != NULL ? values : unused, words);
}

bool wia_lanes_end(wia_lanes_t *lanes)
{
    wia_lanes_source_t *source = &lanes->source;
    size_t left = (size_t)(source->end - source->at);
    bool ok;

    if (source->payload != NULL)
        left += (size_t)(source->payload_end - source->payload);
    ok = left <= 2u && !(lanes->dry && lanes->has_payload);
    lanes->dry = lanes->dry || source->exhausted;
    lanes->carries = left == 2u;
    if (lanes->carries)
        memmove(lanes->carried, source->at != source->end ? source->at : source->payload, 2u);
    return ok;
}

bool wia_lanes_decode(wia_lanes_t *lanes, const uint8_t *payload, size_t bytes, uint32_t columns, uint32_t runs,
                      uint32_t run_rows, uint32_t tile_rows, int8_t *values)
{
    uint16_t words[WIA_LANES_STEPS];
    uint32_t run, row, rows;

    wia_lanes_begin(lanes, payload, bytes, columns);
    for (run = 0; run < runs; run++)
        for (row = 0; row < run_rows; row += rows, values += (size_t)rows * columns) {
            rows = run_rows - row < tile_rows ? run_rows - row : tile_rows;
            if (wia_lanes_tile(lanes, rows, values, words) == 0u)
                memset(values, 0, (size_t)rows * columns);
        }
    return wia_lanes_end(lanes);
}
