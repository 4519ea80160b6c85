"""Fixed point: real scale -> multiplier and shift, and the roundings. Nothing else in the package rounds.

A requantize multiplies an int32 v by the real number multiplier * 2**-shift and rounds once (``double``:
twice, as TFLite does). multiplier is in [0, 2**31), shift in [1, 62], so every product and rounding constant
stays inside int64. docs/numerics.md has the formulas with worked numbers.
"""
from __future__ import annotations

import math

import numpy as np

from ..errors import QuantizeError
from ..isa.table import ROUNDINGS
from .qregion import IDENTITY, Requant

SHIFT_MIN, SHIFT_MAX = 1, 62
MULTIPLIER_LIMIT = 1 << 31
INT8_MIN, INT8_MAX = -128, 127
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
# Below this real scale every int32 times the scale is less than one half, so that each rounding gives 0.
SCALE_UNDERFLOW = 2.0 ** -32
# At and above this real scale the shift would be less than 1.
SCALE_LIMIT = 2.0 ** 30
ZERO = Requant(0, 31)
AVERAGE_LIMIT = 1 << 21  # largest count for which `average` is proven exact


def requantize(v, multiplier, shift, rounding: str) -> np.ndarray:
    """v * multiplier * 2**-shift, rounded: int64 of the broadcast shape of v, multiplier and shift.

    v holds int32 values in any integer dtype; per-channel multiplier and shift have shape (C,) and meet v's
    last axis. rounding is one of `ROUNDINGS`:
      upward    half toward plus infinity, (v*m + 2**(s-1)) >> s; TVM's UPWARD
      nearest   half away from zero; TVM's TONEAREST
      truncate  toward zero
      double    TFLite's two roundings: half up at bit 31, then half away from zero at the other s - 31 bits.
                With s < 31 the value is first shifted left by 31 - s and saturates at int32.
    Raises QuantizeError for an unknown rounding.
    """
    v = np.asarray(v, np.int64)
    m = np.asarray(multiplier, np.int64)
    s = np.asarray(shift, np.int64)
    if rounding == "upward":
        return (v * m + _half(s)) >> s
    if rounding == "nearest":
        return np.sign(v) * ((np.abs(v) * m + _half(s)) >> s)
    if rounding == "truncate":
        return np.sign(v) * ((np.abs(v) * m) >> s)
    if rounding == "double":
        return _requantize_double(v, m, s)
    raise QuantizeError(f"rounding {rounding!r} is unknown; use one of {', '.join(ROUNDINGS)}")


def _half(s: np.ndarray) -> np.ndarray:
    return np.int64(1) << (s - 1)


