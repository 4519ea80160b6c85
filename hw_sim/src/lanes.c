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
    LANE_BITS = 32,     /* a lane holds at least as many before a symbol */
    CONTROL_BITS = 48
};
#define FOREVER UINT32_MAX

/* A table entry: bits 0..4 length of the symbol, 8..13 how far a window without the code word is shifted right to keep
 * the extra bits, 16..19 length of the code word, 20..21 kind, 24..31 magnitude - 1 or zeros. */
enum { KIND_VALUE = 0, KIND_RUN = 1, KIND_REST = 2 };

static uint32_t entry(uint32_t class, uint32_t length)
{
    uint32_t extra, kind = KIND_VALUE, base, index = class - FIRST_VALUE;

    if (class < RUN_CLASSES) {
        extra = class;
        kind = KIND_RUN;
        base = 1u << class;
    } else if (class == REST) {
        extra = 0u;
        kind = KIND_REST;
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
    return (length + extra) | (63u - extra) << 8 | length << 16 | kind << 20 | base << 24;
}

static uint32_t code_length(const uint8_t *payload, uint32_t class)
{
    return (uint32_t)payload[class / 2u] >> class % 2u * 4u & 15u;
}

size_t wia_lanes_size(void)
{
    return sizeof(wia_lanes_t);
}

void wia_lanes_init(wia_lanes_t *lanes, uint32_t array_columns, uint32_t rows_per_cycle)
{
    memset(lanes, 0, sizeof *lanes);
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
    uint32_t class, length, count, value, at = 0u;

    for (length = 1u; length <= WIA_LANES_CODE_BITS; length++)
        for (class = 0; class < WIA_LANES_CLASSES; class++) {
            if (code_length(payload, class) != length)
                continue;
            value = entry(class, length);
            for (count = 1u << (WIA_LANES_CODE_BITS - length); count > 0u; count--)
                lanes->table[at++] = value;
        }
}

void wia_lanes_set_table(wia_lanes_t *lanes, const uint8_t *payload, int32_t centre, bool masks, bool fresh)
{
    uint32_t count = lanes->array_columns * lanes->rows_per_cycle;

    build_table(lanes, payload);
    lanes->centre = centre;
    lanes->masks = masks;
    memset(lanes->remembered, 0xff, sizeof lanes->remembered);
    if (!fresh)
        return;
    lanes->control = 0u;
    lanes->control_held = 0u;
    memset(lanes->lane, 0, count * sizeof lanes->lane[0]);
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

    for (; lanes->control_held < CONTROL_BITS; lanes->control_held += 16u, words++)
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
    uint32_t words = 0u, mask, column;

    lanes->live_columns = all_ones(lanes->columns);
    if (!lanes->masks)
        return 0u;
    words = top_up_control(lanes);
    if (read_control(lanes, 1u) != 0u) {
        mask = read_control(lanes, lanes->columns); /* column 0 first */
        lanes->live_columns = 0u;
        for (column = 0; column < lanes->columns; column++)
            lanes->live_columns |= (mask >> (lanes->columns - 1u - column) & 1u) << column;
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

/* The next weight of lane `index`; `words` counts what it asks for. */
static inline int8_t weight(wia_lanes_t *lanes, uint32_t index, uint32_t *words)
{
    uint64_t window = lanes->lane[index];
    uint32_t held = lanes->held[index], symbol, extra, kind;
    int32_t sign;

    if (lanes->idle[index] != 0u) {
        lanes->idle[index] -= lanes->idle[index] != FOREVER;
        return (int8_t)lanes->centre;
    }
    for (; held < LANE_BITS; held += 16u, ++*words)
        window |= next_word(&lanes->source) << (48u - held);
    symbol = lanes->table[window >> (64 - WIA_LANES_CODE_BITS)];
    extra = (uint32_t)(window << (symbol >> 16 & 15u) >> 1 >> (symbol >> 8 & 63u));
    lanes->lane[index] = window << (symbol & 31u);
    lanes->held[index] = (uint8_t)(held - (symbol & 31u));
    kind = symbol >> 20 & 3u;
    if (kind != KIND_VALUE) {
        lanes->idle[index] = kind == KIND_REST ? FOREVER : (symbol >> 24) + extra - 1u;
        return (int8_t)lanes->centre;
    }
    sign = (int32_t)(extra & 1u); /* a negative value is the complement of its magnitude - 1 */
    return (int8_t)(lanes->centre + (((int32_t)((symbol >> 24) + (extra >> 1)) ^ -sign) + 1 - sign));
}

/* One row of a group into `values`; `words` counts what it asks for. */
static void decode_row(wia_lanes_t *lanes, uint32_t parity, int8_t *values, uint32_t *words)
{
    uint32_t column, first = parity * lanes->array_columns;

    if (lanes->live_columns == all_ones(lanes->columns)) {
        for (column = 0; column < lanes->columns; column++)
            values[column] = weight(lanes, first + column, words);
        return;
    }
    for (column = 0; column < lanes->columns; column++)
        values[column] = (int8_t)((lanes->live_columns >> column & 1u) != 0u ? weight(lanes, first + column, words) : 0);
}

uint32_t wia_lanes_tile(wia_lanes_t *lanes, uint32_t rows, int8_t *values, uint16_t *words)
{
    uint32_t asked = 0u, live, row, parity = 0u, groups = 0u;

    if (lanes->first)
        asked = read_columns(lanes);
    lanes->first = false;
    live = read_rows(lanes, rows, &asked);
    lanes->tile = (lanes->tile + 1u) % WIA_LANES_SLOTS;
    words[0] = (uint16_t)asked;
    if (live == 0u)
        return 0u;
    for (row = 0; row < rows; row++, values += lanes->columns) {
        if ((live << row & 0x80000000u) == 0u) {
            memset(values, 0, lanes->columns);
            continue;
        }
        decode_row(lanes, parity, values, &asked);
        words[groups] = (uint16_t)asked;
        parity = parity + 1u == lanes->rows_per_cycle ? 0u : parity + 1u;
        if (parity == 0u) {
            groups++;
            asked = 0u;
        }
    }
    return groups + (parity != 0u);
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
