"""verify(Region): invariants of the graph, its shapes and its constants' types, not their values."""
from __future__ import annotations

import math

import numpy as np

from ..errors import RegionError
from ..isa.table import ROUNDINGS
from . import geometry
from .functions import FUNCTIONS
from .region import (
    FLOAT32,
    INT8,
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Node,
    Pad,
    Pool,
    Port,
    Region,
    Reshape,
    Tensor,
    Unary,
    Upsample,
    node_inputs,
)

FLOAT_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


def verify(region: Region) -> None:
    """Raise RegionError, naming the node or tensor, when `region` breaks an invariant of its types."""
    tensors = _verify_tensors(region)
    _verify_order(region, tensors)
    for port in region.inputs + region.outputs:
        _verify_port(region, port, tensors)
    for node in region.nodes:
        _VERIFY[type(node)](f"{region.name}: {_KIND[type(node)]} {node.name!r}", node, tensors)


def quantized(region: Region) -> bool:
    """True for a region of int8 tensors, False for one of float32 tensors (verify rules out a mixture)."""
    return region.tensors[0].dtype == INT8


def _verify_tensors(region: Region) -> dict[str, Tensor]:
    if not region.nodes or not region.tensors:
        raise RegionError(f"{region.name}: no nodes; leave an empty region to the host")
    tensors = region.by_name()
    if len(tensors) != len(region.tensors):
        names = sorted(t.name for t in region.tensors)
        twice = next(a for a, b in zip(names, names[1:]) if a == b)
        raise RegionError(f"{region.name}: two tensors are called {twice!r}; names must be unique")
    for tensor in region.tensors:
        _verify_tensor(f"{region.name}: tensor {tensor.name!r}", tensor)
        if tensor.dtype != region.tensors[0].dtype:
            raise RegionError(f"{region.name}: tensor {tensor.name!r} is {tensor.dtype} beside "
                              f"{region.tensors[0].dtype}; split the region where the type changes")
    return tensors


def _verify_tensor(where: str, tensor: Tensor) -> None:
    if len(tensor.shape) != 4 or any(not isinstance(n, int) or n < 1 for n in tensor.shape):
        raise RegionError(f"{where}: shape {tensor.shape}; give four sizes of 1 or more (N, H, W, C)")
    if tensor.dtype == FLOAT32:
        if tensor.scale is not None or tensor.zero_point is not None:
            raise RegionError(f"{where}: a float32 tensor has no scale; use int8 or drop it")
    elif tensor.dtype == INT8:
        if tensor.scale is None or not math.isfinite(tensor.scale) or tensor.scale <= 0:
            raise RegionError(f"{where}: scale {tensor.scale}; it must be a finite number above 0")
        if tensor.zero_point is None or not -128 <= tensor.zero_point <= 127:
            raise RegionError(f"{where}: zero point {tensor.zero_point}; allowed are -128 to 127")
    else:
        raise RegionError(f"{where}: dtype {tensor.dtype}; allowed are float32 and int8")


def _verify_order(region: Region, tensors: dict[str, Tensor]) -> None:
    """Single assignment in execution order, nothing unknown, nothing unproduced."""
    known: set[str] = set()
    for port in region.inputs:
        if port.tensor not in tensors or port.tensor in known:
            raise RegionError(f"{region.name}: input {port.tensor!r} is unknown or listed twice")
        known.add(port.tensor)
    names: set[str] = set()
    for node in region.nodes:
        if node.name in names:
            raise RegionError(f"{region.name}: two nodes are called {node.name!r}; names must be unique")
        names.add(node.name)
        for x in node_inputs(node):
            if x not in known:
                raise RegionError(f"{region.name}: node {node.name!r} reads {x!r} before it is produced")
        if node.y not in tensors or node.y in known:
            raise RegionError(f"{region.name}: node {node.name!r} writes {node.y!r}, "
                              "which is unknown or written already")
        known.add(node.y)
    if not region.outputs:
        raise RegionError(f"{region.name}: no outputs; a region must produce something")
    for port in region.outputs:
        if port.tensor not in known:
            raise RegionError(f"{region.name}: output {port.tensor!r} is never produced")
    for name in tensors:
        if name not in known:
            raise RegionError(f"{region.name}: tensor {name!r} is never produced; remove it")


