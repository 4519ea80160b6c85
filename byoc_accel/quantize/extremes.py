"""Ranges wider than what the calibration samples reached: the extremes that many more samples would have."""
from __future__ import annotations

import math

import numpy as np

from ..region.region import Add, Conv2d, ConvTranspose2d, Node, Unary

EULER_GAMMA = 0.5772156649015329
FLOAT32_MAX = float(np.finfo(np.float32).max)


def extreme_range(lows: np.ndarray, highs: np.ndarray, count: float) -> tuple[np.ndarray, np.ndarray]:
    """The range that about one of `count` samples leaves at each end.

    lows and highs: minimum and maximum of every sample, float64 (N,) for one range or (N, C) for C of them. Maxima of
    many values follow Gumbel's distribution, of width sigma sqrt(6) / pi, so that one of `count` samples lies above
    mean + sigma sqrt(6) / pi * (ln count - 0.5772) (E. J. Gumbel, "Statistics of Extremes", 1958, chapter 6). A bound
    is never inside of what was measured, and stays there where two samples or more reach it exactly: that is a limit
    of the values (relu's 0, the 255 of images) and not chance. One sample alone shows no deviation.
    """
    return 0.0 - _extreme(-lows, count), _extreme(highs, count)  # no -0.0


def _extreme(highs: np.ndarray, count: float) -> np.ndarray:
    high = highs.max(0)
    if len(highs) < 2:
        return high
    reach = (math.log(count) - EULER_GAMMA) * math.sqrt(6.0) / math.pi
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        estimate = np.maximum(highs.mean(0) + reach * highs.std(0, ddof=1), high)
    chance = np.count_nonzero(highs == high, 0) == 1
    return np.where(chance & (np.abs(estimate) <= FLOAT32_MAX / 4), estimate, high)[()]


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
