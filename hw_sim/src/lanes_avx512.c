/* lanes_avx512.c: a row of codec lanes, sixteen lanes at a time. */
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx2,popcnt")))
#define AVX512_INLINE static inline __attribute__((target("avx512f,avx2,popcnt"), always_inline))

enum { BLOCK = 16 };

/* Sixteen lanes; their names are those of wia_lanes_t. */
typedef struct {
    __m512i next, after, held, idle;
} block_t;

AVX512_INLINE block_t load_block(const wia_lanes_t *lanes, uint32_t lane)
{
    block_t block = {_mm512_loadu_si512(lanes->next + lane), _mm512_loadu_si512(lanes->after + lane),
                     _mm512_loadu_si512(lanes->held + lane), _mm512_loadu_si512(lanes->idle + lane)};

    return block;
}

AVX512_INLINE void store_block(wia_lanes_t *lanes, uint32_t lane, const block_t *block)
{
    _mm512_storeu_si512(lanes->next + lane, block->next);
    _mm512_storeu_si512(lanes->after + lane, block->after);
    _mm512_storeu_si512(lanes->held + lane, block->held);
    _mm512_storeu_si512(lanes->idle + lane, block->idle);
}

/* Some lane with a symbol would have to take two words. */
AVX512_INLINE bool is_dry(const block_t *block, __mmask16 live)
{
    __mmask16 active = _mm512_mask_testn_epi32_mask(live, block->idle, block->idle);

    return _mm512_mask_cmplt_epi32_mask(active, block->held, _mm512_set1_epi32(WIA_LANES_WORD_BITS)) != 0u;
}

AVX512_INLINE __m512i longer(__m512i length, __m512i bits, uint32_t limit)
{
    return _mm512_mask_sub_epi32(length, _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32((int)limit)), length,
                                 _mm512_set1_epi32(-1));
}

/* Entries of the symbols that begin with `bits`. Counting limits takes fewer steps than a gather from the table. */
AVX512_INLINE __m512i find_entries(const wia_lanes_t *lanes, __m512i bits)
{
    __m512i length = _mm512_set1_epi32(1), more = _mm512_setzero_si512(), word;

    length = longer(length, bits, lanes->limit[1]);
    more = longer(more, bits, lanes->limit[2]);
    length = longer(length, bits, lanes->limit[3]);
    more = longer(more, bits, lanes->limit[4]);
    length = longer(length, bits, lanes->limit[5]);
    more = longer(more, bits, lanes->limit[6]);
    length = longer(length, bits, lanes->limit[7]);
    more = longer(more, bits, lanes->limit[8]);
    length = longer(length, bits, lanes->limit[9]);
    more = longer(more, bits, lanes->limit[10]);
    length = _mm512_add_epi32(length, more);
    word = _mm512_srlv_epi32(bits, _mm512_sub_epi32(_mm512_set1_epi32(WIA_LANES_CODE_BITS), length));
    word = _mm512_add_epi32(word, _mm512_permutexvar_epi32(length, _mm512_loadu_si512(lanes->place)));
    return _mm512_permutex2var_epi32(_mm512_loadu_si512(lanes->sorted), word, _mm512_loadu_si512(lanes->sorted + 16));
}

/* Zeros that are left: of runs that go on, and of those that begin. Apart, as it is rare and takes registers. */
__attribute__((noinline)) AVX512 static __m512i count_zeros(__m512i idle, __mmask16 live, __mmask16 active,
                                                            __m512i kind, __m512i zeros)
{
    const __m512i ones = _mm512_set1_epi32(-1);
    __mmask16 some = _mm512_mask_cmpneq_epi32_mask((__mmask16)(live & ~active), idle, ones); /* not for ever */

    idle = _mm512_mask_add_epi32(idle, some, idle, ones);
    some = _mm512_mask_cmpeq_epi32_mask(active, kind, _mm512_set1_epi32(WIA_LANES_RUN << 20));
    idle = _mm512_mask_add_epi32(idle, some, zeros, ones);
    some = _mm512_mask_cmpeq_epi32_mask(active, kind, _mm512_set1_epi32(WIA_LANES_REST << 20));
    return _mm512_mask_mov_epi32(idle, some, ones);
}

