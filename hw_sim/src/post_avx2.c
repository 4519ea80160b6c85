/* post_avx2.c: the post unit, sixteen channels at a time.
 *
 * Products have 64 bits. From a shift of 31 on every requantized value fits into 32 bits, so the low halves of the
 * products' quotients are all there is to keep, and zero points can be added behind the clamp. With smaller shifts,
 * factors of 1 and more, quotients are limited to numbers that the clamp takes for the same.
 */
#include "kernel.h"

#if defined(__x86_64__) || defined(__i386__)

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

enum { CHUNK = 16, EIGHTS = WIA_KERNEL_COLUMNS / 8, NARROW_SHIFT = 31, LIMIT = 1 << 30 };

/* What a loop over positions is compiled for: roundings of both steps, and if a shift is below NARROW_SHIFT. */
typedef struct {
    uint32_t scale, add;
    bool wide;
} variant_t;

/* Factors of eight channels: those of even and of odd ones in the low halves of 64-bit elements. */
typedef struct {
    __m256i multiplier[2];
    __m256i shift[2];
    __m256i constant[2]; /* what is added to a product before the shift */
    __m256i sign[2];     /* 2^63 >> shift */
} factors_t;

typedef struct {
    factors_t scale[EIGHTS];
    __m256i bias[EIGHTS];
    factors_t a, b, out; /* of the residual addition */
} constants_t;

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

/* Even elements of `even` and, moved to the odd places, of `odd`. */
AVX2_INLINE __m256i interleave(__m256i even, __m256i odd)
{
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

/* Of eight channels. */
AVX2 static void set_factors(factors_t *out, const int64_t multiplier[8], const uint32_t shift[8], uint32_t rounding)
{
    uint64_t value[4][4];
    uint32_t half, i;

    for (half = 0; half < 2u; half++) {
        for (i = 0; i < 4u; i++) {
            uint32_t by = shift[2u * i + half];

            value[0][i] = (uint64_t)multiplier[2u * i + half];
            value[1][i] = by;
            value[2][i] = rounding == WIA_ROUNDING_TRUNCATE ? 0u : (uint64_t)1 << (by - 1u);
            value[3][i] = (uint64_t)1 << (63u - by);
            if (rounding == WIA_ROUNDING_DOUBLE) { /* two steps: by 31, then by the rest */
                value[1][i] = by - 31u;
                value[2][i] = (uint64_t)1 << 30;
            }
        }
        out->multiplier[half] = load(value[0]);
        out->shift[half] = load(value[1]);
        out->constant[half] = load(value[2]);
        out->sign[half] = load(value[3]);
    }
}

/* Limit 64-bit numbers to -LIMIT..LIMIT. */
AVX2_INLINE __m256i limit(__m256i v)
{
    const __m256i high = _mm256_set1_epi64x(LIMIT), low = _mm256_set1_epi64x(-LIMIT);

    v = _mm256_blendv_epi8(v, high, _mm256_cmpgt_epi64(v, high));
    return _mm256_blendv_epi8(v, low, _mm256_cmpgt_epi64(low, v));
}

AVX2_INLINE __m256i upward(__m256i v, const factors_t *by, uint32_t half, bool wide)
{
    const __m256i top = _mm256_set1_epi64x((long long)((uint64_t)1 << 63));
    __m256i sum = _mm256_add_epi64(_mm256_mul_epi32(v, by->multiplier[half]), by->constant[half]);

    /* An arithmetic shift: of the sum plus 2^63 as an unsigned number, less what that has become. */
    sum = _mm256_sub_epi64(_mm256_srlv_epi64(_mm256_xor_si256(sum, top), by->shift[half]), by->sign[half]);
    return wide ? limit(sum) : sum;
}

AVX2_INLINE __m256i magnitude(__m256i v, const factors_t *by, uint32_t half, bool wide)
{
    v = _mm256_add_epi64(_mm256_mul_epu32(v, by->multiplier[half]), by->constant[half]);
    v = _mm256_srlv_epi64(v, by->shift[half]);
    return wide ? limit(v) : v;
}

/* The doubling high product, then a division by 2^shift that rounds to nearest, halves away from zero. */
AVX2_INLINE __m256i doubled(__m256i v, const factors_t *by)
{
    const __m256i one = _mm256_set1_epi32(1);
    __m256i even = _mm256_add_epi64(_mm256_mul_epi32(v, by->multiplier[0]), by->constant[0]);
    __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(v, 32), by->multiplier[1]), by->constant[1]);
    __m256i high = interleave(_mm256_srli_epi64(even, 31), _mm256_srli_epi64(odd, 31));
    __m256i shift = interleave(by->shift[0], by->shift[1]);
    __m256i mask = _mm256_sub_epi32(_mm256_sllv_epi32(one, shift), one);
    __m256i threshold = _mm256_add_epi32(_mm256_srli_epi32(mask, 1), _mm256_srli_epi32(high, 31));
    __m256i more = _mm256_cmpgt_epi32(_mm256_and_si256(high, mask), threshold);

    return _mm256_sub_epi32(_mm256_srav_epi32(high, shift), more);
}

