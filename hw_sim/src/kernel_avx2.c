/* kernel_avx2.c: passes with 16-bit pairs (vpmaddwd): two lanes of eight columns per instruction. */
#include "kernel.h"
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

enum { PAIRS = WIA_KERNEL_LANES / 2 };

/* Weights of two lanes side by side, for every column; zero beyond lanes and columns in use. */
typedef struct {
    int16_t pair[PAIRS][WIA_KERNEL_COLUMNS][2];
} pairs_t;

AVX2 static void pack_pairs(const wia_pass_t *pass, pairs_t *out)
{
    int8_t rows[WIA_KERNEL_LANES + 1][WIA_KERNEL_COLUMNS];
    uint32_t lane, half, pairs = (pass->lanes + 1u) / 2u;

    memset(rows, 0, sizeof rows);
    for (lane = 0; lane < pass->lanes; lane++)
        memcpy(rows[lane], pass->weights + (size_t)lane * pass->columns, pass->columns);
    for (lane = 0; lane < pairs; lane++)
        for (half = 0; half < 2; half++) {
            __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(rows[2u * lane] + 16u * half));
            __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(rows[2u * lane + 1u] + 16u * half));
            __m256i low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b));
            __m256i high = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b));

            _mm256_storeu_si256((__m256i *)(void *)out->pair[lane][16u * half], low);
            _mm256_storeu_si256((__m256i *)(void *)out->pair[lane][16u * half + 8u], high);
        }
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

AVX2_INLINE void add_eight(int32_t *acc, __m256i sum, __m256i mask, int accumulate)
{
    if (accumulate)
        sum = _mm256_add_epi32(sum, _mm256_loadu_si256((const __m256i *)(const void *)acc));
    _mm256_maskstore_epi32(acc, mask, sum);
}

AVX2_INLINE void conv_position(const int8_t *ifm, const pairs_t *weights, uint32_t first, uint32_t pairs,
                               __m256i *low, __m256i *high)
{
    __m256i sum_low = _mm256_setzero_si256(), sum_high = _mm256_setzero_si256();
    uint32_t group, pair;

    for (group = 0; group < pairs; group += 8u) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(ifm + 2u * group));
        __m256i words = _mm256_cvtepi8_epi16(bytes);

        for (pair = 0; pair < 8u && group + pair < pairs; pair++) {
            __m256i both = _mm256_permutevar8x32_epi32(words, _mm256_set1_epi32((int)pair));

            sum_low = _mm256_add_epi32(
                sum_low, _mm256_madd_epi16(both, load_pairs(weights, group + pair, first)));
            sum_high = _mm256_add_epi32(
                sum_high, _mm256_madd_epi16(both, load_pairs(weights, group + pair, first + 8u)));
        }
    }
    *low = sum_low;
    *high = sum_high;
}

AVX2_INLINE void conv_chunk(const wia_pass_t *pass, const pairs_t *weights, uint32_t first, uint32_t pairs)
{
    uint32_t x, y, used = pass->columns - first;
    __m256i mask_low = column_mask(used), mask_high = column_mask(used > 8u ? used - 8u : 0u);
    int32_t *acc = pass->acc + first;

    for (y = 0; y < pass->height; y++) {
        const int8_t *ifm = pass->ifm + (size_t)y * pass->y_step;

        for (x = 0; x < pass->width; x++, ifm += pass->x_step, acc += pass->acc_stride) {
            __m256i low, high;

            conv_position(ifm, weights, first, pairs, &low, &high);
            add_eight(acc, low, mask_low, pass->accumulate);
            add_eight(acc + 8, high, mask_high, pass->accumulate);
        }
    }
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
    __m256i mask_low = column_mask(used), mask_high = column_mask(used > 8u ? used - 8u : 0u);
    int32_t *acc = pass->acc + first;

    for (y = 0; y < pass->height; y++) {
        const int8_t *ifm = pass->ifm + first + (size_t)y * pass->y_step;

        for (x = 0; x < pass->width; x++, ifm += pass->x_step, acc += pass->acc_stride) {
            __m256i low, high;

            dwc_position(pass, ifm, weights, first, &low, &high);
            add_eight(acc, low, mask_low, pass->accumulate);
            add_eight(acc + 8, high, mask_high, pass->accumulate);
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

const wia_kernel_t wia_kernel_avx2 = {"avx2", conv, dwc, wia_post_avx2, wia_lanes_row_avx2};

#else
typedef int wia_kernel_avx2_not_here; /* ISO C forbids an empty file */
#endif
