"""What may be offloaded: one function per rule. Its docstring is the rule, the reason in reports, and the manual.

A constraint gets a candidate and the target, and returns None or what exactly breaks the rule. It looks at one
candidate alone; whether its neighbours fit together is found when regions are built, and whether it fits the
memories of the target by the scheduler. Values that are not finite are errors and no matter of support.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np

from ..region import geometry
from ..region.functions import FUNCTIONS
from ..target import Target
from .candidate import (
    AddCandidate,
    ArithmeticCandidate,
    BoundaryCandidate,
    Candidate,
    ConcatCandidate,
    ConvCandidate,
    PadCandidate,
    PoolCandidate,
    PreluCandidate,
    Scale,
    UnaryCandidate,
    UpsampleCandidate,
    ViewCandidate,
)
from .weights import MAX_KERNEL, channels, is_multiplier_form, magnitudes

Constraint = Callable[[Any, Target], Union[str, None]]

LAYOUTS = ("NHWC", "NCHW", "NWC", "NCW", "WC", "CW")
KERNEL_LAYOUTS = ("OIHW", "IOHW", "HWIO", "HWOI", "OHWI", "OIW", "WIO", "WOI", "OWI")
MAX_EXTENT = 65536
MAX_WINDOW = 1 << 21
MIN_RATIO = 2.0 ** -32
MAX_RATIO = 2.0 ** 30
DTYPES = ("float32", "int8")
MAX_PAD_VALUE = 256
MAX_COARSER = 2  # one of 8 bits
#: TVM's resize takes exact index division where factor * (size + 1) is at most this, for the mode asymmetric.
MAX_DIVISION = 100_000
#: Coordinate mode -> roundings with which nearest neighbour by a whole factor is index division.
DIVIDES = {"half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
           "pytorch_half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
           "tf_half_pixel_for_nn": ("", "floor")}

FORMATS = {"layouts": ", ".join(LAYOUTS), "kernel_layouts": ", ".join(KERNEL_LAYOUTS), "kernel": MAX_KERNEL,
           "extent": MAX_EXTENT, "window": f"{MAX_WINDOW:,}", "functions": ", ".join(sorted(FUNCTIONS)),
           "pad_value": MAX_PAD_VALUE, "coarser": MAX_COARSER,
           "divides": "; ".join(f"{mode} with {' or '.join(r or 'none' for r in roundings)}"
                                for mode, roundings in DIVIDES.items())}


def rule(constraint: Constraint) -> str:
    """The rule of `constraint` in one line, its limits filled in."""
    return " ".join((constraint.__doc__ or "").split()).format(**FORMATS)


def broken(candidate: Candidate, target: Target, constraints: Sequence[Constraint]) -> str | None:
    """The first broken rule and how it is broken, in one line; None when all hold."""
    for constraint in constraints:
        detail = constraint(candidate, target)
        if detail is not None:
            return f"{rule(constraint).rstrip('.')}: {detail}"
    return None


def static_shapes(c: Candidate, target: Target) -> str | None:
    """Every shape is known at compile time, and every dimension is at least 1."""
    for role, value in (*(("an operand", v) for v in c.inputs), ("the result", c.y)):
        if value.dtype == "tuple" or not value.is_static:
            return f"{role} has shape ({', '.join('?' if d is None else str(d) for d in value.shape)})"
        if min(value.shape, default=1) < 1:  # below 0: a kernel larger than its padded input
            return f"{role} has shape {value.shape}"
    return None


def supported_dtypes(c: Candidate, target: Target) -> str | None:
    """Operands and results are float32, or int8 throughout."""
    found = {v.dtype for v in (*c.inputs, c.y)}
    return None if len(found) == 1 and found <= set(DTYPES) else _dtypes(c)


def float32(c: Candidate, target: Target) -> str | None:
    """Operands and results are float32."""
    return None if {v.dtype for v in (*c.inputs, c.y)} == {"float32"} else _dtypes(c)


def int8(c: Candidate, target: Target) -> str | None:
    """Operands and results are int8."""
    return None if {v.dtype for v in (*c.inputs, c.y)} == {"int8"} else _dtypes(c)


def _dtypes(c: Candidate) -> str:
    return f"{' and '.join(v.dtype for v in c.inputs)} in, {c.y.dtype} out"


def addressable(c: Candidate, target: Target) -> str | None:
    """A tensor has at most memory.max_external_bytes bytes, and at most {extent} positions along an axis."""
    for value in (*c.inputs, c.y):
        if math.prod(value.shape) > target.memory_max_external_bytes:
            return f"shape {value.shape} exceeds {target.memory_max_external_bytes:,} bytes"
    if isinstance(c, (ConvCandidate, PoolCandidate)) and c.layout:
        for value in (*c.inputs, c.y):
            if max(value.shape) > MAX_EXTENT:
                return f"shape {value.shape}"
    return None


def known_layout(c: ConvCandidate | PoolCandidate, target: Target) -> str | None:
    """Data layouts are {layouts}, with a height the same for operand and result."""
    if c.layout not in LAYOUTS:
        return f"layout {c.layout or 'of this rank'!r}"
    free = isinstance(c, ConvCandidate) and "H" not in c.layout and c.out_layout in LAYOUTS
    if c.out_layout not in ("", c.layout) and not free:
        return f"{c.layout} in, {c.out_layout} out"
    return None


def known_kernel_layout(c: ConvCandidate, target: Target) -> str | None:
    """Kernel layouts are {kernel_layouts}."""
    return None if c.kernel_layout in KERNEL_LAYOUTS else f"kernel layout {c.kernel_layout!r}"


def constant_weight(c: ConvCandidate, target: Target) -> str | None:
    """The weights are constant."""
    return "they are computed at run time" if c.weight is None else None


def weight_dtype(c: ConvCandidate, target: Target) -> str | None:
    """The weights have the type of the operand, computed from constants of any type at compile time."""
    return None if str(c.weight.dtype) == c.x.dtype else f"they are {c.weight.dtype}"


def kernel_size(c: ConvCandidate | PoolCandidate, target: Target) -> str | None:
    """Kernels have 1 to {kernel} rows and columns, strides and dilations are 1 or more, padding is not negative."""
    kernel = kernel_of(c)
    if not all(1 <= k <= MAX_KERNEL for k in kernel):
        return f"kernel {kernel}"
    if min(c.strides) < 1 or min(c.dilation) < 1 or min(c.padding) < 0:
        return f"strides {c.strides}, dilation {c.dilation}, padding {c.padding}"
    return None


def kernel_of(c: ConvCandidate | PoolCandidate) -> tuple[int, int]:
    """(rows, columns) of the kernel."""
    if isinstance(c, PoolCandidate):
        return c.kernel
    axes = dict(zip(c.kernel_layout, c.weight.shape))
    return axes.get("H", 1), axes.get("W", 1)


def group_channels(c: ConvCandidate, target: Target) -> str | None:
    """Groups divide the channels evenly, and the weights have the shape that they ask for."""
    axes, (inputs, outputs) = dict(zip(c.kernel_layout, c.weight.shape)), channels(c)
    if c.groups < 1 or inputs % c.groups or outputs % c.groups:
        return f"{inputs} to {outputs} channels in {c.groups} groups"
    if (axes["O"], axes["I"]) != (outputs, inputs // c.groups) and not is_multiplier_form(c):
        return f"weights {c.weight.shape} {c.kernel_layout} for {inputs} to {outputs} channels, {c.groups} groups"
    return None


def transposed_form(c: ConvCandidate, target: Target) -> str | None:
    """Groups and dilation of a transposed convolution become zeros in its constant weights, whose kernel then has at
    most {kernel} rows and columns."""
    if c.groups != 1:
        return f"{c.groups} groups"
    return f"dilation {c.dilation}" if c.dilation != (1, 1) else None


def dense_shape(c: ConvCandidate, target: Target) -> str | None:
    """A dense layer reduces the last axis of an operand of rank 2 to 4, and gives 1 unit or more."""
    if not 2 <= len(c.x.shape) <= 4:
        return f"operand {c.x.shape}"
    axes = dict(zip(c.kernel_layout, c.weight.shape))
    if c.weight.ndim != 2 or axes["I"] != c.x.shape[-1] or axes["O"] != c.y.shape[-1] or 0 in c.weight.shape:
        return f"weights {c.weight.shape} for operand {c.x.shape}"
    return None


def symmetric_weights(c: ConvCandidate, target: Target) -> str | None:
    """Quantized weights are symmetric: their zero point is 0."""
    if c.weight_zero_point is None:
        return "the zero point is computed at run time"
    if c.weight_zero_point.any():
        return f"zero point {int(c.weight_zero_point.reshape(-1)[c.weight_zero_point.reshape(-1) != 0][0])}"
    return None


def constant_scales(c: Candidate, target: Target) -> str | None:
    """Scales are finite constants above 0, one per tensor, and zero points are constants of -128 to 127."""
    if isinstance(c, BoundaryCandidate):
        scales = {"tensor": c.scale}
    elif isinstance(c, (UnaryCandidate, PoolCandidate)):
        scales = {} if c.table is None else {"result": c.y_scale}
    elif isinstance(c, AddCandidate):
        scales = {"left operand": c.x1_scale, "right operand": c.x2_scale, "result": c.y_scale}
    elif isinstance(c, ConcatCandidate):
        scales = {**{f"operand {i}": s for i, s in enumerate(c.x_scales)}, "result": c.y_scale}
    else:
        scales = {"operand": c.x_scale, "result": c.requantize.y}
    for role, scale in scales.items():
        if not _usable(scale):
            return f"{role} has scale {_text(scale.scale)}, zero point {_text(scale.zero_point)}"
    return None


def _usable(scale: Scale) -> bool:
    if scale.scale is None or scale.zero_point is None:
        return False
    return math.isfinite(scale.scale) and scale.scale > 0 and -128 <= scale.zero_point <= 127


def _text(number: float | None) -> str:
    return "that is no scalar constant" if number is None else f"{number:g}"


def requantize_form(c: ConvCandidate, target: Target) -> str | None:
    """The sums are requantized to int8 along the channel axis, in int64 arithmetic, rounding half up or half away
    from zero, from zero point 0."""
    r = c.requantize
    if r.rounding is None:
        return "rounding of another kind"
    if r.compute_dtype != "int64":
        return f"compute_dtype {r.compute_dtype}"
    if r.acc_zero_point is None or r.acc_zero_point.any():
        return "another zero point of the sums"
    if r.acc_scale is None:
        return "the scale of the sums is computed at run time"
    if r.acc_scale.ndim > 0 and r.axis != _channel_axis(c):
        return f"scales along axis {r.axis}, channels along axis {_channel_axis(c)}"
    return None


def result_int8(c: ConvCandidate, target: Target) -> str | None:
    """The result of a quantized layer is saturated to int8 (requantize to int8, or to int32 with clip and cast)."""
    if c.requantize.out_dtype == "int8":
        return None
    if c.requantize.out_dtype != "int32" or c.clip is None or c.clip[0] < -128 or c.clip[1] > 127:
        return f"requantize to {c.requantize.out_dtype}, clip {c.clip}"
    return None


def _channel_axis(c: ConvCandidate) -> int:
    return (c.out_layout or c.layout).index("C") if c.layout else len(c.y.shape) - 1


def encodable_scale(c: ConvCandidate | AddCandidate | ConcatCandidate, target: Target) -> str | None:
    """A requantize scales by less than 2^30, which a shift can encode, and by 2^-32 or more; some channels of
    a layer may scale by less, their result is the zero point."""
    if isinstance(c, AddCandidate):
        ratios = np.array([c.x1_scale.scale, c.x2_scale.scale]) / c.y_scale.scale
    elif isinstance(c, ConcatCandidate):
        ratios = np.array([s.scale for s in c.x_scales]) / c.y_scale.scale
    else:
        scales = np.asarray(c.requantize.acc_scale, np.float64).reshape(-1)
        if not np.isfinite(scales).all() or (scales <= 0).any():
            return "a scale of the sums is not a finite number above 0"
        ratios = scales / c.requantize.y.scale
    if ratios.max() >= MAX_RATIO:
        return f"it would scale by {ratios.max():g}"
    small = ratios[ratios <= MIN_RATIO]
    return f"it would scale by {small.max():g}" if small.size == ratios.size else None


def sums_fit(c: ConvCandidate, target: Target) -> str | None:
    """The int32 sums of a quantized layer cannot overflow, whatever its input, nor can their scaled values; nor what
    TVM adds to round them where it only shifts."""
    zero_point = c.x_scale.zero_point
    sums = magnitudes(c) * max(127 - zero_point, 128 + zero_point)
    if c.bias is not None:
        sums = sums + np.abs(c.bias)
    ratios = np.asarray(c.requantize.acc_scale, np.float64).reshape(-1) / c.requantize.y.scale
    half = _added_half(ratios) if c.requantize.rounding == "upward" else 0
    if sums.max() + half >= 2 ** 31:
        return f"channel {int(sums.argmax())} can reach {int(sums.max()):,}{f' and {half:,} to round' if half else ''}"
    scaled = sums * ratios
    if scaled.max() >= 2.0 ** 31 - 256:
        return f"channel {int(scaled.argmax())} can reach {scaled.max():.3g} times the scale of the result"
    return None


def _added_half(ratios: np.ndarray) -> int:
    """What TVM adds to an int32 sum, in int32, before it shifts it: only where one ratio, for all channels, has the
    multiplier 2^30 (tir's q_multiply_shift)."""
    mantissa, exponent = math.frexp(ratios[0])
    multiplier = math.floor(mantissa * 2 ** 31 + 0.5)
    exponent += multiplier == 2 ** 31
    return 1 << -exponent if len(ratios) == 1 and multiplier in (2 ** 30, 2 ** 31) and exponent <= 0 else 0


def bias_int32(c: ConvCandidate, target: Target) -> str | None:
    """The bias of a quantized layer is int32."""
    if c.bias is None or (c.bias.dtype.kind == "i" and np.abs(c.bias).max() < 2 ** 31):
        return None
    return f"it is {c.bias.dtype}" if c.bias.dtype.kind != "i" else "its values exceed 32 bits"


def equal_shapes(c: AddCandidate, target: Target) -> str | None:
    """Both operands of an add have the same shape, of rank 1 to 4."""
    if c.x1.shape != c.x2.shape:
        return f"{c.x1.shape} and {c.x2.shape}"
    return None if 1 <= len(c.x1.shape) <= 4 else f"rank {len(c.x1.shape)}"


def only_sums(c: ArithmeticCandidate, target: Target) -> str | None:
    """Of two computed tensors the accelerator has only the sum."""
    return f"{c.op} of {c.x1.shape} and {c.x2.shape}"


def constant_per_channel(c: ArithmeticCandidate, target: Target) -> str | None:
    """A sum, product, difference or quotient of a float32 tensor and a constant is offloaded where the constant is a
    scalar, or varies along the channels only (rank 3 or 4) and does not stand in front of a difference or quotient; of
    an int8 tensor (qnn.add, qnn.mul, qnn.subtract) where it is a scalar."""
    return f"{c.op} of {c.x1.shape} and {c.x2.shape}, {c.x1.dtype}"


def constant_slopes(c: PreluCandidate, target: Target) -> str | None:
    """The slopes of a PReLU are constants, one per channel; it runs as relu(x) + slope * min(x, 0)."""
    return "they are computed at run time" if c.slopes is None else None


def requantize_arithmetic(c: AddCandidate | ConcatCandidate, target: Target) -> str | None:
    """A quantized add or concatenation requantizes in int64 arithmetic, rounding half up or half away from zero."""
    if c.rounding is None:
        return "rounding of another kind"
    return None if c.compute_dtype == "int64" else f"compute_dtype {c.compute_dtype}"


def concat_axis(c: ConcatCandidate, target: Target) -> str | None:
    """A concatenation joins tensors of rank 1 or more; the region's order of axes must show the axis as height, width
    or channels."""
    return None if c.y.shape and -len(c.y.shape) <= c.axis < len(c.y.shape) else f"axis {c.axis} of {c.y.shape}"


def like_ranges(c: ConcatCandidate, target: Target) -> str | None:
    """Operands of a float32 concatenation share one scale; where only the host reads the result, no operand gets a step
    of more than {coarser} times its own."""
    return None if c.coarser is None or c.coarser <= MAX_COARSER else f"{c.coarser:.1f} times"


def pad_form(c: PadCandidate, target: Target) -> str | None:
    """A pad adds a constant to height, width or channels: an integer of -128 to 127 to int8 tensors; to float32 ones
    a number of at most {pad_value} in magnitude, as it widens the tensor's range."""
    if c.mode != "constant":
        return f"mode {c.mode}"
    if c.value is None:
        return "the value is computed at run time"
    if any(min(width) < 0 for width in c.widths):
        return f"widths {c.widths}"
    low, high = (-128, 127) if c.y.dtype == "int8" else (-MAX_PAD_VALUE, MAX_PAD_VALUE)
    fits = low <= c.value <= high and (c.y.dtype != "int8" or float(c.value).is_integer())
    return None if fits else f"value {c.value:g}"


def upsample_form(c: UpsampleCandidate, target: Target) -> str | None:
    """Upsampling is by nearest neighbour and whole factors along height and width, in a coordinate mode and rounding
    that are index division: asymmetric; {divides}."""
    if c.method != "nearest_neighbor":
        return f"method {c.method}"
    if len(c.x.shape) != len(c.y.shape) or any(n % m for m, n in zip(c.x.shape, c.y.shape)):
        return f"{c.x.shape} to {c.y.shape}"
    if c.mode == "asymmetric":
        large = [m for m, n in zip(c.x.shape, c.y.shape) if n != m and n // m * (m + 1) > MAX_DIVISION]
        return f"size {large[0]} in floating point" if large else None
    return None if c.rounding in DIVIDES.get(c.mode, ()) else f"{c.mode} with rounding {c.rounding or 'none'}"


def pool_window(c: PoolCandidate, target: Target) -> str | None:
    """Pooling has dilation 1, at most {window} positions per window, every window touches the input, and ceil_mode
    does not change the divisor of a padded average."""
    if c.dilation != (1, 1):
        return f"dilation {c.dilation}"
    if c.ceil_excess:
        return "a window reaches beyond the padded input, which count_include_pad does not count"
    if math.prod(c.kernel) > MAX_WINDOW:
        return f"{math.prod(c.kernel):,} positions"
    sizes = dict(zip(c.layout, c.x.shape))
    counts = geometry.pool_counts(sizes.get("H", 1), sizes["W"], c.kernel, c.strides, c.padding, False)
    return "a window lies in the padding entirely" if counts.min() < 1 else None


def raw_average(c: PoolCandidate, target: Target) -> str | None:
    """An average of int8 values is taken between casts to int32 and back; its padding counts as 0."""
    return None if c.x.dtype == "float32" or c.kind == "max" or c.raw else "no casts around it"


def known_function(c: UnaryCandidate, target: Target) -> str | None:
    """Elementwise functions are {functions}; on int8 clip and relu, and by a table that the host computes whatever
    makes one int8 tensor of another and scalar constants."""
    if c.table is not None:
        return None
    if c.function not in FUNCTIONS:
        return f"{c.op}"
    if c.x.dtype == "int8" and c.function != "clip":
        return f"{c.op} of stored integers"
    return None


def clip_bounds(c: Candidate, target: Target) -> str | None:
    """Bounds of a clip are in order; those of an int8 clip are within -128 to 127."""
    bounds = c.args if isinstance(c, UnaryCandidate) and c.function == "clip" else getattr(c, "clip", None)
    if not bounds:
        return None
    if not bounds[0] <= bounds[1]:
        return f"clip {bounds}"
    if c.y.dtype == "int8" and (bounds[0] < -128 or bounds[1] > 127):
        return f"clip {bounds}"
    return None


def keeps_elements(c: ViewCandidate, target: Target) -> str | None:
    """Reshapes keep the number of elements; transposes name every axis once."""
    if math.prod(c.x.shape) != math.prod(c.y.shape):
        return f"{c.x.shape} to {c.y.shape}"
    if c.axes is not None and sorted(c.axes) != list(range(len(c.x.shape))):
        return f"axes {c.axes}"
    return None


def boundary_dtypes(c: BoundaryCandidate, target: Target) -> str | None:
    """quantize makes int8 of float32, dequantize float32 of int8."""
    return None if {c.x.dtype, c.y.dtype} == {"float32", "int8"} else _dtypes(c)


def rank_of_elementwise(c: UnaryCandidate, target: Target) -> str | None:
    """Elementwise ops have tensors of rank 1 or more."""
    return None if c.x.shape else "a scalar"
