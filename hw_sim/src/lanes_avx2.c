/* lanes_avx2.c: a row of codec lanes, eight lanes at a time. */
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,popcnt")))
#define AVX2_INLINE static inline __attribute__((target("avx2,popcnt"), always_inline))

enum { BLOCK = 8 };

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

AVX2_INLINE void store(void *at, __m256i value)
{
    _mm256_storeu_si256((__m256i *)at, value);
}

AVX2_INLINE uint32_t bits_of(__m256i mask)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(mask));
}

/* Element i: how many of the lower i bits of `mask` are set, which is the word that lane i takes. */
AVX2_INLINE __m256i ranks(uint32_t mask)
{
    const uint64_t each = 0x0101010101010101u;
    uint64_t bits = (mask * each & 0x8040201008040201u) + 0x7f * each; /* bit i in byte i, moved to bit 7 of it */
    uint64_t sums = (bits >> 7 & each) * each << 8;

    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&sums));
}

/* Lanes with a symbol. */
AVX2_INLINE __m256i active_lanes(const wia_lanes_t *lanes, uint32_t lane, uint32_t column)
{
    return _mm256_and_si256(load(lanes->live + column),
                            _mm256_cmpeq_epi32(load(lanes->idle + lane), _mm256_setzero_si256()));
}

/* The lanes of `active` that hold too little take a word each, in order, from `at` on. */
AVX2_INLINE const uint8_t *top_up(const uint8_t *at, __m256i active, __m256i *next, __m256i *after, __m256i *held)
{
    __m256i asks = _mm256_and_si256(active, _mm256_cmpgt_epi32(_mm256_set1_epi32(WIA_LANES_BITS), *held));
    __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
    uint32_t mask = bits_of(asks);

    words = _mm256_and_si256(_mm256_permutevar8x32_epi32(words, ranks(mask)), asks);
    words = _mm256_slli_epi32(words, WIA_LANES_WORD_BITS);
    *next = _mm256_or_si256(*next, _mm256_srlv_epi32(words, *held));
    *after = _mm256_or_si256(*after, _mm256_sllv_epi32(words, _mm256_sub_epi32(_mm256_set1_epi32(32), *held)));
    *held = _mm256_add_epi32(*held, _mm256_and_si256(asks, _mm256_set1_epi32(WIA_LANES_WORD_BITS)));
    return at + 2u * (uint32_t)__builtin_popcount(mask);
}

/* Zeros that are left: of the runs that begin, and of those that `active` lanes are not in. */
AVX2_INLINE __m256i count_zeros(__m256i active, __m256i kind, __m256i zeros, __m256i idle)
{
    const __m256i ones = _mm256_set1_epi32(-1);
    __m256i run = _mm256_cmpeq_epi32(kind, _mm256_set1_epi32(WIA_LANES_RUN));
    __m256i rest = _mm256_cmpeq_epi32(kind, _mm256_set1_epi32(WIA_LANES_REST)); /* -1, which is WIA_LANES_FOREVER */
    __m256i begun = _mm256_or_si256(_mm256_and_si256(run, _mm256_add_epi32(zeros, ones)), rest);
    __m256i spent = _mm256_sub_epi32(_mm256_add_epi32(idle, ones), _mm256_cmpeq_epi32(idle, ones));

    return _mm256_blendv_epi8(spent, begun, active);
}

/* Eight lanes; the low bytes of the result are their weights. */
AVX2_INLINE __m256i decode_block(wia_lanes_t *lanes, uint32_t lane, uint32_t column, const uint8_t **at)
{
    const __m256i one = _mm256_set1_epi32(1), five = _mm256_set1_epi32(31);
    __m256i live = load(lanes->live + column), idle = load(lanes->idle + lane);
    __m256i active = active_lanes(lanes, lane, column);
    __m256i next = load(lanes->next + lane), after = load(lanes->after + lane), held = load(lanes->held + lane);
    __m256i entry, extra, length, kept, kind, base, negative, value;

    *at = top_up(*at, active, &next, &after, &held);
    entry = _mm256_i32gather_epi32((const int *)(const void *)lanes->table,
                                   _mm256_srli_epi32(next, 32 - WIA_LANES_CODE_BITS), 4);
    entry = _mm256_and_si256(entry, active); /* no length, no value */
    extra = _mm256_sllv_epi32(next, _mm256_and_si256(_mm256_srli_epi32(entry, 16), _mm256_set1_epi32(15)));
    extra = _mm256_srlv_epi32(extra, _mm256_and_si256(_mm256_srli_epi32(entry, 8), _mm256_set1_epi32(63)));
    length = _mm256_and_si256(entry, five);
    kind = _mm256_and_si256(_mm256_srli_epi32(entry, 20), _mm256_set1_epi32(3));
    base = _mm256_srli_epi32(entry, 24);

    kept = _mm256_sub_epi32(_mm256_set1_epi32(32), length);
    store(lanes->next + lane, _mm256_or_si256(_mm256_sllv_epi32(next, length), _mm256_srlv_epi32(after, kept)));
    store(lanes->after + lane, _mm256_sllv_epi32(after, length));
    store(lanes->held + lane, _mm256_sub_epi32(held, length));
    idle = _mm256_blendv_epi8(idle, count_zeros(active, kind, _mm256_add_epi32(base, extra), idle), live);
    store(lanes->idle + lane, idle);

    /* A negative value is the complement of its magnitude - 1. */
    negative = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_and_si256(extra, one));
    value = _mm256_xor_si256(_mm256_add_epi32(base, _mm256_srli_epi32(extra, 1)), negative);
    value = _mm256_add_epi32(_mm256_add_epi32(value, one), negative);
    value = _mm256_and_si256(value, _mm256_and_si256(active, _mm256_cmpeq_epi32(kind, _mm256_setzero_si256())));
    return _mm256_and_si256(_mm256_add_epi32(value, _mm256_set1_epi32(lanes->centre)), live);
}

/* The low bytes of eight elements. */
AVX2_INLINE void store_bytes(int8_t *at, uint32_t count, __m256i values)
{
    __m256i low = _mm256_and_si256(values, _mm256_set1_epi32(0xff));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    __m128i bytes = _mm_packus_epi16(words, words);

    if (count >= BLOCK)
        _mm_storel_epi64((__m128i *)(void *)at, bytes);
    else
        memcpy(at, &bytes, count);
}

AVX2 uint32_t wia_lanes_row_avx2(wia_lanes_t *lanes, uint32_t first, int8_t *values)
{
    const __m256i word = _mm256_set1_epi32(WIA_LANES_WORD_BITS);
    __m256i dry = _mm256_setzero_si256();
    const uint8_t *at = lanes->source.at, *begin = at;
    uint32_t column;

    for (column = 0; column < lanes->columns; column += BLOCK)
        dry = _mm256_or_si256(dry, _mm256_and_si256(active_lanes(lanes, first + column, column),
                                                    _mm256_cmpgt_epi32(word, load(lanes->held + first + column))));
    if (bits_of(dry) != 0u)
        return WIA_LANES_NOT_YET;
    for (column = 0; column < lanes->columns; column += BLOCK)
        store_bytes(values + column, lanes->columns - column, decode_block(lanes, first + column, column, &at));
    lanes->source.at = at;
    return (uint32_t)(at - begin) / 2u;
}

#else
typedef int wia_lanes_avx2_not_here; /* ISO C forbids an empty file */
#endif
