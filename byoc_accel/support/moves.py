"""Candidates that only move values -> nodes: concatenation, padding, nearest neighbour upsampling."""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..region.region import INT8, Concat, Conv2d, Pad, Upsample
from . import view as views
from .builder import Builder
from .candidate import Candidate, ConcatCandidate, PadCandidate, Scale, UpsampleCandidate, Value
from .view import Shape4
from .wishes import PERMS, device_shape

MAX_LEADS = 4  # operands that may decide the order of axes


@dataclass(frozen=True)
class _Form:
    """Operands as device tensors of these shapes, host = device.transpose(perm), joined along device axis `axis`."""

    perm: tuple[int, ...]
    axis: int
    shapes: tuple[Shape4, ...]


def add_concat(b: Builder, c: ConcatCandidate) -> None:
    """Along the device axis that is host axis `c.axis` in the operands' common order of axes."""
    form = next((f for f in _forms(b, c) if _lies(b, c, f)), None) or next(_forms(b, c))
    xs = [b.read(c, v, shape, views.from_perm(shape, form.perm)) for v, shape in zip(c.xs, form.shapes)]
    scale = (c.y_scale.scale, c.y_scale.zero_point) if c.quantized else b.scale_of(b.lead(c.xs).tensor)
    scales = c.x_scales or (() if scale is None else (Scale(*scale),) * len(xs))  # stored integers: copied as they are
    for x, value, expected in zip(xs, c.xs, scales):
        b.expect_scale(c, value, x, expected)
    y_shape = views.resized(form.shapes[0], [form.axis], [sum(shape[form.axis] for shape in form.shapes)])
    name = b.new_name("concat")
    b.emit(c, Concat(name, tuple(xs), name, form.axis, b.rounding(c, c.rounding)), b.result(name, y_shape, scale),
           views.from_perm(y_shape, form.perm))


def _forms(b: Builder, c: ConcatCandidate) -> Iterator[_Form]:
    """The operands as layers left them first, then all of them in the host's order of elements."""
    inputs = {port.tensor for port in b.inputs}
    made = [v for v in c.xs if b.places[v.name].tensor not in inputs] or [c.xs[0]]
    for lead in made[:MAX_LEADS]:
        place = b.places[lead.name]
        for perm, (axis,) in views.match_axes(b.tensors[place.tensor].shape, place.view, lead.shape, [c.axis]):
            if axis > 0:
                shape = b.tensors[place.tensor].shape
                yield _Form(perm, axis, tuple(views.resized(shape, [axis], [v.shape[c.axis]]) for v in c.xs))
    yield _row_major(c)


def _row_major(c: ConcatCandidate) -> _Form:
    axis, rank = c.axis, len(c.y.shape)
    first = min(axis, 1)  # the batch stays, unless it is what grows
    split = [(v.shape[:first], v.shape[first:axis], v.shape[axis], v.shape[axis + 1:]) for v in c.xs]
    if axis == rank - 1:
        return _Form(views.NHWC, 3, tuple((math.prod(n), 1, math.prod(outer), size) for n, outer, size, _ in split))
    return _Form(views.NHWC, 2, tuple((math.prod(n), math.prod(outer), size, math.prod(inner))
                                      for n, outer, size, inner in split))


def _lies(b: Builder, c: ConcatCandidate, form: _Form) -> bool:
    """Whether every operand can be read in this form."""
    return all(b.places[v.name].view == views.from_perm(shape, form.perm)
               and b.tensors[b.places[v.name].tensor].shape[0] == shape[0] for v, shape in zip(c.xs, form.shapes))


def add_pad(b: Builder, c: PadCandidate) -> None:
    """Height and width by a Pad; channels by a 1x1 convolution with a unit matrix, whose bias is the value."""
    axes = [a for a, width in enumerate(c.widths) if any(width)]
    found = _axes(b, c, c.x, axes)
    if found is None:
        return
    perm, devices = found
    widths = {d: c.widths[a] for d, a in zip(devices, axes)}
    x = b.places[c.x.name].tensor
    channels = widths.pop(3, (0, 0))
    if widths:
        (top, bottom), (left, right) = widths.get(1, (0, 0)), widths.get(2, (0, 0))
        n, height, width, depth = b.tensors[x].shape
        shape = (n, height + top + bottom, width + left + right, depth)
        name = b.new_name("pad")
        b.emit(c, Pad(name, x, name, (top, left, bottom, right), c.value), b.result(name, shape, b.scale_of(x)),
               views.from_perm(shape, perm))
        x = name
    if any(channels):
        _pad_channels(b, c, x, channels, perm)


def _pad_channels(b: Builder, c: PadCandidate, x: str, width: tuple[int, int], perm: tuple[int, ...]) -> None:
    tensor = b.tensors[x]
    before, after = width
    *outer, depth = tensor.shape
    shape = (*outer, before + depth + after)
    integer = tensor.dtype == INT8
    weight = np.zeros((shape[3], 1, 1, depth), np.int8 if integer else np.float32)
    weight[before:before + depth, 0, 0] = np.eye(depth)
    bias = np.full(shape[3], c.value - tensor.zero_point if integer else c.value)
    bias[before:before + depth] = 0
    name = b.new_name("pad")
    ones = np.ones(shape[3], np.float32)
    fields = {"bias": bias.astype(np.int32), "acc_scale": ones * np.float32(tensor.scale), "weight_scale": ones} \
        if integer else {"bias": bias.astype(np.float32)}
    b.emit(c, Conv2d(name, x, name, weight, **fields), b.result(name, shape, b.scale_of(x)),
           views.from_perm(shape, perm))


def add_upsample(b: Builder, c: UpsampleCandidate) -> None:
    """Repeat positions along height and width."""
    axes = [a for a, (m, n) in enumerate(zip(c.x.shape, c.y.shape)) if m != n]
    if c.layout:
        shape, perm = device_shape(c.x.shape, c.layout), PERMS[c.layout]
        x = b.read(c, c.x, shape, views.from_perm(shape, perm))
        devices = tuple(perm[a] for a in axes)
    else:
        found = _axes(b, c, c.x, axes)
        if found is None:
            return
        (perm, devices), x = found, b.places[c.x.name].tensor
        if 3 in devices:
            b.conflict(c.name, c.x.name, "it repeats channels; only height and width can be repeated")
            return b.stand_in(c.y)
    factors = {d: c.y.shape[a] // c.x.shape[a] for d, a in zip(devices, axes)}
    n, height, width, depth = b.tensors[x].shape
    factor = factors.get(1, 1), factors.get(2, 1)
    shape = (n, height * factor[0], width * factor[1], depth)
    name = b.new_name("upsample")
    b.emit(c, Upsample(name, x, name, factor), b.result(name, shape, b.scale_of(x)), views.from_perm(shape, perm))


def _axes(b: Builder, c: Candidate, x: Value, axes: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """A permutation and the device axes of host `axes` of `x`; None, and a conflict, when there are none."""
    place = b.places[x.name]
    for perm, devices in views.match_axes(b.tensors[place.tensor].shape, place.view, x.shape, axes):
        if 0 not in devices:
            return perm, devices
    b.conflict(c.name, x.name, f"axes {axes} of {x.shape} are no height, width or channels on the device")
    b.stand_in(c.y)
    return None