def _requantize_double(v: np.ndarray, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """TFLite's MultiplyByQuantizedMultiplier: SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT."""
    left = np.maximum(31 - s, 0)
    right = np.maximum(s - 31, 0)
    product = np.clip(v << left, INT32_MIN, INT32_MAX) * m
    high = (product + (1 << 30)) >> 31  # halves go up: TFLite's nudge of a negative product is 1 - 2**30
    remainder = high & ((np.int64(1) << right) - 1)
    threshold = (((np.int64(1) << right) - 1) >> 1) + (high < 0)
    return (high >> right) + (remainder > threshold)


def from_real(scale: float, where: str = "scale") -> Requant:
    """The Requant nearest to `scale`, equal to TVM's GetFixedPointMultiplierShift with shift = 31 - exponent.

    multiplier = round(mantissa * 2**31), half away from zero, in [2**30, 2**31); a mantissa that rounds up to
    2**31 is halved and the shift lowered. A scale below 2**-32 becomes `ZERO`, which is exact: the result of
    every int32 rounds to 0. Raises QuantizeError, with `where`, for zero, negative, NaN and infinite scales
    and for scales of 2**30 and more (no such shift).
    """
    scale = float(scale)
    if not math.isfinite(scale) or scale <= 0.0:
        raise QuantizeError(f"{where}: scale is {scale!r}; it must be a finite number above 0")
    if scale < SCALE_UNDERFLOW:
        return ZERO
    mantissa, exponent = math.frexp(scale)
    multiplier = math.floor(mantissa * MULTIPLIER_LIMIT + 0.5)  # exact: a sum of 53 bits
    if multiplier == MULTIPLIER_LIMIT:
        multiplier, exponent = multiplier // 2, exponent + 1
    if 31 - exponent < SHIFT_MIN:
        raise QuantizeError(f"{where}: scale {scale!r} needs a shift of {31 - exponent}; encodable are "
                            f"{SHIFT_MIN} to {SHIFT_MAX}, so check the scales of the tensors around it")
    return Requant(multiplier, 31 - exponent)


def from_real_channels(scales: np.ndarray, where: str = "scale") -> tuple[np.ndarray, np.ndarray]:
    """`from_real` of each of the float64 (C,) scales: int64 (C,) multipliers and int64 (C,) shifts."""
    scales = np.asarray(scales, np.float64)
    mantissa, exponent = np.frexp(scales)
    with np.errstate(invalid="ignore"):
        multiplier = np.floor(mantissa * MULTIPLIER_LIMIT + 0.5)
    carry = multiplier == MULTIPLIER_LIMIT
    multiplier, shift = np.where(carry, multiplier / 2, multiplier), 31 - exponent.astype(np.int64) - carry
    tiny = scales < SCALE_UNDERFLOW
    wrong = np.flatnonzero(~(np.isfinite(scales) & (scales > 0.0) & (tiny | (shift >= SHIFT_MIN))))
    if wrong.size:
        from_real(scales[wrong[0]], f"{where} channel {wrong[0]}")
    return np.where(tiny, ZERO.multiplier, multiplier).astype(np.int64), np.where(tiny, ZERO.shift, shift)


def real_value(requant: Requant) -> float:
    """The real number that `requant` multiplies by (exact in float64)."""
    return math.ldexp(requant.multiplier, -requant.shift)


def power_of_two(scale: float, where: str = "scale") -> float:
    """The smallest power of two >= scale, for scale="fixed_point"; no value that fitted saturates.

    Raises QuantizeError for scales that are zero, negative, NaN, infinite, or outside 2**-126 .. 2**30.
    """
    scale = float(scale)
    if not math.isfinite(scale) or scale <= 0.0:
        raise QuantizeError(f"{where}: scale is {scale!r}; it must be a finite number above 0")
    mantissa, exponent = math.frexp(scale)
    exponent -= mantissa == 0.5
    if not -126 <= exponent < 30:
        raise QuantizeError(f"{where}: scale {scale!r} has no power of two within 2**-126 .. 2**29; "
                            "rescale the layer")
    return math.ldexp(1.0, exponent)


def average(count: int, where: str = "average") -> Requant:
    """Requant that divides by n = `count`: exactly v / n under "truncate" and "nearest", for |v| <= 128 * n.

    multiplier = ceil(2**s / n), s = 30 + floor(log2 n). With e = multiplier * n - 2**s < n the error |v| e / (n 2**s)
    is less than 1 / (2n), the distance to the next quotient (or tie), while 2 |v| e < 2**s; and 2 |v| e < 256 n**2
    < 2**(10 + 2k) <= 2**(30 + k) for k = floor(log2 n) <= 20; for n = 2**21, e is 0. Raises QuantizeError for counts
    outside 1 .. 2**21.
    """
    if not 1 <= count <= AVERAGE_LIMIT:
        raise QuantizeError(f"{where}: a window of {count} positions; allowed are 1 to {AVERAGE_LIMIT}")
    s = 30 + count.bit_length() - 1
    return Requant(-(-(1 << s) // count), s)


def average_ratio(count: int, ratio: float, where: str = "average") -> Requant:
    """Requant for ratio / count, ratio = x.scale / y.scale in float64, as `from_real` encodes it."""
    return from_real(float(ratio) / count, where)


def round_half_away(x: np.ndarray) -> np.ndarray:
    """Nearest integer of float values, halves away from zero (C's round), as float64; |x| < 2**51."""
    x = np.asarray(x, np.float64)
    whole = np.trunc(x)
    return whole + np.trunc((x - whole) * 2.0)  # x - whole is exact, so 0.49999999999999994 stays 0


def quantize_real(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """float32 reals -> int8: clamp(round(x * (1 / scale)) + zero_point), halves away from zero.

    Reciprocal and quotient are float32, as in the code that TVM makes of qnn.quantize. This is what the host glue does
    at a float input. Infinities saturate; x must not hold NaN.
    """
    with np.errstate(over="ignore", under="ignore"):  # the clamp gives overflow and underflow their meaning
        quotient = np.asarray(x, np.float32) * (np.float32(1.0) / np.float32(scale))
    bounded = np.clip(quotient.astype(np.float64), -1024.0, 1024.0)
    return np.clip(round_half_away(bounded) + zero_point, INT8_MIN, INT8_MAX).astype(np.int8)


def dequantize(q: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """int8 -> float32 reals: float32(q - zero_point) * float32(scale), as the host glue does at an output."""
    with np.errstate(under="ignore"):
        return (np.asarray(q, np.int32) - zero_point).astype(np.float32) * np.float32(scale)


__all__ = ["AVERAGE_LIMIT", "IDENTITY", "INT32_MAX", "INT32_MIN", "INT8_MAX", "INT8_MIN", "MULTIPLIER_LIMIT",
           "SCALE_LIMIT", "SCALE_UNDERFLOW", "SHIFT_MAX", "SHIFT_MIN", "ZERO", "average", "average_ratio",
           "dequantize", "from_real", "from_real_channels", "power_of_two", "quantize_real", "real_value",
           "requantize", "round_half_away"]
