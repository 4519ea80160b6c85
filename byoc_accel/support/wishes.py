"""What the layers of a region ask of its values: how they lie on the device, and with which scale.

Region inputs follow these wishes, so that most layers find their operands where they want them.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import view as views
from .candidate import (
    AddCandidate,
    BoundaryCandidate,
    Candidate,
    ConcatCandidate,
    ConvCandidate,
    PadCandidate,
    PoolCandidate,
    Scale,
    UpsampleCandidate,
    Value,
    ViewCandidate,
)
from .view import Shape4, View

PERMS = {"NHWC": views.NHWC, "NCHW": views.NCHW, "NWC": views.NHWC, "NCW": views.NCHW,
         "WC": views.NHWC, "CW": views.NCHW}
MIN_ROW, MAX_ROW = 16, 256
MOVES = (ConcatCandidate, PadCandidate, UpsampleCandidate)  # results like their operands, of other sizes


@dataclass(frozen=True)
class Wish:
    """What readers ask of a value: device shape and view, scale and zero point; None for no wish."""

    shape: Shape4 | None = None
    view: View | None = None
    scale: tuple[float, int] | None = None


def device_shape(shape: Sequence[int], layout: str) -> Shape4:
    """(N, H, W, C) of a host tensor; layout "" is a matrix or a stack of them, reduced along the last axis."""
    if not layout:
        *outer, last = shape
        n, *rest = outer or [1]
        return (n, *([1] * (2 - len(rest))), *rest, last)
    sizes = dict(zip(layout, shape))
    return sizes.get("N", 1), sizes.get("H", 1), sizes["W"], sizes["C"]


def wishes_of(candidates: Sequence[Candidate]) -> dict[str, Wish]:
    """By value name, from the readers; those later in the list give way to those before.

    A layer that takes any order of axes asks for the one in which another of its operands is going to lie, and else
    for the one that is asked of its result.
    """
    natural = _natural(candidates)
    wishes: dict[str, Wish] = {}
    for c in reversed(candidates):
        y = wishes.get(c.y.name, Wish())
        layout = natural.get(c.y.name, y)
        for value, wish in _asked(c, Wish(layout.shape, layout.view, y.scale)):
            old = wishes.get(value.name, Wish())
            layout = wish if wish.view is not None else old
            wishes[value.name] = Wish(layout.shape, layout.view, wish.scale or old.scale)
    return wishes


def _natural(candidates: Sequence[Candidate]) -> dict[str, Wish]:
    """How the results of layers are going to lie, by value name, where some layer in front decides that."""
    known: dict[str, Wish] = {}
    for c in candidates:
        if isinstance(c, (ConvCandidate, PoolCandidate)) and c.layout:
            known[c.y.name] = _result(c)
            continue
        x = next((v for v in c.inputs if v.name in known), None)
        if x is None:
            continue
        lies = known[x.name]
        if isinstance(c, ViewCandidate) and c.axes is not None:
            lies = Wish(lies.shape, views.transpose(lies.view, c.x.shape, c.axes))
        elif isinstance(c, MOVES):
            lies = _like(lies, x, c.y)
        if lies.view is not None and not isinstance(c, ConvCandidate):
            known[c.y.name] = lies
    return known


def _result(c: ConvCandidate | PoolCandidate) -> Wish:
    if len(c.y.shape) == len(c.layout):
        return _laid_out(c.y, c.out_layout or c.layout, None)
    n, channels = c.y.shape  # a mean that drops height and width
    return Wish((n, 1, 1, channels), views.row_major(n * channels))


def _asked(c: Candidate, y: Wish) -> list[tuple[Value, Wish]]:
    """What `c` asks of its operands when `y` is asked of its result."""
    if isinstance(c, ConvCandidate):
        scale = (c.x_scale.scale, c.x_scale.zero_point) if c.quantized else None
        if not c.layout:
            shape = dense_shape(c.x.shape, 1)
            return [(c.x, Wish(shape, views.row_major(math.prod(shape)), scale))]
        return [(c.x, _laid_out(c.x, c.layout, scale))]
    if getattr(c, "table", None) is not None:
        y = replace(y, scale=None)  # that of the result says nothing about the operand
    if isinstance(c, PoolCandidate) or (isinstance(c, UpsampleCandidate) and c.layout):
        return [(c.x, _laid_out(c.x, c.layout, y.scale))]
    if isinstance(c, AddCandidate):
        return [(x, Wish(y.shape, y.view, _pair(s))) for x, s in ((c.x1, c.x1_scale), (c.x2, c.x2_scale))]
    if isinstance(c, ConcatCandidate):
        common = y.scale if c.y.dtype == "int8" else None
        scales = [_pair(s) for s in c.x_scales] or [common] * len(c.xs)
        return [(x, replace(_like(y, c.y, x), scale=s)) for x, s in zip(c.xs, scales)]
    if isinstance(c, MOVES):
        return [(c.x, _like(y, c.y, c.x))]
    if isinstance(c, BoundaryCandidate):
        return [(c.x, replace(y, scale=_pair(c.scale)))]
    if isinstance(c, ViewCandidate) and c.axes is not None and y.view is not None:
        inverse = [c.axes.index(a) for a in range(len(c.axes))]
        return [(c.x, replace(y, view=views.transpose(y.view, c.y.shape, inverse)))]
    return [(c.x, y)]


def _pair(scale: Scale | None) -> tuple[float, int] | None:
    return None if scale is None else (scale.scale, scale.zero_point)


def _like(wish: Wish, value: Value, other: Value) -> Wish:
    """The wish for `value` carried over to `other`, which has other sizes along some axes."""
    axes = [a for a, (m, n) in enumerate(zip(value.shape, other.shape)) if m != n]
    found = None if wish.view is None else next(views.match_axes(wish.shape, wish.view, value.shape, axes), None)
    if found is None:
        return Wish(scale=wish.scale)
    shape = views.resized(wish.shape, found[1], [other.shape[a] for a in axes])
    return Wish(shape, views.from_perm(shape, found[0]), wish.scale)


def dense_shape(shape: Sequence[int], batch: int) -> Shape4:
    """Device shape of a dense layer's tensor: rows are positions along x, so that they share each weight tile; many
    rows are folded, so that they can be cut into blocks."""
    rows = math.prod(shape[:-1])
    batch = batch if rows % batch == 0 else 1
    width = rows // batch
    if width > MAX_ROW:
        width = next((w for w in range(MAX_ROW, MIN_ROW - 1, -1) if width % w == 0), width)
    return batch, rows // batch // width, width, shape[-1]


def _laid_out(value: Value, layout: str, scale: tuple[float, int] | None) -> Wish:
    shape = device_shape(value.shape, layout)
    return Wish(shape, views.from_perm(shape, PERMS.get(layout, views.NHWC)), scale)
