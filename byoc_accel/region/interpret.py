"""interpret(Region) in NumPy: float nodes in floating point, int8 nodes exactly as TVM lowers them.

docs/numerics.md has the formulas of the int8 nodes with their sources.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import RegionError
from ..quantize import fixedpoint
from ..quantize.tables import lookup_table
from . import geometry
from .functions import evaluate
from .region import (
    Add,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Node,
    Pad,
    Pool,
    Region,
    Reshape,
    Tensor,
    Unary,
    Upsample,
)
from .verify import quantized


def interpret(region: Region, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray],
              dtype: type = np.float32) -> dict[str, np.ndarray]:
    """Run `region`: every tensor's NHWC array by name, `dtype` (float32 or float64) or int8.

    inputs: NHWC arrays by tensor name or in the order of `region.inputs`; their batch may differ from the
    tensors' (all alike), so that samples can be stacked. Overflow gives infinities, without a warning.
    Raises RegionError on a missing input or a wrong shape.
    """
    tensors = region.by_name()
    integer = quantized(region)
    values = _inputs(region, inputs, np.int8 if integer else dtype)
    run = _run_int8 if integer else run_float
    with np.errstate(all="ignore"):  # IEEE results are the meaning; the quantizer checks that they are finite
        for node in region.nodes:
            values[node.y] = run(region.name, node, values, tensors)
    return values


def _inputs(region: Region, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray],
            dtype: type) -> dict[str, np.ndarray]:
    names = [port.tensor for port in region.inputs]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise RegionError(f"{region.name}: got {len(inputs)} inputs instead of {len(names)}")
        inputs = dict(zip(names, inputs))
    values = {}
    for name in names:
        if name not in inputs:
            raise RegionError(f"{region.name}: input {name!r} is missing; inputs are {', '.join(names)}")
        array, shape = np.asarray(inputs[name]), region.tensor(name).shape
        if array.ndim != 4 or array.shape[1:] != shape[1:] or (dtype == np.int8 and array.dtype != np.int8):
            raise RegionError(f"{region.name}: input {name!r} is {array.dtype} {array.shape}; "
                              f"give {np.dtype(dtype)} {shape}")
        values[name] = array.astype(dtype)
    return values


def run_float(name: str, node: Node, values: dict[str, np.ndarray],
              tensors: dict[str, Tensor]) -> np.ndarray:
    """The result of one float node of region `name`, in the dtype of its operands."""
    if isinstance(node, (Conv2d, ConvTranspose2d)):
        return clipped(convolution(node, values[node.x], tensors[node.y]), node.clip)
    if isinstance(node, Add):
        return clipped(values[node.x1] + values[node.x2], node.clip)
    if isinstance(node, Pool):
        return _pool_float(node, values[node.x])
    if isinstance(node, Unary):
        x = values[node.x]
        return evaluate(node.function, node.args, x).astype(x.dtype)
    if isinstance(node, Concat):
        return np.concatenate([values[x] for x in node.xs], node.axis)
    return _move(name, node, values, tensors)


def _move(name: str, node: Node, values: dict[str, np.ndarray], tensors: dict[str, Tensor]) -> np.ndarray:
    """Nodes that compute nothing."""
    if isinstance(node, Reshape):
        return values[node.x].reshape((-1,) + tensors[node.y].shape[1:])
    if isinstance(node, Pad):
        return geometry.pad(values[node.x], node.padding, node.value)
    if isinstance(node, Upsample):
        return values[node.x].repeat(node.factor[0], 1).repeat(node.factor[1], 2)
    raise RegionError(f"{name}: {type(node).__name__} is no node of a Region")


def clipped(x: np.ndarray, clip: tuple[float, float] | None) -> np.ndarray:
    """Float `x` within `clip`, in x's dtype."""
    return x if clip is None else np.clip(x, *clip).astype(x.dtype, copy=False)


def _sums(node: Conv2d | ConvTranspose2d, x: np.ndarray, y: Tensor) -> np.ndarray:
    """The convolution alone, in x's dtype."""
    if isinstance(node, ConvTranspose2d):
        return geometry.convolve_transposed(x, node.weight, node.stride, node.padding, y.shape[1:3])
    return geometry.convolve(x, node.weight, node.stride, node.padding, node.dilation, node.groups)


