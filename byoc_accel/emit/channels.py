"""Channel parameters of a post instruction, rewritten to equal ones of fewer bits.

A channel maps v = accumulator + bias to clamp(requantize(v) + zero_point), and its accumulator is known to stay within
bounds. Two sets of parameters are equal when they agree on every accumulator within them. The map never falls, so it is
its thresholds: the least v of each result.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..isa.parameters import TOP_BIT, parameters
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

    @cached_property
    def uniform(self) -> bool:
        """One multiplier and shift for all channels."""
        return bool((self.multiplier == self.multiplier[0]).all() and (self.shift == self.shift[0]).all())

    def part(self, group: slice) -> Channels:
        """Only the channels of `group`."""
        return replace(self, bias=self.bias[group], multiplier=self.multiplier[group], shift=self.shift[group])

    @cached_property
    def fields(self) -> dict[str, object]:
        """Fields and payload of the par, with one multiplier for all channels where they agree."""
        count = 1 if self.uniform else len(self.bias)
        values = parameters(self.bias, self.multiplier[:count], self.shift[:count], self.uniform)
        return {**values, "rounding": self.rounding, "zero_point": self.zero_point, "clamp_low": self.clamp[0],
                "clamp_high": self.clamp[1]}

    def apply(self, v: np.ndarray) -> np.ndarray:
        """Results of accumulators plus bias: int64 (..., columns) of either."""
        scaled = requantize(v, self.multiplier.astype(np.int64), self.shift.astype(np.int64), self.rounding)
        return np.clip(scaled + self.zero_point, *self.clamp)


def reach(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest accumulator for int8 inputs: int64 (columns,) each; `weight` int8 (columns, ...)."""
    flat = weight.reshape(len(weight), -1)
    positive, negative = (f(flat, 0).sum(axis=1, dtype=np.int64) for f in (np.maximum, np.minimum))
    return 127 * negative - 128 * positive, 127 * positive - 128 * negative


class _Facts(NamedTuple):
    """Of every channel: least and greatest accumulator plus bias, the results of both, whether there are several,
    whether multipliers may be shortened, and between which a multiplier gives the same results."""

    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    last: np.ndarray
    live: np.ndarray
    able: np.ndarray
    bottom: np.ndarray
    top: np.ndarray


def simplify(channels: Channels, low: np.ndarray, high: np.ndarray, columns: int) -> list[Channels]:
    """Groups of `columns` channels with the same result for every accumulator from `low` to `high`, int64 (channels,).

    Multipliers get as many low zero bits as all of a group allow; a channel of one result gets a short bias. Left
    alone: a uniform multiplier, which is one field already, and roundings other than "upward".
    """
    groups = [slice(i, i + columns) for i in range(0, len(channels.bias), columns)]
    parts = [channels.part(group) for group in groups]
    if channels.rounding != "upward" or all(part.uniform for part in parts):
        return parts
    low, high = low + channels.bias, high + channels.bias
    known = (low >= INT32_MIN) & (high <= INT32_MAX)
    able = known & (channels.shift <= MAX_SHIFT) & (channels.multiplier >= TOP_BIT)
    first, last = channels.apply(low), channels.apply(high)
    facts = _Facts(low, high, first, last, (first < last) | ~known, able,
                   *_multiplier_bounds(channels, low, high, first, last))
    return [part if part.uniform else _simplified(part, _Facts(*(fact[group] for fact in facts)))
            for part, group in zip(parts, groups)]


def _simplified(channels: Channels, facts: _Facts) -> Channels:
    multiplier, bias, shift = (x.astype(np.int64) for x in (channels.multiplier, channels.bias, channels.shift))
    live = facts.live
    if live.any() and (facts.able | ~live).all() and (facts.bottom <= facts.top)[live].all():
        bottom, top = facts.bottom[live], facts.top[live]
        zeros = int(((bottom - 1) ^ top).min()).bit_length() - 1  # below the highest bit that tells them apart
        multiplier[live] = -(-bottom >> zeros) << zeros
    out = replace(channels, multiplier=multiplier, bias=bias, shift=shift)
    for channel in np.flatnonzero(~live):
        _shorten_constant(out, channel, int(facts.low[channel]), int(facts.high[channel]), int(facts.first[channel]),
                          live)
    return out


def _multiplier_bounds(channels: Channels, low: np.ndarray, high: np.ndarray, first: np.ndarray,
                       last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest normal multipliers, int64 (channels,), that map v in [low, high] alike, onto [first, last].

    v reaches result q when v * multiplier >= A = (2 (q - zero_point) - 1) * 2^(shift - 1). With t the least such v,
    multipliers m that keep it satisfy t * m >= A > (t - 1) * m. With D = A - 1 for A > 0, D = -A for A < 0 and
    T = D // multiplier, that is D // (T + 1) < m, and m <= D // T unless T is 0. At the ends of the range, low and
    high stand for t and t - 1. Channels that are not live or not able may have anything.
    """
    m = np.maximum(channels.multiplier, 1).astype(np.int64)
    shift = np.minimum(channels.shift, MAX_SHIFT).astype(np.int64)
    q = np.arange(int(first.min()) + 1, int(last.max()) + 1)[:, None]
    odd = 2 * (q - channels.zero_point) - 1
    d = (np.abs(odd) << (shift - 1)) - (odd > 0)
    t = d // m
    within = (q > first) & (q <= last)
    bottom = np.where(within, d // (t + 1) + 1, TOP_BIT).max(axis=0, initial=TOP_BIT)
    top = np.where(within & (t > 0), d // np.maximum(t, 1), 2 * TOP_BIT - 1).min(axis=0, initial=2 * TOP_BIT - 1)
    a = (2 * (first - channels.zero_point) - 1) << (shift - 1)  # low * m >= a
    bound, kept = np.where(low, low, 1), first > channels.clamp[0]
    bottom = np.where(kept & (low > 0), np.maximum(bottom, -(-a // bound)), bottom)
    top = np.where(kept & (low < 0), np.minimum(top, a // bound), top)
    a = (2 * (last - channels.zero_point) + 1) << (shift - 1)  # high * m < a
    bound, kept = np.where(high, high, 1), last < channels.clamp[1]
    top = np.where(kept & (high > 0), np.minimum(top, -(-a // bound) - 1), top)
    bottom = np.where(kept & (high < 0), np.maximum(bottom, a // bound + 1), bottom)
    return bottom, top


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
