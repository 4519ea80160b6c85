/* kernel_avx2.c: passes with 16-bit pairs (vpmaddwd): two lanes of eight columns per instruction. */
#include "kernel.h"
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#define UNROLL _Pragma("GCC unroll 4") /* so that sums stay in registers */
#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

enum { PAIRS = WIA_KERNEL_LANES / 2, BLOCK = 4 };

/* Weights of two lanes side by side, for every column; zero beyond lanes and columns in use. */
typedef struct {
    int16_t pair[PAIRS][WIA_KERNEL_COLUMNS][2];
} pairs_t;

/* Two rows of sixteen columns side by side; `high` may be zeros. */
AVX2_INLINE void pack_rows(int16_t to[16][2], __m128i low, __m128i high)
{
    _mm256_storeu_si256((__m256i *)(void *)to[0], _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(low, high)));
    _mm256_storeu_si256((__m256i *)(void *)to[8], _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(low, high)));
}

AVX2_INLINE __m128i load_row(const int8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

AVX2 static void pack_any(const wia_pass_t *pass, pairs_t *out)
{
    int8_t rows[WIA_KERNEL_LANES + 1][WIA_KERNEL_COLUMNS];
    uint32_t lane, half;

    memset(rows, 0, sizeof rows);
    for (lane = 0; lane < pass->lanes; lane++)
        memcpy(rows[lane], pass->weights + (size_t)lane * pass->columns, pass->columns);
    for (lane = 0; lane < pass->lanes; lane += 2u)
        for (half = 0; half < 32u; half += 16u)
            pack_rows(out->pair[lane / 2u] + half, load_row(rows[lane] + half), load_row(rows[lane + 1u] + half));
}

AVX2 static void pack_pairs(const wia_pass_t *pass, pairs_t *out)
{
    uint32_t lane;

    if (pass->columns != 16u) {
        pack_any(pass, out);
        return;
    }
    for (lane = 0; lane + 1u < pass->lanes; lane += 2u)
        pack_rows(out->pair[lane / 2u], load_row(pass->weights + 16u * lane),
                  load_row(pass->weights + 16u * lane + 16u));
    if (lane < pass->lanes)
        pack_rows(out->pair[lane / 2u], load_row(pass->weights + 16u * lane), _mm_setzero_si128());
}

/* All ones in the first `used` of eight 32-bit elements. */
AVX2_INLINE __m256i column_mask(uint32_t used)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)used), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

AVX2_INLINE __m256i load_pairs(const pairs_t *weights, uint32_t pair, uint32_t column)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)weights->pair[pair][column]);
}

AVX2_INLINE void add_eight(int32_t *acc, __m256i sum, uint32_t used, int accumulate)
{
    if (accumulate)
        sum = _mm256_add_epi32(sum, _mm256_loadu_si256((const __m256i *)(const void *)acc));
    if (used >= 8u)
        _mm256_storeu_si256((__m256i *)(void *)acc, sum);
    else if (used > 0u)
        _mm256_maskstore_epi32(acc, column_mask(used), sum);
}

/* Sixteen columns, of which the first `used` are in use. */
AVX2_INLINE void add_sixteen(int32_t *acc, __m256i low, __m256i high, uint32_t used, int accumulate)
{
    add_eight(acc, low, used, accumulate);
    add_eight(acc + 8, high, used > 8u ? used - 8u : 0u, accumulate);
}

/* Positions of a pass, one after the other. */
typedef struct {
    const wia_pass_t *pass;
    const int8_t *row;
    uint32_t x;
} walk_t;

AVX2_INLINE const int8_t *next_position(walk_t *walk)
{
    const int8_t *at = walk->row + (size_t)walk->x * walk->pass->x_step;

    if (++walk->x == walk->pass->width) {
        walk->x = 0u;
        walk->row += walk->pass->y_step;
    }
    return at;
}

