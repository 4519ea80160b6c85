"""Supported candidates -> Region: NHWC tensors, OHWI weights, one scale per tensor.

Reshapes and transposes of the host only change how a device tensor is read (view.py). A first pass from the
outputs collects what each value's readers ask for, so that a region input gets the layout and the scale that its
first layer needs; a second pass from the inputs makes tensors and nodes.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..region.region import INT8, Add, BatchNorm, Conv2d, ConvTranspose2d, Pool, Region, Unary
from . import view as views
from .builder import Builder, Built, Conflict, ConflictError, Place
from .candidate import (
    AddCandidate,
    BoundaryCandidate,
    Candidate,
    ConcatCandidate,
    ConvCandidate,
    PadCandidate,
    PoolCandidate,
    PreluCandidate,
    UnaryCandidate,
    UpsampleCandidate,
    Value,
    ViewCandidate,
)
from .moves import add_concat, add_pad, add_upsample
from .view import View
from .weights import ohwi
from .wishes import PERMS, Wish, dense_shape, device_shape, wishes_of

#: Elementwise ops whose convolution has weights of 1.
SCALES = ("multiply", "add", "subtract", "divide")


def build_region(name: str, candidates: Sequence[Candidate], inputs: Sequence[Value], outputs: Sequence[Value], *,
                 rounding: str = "tvm") -> Built:
    """Region of `candidates`, which are in execution order and have passed `ops.unsupported`.

    inputs, outputs: values at the boundary, in host argument order. rounding: "tvm" (as the ops say) or "tflite".
    Raises ConflictError when layouts or scales of neighbours do not meet.
    """
    builder = Builder(rounding)
    wishes = wishes_of(candidates)
    for index, value in enumerate(inputs):
        builder.add_input(f"x{index}", value, wishes.get(value.name, Wish()))
    for candidate in candidates:
        _ADD[type(candidate)](builder, candidate)
    ports = [builder.output(value) for value in outputs]
    if builder.conflicts:
        raise ConflictError(builder.conflicts)
    region = Region(name, tuple(builder.tensors.values()), tuple(builder.nodes), tuple(builder.inputs), tuple(ports))
    return Built(region, builder.layers)


def _add_conv(b: Builder, c: ConvCandidate) -> None:
    weight = ohwi(c)
    if c.layout:
        shape = device_shape(c.x.shape, c.layout)
        x = b.read(c, c.x, shape, views.from_perm(shape, PERMS[c.layout]))
        perm = PERMS[c.out_layout or c.layout]
        y_shape = device_shape(c.y.shape, c.out_layout or c.layout)
    else:
        perm = views.NHWC
        x, weight = _dense_operand(b, c, weight)
        y_shape = dense_shape(c.y.shape, b.tensors[x].shape[0])
    if c.quantized and b.tensors[x].zero_point != c.x_scale.zero_point:
        b.conflict(c.name, c.x.name, f"the zero point changes from {b.tensors[x].zero_point} to "
                                     f"{c.x_scale.zero_point}")
    kind = "scale" if c.op in SCALES else "conv2d_transpose" if c.transposed else "conv2d" if c.layout else "dense"
    name = b.new_name(kind)
    scale = (c.requantize.y.scale, c.requantize.y.zero_point) if c.quantized else None
    fields = _quantized_fields(b, c, len(weight)) if c.quantized else _float_fields(c)
    if c.transposed:
        node = ConvTranspose2d(name, x, name, weight, stride=c.strides, padding=c.padding[:2], clip=c.clip, **fields)
    else:
        node = Conv2d(name, x, name, weight, stride=c.strides, padding=c.padding, dilation=c.dilation,
                      groups=c.groups, clip=c.clip, **fields)
    b.emit(c, node, b.result(name, y_shape, scale), views.from_perm(y_shape, perm))


def _dense_operand(b: Builder, c: ConvCandidate, weight: np.ndarray) -> tuple[str, np.ndarray]:
    """The operand of a dense layer, and its weight with the columns in the order of the device's elements."""
    place, units = b.places[c.x.name], c.x.shape[-1]
    shape = dense_shape(c.x.shape, b.tensors[place.tensor].shape[0])
    rows = math.prod(c.x.shape[:-1])
    parts = views.split(place.view, (rows, units))
    if parts is None or views.canonical(parts[0]) != views.canonical([(rows, units)]):
        return b.read(c, c.x, shape, views.row_major(rows * units)), weight  # a conflict unless row-major
    order = views.offsets(parts[1])  # device element of each host column
    if sorted(order) != list(range(units)):
        return b.read(c, c.x, shape, views.row_major(rows * units)), weight
    by_device = np.empty_like(weight)
    by_device[..., order] = weight
    return b.read(c, c.x, shape, place.view), by_device


def _quantized_fields(b: Builder, c: ConvCandidate, outputs: int) -> dict[str, object]:
    acc_scale = np.broadcast_to(np.asarray(c.requantize.acc_scale, np.float32).reshape(-1), outputs).copy()
    weight_scale = c.weight_scale
    if weight_scale is None or weight_scale.size not in (1, outputs):
        weight_scale = acc_scale / np.float32(c.x_scale.scale)
    return {
        "bias": None if c.bias is None else c.bias.astype(np.int32), "acc_scale": acc_scale,
        "weight_scale": np.broadcast_to(np.asarray(weight_scale, np.float32).reshape(-1), outputs).copy(),
        "rounding": b.rounding(c, c.requantize.rounding)}


