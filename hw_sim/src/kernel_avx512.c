/* kernel_avx512.c: passes with byte quads (vpdpbusd of AVX-512 VNNI): four lanes of sixteen columns at once.
 *
 * The instruction multiplies unsigned by signed bytes, so activations get 128 added (the top bit flipped) and
 * the sums start from -128 times the sum of the weights of their column; both wrap at int32 like the machine.
 */
#include "kernel.h"
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define VNNI __attribute__((target("avx512f,avx512vnni,avx2")))
#define VNNI_INLINE static inline __attribute__((target("avx512f,avx512vnni,avx2"), always_inline))

enum { QUADS = WIA_KERNEL_LANES / 4, CHUNK = 16, REGISTERED = 16 };

/* Weights of four lanes side by side for sixteen columns; zero beyond lanes and columns in use, in REGISTERED
 * lanes at least. */
typedef struct {
    int8_t quad[QUADS][CHUNK][4];
    int32_t start[CHUNK];
} quads_t;

/* Four rows of sixteen columns side by side; adds 128 times their sums to *sum. */
VNNI_INLINE void pack_rows(int8_t to[CHUNK][4], __m128i a, __m128i b, __m128i c, __m128i d, __m512i *sum)
{
    __m128i ab_low = _mm_unpacklo_epi8(a, b), ab_high = _mm_unpackhi_epi8(a, b);
    __m128i cd_low = _mm_unpacklo_epi8(c, d), cd_high = _mm_unpackhi_epi8(c, d);
    __m256i low = _mm256_set_m128i(_mm_unpackhi_epi16(ab_low, cd_low), _mm_unpacklo_epi16(ab_low, cd_low));
    __m256i high = _mm256_set_m128i(_mm_unpackhi_epi16(ab_high, cd_high), _mm_unpacklo_epi16(ab_high, cd_high));
    __m512i quads = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);

    *sum = _mm512_dpbusd_epi32(*sum, _mm512_set1_epi32((int)0x80808080u), quads);
    _mm512_storeu_si512(to, quads);
}

VNNI_INLINE __m128i load_row(const int8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

VNNI static void pack_quads(const wia_pass_t *pass, uint32_t first, quads_t *out)
{
    int8_t rest[WIA_KERNEL_LANES][CHUNK];
    uint32_t lane = 0u, left, used = pass->columns - first, lanes = pass->lanes > REGISTERED ? pass->lanes : REGISTERED;
    __m512i sum = _mm512_setzero_si512();

    if (pass->columns == CHUNK)
        for (; lane + 4u <= pass->lanes; lane += 4u) {
            const int8_t *row = pass->weights + CHUNK * lane;

            pack_rows(out->quad[lane / 4u], load_row(row), load_row(row + CHUNK), load_row(row + 2 * CHUNK),
                      load_row(row + 3 * CHUNK), &sum);
        }
    if (lane < lanes) {
        memset(rest, 0, sizeof rest);
        for (left = lane; left < pass->lanes; left++)
            memcpy(rest[left], pass->weights + (size_t)left * pass->columns + first, used > CHUNK ? CHUNK : used);
        for (; lane < lanes; lane += 4u)
            pack_rows(out->quad[lane / 4u], load_row(rest[lane]), load_row(rest[lane + 1u]), load_row(rest[lane + 2u]),
                      load_row(rest[lane + 3u]), &sum);
    }
    _mm512_storeu_si512(out->start, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
}

/* Lanes of one quad of a position, which all columns get. */
VNNI_INLINE __m512i add_quad(__m512i sum, const int8_t *ifm, __m512i weights)
{
    const __m512i flip = _mm512_set1_epi32((int)0x80808080u);
    int32_t lanes;

    memcpy(&lanes, ifm, sizeof lanes);
    return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_set1_epi32(lanes), flip), weights);
}

/* `registered`: all weights stay in registers. */
VNNI_INLINE void conv_chunk(const wia_pass_t *pass, const quads_t *weights, uint32_t first, bool registered)
{
    uint32_t x, y, quad, quads = (pass->lanes + 3u) / 4u, used = pass->columns - first;
    __mmask16 mask = (__mmask16)(used >= CHUNK ? 0xffffu : (1u << used) - 1u);
    __mmask16 keep = pass->accumulate ? mask : 0;
    __m512i start = _mm512_loadu_si512(weights->start);
    __m512i a = _mm512_loadu_si512(weights->quad[0]), b = _mm512_loadu_si512(weights->quad[1]);
    __m512i c = _mm512_loadu_si512(weights->quad[2]), d = _mm512_loadu_si512(weights->quad[3]);
    int32_t *acc = pass->acc + first;

    for (y = 0; y < pass->height; y++) {
        const int8_t *ifm = pass->ifm + (size_t)y * pass->y_step;

        for (x = 0; x < pass->width; x++, ifm += pass->x_step, acc += pass->acc_stride) {
            __m512i sum = _mm512_add_epi32(start, _mm512_maskz_loadu_epi32(keep, acc));

            if (registered)
                sum = add_quad(add_quad(add_quad(add_quad(sum, ifm, a), ifm + 4, b), ifm + 8, c), ifm + 12, d);
            else
                for (quad = 0; quad < quads; quad++)
                    sum = add_quad(sum, ifm + 4u * quad, _mm512_loadu_si512(weights->quad[quad]));
            _mm512_mask_storeu_epi32(acc, mask, sum);
        }
    }
}

VNNI static void conv(const wia_pass_t *pass)
{
    quads_t weights;
    uint32_t first;

    for (first = 0; first < pass->columns; first += CHUNK) {
        pack_quads(pass, first, &weights);
        if (pass->lanes <= REGISTERED)
            conv_chunk(pass, &weights, first, true);
        else
            conv_chunk(pass, &weights, first, false);
    }
}

static void dwc(const wia_pass_t *pass)
{
    wia_kernel_avx2.dwc(pass); /* one byte per column and tap: quads would need transposed activations */
}

const wia_kernel_t wia_kernel_avx512 = {"avx512", conv, dwc, wia_post_avx2, wia_lanes_row_avx512,
                                        wia_lanes_tile_avx512, WIA_LANES_WORDS_AVX2};

#else
typedef int wia_kernel_avx512_not_here; /* ISO C forbids an empty file */
#endif
