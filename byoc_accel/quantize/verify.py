"""verify(QRegion): invariants, and a proof from the actual weights that no integer leaves its width."""
from __future__ import annotations

import math

import numpy as np

from ..errors import QuantizeError
from ..isa.table import ROUNDINGS
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
    qnode_inputs,
)

INT32_LIMIT = 1 << 31
LEFT_SHIFT_MAX = 22  # 255 << 22 is the largest that stays below 2**30, so the sum of two stays in int32


def verify(qregion: QRegion) -> None:
    """Raise QuantizeError, naming the node or tensor, when an invariant of QRegion's types does not hold."""
    tensors = _verify_tensors(qregion)
    _verify_order(qregion, tensors)
    for node in qregion.nodes:
        where = f"{qregion.name}: {_KIND[type(node)]} {node.name!r}"
        _VERIFY[type(node)](where, node, tensors)


def _verify_tensors(qregion: QRegion) -> dict[str, QTensor]:
    tensors = qregion.by_name()
    if not tensors or len(tensors) != len(qregion.tensors):
        raise QuantizeError(f"{qregion.name}: no tensors, or two of one name; names must be unique")
    for tensor in qregion.tensors:
        where = f"{qregion.name}: tensor {tensor.name!r}"
        if len(tensor.shape) != 4 or min(tensor.shape) < 1:
            raise QuantizeError(f"{where}: shape {tensor.shape}; give four sizes of 1 or more (N, H, W, C)")
        if not math.isfinite(tensor.scale) or tensor.scale <= 0:
            raise QuantizeError(f"{where}: scale {tensor.scale}; it must be a finite number above 0")
        if not -128 <= tensor.zero_point <= 127:
            raise QuantizeError(f"{where}: zero point {tensor.zero_point}; allowed are -128 to 127")
    for port in qregion.inputs + qregion.outputs:
        if port.tensor not in tensors:
            raise QuantizeError(f"{qregion.name}: port of {port.tensor!r}: there is no such tensor")
        size = math.prod(tensors[port.tensor].shape)
        if sorted(port.perm) != [0, 1, 2, 3] or math.prod(port.host_shape) != size:
            raise QuantizeError(f"{qregion.name}: port of {port.tensor!r}: host shape {port.host_shape} with "
                                f"permutation {port.perm} is no view of {tensors[port.tensor].shape}")
    return tensors


def _verify_order(qregion: QRegion, tensors: dict[str, QTensor]) -> None:
    known = {port.tensor for port in qregion.inputs}
    if len(known) != len(qregion.inputs):
        raise QuantizeError(f"{qregion.name}: an input tensor is listed twice")
    names: set[str] = set()
    for node in qregion.nodes:
        if node.name in names:
            raise QuantizeError(f"{qregion.name}: two nodes are called {node.name!r}; names must be unique")
        names.add(node.name)
        for x in qnode_inputs(node):
            if x not in known:
                raise QuantizeError(f"{qregion.name}: node {node.name!r} reads {x!r} before it is produced")
        if node.y not in tensors or node.y in known:
            raise QuantizeError(f"{qregion.name}: node {node.name!r} writes {node.y!r}, "
                                "which is unknown or written already")
        known.add(node.y)
    for name in [*(port.tensor for port in qregion.outputs), *tensors]:
        if name not in known:
            raise QuantizeError(f"{qregion.name}: tensor {name!r} is never produced")
    if not qregion.outputs:
        raise QuantizeError(f"{qregion.name}: no outputs; a region must produce something")


def accumulator_bounds(node: QConv | QConvTranspose, x_zero_point: int) -> tuple[np.ndarray, np.ndarray]:
    """int64 (O,) lowest and highest accumulator of any int8 input, from the actual weights and bias.

    Padding contributes 0, which lies inside. A position of a transposed convolution gets the taps of one phase of the
    stride; the bounds are those of the worst phase.
    """
    stride = node.stride if isinstance(node, QConvTranspose) else (1, 1)
    low, high = -128 - x_zero_point, 127 - x_zero_point
    lows, highs = [], []
    for y in range(min(stride[0], node.weight.shape[1])):
        for x in range(min(stride[1], node.weight.shape[2])):
            flat = node.weight[:, y::stride[0], x::stride[1]].reshape(len(node.weight), -1)
            positive, negative = (part(flat, 0).sum(1, dtype=np.int64) for part in (np.maximum, np.minimum))
            lows.append(positive * low + negative * high)
            highs.append(positive * high + negative * low)
    bias = node.bias.astype(np.int64)
    return np.min(lows, axis=0) + bias, np.max(highs, axis=0) + bias


