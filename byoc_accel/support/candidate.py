"""Candidates: what a frontend found in the host's graph, before anybody asked whether it can be offloaded.

A candidate is one layer with everything that fuses into it. Shapes and layouts are the host's. A field that
the host computes at run time is None; the constraints say what follows from it. Nothing here knows a host.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

import numpy as np

Dims = tuple[Union[int, None], ...]


@dataclass(frozen=True)
class Value:
    """A tensor of the host's graph; a dimension that is unknown at compile time is None."""

    name: str
    shape: Dims
    dtype: str

    @property
    def is_static(self) -> bool:
        return None not in self.shape


@dataclass(frozen=True)
class Scale:
    """Quantization of one int8 tensor: real = scale * (q - zero_point). None where it is no scalar constant."""

    scale: float | None
    zero_point: int | None


@dataclass(frozen=True)
class Requantize:
    """How an int32 sum becomes int8. acc_scale is float32 (), (O,) or None; axis counts host axes.

    rounding is one of isa.table.ROUNDINGS or None when the host's word for it is unknown.
    """

    acc_scale: np.ndarray | None
    acc_zero_point: np.ndarray | None
    axis: int
    rounding: str | None
    compute_dtype: str
    out_dtype: str
    y: Scale


@dataclass(frozen=True)
class ConvCandidate:
    """conv1d, conv2d, conv2d_transpose, dense or matmul with bias, scaling and clamping.

    layout: "NHWC", "NCHW", "NWC", "NCW", or "" for dense (the reduction is the last axis). weight: the host's
    array, or None when it is no constant; kernel_layout names its axes ("OIHW", "HWIO", "HWOI", "OHWI", "OIW",
    "WIO", "OI", "IO"). bias: (O,) float or int32, or None for no bias. factor and offset: float64 (O,), applied
    to float results after the bias. clip: real bounds for float, stored integers for int8.
    """

    name: str
    op: str
    x: Value
    y: Value
    layout: str
    kernel_layout: str
    weight: np.ndarray | None
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    bias: np.ndarray | None = None
    factor: np.ndarray | None = None
    offset: np.ndarray | None = None
    clip: tuple[float, float] | None = None
    out_layout: str = ""
    x_scale: Scale | None = None
    weight_scale: np.ndarray | None = None
    weight_zero_point: np.ndarray | None = None
    requantize: Requantize | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)

    @property
    def quantized(self) -> bool:
        return self.op.startswith("qnn.")

    @property
    def transposed(self) -> bool:
        """Whether each position of the operand is spread over the result by the kernel."""
        return self.op.endswith("conv2d_transpose")


@dataclass(frozen=True)
class AddCandidate:
    """x1 + x2 of two computed tensors, and clamping. Scales are for qnn.add only."""

    name: str
    op: str
    x1: Value
    x2: Value
    y: Value
    clip: tuple[float, float] | None = None
    x1_scale: Scale | None = None
    x2_scale: Scale | None = None
    y_scale: Scale | None = None
    rounding: str | None = "upward"
    compute_dtype: str = "int64"

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x1, self.x2)

    @property
    def quantized(self) -> bool:
        return self.op.startswith("qnn.")


@dataclass(frozen=True)
class ArithmeticCandidate:
    """A binary elementwise op that is no layer; `constant` says that one of the operands is."""

    name: str
    op: str
    x1: Value
    x2: Value
    y: Value
    constant: bool

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x1, self.x2)


@dataclass(frozen=True)
class ConcatCandidate:
    """`xs` one after another along host axis `axis`. Scales, one per operand, are for qnn.concatenate only.

    coarser: how many times the step that the operands of a float one share is the step that one of them would have
    alone; None before ranges are known, and where the device reads the result.
    """

    name: str
    op: str
    xs: tuple[Value, ...]
    y: Value
    axis: int
    x_scales: tuple[Scale, ...] = ()
    y_scale: Scale | None = None
    rounding: str | None = "upward"
    compute_dtype: str = "int64"
    coarser: float | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.xs

    @property
    def quantized(self) -> bool:
        return self.op.startswith("qnn.")


@dataclass(frozen=True)
class PadCandidate:
    """x between (before, after) positions of `value` along every host axis; mode "constant" or another.

    value: None when it is no scalar constant.
    """

    name: str
    op: str
    x: Value
    y: Value
    widths: tuple[tuple[int, int], ...]
    value: float | None
    mode: str = "constant"

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(frozen=True)
class UpsampleCandidate:
    """Every position repeated: y[i] = x[i // factor] along the host axes that have a factor above 1.

    method, mode and rounding are the host's words for a resize; "nearest_neighbor", "asymmetric" and "" for a plain
    repetition. layout: "" when the op has none.
    """

    name: str
    op: str
    x: Value
    y: Value
    layout: str
    method: str = "nearest_neighbor"
    mode: str = "asymmetric"
    rounding: str = ""

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(frozen=True)
class PoolCandidate:
    """Pooling over the spatial axes. kernel None: all of the input. kind: "max" | "avg".

    layout as in ConvCandidate. raw: cast(int32) -> average -> cast(int8). padding is as the host computes with
    it, including what ceil_mode adds; ceil_excess says that this changed the divisor of an average. table: int8 (256,),
    what a requantize in place of the last cast makes of the averages, at y_scale.
    """

    name: str
    op: str
    x: Value
    y: Value
    kind: str
    layout: str
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    count_include_pad: bool = False
    ceil_excess: bool = False
    raw: bool = False
    out_layout: str = ""
    table: np.ndarray | None = None
    y_scale: Scale | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(frozen=True)
class UnaryCandidate:
    """An elementwise function of region.functions, by name; `function` is None when the table has none.

    table: int8 (256,), the host's results for the stored integers -128..127, whose scale is y_scale; `function` is
    only a name then.
    """

    name: str
    op: str
    x: Value
    y: Value
    function: str | None
    args: tuple[float, ...] = ()
    table: np.ndarray | None = None
    y_scale: Scale | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(frozen=True)
class PreluCandidate:
    """x where x > 0, else slope * x. slopes: float32 in a shape that broadcasts to x; None when no constant."""

    name: str
    op: str
    x: Value
    y: Value
    slopes: np.ndarray | None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(frozen=True)
class ViewCandidate:
    """reshape, flatten, squeeze, expand_dims (axes None), or transpose (axes given): no arithmetic."""

    name: str
    op: str
    x: Value
    y: Value
    axes: tuple[int, ...] | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(frozen=True)
class BoundaryCandidate:
    """qnn.quantize or qnn.dequantize of a whole tensor: done by the runtime as it copies an input or output."""

    name: str
    op: str
    x: Value
    y: Value
    scale: Scale

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)

    @property
    def enters(self) -> bool:
        """True for float to int8."""
        return self.y.dtype == "int8"


@dataclass(frozen=True)
class OtherCandidate:
    """An op that no pattern knows, or whose pattern is incomplete; `missing` says what is missing."""

    name: str
    op: str
    y: Value
    missing: str = ""
    inputs: tuple[Value, ...] = field(default=())


Candidate = Union[ConvCandidate, AddCandidate, ArithmeticCandidate, ConcatCandidate, PadCandidate, UpsampleCandidate,
                  PoolCandidate, UnaryCandidate, PreluCandidate, ViewCandidate, BoundaryCandidate, OtherCandidate]
ANCHORS = (ConvCandidate, AddCandidate, PoolCandidate)
