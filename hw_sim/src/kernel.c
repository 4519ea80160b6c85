/* kernel.c: choice of the inner loops, and the portable ones. */
#include "kernel.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#include <stddef.h>
#include <string.h>

#include "wia_sim.h"

enum { CHUNK = 16 }; /* columns summed side by side: constant, so that compilers use vector instructions */

#if defined(__x86_64__) || defined(__i386__)
/* Which vector instructions processor and operating system allow (Intel SDM, CPUID leaves 1 and 7, XCR0).
 * __builtin_cpu_supports would bring 4.5 KiB of tables into every exported library. */
static void vectors(int *avx2, int *avx512)
{
    unsigned a, b, c, d, saved = 0, high;

    *avx2 = *avx512 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 0x6u) != 0x6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) /* XMM and YMM registers are kept */
        return;
    *avx2 = (b & bit_AVX2) != 0;
    *avx512 = *avx2 && (saved & 0xe6u) == 0xe6u && (b & bit_AVX512F) && (c & bit_AVX512VNNI); /* and ZMM, masks */
}
#endif

const wia_kernel_t *wia_kernel_choose(int choice)
{
#if defined(__x86_64__) || defined(__i386__)
    int avx2, avx512;

    if (choice == WIA_SIM_KERNEL_PORTABLE)
        return &wia_kernel_portable; /* without CPUID, which takes 20 us on virtual machines */
    vectors(&avx2, &avx512);
    if (avx512 && (choice == WIA_SIM_KERNEL_AUTO || choice == WIA_SIM_KERNEL_AVX512))
        return &wia_kernel_avx512;
    if (avx2 && (choice == WIA_SIM_KERNEL_AUTO || choice == WIA_SIM_KERNEL_AVX2))
        return &wia_kernel_avx2;
#endif
    if (choice == WIA_SIM_KERNEL_AUTO || choice == WIA_SIM_KERNEL_PORTABLE)
        return &wia_kernel_portable;
    return NULL;
}

/* Columns [first, first + CHUNK) of the tile, widened; zero beyond the columns in use. */
static void widen(const wia_pass_t *pass, uint32_t first, int16_t out[WIA_KERNEL_LANES][CHUNK])
{
    uint32_t lane, column, used = pass->columns - first;

    used = used > CHUNK ? CHUNK : used;
    memset(out, 0, sizeof(int16_t) * CHUNK * WIA_KERNEL_LANES);
    for (lane = 0; lane < pass->lanes; lane++)
        for (column = 0; column < used; column++)
            out[lane][column] = pass->weights[lane * pass->columns + first + column];
}

static void add_chunk(const wia_pass_t *pass, int32_t *acc, const int32_t sum[CHUNK], uint32_t used)
{
    uint32_t column;

    if (used == CHUNK && pass->accumulate)
        for (column = 0; column < CHUNK; column++)
            acc[column] = (int32_t)((uint32_t)acc[column] + (uint32_t)sum[column]);
    else
        for (column = 0; column < used; column++)
            acc[column] = (int32_t)((pass->accumulate ? (uint32_t)acc[column] : 0u) + (uint32_t)sum[column]);
}

static void conv_chunk(const wia_pass_t *pass, uint32_t first, int16_t weights[WIA_KERNEL_LANES][CHUNK])
{
    uint32_t x, y, lane, column, used = pass->columns - first;
    int32_t *acc = pass->acc + first;

    used = used > CHUNK ? CHUNK : used;
    for (y = 0; y < pass->height; y++)
        for (x = 0; x < pass->width; x++, acc += pass->acc_stride) {
            const int8_t *ifm = pass->ifm + (size_t)y * pass->y_step + (size_t)x * pass->x_step;
            int32_t sum[CHUNK] = {0};

            for (lane = 0; lane < pass->lanes; lane++) {
                int16_t value = ifm[lane];

                for (column = 0; column < CHUNK; column++)
                    sum[column] += value * weights[lane][column];
            }
            add_chunk(pass, acc, sum, used);
        }
}

static void conv(const wia_pass_t *pass)
{
    int16_t weights[WIA_KERNEL_LANES][CHUNK];
    uint32_t first;

    for (first = 0; first < pass->columns; first += CHUNK) {
        widen(pass, first, weights);
        conv_chunk(pass, first, weights);
    }
}

static void dwc_chunk(const wia_pass_t *pass, uint32_t first, int16_t weights[WIA_KERNEL_LANES][CHUNK])
{
    uint32_t x, y, lane, column, used = pass->columns - first;
    int32_t *acc = pass->acc + first;

    used = used > CHUNK ? CHUNK : used;
    for (y = 0; y < pass->height; y++)
        for (x = 0; x < pass->width; x++, acc += pass->acc_stride) {
            const int8_t *ifm = pass->ifm + first + (size_t)y * pass->y_step + (size_t)x * pass->x_step;
            int32_t sum[CHUNK] = {0};

            for (lane = 0; lane < pass->lanes; lane++) {
                const int8_t *tap = ifm + pass->taps[lane];

                /* Reads CHUNK bytes, of which the unused ones meet weights of zero: the SRAM has slack. */
                for (column = 0; column < CHUNK; column++)
                    sum[column] += (int16_t)tap[column] * weights[lane][column];
            }
            add_chunk(pass, acc, sum, used);
        }
}

static void dwc(const wia_pass_t *pass)
{
    int16_t weights[WIA_KERNEL_LANES][CHUNK];
    uint32_t first;

    for (first = 0; first < pass->columns; first += CHUNK) {
        widen(pass, first, weights);
        dwc_chunk(pass, first, weights);
    }
}

const wia_kernel_t wia_kernel_portable = {"portable", conv, dwc, wia_post_portable, NULL, NULL, NULL};