def _verify_conv(where: str, node: QConv, tensors: dict[str, QTensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if node.weight.ndim != 4 or node.weight.dtype != np.int8 or 0 in node.weight.shape:
        raise QuantizeError(f"{where}: weight {node.weight.dtype} {node.weight.shape}; give int8 OHWI")
    o, kh, kw, i = node.weight.shape
    if node.groups < 1 or o % node.groups or i * node.groups != x.shape[3]:
        raise QuantizeError(f"{where}: weight {node.weight.shape} in {node.groups} groups does not fit "
                            f"{x.shape[3]} input channels")
    _verify_window(where, x, y, (kh, kw), node.stride, node.padding, node.dilation, o)
    _verify_layer(where, node, x, y)


def _verify_conv_transpose(where: str, node: QConvTranspose, tensors: dict[str, QTensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if node.weight.ndim != 4 or node.weight.dtype != np.int8 or 0 in node.weight.shape:
        raise QuantizeError(f"{where}: weight {node.weight.dtype} {node.weight.shape}; give int8 OHWI")
    if min(node.stride) < 1 or min(node.padding) < 0:
        raise QuantizeError(f"{where}: stride {node.stride} must be 1 or more and padding {node.padding} 0 or more")
    most = [geometry.transposed_size(n, k, s, before) + s - 1
            for n, k, s, before in zip(x.shape[1:3], node.weight.shape[1:3], node.stride, node.padding)]
    if (y.shape[0], y.shape[3], node.weight.shape[3]) != (x.shape[0], len(node.weight), x.shape[3]) \
            or y.shape[1] > most[0] or y.shape[2] > most[1]:
        raise QuantizeError(f"{where}: result {y.name!r} is {y.shape}, {x.shape} and weight {node.weight.shape} give "
                            f"at most {(x.shape[0], *most, len(node.weight))}")
    _verify_layer(where, node, x, y)


def _verify_layer(where: str, node: QConv | QConvTranspose, x: QTensor, y: QTensor) -> None:
    o = len(node.weight)
    for name, array, dtype in (("bias", node.bias, np.int32), ("multiplier", node.multiplier, np.int64),
                               ("shift", node.shift, np.int64)):
        if array.shape != (o,) or array.dtype != dtype:
            raise QuantizeError(f"{where}: {name} {array.dtype} {array.shape}; give {dtype.__name__} of {o}")
    _verify_clamp(where, node.clamp)
    _verify_rounding(where, node.rounding)
    _verify_conv_width(where, node, x, y)


def _verify_conv_width(where: str, node: QConv | QConvTranspose, x: QTensor, y: QTensor) -> None:
    low, high = accumulator_bounds(node, x.zero_point)
    for c in np.flatnonzero(~_widths_hold(node, np.maximum(-low, high), y.zero_point)):
        requant = Requant(int(node.multiplier[c]), int(node.shift[c]))
        place = f"{where}: output channel {c}"
        _verify_requant(place, requant)
        bound = max(-int(low[c]), int(high[c]))
        if bound >= INT32_LIMIT:
            raise QuantizeError(f"{place}: accumulator up to {bound}, int32 ends at {INT32_LIMIT - 1}; "
                                "split the layer or widen the channel's weight scale")
        _verify_result(place, requant, bound, node.rounding, y.zero_point)


def _widths_hold(node: QConv | QConvTranspose, bound: np.ndarray, zero_point: int) -> np.ndarray:
    """bool (O,): channels that `_verify_requant`, int32 for `bound`, the greatest |accumulator|, and `_verify_result`
    let pass."""
    m, s = node.multiplier, node.shift
    holds = (0 <= m) & (m < fixedpoint.MULTIPLIER_LIMIT) & (fixedpoint.SHIFT_MIN <= s) & (s <= fixedpoint.SHIFT_MAX)
    holds &= bound < INT32_LIMIT
    m, s, bound = (np.where(holds, each, 1) for each in (m, s, bound))  # of the others nothing overflows now
    if node.rounding == "double":
        holds &= bound << np.maximum(31 - s, 0) < INT32_LIMIT
    return holds & ((bound * m >> s) + 1 + abs(zero_point) < INT32_LIMIT)


def _verify_requant(where: str, requant: Requant) -> None:
    if not 0 <= requant.multiplier < fixedpoint.MULTIPLIER_LIMIT:
        raise QuantizeError(f"{where}: multiplier {requant.multiplier}; allowed are 0 to 2**31 - 1")
    if not fixedpoint.SHIFT_MIN <= requant.shift <= fixedpoint.SHIFT_MAX:
        raise QuantizeError(f"{where}: shift {requant.shift}; encodable are {fixedpoint.SHIFT_MIN} to "
                            f"{fixedpoint.SHIFT_MAX}")


def _verify_result(where: str, requant: Requant, bound: int, rounding: str, zero_point: int) -> int:
    """The largest |result| for |v| <= bound; raises when it, or TFLite's left shift, leaves int32."""
    if rounding == "double" and bound << max(31 - requant.shift, 0) >= INT32_LIMIT:
        raise QuantizeError(f"{where}: {bound} << {31 - requant.shift} leaves int32 in TFLite's rounding; "
                            "use another rounding or a larger output scale")
    result = (bound * requant.multiplier >> requant.shift) + 1
    if result + abs(zero_point) >= INT32_LIMIT:
        raise QuantizeError(f"{where}: requantize can give {result}, int32 ends at {INT32_LIMIT - 1}; "
                            "give the result a larger scale")
    return result


def _verify_window(where: str, x: QTensor, y: QTensor, kernel: tuple[int, int], stride: tuple[int, int],
                   padding: tuple[int, int, int, int], dilation: tuple[int, int], channels: int) -> None:
    if min(kernel + stride + dilation) < 1 or min(padding) < 0:
        raise QuantizeError(f"{where}: kernel {kernel}, stride {stride}, dilation {dilation} must be 1 or "
                            f"more and padding {padding} 0 or more")
    height, width = geometry.window_shape(x.shape, kernel, stride, padding, dilation)
    if height < 1 or width < 1 or y.shape != (x.shape[0], height, width, channels):
        raise QuantizeError(f"{where}: result {y.name!r} is {y.shape}, the operands give "
                            f"{(x.shape[0], height, width, channels)}")


def _verify_clamp(where: str, clamp: tuple[int, int]) -> None:
    if not -128 <= clamp[0] <= clamp[1] <= 127:
        raise QuantizeError(f"{where}: clamp {clamp}; give low <= high within -128 to 127")


def _verify_rounding(where: str, rounding: str) -> None:
    if rounding not in ROUNDINGS:
        raise QuantizeError(f"{where}: rounding {rounding!r}; use one of {', '.join(ROUNDINGS)}")


def _verify_add(where: str, node: QAdd, tensors: dict[str, QTensor]) -> None:
    x1, x2, y = tensors[node.x1], tensors[node.x2], tensors[node.y]
    if not x1.shape == x2.shape == y.shape:
        raise QuantizeError(f"{where}: {x1.shape} + {x2.shape} -> {y.shape}; equal shapes only")
    if not 0 <= node.left_shift <= LEFT_SHIFT_MAX:
        raise QuantizeError(f"{where}: left shift {node.left_shift}; allowed are 0 to {LEFT_SHIFT_MAX}")
    _verify_clamp(where, node.clamp)
    _verify_rounding(where, node.rounding)
    total = 0
    for x, requant in ((x1, node.requant1), (x2, node.requant2)):
        _verify_requant(where, requant)
        bound = max(127 - x.zero_point, 128 + x.zero_point) << node.left_shift
        total += _verify_result(where, requant, bound, node.rounding, 0)
    if total >= INT32_LIMIT:
        raise QuantizeError(f"{where}: the sum can reach {total}, int32 ends at {INT32_LIMIT - 1}; "
                            "give the result a larger scale")
    _verify_requant(where, node.requant_out)
    _verify_result(where, node.requant_out, total, node.rounding, y.zero_point)


def _verify_pool(where: str, node: QPool, tensors: dict[str, QTensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if node.kind not in ("max", "avg"):
        raise QuantizeError(f"{where}: kind {node.kind!r}; use max or avg")
    _verify_window(where, x, y, node.kernel, node.stride, node.padding, (1, 1), x.shape[3])
    _verify_rounding(where, node.rounding)
    valid = geometry.pool_counts(x.shape[1], x.shape[2], node.kernel, node.stride, node.padding, False)
    if valid.min() < 1:
        raise QuantizeError(f"{where}: a window lies in the padding {node.padding}; leave it to the host")
    if node.kind == "max":
        if (x.scale, x.zero_point) != (y.scale, y.zero_point) or node.requants:
            raise QuantizeError(f"{where}: a maximum keeps scale and zero point and has no requants")
    else:
        _verify_average(where, node, x, int(valid.max()))


def _verify_average(where: str, node: QPool, x: QTensor, most: int) -> None:
    for zero_point in (node.x_zero_point, node.y_zero_point):
        if not -128 <= zero_point <= 127:
            raise QuantizeError(f"{where}: zero point {zero_point}; allowed are -128 to 127")
    counts = geometry.pool_counts(x.shape[1], x.shape[2], node.kernel, node.stride, node.padding,
                                  node.count_include_pad)
    listed = [count for count, _ in node.requants]
    if listed != sorted(set(listed)):
        raise QuantizeError(f"{where}: requants for {listed} positions; they must be sorted, one per count")
    missing = sorted(set(np.unique(counts).tolist()) - set(listed))
    if missing:
        raise QuantizeError(f"{where}: no requant for windows of {missing[0]} positions")
    bound = most * max(127 - node.x_zero_point, 128 + node.x_zero_point)
    if bound >= INT32_LIMIT:
        raise QuantizeError(f"{where}: a window of {most} positions can sum to {bound}, int32 ends at "
                            f"{INT32_LIMIT - 1}; leave it to the host")
    for count, requant in node.requants:
        _verify_requant(f"{where}: count {count}", requant)
        _verify_result(f"{where}: count {count}", requant, bound, node.rounding, node.y_zero_point)


def _verify_lut(where: str, node: QLut, tensors: dict[str, QTensor]) -> None:
    if node.table.shape != (256,) or node.table.dtype != np.int8:
        raise QuantizeError(f"{where}: table is {node.table.dtype} {node.table.shape}; give int8 (256,)")
    if tensors[node.x].shape != tensors[node.y].shape:
        raise QuantizeError(f"{where}: shapes {tensors[node.x].shape} and {tensors[node.y].shape} differ")


def _expect_same_scale(where: str, x: QTensor, y: QTensor) -> None:
    if (x.scale, x.zero_point) != (y.scale, y.zero_point):
        raise QuantizeError(f"{where}: {y.name!r} must have the scale and zero point of {x.name!r}")


def _verify_concat(where: str, node: QConcat, tensors: dict[str, QTensor]) -> None:
    y = tensors[node.y]
    if not node.xs or node.axis not in (1, 2, 3) or len(node.requants) != len(node.xs):
        raise QuantizeError(f"{where}: {len(node.xs)} inputs and {len(node.requants)} requants along axis {node.axis}; "
                            "give as many of both, along axis 1, 2 or 3")
    shapes = [tensors[x].shape for x in node.xs]
    others = {shape[:node.axis] + shape[node.axis + 1:] for shape in [*shapes, y.shape]}
    if len(others) > 1 or sum(shape[node.axis] for shape in shapes) != y.shape[node.axis]:
        raise QuantizeError(f"{where}: result {y.name!r} is {y.shape}, the operands are "
                            f"{' and '.join(map(str, shapes))} along axis {node.axis}")
    _verify_rounding(where, node.rounding)
    for name, requant in zip(node.xs, node.requants):
        x = tensors[name]
        if requant is None:
            if (x.scale, x.zero_point) != (y.scale, y.zero_point):
                raise QuantizeError(f"{where}: {name!r} is copied, but has another scale or zero point than {y.name!r}")
            continue
        _verify_requant(f"{where}: input {name!r}", requant)
        _verify_result(f"{where}: input {name!r}", requant, max(127 - x.zero_point, 128 + x.zero_point), node.rounding,
                       y.zero_point)


def _verify_pad(where: str, node: QPad, tensors: dict[str, QTensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if len(node.padding) != 4 or min(node.padding) < 0 or not -128 <= node.value <= 127:
        raise QuantizeError(f"{where}: padding {node.padding} of {node.value}; give four sizes of 0 or more and a "
                            "value of -128 to 127")
    top, left, bottom, right = node.padding
    n, height, width, channels = x.shape
    if y.shape != (n, top + height + bottom, left + width + right, channels):
        raise QuantizeError(f"{where}: result {y.name!r} is {y.shape}, {x.shape} padded by {node.padding} is not")
    _expect_same_scale(where, x, y)


def _verify_upsample(where: str, node: QUpsample, tensors: dict[str, QTensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    n, height, width, channels = x.shape
    if len(node.factor) != 2 or min(node.factor) < 1 \
            or y.shape != (n, height * node.factor[0], width * node.factor[1], channels):
        raise QuantizeError(f"{where}: result {y.name!r} is {y.shape}, {x.shape} enlarged by {node.factor} is not")
    _expect_same_scale(where, x, y)


def _verify_reshape(where: str, node: QReshape, tensors: dict[str, QTensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if x.shape[0] != y.shape[0] or math.prod(x.shape) != math.prod(y.shape):
        raise QuantizeError(f"{where}: {x.shape} to {y.shape}; the batch axis and the size must stay")
    _expect_same_scale(where, x, y)


_VERIFY = {QConv: _verify_conv, QConvTranspose: _verify_conv_transpose, QAdd: _verify_add, QPool: _verify_pool,
           QLut: _verify_lut, QConcat: _verify_concat, QPad: _verify_pad, QUpsample: _verify_upsample,
           QReshape: _verify_reshape}
_KIND: dict[type[QNode], str] = {kind: kind.__name__[1:].lower() for kind in _VERIFY}
_KIND[QConv] = "conv2d"
