"""interpret(QRegion): THE meaning of every later stage, in plain NumPy with 64-bit accumulators."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import QuantizeError
from ..region import geometry
from . import fixedpoint
from .qregion import (
    QAdd,
    QConcat,
    QConv,
    QConvTranspose,
    QLut,
    QNode,
    QPad,
    QPool,
    QRegion,
    QReshape,
    QTensor,
    QUpsample,
    Requant,
)


def interpret(qregion: QRegion, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Run `qregion`: every tensor's int8 array (N, H, W, C) by name.

    inputs: int8 NHWC arrays in the order of `qregion.inputs`. Their batch may differ from the tensor's (all
    alike), so that samples can be stacked. Raises QuantizeError on a wrong number, dtype or shape.
    """
    tensors = qregion.by_name()
    if len(inputs) != len(qregion.inputs):
        raise QuantizeError(f"{qregion.name}: got {len(inputs)} inputs instead of {len(qregion.inputs)}")
    values: dict[str, np.ndarray] = {}
    for port, array in zip(qregion.inputs, inputs):
        array = np.asarray(array)
        expected = tensors[port.tensor].shape
        if array.dtype != np.int8 or array.ndim != 4 or array.shape[1:] != expected[1:]:
            raise QuantizeError(f"{qregion.name}: input {port.tensor!r} is {array.dtype} {array.shape}; "
                                f"give int8 {expected}")
        values[port.tensor] = array
    for node in qregion.nodes:
        values[node.y] = run_node(node, values, tensors)
    return values


def run_node(node: QNode, values: dict[str, np.ndarray], tensors: dict[str, QTensor]) -> np.ndarray:
    """The int8 result of one node."""
    if isinstance(node, (QConv, QConvTranspose)):
        return _conv(node, values[node.x], tensors)
    if isinstance(node, QAdd):
        return _add(node, values[node.x1], values[node.x2], tensors)
    if isinstance(node, QPool):
        return _pool(node, values[node.x])
    if isinstance(node, QLut):
        return node.table[values[node.x].astype(np.int64) + 128]
    if isinstance(node, QConcat):
        return np.concatenate([_concat_part(node, r, values[x], tensors[x], tensors[node.y])
                               for x, r in zip(node.xs, node.requants)], node.axis)
    if isinstance(node, QPad):
        return geometry.pad(values[node.x], node.padding, node.value)
    if isinstance(node, QUpsample):
        return values[node.x].repeat(node.factor[0], 1).repeat(node.factor[1], 2)
    if isinstance(node, QReshape):
        return values[node.x].reshape((-1,) + tensors[node.y].shape[1:])
    raise QuantizeError(f"{type(node).__name__} is no node of a QRegion")


def accumulators(node: QConv | QConvTranspose, x: np.ndarray, x_zero_point: int,
                 shape: tuple[int, int] | None = None) -> np.ndarray:
    """int64 accumulators sum (x - zero point) * weight + bias of int8 x; padding contributes 0.

    shape: height and width of the result; a transposed convolution needs them, others do not.

    The sums run in float64 (BLAS), which is exact: |x - zero point| <= 255 and |weight| <= 128, so 2**53 is
    out of reach for fewer than 2**37 products.
    """
    centered = x.astype(np.float64) - x_zero_point
    if isinstance(node, QConvTranspose):
        acc = geometry.convolve_transposed(centered, node.weight, node.stride, node.padding, shape)
    else:
        acc = geometry.convolve(centered, node.weight, node.stride, node.padding, node.dilation, node.groups)
    return acc.astype(np.int64) + node.bias.astype(np.int64)


def _conv(node: QConv | QConvTranspose, x: np.ndarray, tensors: dict[str, QTensor]) -> np.ndarray:
    y = tensors[node.y]
    return requantized(node, accumulators(node, x, tensors[node.x].zero_point, y.shape[1:3]), y)


def requantized(node: QConv | QConvTranspose, acc: np.ndarray, y: QTensor) -> np.ndarray:
    """int8 results of int64 accumulators with their bias."""
    scaled = fixedpoint.requantize(acc, node.multiplier, node.shift, node.rounding)
    return np.clip(scaled + y.zero_point, *node.clamp).astype(np.int8)


def _add(node: QAdd, x1: np.ndarray, x2: np.ndarray, tensors: dict[str, QTensor]) -> np.ndarray:
    total = np.zeros(x1.shape, np.int64)
    for name, x, requant in ((node.x1, x1, node.requant1), (node.x2, x2, node.requant2)):
        centered = (x.astype(np.int64) - tensors[name].zero_point) << node.left_shift
        total += fixedpoint.requantize(centered, requant.multiplier, requant.shift, node.rounding)
    out = fixedpoint.requantize(total, node.requant_out.multiplier, node.requant_out.shift, node.rounding)
    return np.clip(out + tensors[node.y].zero_point, *node.clamp).astype(np.int8)


def _concat_part(node: QConcat, requant: Requant | None, values: np.ndarray, x: QTensor, y: QTensor) -> np.ndarray:
    if requant is None:
        return values
    out = fixedpoint.requantize(values.astype(np.int64) - x.zero_point, requant.multiplier, requant.shift,
                                node.rounding)
    return np.clip(out + y.zero_point, fixedpoint.INT8_MIN, fixedpoint.INT8_MAX).astype(np.int8)


def _pool(node: QPool, x: np.ndarray) -> np.ndarray:
    if node.kind == "max":
        return geometry.pool_max(x, node.kernel, node.stride, node.padding, fixedpoint.INT8_MIN)
    total = geometry.pool_sum(x.astype(np.int64) - node.x_zero_point, node.kernel, node.stride, node.padding)
    counts = geometry.pool_counts(x.shape[1], x.shape[2], node.kernel, node.stride, node.padding,
                                  node.count_include_pad)
    out = np.empty_like(total)
    for count, requant in node.requants:
        where = counts == count
        out[:, where] = fixedpoint.requantize(total[:, where], requant.multiplier, requant.shift,
                                              node.rounding)
    return np.clip(out + node.y_zero_point, fixedpoint.INT8_MIN, fixedpoint.INT8_MAX).astype(np.int8)
