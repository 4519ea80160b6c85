/* fixed.h: requantize, the only rounding of the machine; equals byoc_accel/quantize/fixedpoint.py (tested).
 *
 * v is any int32, multiplier is below 2^31 and shift is in 1..62, so no product or rounding constant leaves
 * int64. Right shifts of negative numbers are arithmetic on every compiler this project supports.
 */
#ifndef WIA_SIM_FIXED_H
#define WIA_SIM_FIXED_H

#include <stdint.h>

#include "wia/gen/wia_isa.h"

static inline int64_t wia_fixed_upward(int32_t v, int64_t multiplier, uint32_t shift)
{
    return (v * multiplier + ((int64_t)1 << (shift - 1u))) >> shift;
}

static inline int64_t wia_fixed_nearest(int32_t v, int64_t multiplier, uint32_t shift)
{
    int64_t half = (int64_t)1 << (shift - 1u);
    int64_t product = v * multiplier;

    return product < 0 ? -((half - product) >> shift) : (product + half) >> shift;
}

static inline int64_t wia_fixed_truncate(int32_t v, int64_t multiplier, uint32_t shift)
{
    int64_t product = v * multiplier;

    return product < 0 ? -(-product >> shift) : product >> shift;
}

/* TFLite: SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT. */
static inline int64_t wia_fixed_double(int32_t v, int64_t multiplier, uint32_t shift)
{
    uint32_t left = shift < 31u ? 31u - shift : 0u;
    uint32_t right = shift > 31u ? shift - 31u : 0u;
    int64_t shifted = v * ((int64_t)1 << left);
    int64_t high, mask, threshold;

    shifted = shifted > INT32_MAX ? INT32_MAX : shifted < INT32_MIN ? INT32_MIN : shifted;
    high = (shifted * multiplier + ((int64_t)1 << 30)) >> 31;
    mask = ((int64_t)1 << right) - 1;
    threshold = (mask >> 1) + (high < 0);
    return (high >> right) + ((high & mask) > threshold);
}

static inline int64_t wia_fixed_requantize(int32_t v, int64_t multiplier, uint32_t shift, uint32_t rounding)
{
    switch (rounding) {
    case WIA_ROUNDING_UPWARD: return wia_fixed_upward(v, multiplier, shift);
    case WIA_ROUNDING_NEAREST: return wia_fixed_nearest(v, multiplier, shift);
    case WIA_ROUNDING_TRUNCATE: return wia_fixed_truncate(v, multiplier, shift);
    default: return wia_fixed_double(v, multiplier, shift);
    }
}

static inline int32_t wia_fixed_clamp(int64_t v, int32_t low, int32_t high)
{
    v = v < low ? low : v;
    return (int32_t)(v > high ? high : v);
}

/* Low 32 bits as a signed number: what a 32-bit adder keeps. */
static inline int32_t wia_fixed_wrap(int64_t v)
{
    return (int32_t)(uint32_t)(uint64_t)v;
}

#endif