/* Low 32 bits of the requantized elements of v, or if `wide` of what `limit` makes of them. */
AVX2_INLINE __m256i requantize(__m256i v, const factors_t *by, uint32_t rounding, bool wide)
{
    __m256i positive, odd;

    switch (rounding) {
    case WIA_ROUNDING_UPWARD:
        odd = upward(_mm256_srli_epi64(v, 32), by, 1u, wide);
        return interleave(upward(v, by, 0u, wide), odd);
    case WIA_ROUNDING_DOUBLE: return doubled(v, by);
    default: /* nearest, truncate: symmetric about zero */
        positive = _mm256_abs_epi32(v);
        odd = magnitude(_mm256_srli_epi64(positive, 32), by, 1u, wide);
        return _mm256_sign_epi32(interleave(magnitude(positive, by, 0u, wide), odd), v);
    }
}

/* clamp(v + zero_point, low, high) */
AVX2_INLINE __m256i clamp(__m256i v, int32_t zero_point, int32_t low, int32_t high)
{
    v = _mm256_max_epi32(v, _mm256_set1_epi32(low - zero_point));
    v = _mm256_min_epi32(v, _mm256_set1_epi32(high - zero_point));
    return _mm256_add_epi32(v, _mm256_set1_epi32(zero_point));
}

AVX2_INLINE __m256i operand(__m256i v, int32_t zero_point, uint32_t left_shift, const factors_t *by, uint32_t rounding)
{
    v = _mm256_sub_epi32(v, _mm256_set1_epi32(zero_point));
    return requantize(_mm256_slli_epi32(v, (int)left_shift), by, rounding, false);
}

AVX2_INLINE __m256i add_residual(__m256i v, __m256i r, const wia_addp_t *addp, const constants_t *constants,
                                 variant_t variant)
{
    v = operand(v, addp->zero_point_a, addp->left_shift, &constants->a, variant.add);
    r = operand(r, addp->zero_point_b, addp->left_shift, &constants->b, variant.add);
    v = requantize(_mm256_add_epi32(v, r), &constants->out, variant.add, variant.wide);
    return clamp(v, addp->zero_point_out, addp->clamp_low, addp->clamp_high);
}

/* The largest of the window's bytes, sixteen channels. */
AVX2_INLINE __m128i maximum(const wia_pgeo_t *geo, const int8_t *a)
{
    __m128i best = _mm_loadu_si128((const __m128i *)(const void *)a);
    uint32_t x, y;

    for (y = 0; y < geo->window_y; y++)
        for (x = 0; x < geo->window_x; x++)
            best = _mm_max_epi8(best, _mm_loadu_si128((const __m128i *)(const void *)(
                                          a + (size_t)y * geo->window_y_stride + (size_t)x * geo->window_x_stride)));
    return best;
}

/* Sixteen bytes of two times eight numbers within -128..127. */
AVX2_INLINE __m128i narrow(__m256i low, __m256i high)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);

    return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* Chunk of one position; the roundings are constants where this is inlined. */
AVX2_INLINE __m128i chunk(const wia_post_pass_t *pass, const constants_t *constants, uint32_t first, const int32_t *acc,
                          const int8_t *a, const int8_t *r, variant_t variant)
{
    const wia_par_t *par = pass->par;
    __m128i best = acc == NULL ? maximum(pass->geo, a + first) : _mm_setzero_si128(), residual = _mm_setzero_si128();
    __m256i v[2];
    uint32_t i;

    if (r != NULL)
        residual = _mm_loadu_si128((const __m128i *)(const void *)(r + first));
    for (i = 0; i < 2u; i++) {
        v[i] = acc == NULL ? _mm256_cvtepi8_epi32(best) : load(acc + first + 8u * i);
        v[i] = _mm256_add_epi32(v[i], constants->bias[first / 8u + i]);
        v[i] = clamp(requantize(v[i], &constants->scale[first / 8u + i], variant.scale, variant.wide), par->zero_point,
                     par->clamp_low, par->clamp_high);
        if (r != NULL)
            v[i] = add_residual(v[i], _mm256_cvtepi8_epi32(residual), pass->addp, constants, variant);
        best = _mm_srli_si128(best, 8);
        residual = _mm_srli_si128(residual, 8);
    }
    return narrow(v[0], v[1]);
}

AVX2_INLINE void put(const wia_post_pass_t *pass, int8_t *out, uint32_t used, __m128i bytes)
{
    int8_t each[CHUNK];
    uint32_t i;

    if (used >= CHUNK && pass->table == NULL) {
        _mm_storeu_si128((__m128i *)(void *)out, bytes);
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)each, bytes);
    for (i = 0; i < used && i < CHUNK; i++)
        out[i] = pass->table != NULL ? pass->table[each[i] + 128] : each[i];
}