def convolution(node: Conv2d | ConvTranspose2d, x: np.ndarray, y_tensor: Tensor) -> np.ndarray:
    """A float layer before its clip: sums, bias, batch norm; NHWC, in x's dtype."""
    y = _sums(node, x, y_tensor)
    if node.bias is not None:
        y = y + node.bias.astype(y.dtype)
    if node.batch_norm is not None:
        norm = node.batch_norm
        factor = norm.gamma.astype(np.float64) / np.sqrt(norm.variance.astype(np.float64) + norm.epsilon)
        y = (y - norm.mean.astype(y.dtype)) * factor.astype(y.dtype) + norm.beta.astype(y.dtype)
    return y


def _pool_float(node: Pool, x: np.ndarray) -> np.ndarray:
    if node.kind == "max":
        return geometry.pool_max(x, node.kernel, node.stride, node.padding, -np.inf)
    total = geometry.pool_sum(x, node.kernel, node.stride, node.padding)
    return total / _counts(node, x)[:, :, None].astype(x.dtype)


def _counts(node: Pool, x: np.ndarray) -> np.ndarray:
    return geometry.pool_counts(x.shape[1], x.shape[2], node.kernel, node.stride, node.padding,
                                node.count_include_pad)


def _run_int8(name: str, node: Node, values: dict[str, np.ndarray],
              tensors: dict[str, Tensor]) -> np.ndarray:
    y = tensors[node.y]
    where = f"{name}: {node.name!r}"
    if isinstance(node, (Conv2d, ConvTranspose2d)):
        return _conv_int8(where, node, values[node.x], tensors[node.x], y)
    if isinstance(node, Add):
        return _add_int8(where, node, values, tensors)
    if isinstance(node, Pool):
        return _pool_int8(where, node, values[node.x], tensors[node.x], y)
    if isinstance(node, Unary):
        return unary_table(where, node, tensors[node.x], y)[values[node.x].astype(np.int64) + 128]
    if isinstance(node, Concat):
        parts = [_requantized(where, node, values[x], tensors[x], y) for x in node.xs]
        return np.concatenate(parts, node.axis)
    return _move(name, node, values, tensors)


def unary_table(where: str, node: Unary, x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,) of a quantized `node`: entry i is its result for x = i - 128."""
    if node.table is not None:
        return node.table
    if node.function == "clip":  # of the stored integers
        return np.clip(np.arange(-128, 128), *integer_clip(node.args)).astype(np.int8)
    return lookup_table(where, node.function, node.args, (x.scale, x.zero_point), (y.scale, y.zero_point))


def _requantized(where: str, node: Concat, values: np.ndarray, x: Tensor, y: Tensor) -> np.ndarray:
    """One input of a concat at y's scale and zero point."""
    if (x.scale, x.zero_point) == (y.scale, y.zero_point):
        return values
    requant = fixedpoint.from_real(scale_ratio(x.scale, y.scale), where)
    centered = values.astype(np.int64) - x.zero_point
    return _saturate(fixedpoint.requantize(centered, requant.multiplier, requant.shift, node.rounding) + y.zero_point,
                     None)


def _saturate(v: np.ndarray, clip: tuple[float, float] | None) -> np.ndarray:
    """int64 -> int8, clipped to `clip` (bounds truncated toward zero) inside of the int8 range."""
    low, high = integer_clip(clip)
    return np.clip(v, low, high).astype(np.int8)


def integer_clip(clip: tuple[float, float] | None) -> tuple[int, int]:
    """`clip` in int8 values as two ints within -128..127; TVM truncates the bounds toward zero."""
    if clip is None:
        return fixedpoint.INT8_MIN, fixedpoint.INT8_MAX
    low, high = (int(np.clip(bound, fixedpoint.INT8_MIN, fixedpoint.INT8_MAX)) for bound in clip)
    return low, high


def scale_ratio(x_scale: float, y_scale: float) -> float:
    """x_scale / y_scale as TVM's requantize takes it: both float32, the division in double."""
    return float(np.float32(x_scale)) / float(np.float32(y_scale))


