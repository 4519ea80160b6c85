"""Channel parameters of a post instruction, rewritten to equal ones of fewer bits.

A channel maps v = accumulator + bias to clamp(requantize(v) + zero_point), and its accumulator is known to stay within
bounds. Two sets of parameters are equal when they agree on every accumulator within them. The map never falls, so it is
its thresholds: the least v of each result.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..isa.parameters import MULTIPLIER_BITS, TOP_BIT
from ..isa.semantics import INT32_MAX, INT32_MIN, requantize

MAX_SHIFT = 53  # (2 * 255 + 1) * 2^(MAX_SHIFT - 1) fits 63 bits
LEAST_CONSTANT_SHIFT = 31  # a shift of 30 has its thresholds between integers


@dataclass(frozen=True)
class Channels:
    """Parameters of up to array.columns channels: int arrays (columns,), zero point and clamp of the first stage."""

    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    rounding: str
    zero_point: int
    clamp: tuple[int, int]

    @property
    def uniform(self) -> bool:
        """One multiplier and shift for all channels."""
        return len(set(zip(self.multiplier.tolist(), self.shift.tolist()))) == 1

    def apply(self, v: np.ndarray) -> np.ndarray:
        """Results of accumulators plus bias: int64 (..., columns) of either."""
        scaled = requantize(v, self.multiplier.astype(np.int64), self.shift.astype(np.int64), self.rounding)
        return np.clip(scaled + self.zero_point, *self.clamp)


def reach(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest accumulator for int8 inputs: int64 (columns,) each; `weight` int8 (columns, ...)."""
    flat = weight.reshape(len(weight), -1).astype(np.int64)
    positive, negative = np.maximum(flat, 0).sum(axis=1), np.minimum(flat, 0).sum(axis=1)
    return 127 * negative - 128 * positive, 127 * positive - 128 * negative


def simplify(channels: Channels, low: np.ndarray, high: np.ndarray) -> Channels:
    """Parameters with the same result for every accumulator from `low` to `high`, int64 (columns,).

    Multipliers get as many low zero bits as all channels allow; a channel of one result gets a short bias. Left alone:
    a uniform multiplier, which is one field already, and roundings other than "upward".
    """
    if channels.rounding != "upward" or channels.uniform:
        return channels
    low, high = low + channels.bias, high + channels.bias
    known = (low >= INT32_MIN) & (high <= INT32_MAX)
    able = known & (channels.shift <= MAX_SHIFT) & (channels.multiplier >= TOP_BIT)
    first, last = channels.apply(low), channels.apply(high)
    multiplier, bias, shift = (x.astype(np.int64).copy() for x in (channels.multiplier, channels.bias, channels.shift))
    live = (first < last) | ~known
    if (able | ~live).all() and live.any():
        multiplier[live] = _short_multipliers(channels, low, high, first, last)[live]
    out = replace(channels, multiplier=multiplier, bias=bias, shift=shift)
    for channel in np.flatnonzero(~live):
        _shorten_constant(out, channel, int(low[channel]), int(high[channel]), int(first[channel]), live)
    return out


def _short_multipliers(channels: Channels, low: np.ndarray, high: np.ndarray, first: np.ndarray,
                       last: np.ndarray) -> np.ndarray:
    """Multipliers int64 (columns,) with the fewest bits that map v in [low, high] alike, onto [first, last].

    v reaches result q when v * multiplier >= A = (2 (q - zero_point) - 1) * 2^(shift - 1). With t the least such v,
    multipliers that keep it satisfy t * m >= A > (t - 1) * m; at the ends of the range, low and high stand for t and
    t - 1.
    """
    m = np.maximum(channels.multiplier, 1).astype(np.int64)  # others than live channels may have anything
    shift = np.minimum(channels.shift, MAX_SHIFT).astype(np.int64)
    q = np.arange(int(first.min()), int(last.max()) + 2)[:, None]
    a = (2 * (q - channels.zero_point) - 1) << (shift - 1)
    t = -(-a // m)
    reached = np.where(q == first, low, t)
    missed = np.where(q > last, high, t - 1)
    reaches = (q <= last) & (q >= np.maximum(first, channels.clamp[0] + 1))
    misses = (q > first) & (q <= np.minimum(last + 1, channels.clamp[1]))
    least, most = np.full_like(t, TOP_BIT), np.full_like(t, 2 * TOP_BIT - 1)
    up, down = reaches & (reached > 0), reaches & (reached < 0)
    least[up] = -(-a[up] // reached[up])
    most[down] = a[down] // reached[down]
    up, down = misses & (missed > 0), misses & (missed < 0)
    most[up] = np.minimum(most[up], -(-a[up] // missed[up]) - 1)
    least[down] = np.maximum(least[down], a[down] // missed[down] + 1)
    bottom, top = np.maximum(least.max(axis=0), TOP_BIT), np.minimum(most.min(axis=0), 2 * TOP_BIT - 1)
    live = first < last
    for zeros in range(MULTIPLIER_BITS - 1, -1, -1):
        short = -(-bottom >> zeros) << zeros
        if (short <= top)[live].all():
            return short
    return m


def _shorten_constant(channels: Channels, channel: int, low: int, high: int, result: int, live: np.ndarray) -> None:
    """Replace, in place, the parameters of a channel whose results are all `result` for low <= v <= high."""
    bias = int(channels.bias[channel])
    low, high = low - bias, high - bias  # of the accumulator
    shifts = np.unique(channels.shift[live]).tolist() or [LEAST_CONSTANT_SHIFT]
    best = (INT32_MAX if live.any() else abs(bias), bias, None)  # beside live channels, one of their shifts pays
    for shift in shifts:
        if not LEAST_CONSTANT_SHIFT <= shift <= MAX_SHIFT:
            continue
        half = 1 << (shift - LEAST_CONSTANT_SHIFT)  # v = half * 2 is one step of the result
        steps = 2 * (result - channels.zero_point)
        least = (steps - 1) * half - low if result > channels.clamp[0] else INT32_MIN - low
        most = (steps + 1) * half - 1 - high if result < channels.clamp[1] else INT32_MAX - high
        value = min(max(0, least), most)
        if least <= most and INT32_MIN <= value <= INT32_MAX and abs(value) < best[0]:
            best = (abs(value), value, shift)
    if best[2] is not None:
        channels.bias[channel], channels.multiplier[channel], channels.shift[channel] = best[1], TOP_BIT, best[2]
