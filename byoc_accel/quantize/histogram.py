"""Histograms of activations, and ranges tighter than minimum to maximum."""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

BINS = 2048
STEPS = 255  # of an int8 range
CANDIDATES = 64  # shrink factors tried by `mse_range`
SHRINK_MIN = 0.3


@dataclass(frozen=True)
class Histogram:
    """Counts (BINS,) of values between low and high; of no width when low == high."""

    low: float
    high: float
    counts: np.ndarray

    @staticmethod
    def empty(low: float, high: float) -> Histogram:
        return Histogram(low, high, np.zeros(BINS, np.int64))

    def add(self, values: np.ndarray) -> Histogram:
        """The histogram with `values` added."""
        if self.low == self.high:
            return self
        step = (self.high - self.low) / BINS
        index = ((values.ravel().astype(np.float64) - self.low) / step).astype(np.int64)
        return replace(self, counts=self.counts + np.bincount(index.clip(0, BINS - 1), minlength=BINS))

    def centers(self) -> np.ndarray:
        return self.low + (np.arange(BINS) + 0.5) * (self.high - self.low) / BINS


def percentile_range(histogram: Histogram, percent: float) -> tuple[float, float]:
    """The range that holds `percent` of the values, the rest half below and half above."""
    total = int(histogram.counts.sum())
    if total == 0:
        return histogram.low, histogram.high
    tail = total * (100.0 - percent) / 200.0
    cumulated = np.cumsum(histogram.counts)
    first = int(np.searchsorted(cumulated, tail, side="right"))
    last = int(np.searchsorted(cumulated, total - tail, side="left"))
    step = (histogram.high - histogram.low) / BINS
    return histogram.low + first * step, histogram.low + (last + 1) * step


def mse_range(histogram: Histogram) -> tuple[float, float]:
    """The shrunken range of least expected squared error: rounding within it plus clipping beyond it."""
    total = int(histogram.counts.sum())
    if total == 0:
        return histogram.low, histogram.high
    x, counts = histogram.centers(), histogram.counts
    best = None
    for shrink in np.linspace(1.0, SHRINK_MIN, CANDIDATES):
        low, high = min(histogram.low * shrink, 0.0), max(histogram.high * shrink, 0.0)
        beyond = x - np.clip(x, low, high)
        error = float((counts * beyond ** 2).sum()) + total * ((high - low) / STEPS) ** 2 / 12.0
        if best is None or error < best[0]:
            best = error, low, high
    return best[1], best[2]
