"""Supported candidates -> Region: NHWC tensors, OHWI weights, one scale per tensor.

Reshapes and transposes of the host only change how a device tensor is read (view.py). A first pass from the
outputs collects what each value's readers ask for, so that a region input gets the layout and the scale that its
first layer needs; a second pass from the inputs makes tensors and nodes.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..region.region import FLOAT32, INT8, Add, BatchNorm, Conv2d, Node, Pool, Port, Region, Reshape, Tensor, Unary
from . import view as views
from .candidate import (
    AddCandidate,
    BoundaryCandidate,
    Candidate,
    ConvCandidate,
    PoolCandidate,
    UnaryCandidate,
    Value,
    ViewCandidate,
)
from .view import Shape4, View
from .weights import ohwi

PERMS = {"NHWC": views.NHWC, "NCHW": views.NCHW, "NWC": views.NHWC, "NCW": views.NCHW}
#: Elementwise ops whose convolution has weights of 1.
SCALES = ("multiply", "add", "subtract", "divide")
#: How `rounding="tflite"` requantizes; see docs/numerics.md.
TFLITE_ROUNDING = {"qnn.conv2d": "double", "qnn.dense": "upward", "qnn.add": "double"}


@dataclass(frozen=True)
class Conflict:
    """Candidate `reader` cannot read value `value` where its producer leaves it; they need separate regions."""

    reader: str
    value: str
    reason: str


class ConflictError(Exception):
    """The candidates are no single region; `conflicts` has at least one entry."""

    def __init__(self, conflicts: Sequence[Conflict]):
        super().__init__("; ".join(c.reason for c in conflicts))
        self.conflicts = tuple(conflicts)


@dataclass(frozen=True)
class Built:
    """`layers` maps a node name of the region to the name of the candidate that it came from."""

    region: Region
    layers: dict[str, str]


@dataclass(frozen=True)
class _Wish:
    """What readers ask of a value: device shape and view, scale and zero point; None for no wish."""

    shape: Shape4 | None = None
    view: View | None = None
    scale: tuple[float, int] | None = None


@dataclass(frozen=True)
class _Place:
    """A host value on the device: elements of tensor `tensor`, in the order `view`."""

    tensor: str
    view: View


def build_region(name: str, candidates: Sequence[Candidate], inputs: Sequence[Value], outputs: Sequence[Value], *,
                 rounding: str = "tvm") -> Built:
    """Region of `candidates`, which are in execution order and have passed `ops.unsupported`.

    inputs, outputs: values at the boundary, in host argument order. rounding: "tvm" (as the ops say) or "tflite".
    Raises ConflictError when layouts or scales of neighbours do not meet.
    """
    builder = _Builder(rounding)
    wishes = _wishes(candidates)
    for index, value in enumerate(inputs):
        builder.add_input(f"x{index}", value, wishes.get(value.name, _Wish()))
    for candidate in candidates:
        _ADD[type(candidate)](builder, candidate)
    ports = [builder.output(value) for value in outputs]
    if builder.conflicts:
        raise ConflictError(builder.conflicts)
    region = Region(name, tuple(builder.tensors.values()), tuple(builder.nodes), tuple(builder.inputs), tuple(ports))
    return Built(region, builder.layers)


def device_shape(shape: Sequence[int], layout: str) -> Shape4:
    """(N, H, W, C) of a host tensor; layout "" is a matrix or a stack of them, reduced along the last axis."""
    if not layout:
        *outer, last = shape
        n, *rest = outer or [1]
        return (n, *([1] * (2 - len(rest))), *rest, last)
    sizes = dict(zip(layout, shape))
    return sizes["N"], sizes.get("H", 1), sizes["W"], sizes["C"]


def _wishes(candidates: Sequence[Candidate]) -> dict[str, _Wish]:
    """By value name, from the readers; those later in the list give way to those before."""
    wishes: dict[str, _Wish] = {}
    for c in reversed(candidates):
        for value, wish in _asked(c, wishes.get(c.y.name, _Wish())):
            old = wishes.get(value.name, _Wish())
            layout = wish if wish.view is not None else old
            wishes[value.name] = _Wish(layout.shape, layout.view, wish.scale or old.scale)
    return wishes


def _asked(c: Candidate, y: _Wish) -> list[tuple[Value, _Wish]]:
    """What `c` asks of its operands when `y` is asked of its result."""
    if isinstance(c, ConvCandidate):
        scale = (c.x_scale.scale, c.x_scale.zero_point) if c.quantized else None
        if not c.layout:
            shape = _dense_shape(c.x.shape, 1)
            return [(c.x, _Wish(shape, views.row_major(math.prod(shape)), scale))]
        return [(c.x, _laid_out(c.x, c.layout, scale))]
    if isinstance(c, PoolCandidate):
        return [(c.x, _laid_out(c.x, c.layout, y.scale))]
    if isinstance(c, AddCandidate):
        scales = [(s.scale, s.zero_point) if s else None for s in (c.x1_scale, c.x2_scale)]
        return [(c.x1, _Wish(y.shape, y.view, scales[0])), (c.x2, _Wish(y.shape, y.view, scales[1]))]
    if isinstance(c, BoundaryCandidate):
        return [(c.x, _Wish(y.shape, y.view, (c.scale.scale, c.scale.zero_point)))]
    if isinstance(c, ViewCandidate) and c.axes is not None and y.view is not None:
        inverse = [c.axes.index(a) for a in range(len(c.axes))]
        return [(c.x, _Wish(y.shape, views.transpose(y.view, c.y.shape, inverse), y.scale))]
    return [(c.x, y)]


def _dense_shape(shape: Sequence[int], batch: int) -> Shape4:
    """Device shape of a dense layer's tensor: rows are positions along x, so that they share each weight tile."""
    rows = math.prod(shape[:-1])
    return (batch, 1, rows // batch, shape[-1]) if rows % batch == 0 else (1, 1, rows, shape[-1])


def _laid_out(value: Value, layout: str, scale: tuple[float, int] | None) -> _Wish:
    shape = device_shape(value.shape, layout)
    return _Wish(shape, views.from_perm(shape, PERMS.get(layout, views.NHWC)), scale)


class _Builder:
    """Tensors and nodes made so far; `places` maps a host value's name to where it lies."""

    def __init__(self, rounding: str):
        self.tflite = rounding == "tflite"
        self.places: dict[str, _Place] = {}
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.inputs: list[Port] = []
        self.layers: dict[str, str] = {}
        self.conflicts: list[Conflict] = []
        self._counts: Counter[str] = Counter()

    def add_input(self, name: str, value: Value, wish: _Wish) -> None:
        shape, view = wish.shape, wish.view
        if shape is None or view is None or views.find_perm(shape, view) is None:
            rank = len(value.shape)
            shape = device_shape(value.shape if rank <= 4 else (value.shape[0], math.prod(value.shape[1:])), "")
            view = views.row_major(math.prod(value.shape))
        scale = wish.scale or ((1.0, 0) if value.dtype == INT8 else None)
        self.tensors[name] = self.result(name, shape, scale)
        self.places[value.name] = _Place(name, view)
        self.inputs.append(Port(name, tuple(value.shape), value.dtype, views.find_perm(shape, view)))

    def output(self, value: Value) -> Port:
        place = self.places[value.name]
        tensor = self.tensors[place.tensor]
        perm = views.find_perm(tensor.shape, place.view)
        if place.tensor in {port.tensor for port in self.inputs}:
            self.conflict(value.name, value.name, "nothing is computed between an input and this output")
        elif perm is None:
            self.conflict(value.name, value.name, "its result lies in an order of axes that no copy restores")
        return Port(place.tensor, tuple(value.shape), value.dtype, perm or views.NHWC)

    def conflict(self, reader: str, value: str, reason: str) -> None:
        self.conflicts.append(Conflict(reader, value, reason))

    def new_name(self, kind: str) -> str:
        """conv2d_0, add_1, ...: numbered through the region, the same for equal regions."""
        name = f"{kind}_{sum(self._counts.values())}"
        self._counts[kind] += 1
        return name

    def emit(self, candidate: Candidate, node: Node, y: Tensor, view: View) -> None:
        self.tensors[y.name] = y
        self.nodes.append(node)
        self.layers[node.name] = candidate.name
        self.places[candidate.y.name] = _Place(y.name, view)

    def result(self, name: str, shape: Shape4, scale: tuple[float, int] | None) -> Tensor:
        """The tensor called `name`, int8 if it has a scale; one that a node writes has the node's name."""
        return Tensor(name, shape, FLOAT32) if scale is None else Tensor(name, shape, INT8, *scale)

    def scale_of(self, tensor: str) -> tuple[float, int] | None:
        t = self.tensors[tensor]
        return None if t.scale is None or t.zero_point is None else (t.scale, t.zero_point)

    def read(self, candidate: Candidate, value: Value, shape: Shape4, view: View) -> str:
        """The tensor that holds `value` with exactly this shape and view, through a reshape if need be."""
        place = self.places[value.name]
        tensor = self.tensors[place.tensor]
        if place.view != view:
            self.conflict(candidate.name, value.name, "the order of axes changes between the two")
            return self._stand_in(value, shape)
        if tensor.shape == shape:
            return place.tensor
        if tensor.shape[0] != shape[0]:
            self.conflict(candidate.name, value.name, f"the batch changes from {tensor.shape[0]} to {shape[0]}")
            return self._stand_in(value, shape)
        name = self.new_name("reshape")
        self.nodes.append(Reshape(name, place.tensor, name))
        self.tensors[name] = self.result(name, shape, self.scale_of(place.tensor))
        self.layers[name] = candidate.name
        return name

    def _stand_in(self, value: Value, shape: Shape4) -> str:
        """A tensor to go on with after a conflict; the region is not used."""
        name = self.new_name("conflict")
        self.tensors[name] = self.result(name, shape, self.scale_of(self.places[value.name].tensor))
        return name

    def rounding(self, candidate: ConvCandidate | AddCandidate, stated: str | None) -> str:
        return TFLITE_ROUNDING[candidate.op] if self.tflite and candidate.quantized else stated or "upward"


def _add_conv(b: _Builder, c: ConvCandidate) -> None:
    weight = ohwi(c)
    if c.layout:
        shape = device_shape(c.x.shape, c.layout)
        perm = PERMS[c.layout]
        x = b.read(c, c.x, shape, views.from_perm(shape, perm))
        y_shape = device_shape(c.y.shape, c.layout)
    else:
        perm = views.NHWC
        x, weight = _dense_operand(b, c, weight)
        y_shape = _dense_shape(c.y.shape, b.tensors[x].shape[0])
    if c.quantized and b.tensors[x].zero_point != c.x_scale.zero_point:
        b.conflict(c.name, c.x.name, f"the zero point changes from {b.tensors[x].zero_point} to "
                                     f"{c.x_scale.zero_point}")
    name = b.new_name("scale" if c.op in SCALES else "conv2d" if c.layout else "dense")
    scale = (c.requantize.y.scale, c.requantize.y.zero_point) if c.quantized else None
    node = Conv2d(name, x, name, weight, stride=c.strides, padding=c.padding, dilation=c.dilation, groups=c.groups,
                  clip=c.clip, **(_quantized_fields(b, c) if c.quantized else _float_fields(c)))
    b.emit(c, node, b.result(name, y_shape, scale), views.from_perm(y_shape, perm))


def _dense_operand(b: _Builder, c: ConvCandidate, weight: np.ndarray) -> tuple[str, np.ndarray]:
    """The operand of a dense layer, and its weight with the columns in the order of the device's elements."""
    place, units = b.places[c.x.name], c.x.shape[-1]
    shape = _dense_shape(c.x.shape, b.tensors[place.tensor].shape[0])
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


def _quantized_fields(b: _Builder, c: ConvCandidate) -> dict[str, object]:
    outputs = (len(ohwi(c)),)
    acc_scale = np.broadcast_to(np.asarray(c.requantize.acc_scale, np.float32).reshape(-1), outputs).copy()
    weight_scale = c.weight_scale
    if weight_scale is None or weight_scale.size not in (1, outputs[0]):
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


def _add_add(b: _Builder, c: AddCandidate) -> None:
    places = [b.places[v.name] for v in (c.x1, c.x2)]
    # The operand that a layer made, not a region input, decides the layout.
    lead = places[1] if places[0].tensor in {port.tensor for port in b.inputs} else places[0]
    shape = b.tensors[lead.tensor].shape
    x1, x2 = (b.read(c, v, shape, lead.view) for v in (c.x1, c.x2))
    if c.quantized:
        for x, value, scale in ((x1, c.x1, c.x1_scale), (x2, c.x2, c.x2_scale)):
            if b.scale_of(x) != (scale.scale, scale.zero_point):
                b.conflict(c.name, value.name, f"scale and zero point change from {b.scale_of(x)} to "
                                               f"{(scale.scale, scale.zero_point)}")
    name = b.new_name("add")
    scale = (c.y_scale.scale, c.y_scale.zero_point) if c.quantized else None
    b.emit(c, Add(name, x1, x2, name, c.clip, b.rounding(c, c.rounding)), b.result(name, shape, scale), lead.view)


def _add_pool(b: _Builder, c: PoolCandidate) -> None:
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


def _add_unary(b: _Builder, c: UnaryCandidate) -> None:
    place = b.places[c.x.name]
    tensor = b.tensors[place.tensor]
    name = b.new_name(c.function)
    b.emit(c, Unary(name, place.tensor, name, c.function, c.args),
           b.result(name, tensor.shape, b.scale_of(place.tensor)), place.view)


def _add_boundary(b: _Builder, c: BoundaryCandidate) -> None:
    """A region input that the host has in float32, or a region output that it wants so: no node."""
    place = b.places[c.x.name]
    if b.scale_of(place.tensor) != (c.scale.scale, c.scale.zero_point):
        b.conflict(c.name, c.x.name, f"scale and zero point change from {b.scale_of(place.tensor)} to "
                                     f"{(c.scale.scale, c.scale.zero_point)}")
    b.places[c.y.name] = place


def _add_view(b: _Builder, c: ViewCandidate) -> None:
    place = b.places[c.x.name]
    view: View | None = place.view
    if c.axes is not None:
        view = views.transpose(place.view, c.x.shape, c.axes)
    if view is None:
        b.conflict(c.name, c.x.name, f"the axes of {tuple(c.x.shape)} cannot be told apart on the device")
        view = views.row_major(math.prod(c.y.shape))
    b.places[c.y.name] = _Place(place.tensor, view)


_ADD = {ConvCandidate: _add_conv, AddCandidate: _add_add, PoolCandidate: _add_pool, UnaryCandidate: _add_unary,
        ViewCandidate: _add_view, BoundaryCandidate: _add_boundary}
