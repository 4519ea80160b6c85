"""QRegion: the int8 form of a region. `interpret` on it is the meaning every later stage must equal.

All tensors are int8 NHWC. real = scale * (q - zero_point). Nodes hold integers only, except that tensor scales
are kept for reports and for the host boundary.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import numpy as np

from ..region.region import Port


@dataclass(frozen=True)
class QTensor:
    """int8 tensor; `shape` is (N, H, W, C)."""

    name: str
    shape: tuple[int, int, int, int]
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Requant:
    """real multiplier = multiplier * 2**-shift; multiplier in [0, 2**31), shift in [1, 62].

    fixedpoint.requantize(v, multiplier, shift, rounding) is the only definition of the rounding.
    """

    multiplier: int
    shift: int


IDENTITY = Requant(1 << 30, 30)


@dataclass(frozen=True)
class QConv:
    """acc = sum (x - x.zero_point) * weight + bias; y = clamp(requantize(acc) + y.zero_point, *clamp).

    weight int8 (O, KH, KW, I / groups); bias int32 (O,), without the zero point correction; multiplier int64 (O,)
    and shift int64 (O,) as in `Requant`, per output channel. padding (t, l, b, r) holds x.zero_point.
    """

    name: str
    x: str
    y: str
    weight: np.ndarray
    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    rounding: str
    clamp: tuple[int, int]


@dataclass(frozen=True)
class QConvTranspose:
    """acc[o] = bias + sum of (x[i] - x.zero_point) * weight[k] over i * stride + k - padding = o, per axis.

    weight int8 (O, KH, KW, I); padding (top, left). Otherwise as `QConv`.
    """

    name: str
    x: str
    y: str
    weight: np.ndarray
    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    stride: tuple[int, int]
    padding: tuple[int, int]
    rounding: str
    clamp: tuple[int, int]


@dataclass(frozen=True)
class QConcat:
    """y = for each input along `axis` (1, 2 or 3): clamp(requantize(x - x.zero_point) + y.zero_point), -128..127.

    `requants` has one entry per input; None copies the bytes (equal scale and zero point).
    """

    name: str
    xs: tuple[str, ...]
    y: str
    axis: int
    requants: tuple[Requant | None, ...]
    rounding: str


@dataclass(frozen=True)
class QPad:
    """y = x surrounded by padding (top, left, bottom, right) positions of the stored value `value`."""

    name: str
    x: str
    y: str
    padding: tuple[int, int, int, int]
    value: int


@dataclass(frozen=True)
class QUpsample:
    """Position (h, w) of y is position (h // factor[0], w // factor[1]) of x; same scale and zero point."""

    name: str
    x: str
    y: str
    factor: tuple[int, int]


@dataclass(frozen=True)
class QAdd:
    """y = clamp(rq_out(rq1((x1 - zp1) << left_shift) + rq2((x2 - zp2) << left_shift)) + y.zero_point, *clamp)."""

    name: str
    x1: str
    x2: str
    y: str
    requant1: Requant
    requant2: Requant
    requant_out: Requant
    left_shift: int
    rounding: str
    clamp: tuple[int, int]


@dataclass(frozen=True)
class QPool:
    """Max: y = max over the window's valid positions (padding never counts).

    Average: y = clamp(requantize(sum over valid positions of (x - x_zero_point), requants[count]) + y_zero_point),
    -128..127, where count is the number of positions that divide (valid ones, or all inside the padded input with
    count_include_pad). `requants` is sorted by count and has every count that occurs.
    """

    name: str
    x: str
    y: str
    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    count_include_pad: bool
    x_zero_point: int
    y_zero_point: int
    requants: tuple[tuple[int, Requant], ...]
    rounding: str


@dataclass(frozen=True)
class QLut:
    """y = table[x + 128]; table int8 (256,)."""

    name: str
    x: str
    y: str
    table: np.ndarray


@dataclass(frozen=True)
class QReshape:
    """Same bytes in NHWC order under another shape; scale and zero point are equal on both sides."""

    name: str
    x: str
    y: str


QNode = Union[QConv, QConvTranspose, QAdd, QPool, QLut, QConcat, QPad, QUpsample, QReshape]


@dataclass(frozen=True)
class QRegion:
    """Nodes in execution order; `inputs` and `outputs` in host argument order."""

    name: str
    tensors: tuple[QTensor, ...]
    nodes: tuple[QNode, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def by_name(self) -> dict[str, QTensor]:
        return {t.name: t for t in self.tensors}


def qnode_inputs(node: QNode) -> tuple[str, ...]:
    """Names of the tensors that `node` reads, in operand order."""
    if isinstance(node, QAdd):
        return (node.x1, node.x2)
    return node.xs if isinstance(node, QConcat) else (node.x,)


def alone(qregion: QRegion, node: QNode) -> QRegion:
    """`node` of `qregion` as a region of its own, with int8 NHWC at both ends."""
    tensors = qregion.by_name()
    inputs, outputs = dict.fromkeys(qnode_inputs(node)), (node.y,)
    ports = [tuple(Port(name, tensors[name].shape, "int8", (0, 1, 2, 3)) for name in side)
             for side in (inputs, outputs)]
    return QRegion(qregion.name, tuple(tensors[name] for name in (*inputs, *outputs)), (node,), *ports)
