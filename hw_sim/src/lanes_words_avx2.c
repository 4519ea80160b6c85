/* lanes_words_avx2.c: the words that the steps of a tile of codec lanes ask for, without its weights.
 *
 * The lanes of a row are the sixteen 16-bit elements of a register, and what a lane holds are three of them: `next`,
 * then `after`, then `last`. There are no shifts of 16-bit elements by numbers of their own: they are multiplications by
 * powers of two. Entries are found by counting limits, as in lanes_avx512.c, and shuffles of bytes. */
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdbool.h>

#define AVX2 __attribute__((target("avx2,popcnt")))
#define AVX2_INLINE static inline __attribute__((target("avx2,popcnt"), always_inline))

enum { FOREVER = 0xffff };

typedef struct {
    __m256i next, after, last, held, idle;
} row_t;

/* Of the table: the same in all rows. */
typedef struct {
    __m256i shortest, places, lengths[2], live;
} constants_t;

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

AVX2_INLINE void store(void *at, __m256i value)
{
    _mm256_storeu_si256((__m256i *)at, value);
}

AVX2_INLINE __m256i load_twice(const void *at)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)at));
}

AVX2_INLINE __m256i pack(__m256i low, __m256i high)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

AVX2_INLINE row_t load_row(const wia_lanes_t *lanes, uint32_t lane)
{
    const __m256i half = _mm256_set1_epi32(0xffff);
    __m256i low = load(lanes->next + lane), high = load(lanes->next + lane + 8u);
    row_t row;

    row.next = pack(_mm256_srli_epi32(low, 16), _mm256_srli_epi32(high, 16));
    row.after = pack(_mm256_and_si256(low, half), _mm256_and_si256(high, half));
    low = load(lanes->after + lane);
    high = load(lanes->after + lane + 8u);
    row.last = pack(_mm256_srli_epi32(low, 16), _mm256_srli_epi32(high, 16));
    row.held = pack(load(lanes->held + lane), load(lanes->held + lane + 8u));
    low = load(lanes->idle + lane);
    high = load(lanes->idle + lane + 8u);
    row.idle = pack(_mm256_min_epu32(low, half), _mm256_min_epu32(high, half));
    return row;
}

/* Widened: the lower or the higher eight. */
AVX2_INLINE __m256i widen(__m256i elements, bool higher)
{
    return _mm256_cvtepu16_epi32(higher ? _mm256_extracti128_si256(elements, 1) : _mm256_castsi256_si128(elements));
}

AVX2_INLINE void store_half(wia_lanes_t *lanes, uint32_t lane, const row_t *row, bool higher)
{
    __m256i idle = widen(row->idle, higher), next = _mm256_slli_epi32(widen(row->next, higher), 16);

    idle = _mm256_or_si256(idle, _mm256_cmpeq_epi32(idle, _mm256_set1_epi32(FOREVER))); /* WIA_LANES_FOREVER */
    store(lanes->next + lane, _mm256_or_si256(next, widen(row->after, higher)));
    store(lanes->after + lane, _mm256_slli_epi32(widen(row->last, higher), 16));
    store(lanes->held + lane, widen(row->held, higher));
    store(lanes->idle + lane, idle);
}

AVX2_INLINE void store_row(wia_lanes_t *lanes, uint32_t lane, const row_t *row)
{
    store_half(lanes, lane, row, false);
    store_half(lanes, lane + 8u, row, true);
}

AVX2_INLINE __m256i active_lanes(const row_t *row, __m256i live)
{
    return _mm256_and_si256(live, _mm256_cmpeq_epi16(row->idle, _mm256_setzero_si256()));
}

/* 2^exponent for exponents 0..15: its low byte is found at the exponent, its high byte at the exponent - 8. */
AVX2_INLINE __m256i power(__m256i exponent)
{
    const __m256i powers = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i table = _mm256_and_si256(powers, _mm256_setr_epi64x(-1, 0, -1, 0));
    __m256i twice = _mm256_or_si256(exponent, _mm256_slli_epi16(exponent, 8));

    return _mm256_shuffle_epi8(table, _mm256_xor_si256(twice, _mm256_set1_epi16(0x0800)));
}