def _verify_port(region: Region, port: Port, tensors: dict[str, Tensor]) -> None:
    where = f"{region.name}: port of {port.tensor!r}"
    tensor = tensors[port.tensor]
    if sorted(port.perm) != [0, 1, 2, 3]:
        raise RegionError(f"{where}: {port.perm} is no permutation of four axes")
    if math.prod(port.host_shape) != math.prod(tensor.shape):
        raise RegionError(f"{where}: host shape {port.host_shape} and tensor {tensor.shape} differ in size")
    if port.host_dtype not in (FLOAT32, INT8) or (port.host_dtype == INT8 and tensor.dtype == FLOAT32):
        raise RegionError(f"{where}: host {port.host_dtype} for {tensor.dtype}; use {tensor.dtype}")


def _expect_shape(where: str, y: Tensor, shape: tuple[int, ...]) -> None:
    if y.shape != shape:
        raise RegionError(f"{where}: result {y.name!r} is {y.shape}, the operands give {shape}")


def _verify_clip(where: str, clip: tuple[float, float] | None) -> None:
    if clip is not None and not clip[0] <= clip[1]:
        raise RegionError(f"{where}: clip {clip}; the low bound must not be above the high one")


def _verify_rounding(where: str, rounding: str) -> None:
    if rounding not in ROUNDINGS:
        raise RegionError(f"{where}: rounding {rounding!r}; use one of {', '.join(ROUNDINGS)}")


def _verify_window(where: str, x: Tensor, y: Tensor, kernel: tuple[int, int], stride: tuple[int, int],
                   padding: tuple[int, int, int, int], dilation: tuple[int, int], channels: int) -> None:
    if min(kernel + stride + dilation) < 1 or min(padding) < 0:
        raise RegionError(f"{where}: kernel {kernel}, stride {stride}, dilation {dilation} must be 1 or more "
                          f"and padding {padding} 0 or more")
    height, width = geometry.window_shape(x.shape, kernel, stride, padding, dilation)
    if height < 1 or width < 1:
        raise RegionError(f"{where}: kernel {kernel} with dilation {dilation} exceeds the padded input "
                          f"{x.shape} + {padding}; leave it to the host")
    _expect_shape(where, y, (x.shape[0], height, width, channels))


