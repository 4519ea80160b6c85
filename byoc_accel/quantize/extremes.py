"""Ranges wider than what the calibration samples reached: the extremes that many more samples would have."""
from __future__ import annotations

import math

import numpy as np

from ..region.region import Add, Conv2d, ConvTranspose2d, Node, Unary

EULER_GAMMA = 0.5772156649015329


def extreme_range(lows: np.ndarray, highs: np.ndarray, count: float) -> tuple[float, float]:
    """The range that about one of `count` samples leaves at each end.

    lows and highs: minimum and maximum of every sample, float64 (N,). Maxima of many values follow Gumbel's
    distribution, whose width is sigma sqrt(6) / pi, so that one of `count` samples lies above
    mean + sigma sqrt(6) / pi * (ln count - 0.5772) (E. J. Gumbel, "Statistics of Extremes", 1958, chapter 6). A bound
    is never inside of what was measured, and stays there where two samples or more reach it exactly: that is a limit
    of the values (relu's 0, the 255 of images) and not chance. One sample alone shows no deviation.
    """
    low, high = float(lows.min()), float(highs.max())
    if len(lows) < 2:
        return low, high
    reach = (math.log(count) - EULER_GAMMA) * math.sqrt(6.0) / math.pi
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if np.count_nonzero(highs == high) == 1:
            high = _finite(max(high, float(highs.mean() + reach * highs.std(ddof=1))), high)
        if np.count_nonzero(lows == low) == 1:
            low = _finite(min(low, float(lows.mean() - reach * lows.std(ddof=1))), low)
    return low, high


def _finite(estimate: float, measured: float) -> float:
    """The estimate, or what was measured where float32 cannot hold the estimate."""
    return estimate if abs(estimate) <= float(np.finfo(np.float32).max) / 4 else measured


def attainable(node: Node) -> tuple[float, float]:
    """Bounds that no result of `node` can leave."""
    if isinstance(node, (Conv2d, ConvTranspose2d, Add)) and node.clip is not None:
        return node.clip
    if isinstance(node, Unary) and node.table is None:
        if node.function == "clip":
            return node.args[0], node.args[1]
        return _FUNCTION_LIMITS.get(node.function, (-math.inf, math.inf))
    return -math.inf, math.inf


_FUNCTION_LIMITS = {"sigmoid": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