AVX2_INLINE void positions(const wia_post_pass_t *pass, const constants_t *constants, variant_t variant)
{
    const wia_pgeo_t *geo = pass->geo;
    const int32_t *acc = pass->acc;
    __m128i bytes[WIA_KERNEL_COLUMNS / CHUNK];
    uint32_t x, y, first;

    for (y = 0; y < geo->height; y++)
        for (x = 0; x < geo->width; x++) {
            const int8_t *a = acc == NULL ? pass->a + (size_t)y * geo->a_y_step + (size_t)x * geo->a_x_step : NULL;
            const int8_t *r = pass->r == NULL ? NULL : pass->r + (size_t)y * geo->r_y_step + (size_t)x * geo->r_x_step;
            int8_t *out = pass->out + (size_t)y * geo->out_y_step + (size_t)x * geo->out_x_step;

            for (first = 0; first < pass->columns; first += CHUNK)
                bytes[first / CHUNK] = chunk(pass, constants, first, acc, a, r, variant);
            for (first = 0; first < pass->columns; first += CHUNK)
                put(pass, out + first, pass->columns - first, bytes[first / CHUNK]);
            if (acc != NULL)
                acc += pass->acc_stride;
        }
}

/* The smallest shift before a clamp. */
static uint32_t least_shift(const wia_post_pass_t *pass)
{
    uint32_t column, least = pass->r != NULL ? pass->addp->shift_out : UINT32_MAX;

    for (column = 0; column < pass->columns; column++)
        least = pass->shift[column] < least ? pass->shift[column] : least;
    return least;
}

/* Rounding `double` with a shift below 31 saturates before it multiplies. */
static bool saturates(const wia_post_pass_t *pass)
{
    const wia_addp_t *addp = pass->addp;
    uint32_t column;

    if (pass->par->rounding == WIA_ROUNDING_DOUBLE)
        for (column = 0; column < pass->columns; column++)
            if (pass->shift[column] < NARROW_SHIFT)
                return true;
    return pass->r != NULL && addp->rounding == WIA_ROUNDING_DOUBLE &&
           (addp->shift_a < NARROW_SHIFT || addp->shift_b < NARROW_SHIFT || addp->shift_out < NARROW_SHIFT);
}

AVX2 static void set_uniform(factors_t *out, uint32_t multiplier, uint32_t shift, uint32_t rounding)
{
    int64_t multipliers[8];
    uint32_t shifts[8], i;

    for (i = 0; i < 8u; i++) {
        multipliers[i] = multiplier;
        shifts[i] = shift;
    }
    set_factors(out, multipliers, shifts, rounding);
}

/* Columns that are not in use get factors of zero. */
AVX2 static void set_constants(const wia_post_pass_t *pass, constants_t *out)
{
    int64_t multiplier[WIA_KERNEL_COLUMNS] = {0};
    uint32_t shift[WIA_KERNEL_COLUMNS], column;
    int32_t bias[WIA_KERNEL_COLUMNS] = {0};

    for (column = 0; column < WIA_KERNEL_COLUMNS; column++)
        shift[column] = column < pass->columns ? pass->shift[column] : NARROW_SHIFT;
    memcpy(multiplier, pass->multiplier, pass->columns * sizeof *multiplier);
    memcpy(bias, pass->bias, pass->columns * sizeof *bias);
    for (column = 0; column < pass->columns; column += 8u) {
        set_factors(&out->scale[column / 8u], multiplier + column, shift + column, pass->par->rounding);
        out->bias[column / 8u] = load(bias + column);
    }
    if (pass->columns % CHUNK <= 8u && pass->columns % CHUNK != 0u) { /* the other half of the last chunk */
        column = pass->columns / CHUNK * CHUNK + 8u;
        set_factors(&out->scale[column / 8u], multiplier + column, shift + column, pass->par->rounding);
        out->bias[column / 8u] = _mm256_setzero_si256();
    }
    if (pass->r != NULL) {
        set_uniform(&out->a, pass->addp->multiplier_a, pass->addp->shift_a, pass->addp->rounding);
        set_uniform(&out->b, pass->addp->multiplier_b, pass->addp->shift_b, pass->addp->rounding);
        set_uniform(&out->out, pass->addp->multiplier_out, pass->addp->shift_out, pass->addp->rounding);
    }
}

/* One variant of its own only: each takes 2 KB of every exported library. */
AVX2 static void compute(const wia_post_pass_t *pass, const constants_t *constants)
{
    variant_t variant = {pass->par->rounding, pass->r != NULL ? pass->addp->rounding : pass->par->rounding,
                         least_shift(pass) < NARROW_SHIFT};

    if (variant.scale == WIA_ROUNDING_UPWARD && variant.add == WIA_ROUNDING_UPWARD && !variant.wide)
        positions(pass, constants, (variant_t){WIA_ROUNDING_UPWARD, WIA_ROUNDING_UPWARD, false});
    else
        positions(pass, constants, variant);
}

AVX2 void wia_post_avx2(const wia_post_pass_t *pass)
{
    constants_t constants;

    if (saturates(pass)) {
        wia_post_portable(pass);
        return;
    }
    set_constants(pass, &constants);
    compute(pass, &constants);
}

#else
typedef int wia_post_avx2_not_here; /* ISO C forbids an empty file */
#endif