/* `count` positions, at most BLOCK: each pair of weights is loaded once for all of them. */
AVX2_INLINE void conv_block(walk_t *walk, const pairs_t *weights, uint32_t first, uint32_t pairs, uint32_t count,
                            int32_t *acc)
{
    int16_t words[BLOCK][WIA_KERNEL_LANES];
    __m256i low[BLOCK], high[BLOCK];
    uint32_t i, pair, half;

UNROLL
    for (i = 0; i < count; i++) {
        const int8_t *ifm = next_position(walk);

        for (half = 0; half < pairs; half += 8u)
            _mm256_storeu_si256((__m256i *)(void *)(words[i] + 2u * half),
                                _mm256_cvtepi8_epi16(load_row(ifm + 2u * half)));
        low[i] = high[i] = _mm256_setzero_si256();
    }
    for (pair = 0; pair < pairs; pair++) {
        __m256i weights_low = load_pairs(weights, pair, first), weights_high = load_pairs(weights, pair, first + 8u);

UNROLL
        for (i = 0; i < count; i++) {
            int32_t two;
            __m256i both;

            memcpy(&two, words[i] + 2u * pair, sizeof two);
            both = _mm256_set1_epi32(two);
            low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(both, weights_low));
            high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(both, weights_high));
        }
    }
UNROLL
    for (i = 0; i < count; i++, acc += walk->pass->acc_stride)
        add_sixteen(acc, low[i], high[i], walk->pass->columns - first, walk->pass->accumulate);
}

AVX2_INLINE void conv_chunk(const wia_pass_t *pass, const pairs_t *weights, uint32_t first, uint32_t pairs)
{
    uint32_t left = pass->width * pass->height;
    int32_t *acc = pass->acc + first;
    walk_t walk = {pass, pass->ifm, 0u};

    for (; left >= BLOCK; left -= BLOCK, acc += (size_t)BLOCK * pass->acc_stride)
        conv_block(&walk, weights, first, pairs, BLOCK, acc);
    for (; left > 0u; left--, acc += pass->acc_stride)
        conv_block(&walk, weights, first, pairs, 1u, acc);
}

AVX2 static void conv(const wia_pass_t *pass)
{
    pairs_t weights;
    uint32_t first, pairs = (pass->lanes + 1u) / 2u;

    pack_pairs(pass, &weights);
    for (first = 0; first < pass->columns; first += 16u)
        if (pairs == 8u)
            conv_chunk(pass, &weights, first, 8u); /* the constant unrolls the loops */
        else
            conv_chunk(pass, &weights, first, pairs);
}

AVX2_INLINE void dwc_position(const wia_pass_t *pass, const int8_t *ifm, const pairs_t *weights, uint32_t first,
                              __m256i *low, __m256i *high)
{
    __m256i sum_low = _mm256_setzero_si256(), sum_high = _mm256_setzero_si256();
    uint32_t lane;

    for (lane = 0; lane < pass->lanes; lane += 2u) {
        uint32_t next = lane + 1u < pass->lanes ? lane + 1u : lane; /* its weights are zero then */
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(ifm + pass->taps[lane]));
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(ifm + pass->taps[next]));
        __m256i both_low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b));
        __m256i both_high = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b));

        sum_low = _mm256_add_epi32(sum_low, _mm256_madd_epi16(both_low, load_pairs(weights, lane / 2u, first)));
        sum_high = _mm256_add_epi32(
            sum_high, _mm256_madd_epi16(both_high, load_pairs(weights, lane / 2u, first + 8u)));
    }
    *low = sum_low;
    *high = sum_high;
}

AVX2 static void dwc_chunk(const wia_pass_t *pass, const pairs_t *weights, uint32_t first)
{
    uint32_t x, y, used = pass->columns - first;
    int32_t *acc = pass->acc + first;

    for (y = 0; y < pass->height; y++) {
        const int8_t *ifm = pass->ifm + first + (size_t)y * pass->y_step;

        for (x = 0; x < pass->width; x++, ifm += pass->x_step, acc += pass->acc_stride) {
            __m256i low, high;

            dwc_position(pass, ifm, weights, first, &low, &high);
            add_sixteen(acc, low, high, used, pass->accumulate);
        }
    }
}

AVX2 static void dwc(const wia_pass_t *pass)
{
    pairs_t weights;
    uint32_t first;

    pack_pairs(pass, &weights);
    for (first = 0; first < pass->columns; first += 16u)
        dwc_chunk(pass, &weights, first);
}

const wia_kernel_t wia_kernel_avx2 = {"avx2", conv, dwc, wia_post_avx2, wia_lanes_row_avx2, NULL,
                                       WIA_LANES_WORDS_AVX2};

#else
typedef int wia_kernel_avx2_not_here; /* ISO C forbids an empty file */
#endif