/* The lanes of `active` that hold too little take a word each, in order, from `at` on. */
AVX2_INLINE const uint8_t *top_up(const uint8_t *at, __m256i active, row_t *row)
{
    __m256i asks = _mm256_and_si256(active, _mm256_cmpgt_epi16(_mm256_set1_epi16(WIA_LANES_BITS), row->held));
    uint32_t mask = (uint32_t)_mm256_movemask_epi8(asks); /* two bits a lane */
    __m256i ones = _mm256_srli_epi16(asks, 15), rank = ones, words, by, low;

    /* How many of the lanes before it ask, in each half. */
    rank = _mm256_add_epi16(rank, _mm256_slli_si256(rank, 2));
    rank = _mm256_add_epi16(rank, _mm256_slli_si256(rank, 4));
    rank = _mm256_add_epi16(rank, _mm256_slli_si256(rank, 8));
    rank = _mm256_slli_epi16(_mm256_sub_epi16(rank, ones), 1);
    rank = _mm256_add_epi16(_mm256_or_si256(rank, _mm256_slli_epi16(rank, 8)), _mm256_set1_epi16(0x0100));
    words = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)at)),
        _mm_loadu_si128((const __m128i *)(const void *)(at + (uint32_t)__builtin_popcount(mask & 0xffffu))), 1);
    words = _mm256_and_si256(_mm256_shuffle_epi8(words, rank), asks);

    /* 16 to 31 bits are held: shift by 31 - held, 0..15, then by one. */
    by = power(_mm256_and_si256(_mm256_sub_epi16(_mm256_set1_epi16(31), row->held), _mm256_set1_epi16(15)));
    low = _mm256_mullo_epi16(words, by);
    words = _mm256_mulhi_epu16(words, by);
    row->after = _mm256_or_si256(row->after, _mm256_or_si256(_mm256_slli_epi16(words, 1), _mm256_srli_epi16(low, 15)));
    row->last = _mm256_or_si256(row->last, _mm256_slli_epi16(low, 1));
    row->held = _mm256_add_epi16(row->held, _mm256_slli_epi16(ones, 4));
    return at + (uint32_t)__builtin_popcount(mask);
}

/* wia_lanes_brief_t.entry of the symbols that begin with `next`. */
AVX2_INLINE __m256i find_entries(const wia_lanes_brief_t *brief, const constants_t *constants, __m256i next)
{
    __m256i order = _mm256_xor_si256(next, _mm256_set1_epi16(INT16_MIN)), length = constants->shortest, place;
    uint32_t i;

    for (i = 0; i < brief->limits; i++)
        length = _mm256_sub_epi16(length, _mm256_cmpgt_epi16(order, _mm256_set1_epi16(brief->limit[i])));
    place = _mm256_shuffle_epi8(constants->places, _mm256_or_si256(length, _mm256_set1_epi16(INT16_MIN)));
    place = _mm256_add_epi16(_mm256_mulhi_epu16(next, power(length)), place);
    place = _mm256_and_si256(place, _mm256_set1_epi16(0xff));
    /* Bit 7 of an index gives 0. */
    length = _mm256_shuffle_epi8(constants->lengths[0], _mm256_add_epi16(place, _mm256_set1_epi16((short)0x8070)));
    place = _mm256_shuffle_epi8(constants->lengths[1], _mm256_add_epi16(place, _mm256_set1_epi16((short)0x80f0)));
    return _mm256_or_si256(length, place);
}

/* Symbols that are not values: the zeros that follow. `next`: before they are taken. */
__attribute__((noinline)) AVX2 static __m256i begin_runs(const wia_lanes_t *lanes, __m256i idle, __m256i entry,
                                                         __m256i next)
{
    uint16_t bits[16], zeros[16];
    uint32_t mask = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(entry, 7 - WIA_LANES_BRIEF_ZEROS_BIT));

    _mm256_storeu_si256((__m256i *)(void *)bits, next);
    _mm256_storeu_si256((__m256i *)(void *)zeros, idle);
    for (mask &= 0x55555555u; mask != 0u; mask &= mask - 1u) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask) / 2u;
        uint32_t found = lanes->table[bits[lane] >> (16 - WIA_LANES_CODE_BITS)];
        uint64_t rest = (uint32_t)bits[lane] << 16 << (found >> 16 & 15u) & 0xffffffffu;

        zeros[lane] = FOREVER;
        if ((found >> 20 & 3u) == WIA_LANES_RUN)
            zeros[lane] = (uint16_t)((found >> 24) + (uint32_t)(rest >> (found >> 8 & 63u)) - 1u);
    }
    return load(zeros);
}

