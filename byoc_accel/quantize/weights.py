"""Per-output-channel weight scales from the actual weights, and the int32 bias that goes with them."""
from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from ..errors import QuantizeError
from . import fixedpoint

WEIGHT_MAX = 127  # symmetric: -127..127
#: Smallest acc_scale / y_scale. A channel whose weights are smaller than that changes its result by less than a
#: step of y anyway; a zero channel gets exactly this, so that its bias keeps 24 bits below y's step.
RATIO_MIN = 2.0 ** -24
ACCUMULATOR_LIMIT = (1 << 31) - 1
CACHED_VALUES = 1 << 14
WIDEN_ROUNDS = 40  # a factor of up to 2**20 each, 2 each for powers of two


class PrecisionWarning(UserWarning):
    """A layer's weights are all below what its result can show."""


@dataclass(frozen=True)
class QuantizedWeights:
    """weight int8 (O, KH, KW, I), bias int32 (O,) in units of x_scale * scale, scale float64 (O,)."""

    weight: np.ndarray
    bias: np.ndarray
    scale: np.ndarray


def quantize_weights(where: str, weight: np.ndarray, bias: np.ndarray, x_scale: float, y_scale: float,
                     power_of_two: bool) -> QuantizedWeights:
    """Quantize float weight (O, KH, KW, I) and bias (O,) of a layer from x_scale to y_scale.

    scale[o] = max |weight[o]| / 127, at least RATIO_MIN * y_scale / x_scale; with power_of_two the next power of
    two. A channel for which 255 * sum |weight| + |bias| would not fit int32 gets a wider scale (its weights
    lose bits, its sum does not wrap). Raises QuantizeError when no scale helps; warns (PrecisionWarning) when weights
    that are not 0 all become 0.
    """
    flat = np.asarray(weight, np.float64).reshape(len(weight), -1)
    bias = np.asarray(bias, np.float64)
    with np.errstate(under="ignore", over="ignore"):  # underflow is a weight of 0, overflow is far from fitting
        scale = np.maximum(np.abs(flat).max(1) / WEIGHT_MAX, RATIO_MIN * y_scale / x_scale)
        if power_of_two:
            scale = np.array([fixedpoint.power_of_two(s, f"{where} weight scale") for s in scale])
        for _ in range(WIDEN_ROUNDS):
            q = _quantize(flat, scale)
            excess = _reach(q, bias, scale, x_scale) / ACCUMULATOR_LIMIT
            if (excess <= 1.0).all():
                break
            factor = 2.0 if power_of_two else np.clip(excess, 1.0 + 2.0 ** -10, 2.0 ** 20)
            scale = np.where(excess > 1.0, scale * factor, scale)
        if (excess > 1.0).any():
            c = int(np.argmax(excess))
            raise QuantizeError(f"{where}: output channel {c}: no weight scale keeps bias {bias[c]} and "
                                f"{flat.shape[1]} products in int32; leave the layer to the host")
        q_bias = fixedpoint.round_half_away(bias / (x_scale * scale))
    if flat.any() and not q.any():
        largest = float(np.abs(flat).max())
        warnings.warn(f"{where}: all weights become 0: at most {largest:.3g}, they change no result by a step of "
                      f"{y_scale:.3g}; check the model or the calibration inputs", PrecisionWarning, stacklevel=2)
    return QuantizedWeights(q.reshape(weight.shape), q_bias.astype(np.int32), scale)


def _quantize(flat: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int8 of flat's shape, made a few channels at a time: what lies between stays in the processor's cache."""
    q = np.empty(flat.shape, np.int8)
    step = max(1, CACHED_VALUES // flat.shape[1])
    for first in range(0, len(flat), step):
        some = slice(first, first + step)
        q[some] = np.clip(fixedpoint.round_half_away(flat[some] / scale[some, None]), -WEIGHT_MAX, WEIGHT_MAX)
    return q


def _reach(q: np.ndarray, bias: np.ndarray, scale: np.ndarray, x_scale: float) -> np.ndarray:
    """float64 (O,): 255 * sum |weight| + |bias|, the bias rounded up; `q` int8 (O, ...) without -128."""
    return 255.0 * np.abs(q).sum(1, dtype=np.int64) + np.ceil(np.abs(bias) / (x_scale * scale))


def magnitude(weight: np.ndarray, bias: np.ndarray, x_reach: float) -> float:
    """Largest |real result| of any output channel for inputs of at most x_reach in magnitude."""
    flat = np.abs(np.asarray(weight, np.float64)).reshape(len(weight), -1)
    largest = float((flat.sum(1) * x_reach + np.abs(bias)).max())
    if not math.isfinite(largest):
        raise QuantizeError(f"results can reach {largest}; rescale the layer")
    return largest