/* A row: the low bytes of the result are the weights of the `live` columns. Words are taken from *at on. */
AVX512_INLINE __m512i decode_block(const wia_lanes_t *lanes, block_t *block, __mmask16 live, const uint8_t **at)
{
    const __m512i all = _mm512_set1_epi32(32), one = _mm512_set1_epi32(1), ones = _mm512_set1_epi32(-1);
    __mmask16 active = _mm512_mask_testn_epi32_mask(live, block->idle, block->idle), asks, is_value;
    __m512i next, after, held, words, entry, extra, length, kind, base, negative, value;

    asks = _mm512_mask_cmplt_epi32_mask(active, block->held, _mm512_set1_epi32(WIA_LANES_BITS));
    words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)*at));
    words = _mm512_slli_epi32(_mm512_maskz_expand_epi32(asks, words), WIA_LANES_WORD_BITS);
    *at += 2u * (uint32_t)__builtin_popcount(asks);
    next = _mm512_or_si512(block->next, _mm512_srlv_epi32(words, block->held));
    after = _mm512_or_si512(block->after, _mm512_sllv_epi32(words, _mm512_sub_epi32(all, block->held)));
    held = _mm512_mask_add_epi32(block->held, asks, block->held, _mm512_set1_epi32(WIA_LANES_WORD_BITS));

    entry = _mm512_maskz_mov_epi32(active, find_entries(lanes, _mm512_srli_epi32(next, 32 - WIA_LANES_CODE_BITS)));
    extra = _mm512_sllv_epi32(next, _mm512_and_si512(_mm512_srli_epi32(entry, 16), _mm512_set1_epi32(15)));
    extra = _mm512_srlv_epi32(extra, _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(63)));
    length = _mm512_and_si512(entry, _mm512_set1_epi32(31));
    kind = _mm512_and_si512(entry, _mm512_set1_epi32(3 << 20));
    base = _mm512_srli_epi32(entry, 24);
    block->next = _mm512_or_si512(_mm512_sllv_epi32(next, length),
                                  _mm512_srlv_epi32(after, _mm512_sub_epi32(all, length)));
    block->after = _mm512_sllv_epi32(after, length);
    block->held = _mm512_sub_epi32(held, length);

    is_value = _mm512_mask_testn_epi32_mask(active, kind, ones);
    if (is_value != live)
        block->idle = count_zeros(block->idle, live, active, kind, _mm512_add_epi32(base, extra));
    /* A negative value is the complement of its magnitude - 1. */
    negative = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_and_si512(extra, one));
    value = _mm512_xor_si512(_mm512_add_epi32(base, _mm512_srli_epi32(extra, 1)), negative);
    value = _mm512_maskz_add_epi32(is_value, _mm512_add_epi32(value, one), negative);
    return _mm512_maskz_add_epi32(live, value, _mm512_set1_epi32(lanes->centre));
}

/* Converting straight to memory under a mask takes a hundred cycles on some processors. */
AVX512_INLINE void store_bytes(int8_t *at, uint32_t used, __m512i values)
{
    __m128i bytes = _mm512_cvtepi32_epi8(values);

    if (used >= BLOCK)
        _mm_storeu_si128((__m128i *)(void *)at, bytes);
    else
        memcpy(at, &bytes, used);
}

AVX512 uint32_t wia_lanes_row_avx512(wia_lanes_t *lanes, uint32_t first, int8_t *values)
{
    const uint8_t *at = lanes->source.at, *begin = at;
    block_t block[WIA_KERNEL_COLUMNS / BLOCK];
    uint32_t column;

    for (column = 0; column < lanes->columns; column += BLOCK) {
        block[column / BLOCK] = load_block(lanes, first + column);
        if (is_dry(&block[column / BLOCK], (__mmask16)(lanes->live_columns >> column)))
            return WIA_LANES_NOT_YET;
    }
    for (column = 0; column < lanes->columns; column += BLOCK) {
        store_bytes(values + column, lanes->columns - column,
                    decode_block(lanes, &block[column / BLOCK], (__mmask16)(lanes->live_columns >> column), &at));
        store_block(lanes, first + column, &block[column / BLOCK]);
    }
    lanes->source.at = at;
    return (uint32_t)(at - begin) / 2u;
}

/* Up to sixteen columns, two rows a cycle: all lanes stay in registers from row to row. */
AVX512 uint32_t wia_lanes_tile_avx512(wia_lanes_t *lanes, uint32_t rows, uint32_t live_rows, int8_t *values,
                                      uint16_t *words)
{
    const uint8_t *at = lanes->source.at, *begin = at;
    __mmask16 live = (__mmask16)lanes->live_columns;
    block_t even = load_block(lanes, 0u), odd = load_block(lanes, lanes->array_columns);
    uint32_t groups = 0u, taken;
    bool second = false; /* of its group */

    if (is_dry(&even, live) || is_dry(&odd, live))
        return WIA_LANES_NOT_YET;
    for (; rows > 0u; rows--, live_rows <<= 1, values += lanes->columns) {
        if ((live_rows & 0x80000000u) == 0u) {
            memset(values, 0, lanes->columns);
            continue;
        }
        if (second)
            store_bytes(values, lanes->columns, decode_block(lanes, &odd, live, &at));
        else
            store_bytes(values, lanes->columns, decode_block(lanes, &even, live, &at));
        taken = (uint32_t)(at - begin) / 2u;
        words[groups] = (uint16_t)(second || groups == 0u ? words[groups] + taken : taken);
        groups += second;
        second = !second;
        begin = at;
    }
    store_block(lanes, 0u, &even);
    store_block(lanes, lanes->array_columns, &odd);
    lanes->source.at = at;
    return groups + second;
}

#else
typedef int wia_lanes_avx512_not_here; /* ISO C forbids an empty file */
#endif
