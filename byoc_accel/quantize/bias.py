"""Bias correction: what quantization adds to a channel on average is taken off its bias.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019), section 4.2, in its
empirical form: layer by layer, each fed by the corrected int8 layers before it.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import QuantizeError
from ..region.interpret import clipped, convolution, run_float
from ..region.region import Region
from . import fixedpoint
from .calibration import BATCH_BYTES, DeviceSample, sample_bytes
from .interpret import accumulators, requantized, run_node
from .qregion import QConv, QConvTranspose, QRegion, QTensor
from .weights import ACCUMULATOR_LIMIT

DIGITS = 6  # decimal, of a correction: it travels as text, and a machine's order of summation must not show

Corrections = tuple[tuple[float, ...], ...]  # real numbers, per channel of each layer with weights, in order


def corrections(region: Region, qregion: QRegion, samples: Sequence[DeviceSample]) -> Corrections:
    """Mean of float minus int8 result before the clamp, per channel, for every layer with weights.

    region: the folded float region that `qregion` was made from. Only as many samples are used, evenly spread, as
    BATCH_BYTES hold.
    """
    most = max(1, BATCH_BYTES // sample_bytes(region))
    chosen = [samples[i] for i in np.linspace(0, len(samples) - 1, min(most, len(samples))).astype(int)]
    if len(chosen) < 2:  # see mean_error
        return tuple((0.0,) * len(n.bias) for n in qregion.nodes if isinstance(n, (QConv, QConvTranspose)))
    batch = {name: np.concatenate([s[name] for s in chosen]) for name in chosen[0]}
    tensors, float_tensors = qregion.by_name(), region.by_name()
    real = {name: values.astype(np.float64) for name, values in batch.items()}
    values = {p.tensor: fixedpoint.quantize_real(batch[p.tensor], tensors[p.tensor].scale, tensors[p.tensor].zero_point)
              for p in qregion.inputs}
    found = []
    with np.errstate(all="ignore"):  # as in region.interpret
        for layer, node in zip(region.nodes, qregion.nodes):  # `lower_float` makes one of each
            if not isinstance(node, (QConv, QConvTranspose)):
                real[node.y] = run_float(region.name, layer, real, float_tensors)
                values[node.y] = run_node(node, values, tensors)
                continue
            y = tensors[node.y]
            sums = convolution(layer, real[node.x], float_tensors[node.y])
            acc = accumulators(node, values[node.x], tensors[node.x].zero_point, y.shape[1:3])
            errors = mean_error((sums - acc * steps(node, y)).reshape(len(chosen), -1, y.shape[3]).mean(1))
            found.append(tuple(float(f"{value:.{DIGITS}g}") for value in errors))
            corrected = _corrected(node, y, found[-1])
            acc += corrected.bias.astype(np.int64) - node.bias
            real[node.y], values[node.y] = clipped(sums, layer.clip), requantized(corrected, acc, y)
    return tuple(found)


def mean_error(errors: np.ndarray) -> np.ndarray:
    """float64 (C,): the mean of `errors` (N, C), less where N samples do not tell it from 0.

    Shrunk by 1 - variance of the mean / mean^2, at least 0, after James and Stein, "Estimation with Quadratic Loss"
    (1961): a mean that chance explains is none. One sample alone tells nothing.
    """
    count, mean = len(errors), errors.mean(0)
    if count < 2:
        return np.zeros_like(mean)
    variance = errors.var(0, ddof=1) / count
    return mean * np.clip(1.0 - variance / np.maximum(np.square(mean), np.finfo(np.float64).tiny), 0.0, 1.0)


def correct(qregion: QRegion, found: Corrections) -> QRegion:
    """`qregion` with biases corrected; `found` has its layers with weights in order, or nothing.

    Raises QuantizeError when `found` is of another region.
    """
    if not found:
        return qregion
    expected = [len(n.bias) for n in qregion.nodes if isinstance(n, (QConv, QConvTranspose))]
    if [len(layer) for layer in found] != expected or not all(np.isfinite(layer).all() for layer in found):
        raise QuantizeError(f"{qregion.name}: bias corrections do not fit the layers; calibrate again")
    tensors, remaining = qregion.by_name(), iter(found)
    return replace(qregion, nodes=tuple(
        _corrected(node, tensors[node.y], next(remaining)) if isinstance(node, (QConv, QConvTranspose)) else node
        for node in qregion.nodes))


def steps(node: QConv | QConvTranspose, y: QTensor) -> np.ndarray:
    """float64 (O,): the real number that one unit of each channel's accumulator stands for."""
    return np.ldexp(y.scale * node.multiplier.astype(np.float64), -node.shift)


def _corrected(node: QConv | QConvTranspose, y: QTensor, layer: Sequence[float]) -> QConv | QConvTranspose:
    """Bias plus the correction, no further than the accumulator's int32 allows for any input."""
    if not any(layer):
        return node
    flat = np.abs(node.weight.astype(np.int64)).reshape(len(node.weight), -1)
    room = np.maximum(ACCUMULATOR_LIMIT - 255 * flat.sum(1), np.abs(node.bias.astype(np.int64)))
    step = steps(node, y)  # 0 for a channel whose every result is 0
    with np.errstate(over="ignore", under="ignore"):
        change = np.divide(layer, step, out=np.zeros(len(step)), where=step > 0.0)
    change = fixedpoint.round_half_away(np.clip(change, -2.0 * ACCUMULATOR_LIMIT, 2.0 * ACCUMULATOR_LIMIT))
    bias = np.clip(node.bias.astype(np.int64) + change.astype(np.int64), -room, room)
    return replace(node, bias=bias.astype(np.int32))