def _verify_conv(where: str, node: Conv2d, tensors: dict[str, Tensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if node.weight.ndim != 4 or 0 in node.weight.shape:
        raise RegionError(f"{where}: weight {node.weight.shape}; give (O, KH, KW, I / groups)")
    o, kh, kw, i = node.weight.shape
    if node.groups < 1 or o % node.groups or i * node.groups != x.shape[3]:
        raise RegionError(f"{where}: weight {node.weight.shape} in {node.groups} groups does not fit "
                          f"{x.shape[3]} input channels")
    _verify_window(where, x, y, (kh, kw), node.stride, node.padding, node.dilation, o)
    _verify_layer(where, node, x)


def _verify_conv_transpose(where: str, node: ConvTranspose2d, tensors: dict[str, Tensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if node.weight.ndim != 4 or 0 in node.weight.shape or node.weight.shape[3] != x.shape[3]:
        raise RegionError(f"{where}: weight {node.weight.shape}; give (O, KH, KW, {x.shape[3]})")
    if min(node.stride) < 1 or min(node.padding) < 0:
        raise RegionError(f"{where}: stride {node.stride} must be 1 or more and padding {node.padding} 0 or more")
    for axis in (0, 1):
        # The host can ask for less than one stride of positions behind the last that an input reaches.
        most = geometry.transposed_size(x.shape[1 + axis], node.weight.shape[1 + axis], node.stride[axis],
                                        node.padding[axis]) + node.stride[axis] - 1
        if y.shape[1 + axis] > most:
            raise RegionError(f"{where}: result {y.name!r} is {y.shape}, the operands give at most {most} positions "
                              f"along axis {1 + axis}")
    _expect_shape(where, y, (x.shape[0], *y.shape[1:3], len(node.weight)))
    _verify_layer(where, node, x)


def _verify_layer(where: str, node: Conv2d | ConvTranspose2d, x: Tensor) -> None:
    _verify_clip(where, node.clip)
    _verify_rounding(where, node.rounding)
    if x.dtype == INT8:
        _verify_conv_int8(where, node)
    else:
        _verify_conv_float(where, node)


def _verify_conv_int8(where: str, node: Conv2d | ConvTranspose2d) -> None:
    o = node.weight.shape[0]
    _expect_array(where, "weight", node.weight, node.weight.shape, (np.dtype(np.int8),))
    if node.bias is not None:
        _expect_array(where, "bias", node.bias, (o,), (np.dtype(np.int32),))
    if node.batch_norm is not None:
        raise RegionError(f"{where}: batch norm on int8; leave it to the host")
    if node.acc_scale is None or node.weight_scale is None:
        raise RegionError(f"{where}: a quantized layer needs weight_scale and acc_scale")
    for name, array in (("acc_scale", node.acc_scale), ("weight_scale", node.weight_scale)):
        _expect_array(where, name, array, (o,), (np.dtype(np.float32),))


def _verify_conv_float(where: str, node: Conv2d | ConvTranspose2d) -> None:
    o = node.weight.shape[0]
    _expect_array(where, "weight", node.weight, node.weight.shape, FLOAT_TYPES)
    if node.bias is not None:
        _expect_array(where, "bias", node.bias, (o,), FLOAT_TYPES)
    if isinstance(node.batch_norm, BatchNorm):
        for name in ("gamma", "beta", "mean", "variance"):
            _expect_array(where, f"batch norm {name}", getattr(node.batch_norm, name), (o,), FLOAT_TYPES)


def _expect_array(where: str, name: str, array: np.ndarray, shape: tuple[int, ...],
                  dtypes: tuple[np.dtype, ...]) -> None:
    if array.shape != shape or array.dtype not in dtypes:
        raise RegionError(f"{where}: {name} is {array.dtype} {array.shape}; give {dtypes[0]} {shape}")


def _verify_add(where: str, node: Add, tensors: dict[str, Tensor]) -> None:
    x1, x2, y = tensors[node.x1], tensors[node.x2], tensors[node.y]
    if x1.shape != x2.shape:
        raise RegionError(f"{where}: operands {x1.shape} and {x2.shape}; equal shapes only")
    _expect_shape(where, y, x1.shape)
    _verify_clip(where, node.clip)
    _verify_rounding(where, node.rounding)


def _verify_pool(where: str, node: Pool, tensors: dict[str, Tensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if node.kind not in ("max", "avg"):
        raise RegionError(f"{where}: kind {node.kind!r}; use max or avg")
    _verify_window(where, x, y, node.kernel, node.stride, node.padding, (1, 1), x.shape[3])
    _verify_rounding(where, node.rounding)
    counts = geometry.pool_counts(x.shape[1], x.shape[2], node.kernel, node.stride, node.padding, False)
    if counts.min() < 1:
        raise RegionError(f"{where}: a window lies in the padding {node.padding} only; leave it to the host")
    if node.raw and (node.kind != "avg" or x.dtype != INT8):
        raise RegionError(f"{where}: raw is for averages of int8 tensors")
    if node.kind == "max":
        _expect_same_scale(where, x, y)


def _verify_unary(where: str, node: Unary, tensors: dict[str, Tensor]) -> None:
    _expect_shape(where, tensors[node.y], tensors[node.x].shape)
    if node.table is not None:
        if tensors[node.x].dtype != INT8:
            raise RegionError(f"{where}: a table is for int8 tensors; drop it")
        _expect_array(where, "table", node.table, (256,), (np.dtype(np.int8),))
        return
    function = FUNCTIONS.get(node.function)
    if function is None:
        raise RegionError(f"{where}: no function {node.function!r}; known are {', '.join(sorted(FUNCTIONS))}")
    if len(node.args) != len(function.args):
        raise RegionError(f"{where}: {node.function} takes ({', '.join(function.args)}), got {node.args}")
    if node.function == "clip":
        _verify_clip(where, node.args)
        _expect_same_scale(where, tensors[node.x], tensors[node.y])


def _expect_same_scale(where: str, x: Tensor, y: Tensor) -> None:
    if (x.scale, x.zero_point) != (y.scale, y.zero_point):
        raise RegionError(f"{where}: {y.name!r} must have the scale and zero point of {x.name!r}")


def _verify_concat(where: str, node: Concat, tensors: dict[str, Tensor]) -> None:
    if not node.xs or node.axis not in (1, 2, 3):
        raise RegionError(f"{where}: {len(node.xs)} inputs along axis {node.axis}; give at least one, along axis 1 "
                          "(height), 2 (width) or 3 (channels)")
    shapes = [tensors[x].shape for x in node.xs]
    for shape in shapes:
        if shape[:node.axis] + shape[node.axis + 1:] != shapes[0][:node.axis] + shapes[0][node.axis + 1:]:
            raise RegionError(f"{where}: inputs {shapes[0]} and {shape} differ beside axis {node.axis}")
    total = sum(shape[node.axis] for shape in shapes)
    _expect_shape(where, tensors[node.y], (*shapes[0][:node.axis], total, *shapes[0][node.axis + 1:]))
    _verify_rounding(where, node.rounding)


def _verify_pad(where: str, node: Pad, tensors: dict[str, Tensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if len(node.padding) != 4 or min(node.padding) < 0:
        raise RegionError(f"{where}: padding {node.padding}; give four sizes of 0 or more (top, left, bottom, right)")
    top, left, bottom, right = node.padding
    n, height, width, channels = x.shape
    _expect_shape(where, y, (n, top + height + bottom, left + width + right, channels))
    if not math.isfinite(node.value):
        raise RegionError(f"{where}: value {node.value}; give a finite one")
    if x.dtype == INT8 and not (-128 <= node.value <= 127 and float(node.value).is_integer()):
        raise RegionError(f"{where}: value {node.value}; give an integer of -128 to 127 for int8 tensors")
    _expect_same_scale(where, x, y)


def _verify_upsample(where: str, node: Upsample, tensors: dict[str, Tensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if len(node.factor) != 2 or min(node.factor) < 1:
        raise RegionError(f"{where}: factor {node.factor}; give two integers of 1 or more")
    n, height, width, channels = x.shape
    _expect_shape(where, y, (n, height * node.factor[0], width * node.factor[1], channels))
    _expect_same_scale(where, x, y)


def _verify_reshape(where: str, node: Reshape, tensors: dict[str, Tensor]) -> None:
    x, y = tensors[node.x], tensors[node.y]
    if x.shape[0] != y.shape[0] or math.prod(x.shape) != math.prod(y.shape):
        raise RegionError(f"{where}: {x.shape} to {y.shape}; the batch axis and the size must stay")
    _expect_same_scale(where, x, y)


_VERIFY = {Conv2d: _verify_conv, ConvTranspose2d: _verify_conv_transpose, Add: _verify_add, Pool: _verify_pool,
           Unary: _verify_unary, Concat: _verify_concat, Pad: _verify_pad, Upsample: _verify_upsample,
           Reshape: _verify_reshape}
_KIND: dict[type[Node], str] = {kind: kind.__name__.lower() for kind in _VERIFY}
