/* lanes_avx512.c: a row of codec lanes, sixteen lanes at a time. */
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx2,popcnt")))
#define AVX512_INLINE static inline __attribute__((target("avx512f,avx2,popcnt"), always_inline))

enum { BLOCK = 16 };

AVX512_INLINE __mmask16 live_columns(const wia_lanes_t *lanes, uint32_t column)
{
    return (__mmask16)(lanes->live_columns >> column);
}

/* Lanes with a symbol. */
AVX512_INLINE __mmask16 active_lanes(const wia_lanes_t *lanes, uint32_t lane, uint32_t column)
{
    return _mm512_mask_testn_epi32_mask(live_columns(lanes, column), _mm512_loadu_si512(lanes->idle + lane),
                                        _mm512_set1_epi32(-1));
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

/* Sixteen lanes; the low bytes of the result are their weights. */
AVX512_INLINE __m512i decode_block(wia_lanes_t *lanes, uint32_t lane, uint32_t column, const uint8_t **at)
{
    const __m512i all = _mm512_set1_epi32(32), one = _mm512_set1_epi32(1), ones = _mm512_set1_epi32(-1);
    __mmask16 live = live_columns(lanes, column), active = active_lanes(lanes, lane, column), asks, is_value, waits, run;
    __m512i next = _mm512_loadu_si512(lanes->next + lane), after = _mm512_loadu_si512(lanes->after + lane);
    __m512i held = _mm512_loadu_si512(lanes->held + lane), idle = _mm512_loadu_si512(lanes->idle + lane);
    __m512i words, entry, extra, length, kind, base, negative, value;

    asks = _mm512_mask_cmplt_epi32_mask(active, held, _mm512_set1_epi32(WIA_LANES_BITS));
    words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)*at));
    words = _mm512_slli_epi32(_mm512_maskz_expand_epi32(asks, words), WIA_LANES_WORD_BITS);
    *at += 2u * (uint32_t)__builtin_popcount(asks);
    next = _mm512_or_si512(next, _mm512_srlv_epi32(words, held));
    after = _mm512_or_si512(after, _mm512_sllv_epi32(words, _mm512_sub_epi32(all, held)));
    held = _mm512_mask_add_epi32(held, asks, held, _mm512_set1_epi32(WIA_LANES_WORD_BITS));

    entry = _mm512_maskz_mov_epi32(active, find_entries(lanes, _mm512_srli_epi32(next, 32 - WIA_LANES_CODE_BITS)));
    extra = _mm512_sllv_epi32(next, _mm512_and_si512(_mm512_srli_epi32(entry, 16), _mm512_set1_epi32(15)));
    extra = _mm512_srlv_epi32(extra, _mm512_and_si512(_mm512_srli_epi32(entry, 8), _mm512_set1_epi32(63)));
    length = _mm512_and_si512(entry, _mm512_set1_epi32(31));
    kind = _mm512_and_si512(entry, _mm512_set1_epi32(3 << 20));
    base = _mm512_srli_epi32(entry, 24);
    is_value = _mm512_mask_testn_epi32_mask(active, kind, ones);
    _mm512_storeu_si512(lanes->next + lane, _mm512_or_si512(_mm512_sllv_epi32(next, length),
                                                            _mm512_srlv_epi32(after, _mm512_sub_epi32(all, length))));
    _mm512_storeu_si512(lanes->after + lane, _mm512_sllv_epi32(after, length));
    _mm512_storeu_si512(lanes->held + lane, _mm512_sub_epi32(held, length));

    if (is_value != live) { /* runs of zeros: some go on, some begin */
        waits = _mm512_mask_cmpneq_epi32_mask((__mmask16)(live & ~active), idle, ones); /* not for ever */
        idle = _mm512_mask_add_epi32(idle, waits, idle, ones);
        run = _mm512_mask_cmpeq_epi32_mask(active, kind, _mm512_set1_epi32(WIA_LANES_RUN << 20));
        idle = _mm512_mask_add_epi32(idle, run, _mm512_add_epi32(base, extra), ones);
        run = _mm512_mask_cmpeq_epi32_mask(active, kind, _mm512_set1_epi32(WIA_LANES_REST << 20));
        idle = _mm512_mask_mov_epi32(idle, run, ones);
        _mm512_storeu_si512(lanes->idle + lane, idle);
    }
    /* A negative value is the complement of its magnitude - 1. */
    negative = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_and_si512(extra, one));
    value = _mm512_xor_si512(_mm512_add_epi32(base, _mm512_srli_epi32(extra, 1)), negative);
    value = _mm512_maskz_add_epi32(is_value, _mm512_add_epi32(value, one), negative);
    return _mm512_maskz_add_epi32(live, value, _mm512_set1_epi32(lanes->centre));
}

AVX512 uint32_t wia_lanes_row_avx512(wia_lanes_t *lanes, uint32_t first, int8_t *values)
{
    const uint8_t *at = lanes->source.at, *begin = at;
    uint32_t column, dry = 0u;

    for (column = 0; column < lanes->columns; column += BLOCK)
        dry |= _mm512_mask_cmplt_epi32_mask(active_lanes(lanes, first + column, column),
                                            _mm512_loadu_si512(lanes->held + first + column),
                                            _mm512_set1_epi32(WIA_LANES_WORD_BITS));
    if (dry != 0u)
        return WIA_LANES_NOT_YET;
    for (column = 0; column < lanes->columns; column += BLOCK) {
        uint32_t used = lanes->columns - column;
        /* Converting straight to memory under a mask takes a hundred cycles on some processors. */
        __m128i bytes = _mm512_cvtepi32_epi8(decode_block(lanes, first + column, column, &at));

        if (used >= BLOCK)
            _mm_storeu_si128((__m128i *)(void *)(values + column), bytes);
        else
            memcpy(values + column, &bytes, used);
    }
    lanes->source.at = at;
    return (uint32_t)(at - begin) / 2u;
}

#else
typedef int wia_lanes_avx512_not_here; /* ISO C forbids an empty file */
#endif
