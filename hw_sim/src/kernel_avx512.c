/* kernel_avx512.c: passes with byte quads (vpdpbusd of AVX-512 VNNI): four lanes of sixteen columns at once.
 *
 * The instruction multiplies unsigned by signed bytes, so activations get 128 added (the top bit flipped) and
 * the sums start from -128 times the sum of the weights of their column; both wrap at int32 like the machine.
 */
#include "kernel.h"
#include "lanes.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#define VNNI __attribute__((target("avx512f,avx512vnni,avx2")))
#define VNNI_INLINE static inline __attribute__((target("avx512f,avx512vnni,avx2"), always_inline))

enum { QUADS = WIA_KERNEL_LANES / 4, CHUNK = 16 };

/* Weights of four lanes side by side for sixteen columns; zero beyond lanes and columns in use. */
typedef struct {
    int8_t quad[QUADS][CHUNK][4];
    int32_t start[CHUNK];
} quads_t;

VNNI static void pack_quads(const wia_pass_t *pass, uint32_t first, quads_t *out)
{
    int8_t rows[WIA_KERNEL_LANES][CHUNK];
    uint32_t lane, quad, quads = (pass->lanes + 3u) / 4u, used = pass->columns - first;
    __m512i flip = _mm512_set1_epi32((int)0x80808080u), sum = _mm512_setzero_si512();

    used = used > CHUNK ? CHUNK : used;
    memset(rows, 0, sizeof rows);
    for (lane = 0; lane < pass->lanes; lane++)
        memcpy(rows[lane], pass->weights + (size_t)lane * pass->columns + first, used);
    for (quad = 0; quad < quads; quad++) {
        const __m128i *row = (const __m128i *)(const void *)rows[4u * quad];
        __m128i a = _mm_loadu_si128(row), b = _mm_loadu_si128(row + 1);
        __m128i c = _mm_loadu_si128(row + 2), d = _mm_loadu_si128(row + 3);
        __m128i ab_low = _mm_unpacklo_epi8(a, b), ab_high = _mm_unpackhi_epi8(a, b);
        __m128i cd_low = _mm_unpacklo_epi8(c, d), cd_high = _mm_unpackhi_epi8(c, d);
        __m128i *to = (__m128i *)(void *)out->quad[quad];

        _mm_storeu_si128(to, _mm_unpacklo_epi16(ab_low, cd_low));
        _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(ab_low, cd_low));
        _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(ab_high, cd_high));
        _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(ab_high, cd_high));
        sum = _mm512_dpbusd_epi32(sum, flip, _mm512_loadu_si512(to)); /* 128 * weights */
    }
    _mm512_storeu_si512(out->start, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
}

VNNI_INLINE void conv_chunk(const wia_pass_t *pass, const quads_t *weights, uint32_t first, uint32_t quads)
{
    uint32_t x, y, quad, used = pass->columns - first;
    __mmask16 mask = (__mmask16)(used >= CHUNK ? 0xffffu : (1u << used) - 1u);
    __mmask16 keep = pass->accumulate ? mask : 0;
    __m512i flip = _mm512_set1_epi32((int)0x80808080u), start = _mm512_loadu_si512(weights->start);
    int32_t *acc = pass->acc + first;

    for (y = 0; y < pass->height; y++) {
        const int8_t *ifm = pass->ifm + (size_t)y * pass->y_step;

        for (x = 0; x < pass->width; x++, ifm += pass->x_step, acc += pass->acc_stride) {
            __m512i sum = _mm512_add_epi32(start, _mm512_maskz_loadu_epi32(keep, acc));

            for (quad = 0; quad < quads; quad++) {
                int32_t lanes;

                memcpy(&lanes, ifm + 4u * quad, sizeof lanes);
                sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_set1_epi32(lanes), flip),
                                          _mm512_loadu_si512(weights->quad[quad]));
            }
            _mm512_mask_storeu_epi32(acc, mask, sum);
        }
    }
}

VNNI static void conv(const wia_pass_t *pass)
{
    quads_t weights;
    uint32_t first, quads = (pass->lanes + 3u) / 4u;

    for (first = 0; first < pass->columns; first += CHUNK) {
        pack_quads(pass, first, &weights);
        if (quads == 4u)
            conv_chunk(pass, &weights, first, 4u); /* the constant unrolls the loop */
        else
            conv_chunk(pass, &weights, first, quads);
    }
}

static void dwc(const wia_pass_t *pass)
{
    wia_kernel_avx2.dwc(pass); /* one byte per column and tap: quads would need transposed activations */
}

const wia_kernel_t wia_kernel_avx512 = {"avx512", conv, dwc, wia_post_avx2, wia_lanes_row_avx512};

#else
typedef int wia_kernel_avx512_not_here; /* ISO C forbids an empty file */
#endif