/* Lanes with a symbol of 16 bits, which count as none, take it. */
AVX2_INLINE void take_long(row_t *row, __m256i entry)
{
    __m256i taken = _mm256_slli_epi16(entry, 15 - WIA_LANES_BRIEF_LONG_BIT);

    taken = _mm256_srai_epi16(taken, 15);
    row->next = _mm256_blendv_epi8(row->next, row->after, taken);
    row->after = _mm256_blendv_epi8(row->after, row->last, taken);
    row->last = _mm256_andnot_si256(taken, row->last);
    row->held = _mm256_sub_epi16(row->held, _mm256_and_si256(taken, _mm256_set1_epi16(16)));
}

/* A symbol from every active lane; where the words end. */
AVX2_INLINE const uint8_t *take_row(const wia_lanes_t *lanes, const constants_t *constants, const uint8_t *at,
                                    row_t *row)
{
    __m256i active = active_lanes(row, constants->live), idle = row->idle, entry, length, by, next;

    at = top_up(at, active, row);
    next = row->next;
    entry = _mm256_and_si256(find_entries(&lanes->brief, constants, next), active);
    length = _mm256_and_si256(entry, _mm256_set1_epi16(15));
    by = power(length);
    row->next = _mm256_or_si256(_mm256_mullo_epi16(next, by), _mm256_mulhi_epu16(row->after, by));
    row->after = _mm256_or_si256(_mm256_mullo_epi16(row->after, by), _mm256_mulhi_epu16(row->last, by));
    row->last = _mm256_mullo_epi16(row->last, by);
    row->held = _mm256_sub_epi16(row->held, length);
    if (!_mm256_testz_si256(idle, idle)) { /* zeros that are left, but not for ever, and live */
        __m256i some = _mm256_andnot_si256(_mm256_cmpeq_epi16(idle, _mm256_set1_epi16(-1)),
                                           _mm256_andnot_si256(active, constants->live));

        row->idle = _mm256_add_epi16(idle, some);
    }
    if (!_mm256_testz_si256(entry, _mm256_set1_epi16(WIA_LANES_BRIEF_ZEROS | WIA_LANES_BRIEF_LONG))) {
        take_long(row, entry);
        if (!_mm256_testz_si256(entry, _mm256_set1_epi16(WIA_LANES_BRIEF_ZEROS)))
            row->idle = begin_runs(lanes, row->idle, entry, next);
    }
    return at;
}

/* Some lane with a symbol would have to take two words. */
AVX2_INLINE bool is_dry(const row_t *row, __m256i live)
{
    __m256i few = _mm256_cmpgt_epi16(_mm256_set1_epi16(WIA_LANES_WORD_BITS), row->held);

    return !_mm256_testz_si256(few, active_lanes(row, live));
}

AVX2 uint32_t wia_lanes_words_avx2(wia_lanes_t *lanes, uint32_t rows, uint32_t live_rows, uint16_t *words)
{
    const wia_lanes_brief_t *brief = &lanes->brief;
    const uint8_t *at = lanes->source.at, *begin = at;
    row_t even = load_row(lanes, 0u), odd = load_row(lanes, lanes->array_columns);
    uint32_t groups = 0u, asked = words[0];
    constants_t constants;

    constants.live = _mm256_permute4x64_epi64(_mm256_packs_epi32(load(lanes->live), load(lanes->live + 8)), 0xd8);
    constants.shortest = _mm256_set1_epi16((short)brief->shortest);
    constants.places = load_twice(brief->place);
    constants.lengths[0] = load_twice(brief->entry);
    constants.lengths[1] = load_twice(brief->entry + 16);
    if (is_dry(&even, constants.live) || is_dry(&odd, constants.live))
        return WIA_LANES_NOT_YET;
    live_rows &= 0xffffffffu << (32u - rows);
    for (rows = (uint32_t)__builtin_popcount(live_rows); rows > 1u; rows -= 2u, begin = at, asked = 0u) {
        at = take_row(lanes, &constants, at, &even);
        at = take_row(lanes, &constants, at, &odd);
        words[groups++] = (uint16_t)(asked + (uint32_t)(at - begin) / 2u);
    }
    if (rows != 0u) {
        at = take_row(lanes, &constants, at, &even);
        words[groups++] = (uint16_t)(asked + (uint32_t)(at - begin) / 2u);
    }
    store_row(lanes, 0u, &even);
    store_row(lanes, lanes->array_columns, &odd);
    lanes->source.at = at;
    return groups;
}

#else
typedef int wia_lanes_words_avx2_not_here; /* ISO C forbids an empty file */
#endif