def _conv_int8(where: str, node: Conv2d | ConvTranspose2d, x: np.ndarray, x_tensor: Tensor, y: Tensor) -> np.ndarray:
    acc = _sums(node, x.astype(np.float64) - x_tensor.zero_point, y).astype(np.int64)
    if node.bias is not None:
        acc = acc + node.bias
    multiplier, shift = fixedpoint.from_real_channels(conv_ratios(node, x_tensor, y), where)
    return _saturate(fixedpoint.requantize(acc, multiplier, shift, node.rounding) + y.zero_point, node.clip)


def conv_ratios(node: Conv2d | ConvTranspose2d, x: Tensor, y: Tensor) -> list[float]:
    """Accumulator scale over y's scale per channel: acc_scale as TVM, x.scale * weight_scale in double as TFLite."""
    if node.rounding != "double":
        return [scale_ratio(s, y.scale) for s in node.acc_scale]
    x_scale, y_scale = float(np.float32(x.scale)), float(np.float32(y.scale))
    return [x_scale * float(s) / y_scale for s in node.weight_scale]


def _add_int8(where: str, node: Add, values: dict[str, np.ndarray], tensors: dict[str, Tensor]) -> np.ndarray:
    y = tensors[node.y]
    if node.rounding == "double":
        return _add_tflite(where, node, values, tensors)
    total = np.int64(y.zero_point)
    for name in (node.x1, node.x2):
        x = tensors[name]
        requant = fixedpoint.from_real(scale_ratio(x.scale, y.scale), where)
        centered = values[name].astype(np.int64) - x.zero_point
        total = total + fixedpoint.requantize(centered, requant.multiplier, requant.shift, node.rounding)
    return _saturate(total, node.clip)


def _add_tflite(where: str, node: Add, values: dict[str, np.ndarray], tensors: dict[str, Tensor]) -> np.ndarray:
    """TFLite's int8 add: (x - zero point) << 20, each operand times s / (2 max), the sum times 2 max / (2**20 y)."""
    x1, x2, y = tensors[node.x1], tensors[node.x2], tensors[node.y]
    twice = 2.0 * max(float(np.float32(x1.scale)), float(np.float32(x2.scale)))
    total = np.zeros(1, np.int64)
    for name, x in ((node.x1, x1), (node.x2, x2)):
        r = fixedpoint.from_real(float(np.float32(x.scale)) / twice, where)
        shifted = (values[name].astype(np.int64) - x.zero_point) << 20
        total = total + fixedpoint.requantize(shifted, r.multiplier, r.shift, "double")
    r = fixedpoint.from_real(twice / (2.0 ** 20 * float(np.float32(y.scale))), where)
    return _saturate(fixedpoint.requantize(total, r.multiplier, r.shift, "double") + y.zero_point, node.clip)


def _pool_int8(where: str, node: Pool, x: np.ndarray, x_tensor: Tensor, y: Tensor) -> np.ndarray:
    if node.kind == "max":
        return geometry.pool_max(x, node.kernel, node.stride, node.padding, fixedpoint.INT8_MIN)
    counts = _counts(node, x)
    if node.raw:  # C division of int32 sums, TFLite's after adding half the count
        total = geometry.pool_sum(x.astype(np.int64), node.kernel, node.stride, node.padding)
        half = counts[:, :, None] // 2 if node.rounding == "nearest" else 0
        return (np.sign(total) * ((np.abs(total) + half) // counts[:, :, None])).astype(np.int8)
    centered = x.astype(np.int64) - x_tensor.zero_point
    total = geometry.pool_sum(centered, node.kernel, node.stride, node.padding)
    ratio = scale_ratio(x_tensor.scale, y.scale)
    requants = {int(n): fixedpoint.average_ratio(int(n), ratio, where) for n in np.unique(counts)}
    multiplier = np.array([[requants[int(n)].multiplier for n in row] for row in counts])[:, :, None]
    shift = np.array([[requants[int(n)].shift for n in row] for row in counts])[:, :, None]
    return _saturate(fixedpoint.requantize(total, multiplier, shift, node.rounding) + y.zero_point, None)