def _float_fields(c: ConvCandidate) -> dict[str, object]:
    """Bias, and scaling after it as a batch norm of mean 0 and variance 1."""
    fields: dict[str, object] = {"bias": c.bias}
    if c.factor is not None:
        ones = np.ones(len(c.factor))
        fields["batch_norm"] = BatchNorm(c.factor, c.offset, ones * 0.0, ones, 0.0)
    return fields


def _add_add(b: Builder, c: AddCandidate) -> None:
    lead = b.lead([c.x1, c.x2])
    shape = b.tensors[lead.tensor].shape
    x1, x2 = (b.read(c, v, shape, lead.view) for v in (c.x1, c.x2))
    if c.quantized:
        for x, value, scale in ((x1, c.x1, c.x1_scale), (x2, c.x2, c.x2_scale)):
            b.expect_scale(c, value, x, scale)
    name = b.new_name("add")
    scale = (c.y_scale.scale, c.y_scale.zero_point) if c.quantized else None
    b.emit(c, Add(name, x1, x2, name, c.clip, b.rounding(c, c.rounding)), b.result(name, shape, scale), lead.view)


def _add_pool(b: Builder, c: PoolCandidate) -> None:
    shape, perm = device_shape(c.x.shape, c.layout), PERMS[c.layout]
    x = b.read(c, c.x, shape, views.from_perm(shape, perm))
    tensor = b.tensors[x]
    height, width = ((tensor.shape[axis] + c.padding[axis - 1] + c.padding[axis + 1] - c.kernel[axis - 1])
                     // c.strides[axis - 1] + 1 for axis in (1, 2))
    y_shape = (tensor.shape[0], height, width, tensor.shape[3])
    name = b.new_name(f"{c.kind}_pool")
    raw = c.kind == "avg" and tensor.dtype == INT8
    node = Pool(name, x, name, c.kind, c.kernel, c.strides, c.padding, c.count_include_pad, raw,
                "nearest" if b.tflite and raw else "upward")
    b.emit(c, node, b.result(name, y_shape, b.scale_of(x)), views.from_perm(y_shape, perm))
    if c.table is not None:
        _add_table(b, c, name, views.from_perm(y_shape, perm))


def _add_unary(b: Builder, c: UnaryCandidate) -> None:
    place = b.places[c.x.name]
    if c.table is not None:
        return _add_table(b, c, place.tensor, place.view)
    tensor = b.tensors[place.tensor]
    name = b.new_name(c.function)
    b.emit(c, Unary(name, place.tensor, name, c.function, c.args),
           b.result(name, tensor.shape, b.scale_of(place.tensor)), place.view)


def _add_table(b: Builder, c: UnaryCandidate | PoolCandidate, x: str, view: View) -> None:
    name = b.new_name("table")
    scale = (c.y_scale.scale, c.y_scale.zero_point)
    b.emit(c, Unary(name, x, name, "table", (), c.table), b.result(name, b.tensors[x].shape, scale), view)


def _add_prelu(b: Builder, c: PreluCandidate) -> None:
    """relu(x) + slope * min(x, 0): two tables, a depthwise 1x1, and a sum of which one operand is 0."""
    place = b.places[c.x.name]
    x, shape = place.tensor, b.tensors[place.tensor].shape
    slopes = _by_channel(c.slopes, c.x, shape, place.view)
    if slopes is None:
        b.conflict(c.name, c.x.name, "its slopes differ along height or width")
        return b.stand_in(c.y)
    high, low, sloped, total = (b.new_name(kind) for kind in ("relu", "clip", "scale", "add"))
    b.emit(c, Unary(high, x, high, "relu"), b.result(high, shape, None), place.view)
    b.emit(c, Unary(low, x, low, "clip", (-math.inf, 0.0)), b.result(low, shape, None), place.view)
    b.emit(c, Conv2d(sloped, low, sloped, slopes.reshape(-1, 1, 1, 1), groups=shape[3]),
           b.result(sloped, shape, None), place.view)
    b.emit(c, Add(total, high, sloped, total), b.result(total, shape, None), place.view)


def _by_channel(array: np.ndarray, value: Value, shape: tuple[int, ...], view: View) -> np.ndarray | None:
    """`array`, which broadcasts to the host value, per channel of its device tensor; None when positions differ."""
    host = np.broadcast_to(array, value.shape).reshape(-1)
    device = np.empty_like(host)
    device[views.offsets(view)] = host
    rows = device.reshape(-1, shape[3])
    return rows[0] if (rows == rows[:1]).all() else None


def _add_boundary(b: Builder, c: BoundaryCandidate) -> None:
    """A region input that the host has in float32, or a region output that it wants so: no node."""
    place = b.places[c.x.name]
    b.expect_scale(c, c.x, place.tensor, c.scale)
    b.places[c.y.name] = place


def _add_view(b: Builder, c: ViewCandidate) -> None:
    place = b.places[c.x.name]
    view: View | None = place.view
    if c.axes is not None:
        view = views.transpose(place.view, c.x.shape, c.axes)
    if view is None:
        b.conflict(c.name, c.x.name, f"the axes of {tuple(c.x.shape)} cannot be told apart on the device")
        view = views.row_major(math.prod(c.y.shape))
    b.places[c.y.name] = Place(place.tensor, view)


_ADD = {ConvCandidate: _add_conv, AddCandidate: _add_add, PoolCandidate: _add_pool, UnaryCandidate: _add_unary,
        PreluCandidate: _add_prelu,
        ConcatCandidate: add_concat, PadCandidate: add_pad, UpsampleCandidate: add_upsample,
        ViewCandidate: _add_view, BoundaryCandidate: _add_boundary}


__all__ = ["Built", "Conflict", "ConflictError", "build_region"]
