"""Which constraints apply to which kind of candidate, and the check itself."""
from __future__ import annotations

from ..target import Target
from . import constraints as rules
from .candidate import (
    AddCandidate,
    ArithmeticCandidate,
    BoundaryCandidate,
    Candidate,
    ConcatCandidate,
    ConvCandidate,
    OtherCandidate,
    PadCandidate,
    PoolCandidate,
    PreluCandidate,
    UnaryCandidate,
    UpsampleCandidate,
    ViewCandidate,
)

CONV = (rules.known_layout, rules.known_kernel_layout, rules.constant_weight, rules.weight_dtype, rules.kernel_size,
        rules.group_channels, rules.addressable, rules.clip_bounds)
DENSE = (rules.constant_weight, rules.weight_dtype, rules.dense_shape, rules.addressable, rules.clip_bounds)
QUANTIZED = (rules.result_int8, rules.symmetric_weights, rules.constant_scales, rules.bias_int32,
             rules.requantize_form, rules.encodable_scale, rules.sums_fit)
ADD = (rules.equal_shapes, rules.addressable, rules.clip_bounds)
QUANTIZED_ADD = (rules.constant_scales, rules.requantize_arithmetic, rules.encodable_scale)
TRANSPOSED = (rules.transposed_form, *CONV)
CONCAT = (rules.static_shapes, rules.supported_dtypes, rules.concat_axis, rules.addressable)
PAD = (rules.static_shapes, rules.supported_dtypes, rules.pad_form, rules.addressable)
UPSAMPLE = (rules.static_shapes, rules.supported_dtypes, rules.upsample_form, rules.addressable)
POOL = (rules.static_shapes, rules.supported_dtypes, rules.known_layout, rules.kernel_size, rules.pool_window,
        rules.raw_average, rules.constant_scales, rules.addressable)
UNARY = (rules.static_shapes, rules.supported_dtypes, rules.known_function, rules.constant_scales, rules.clip_bounds,
         rules.rank_of_elementwise, rules.addressable)
PRELU = (rules.constant_slopes, rules.rank_of_elementwise, rules.addressable)
VIEW = (rules.static_shapes, rules.supported_dtypes, rules.keeps_elements, rules.addressable)
BOUNDARY = (rules.static_shapes, rules.boundary_dtypes, rules.constant_scales, rules.rank_of_elementwise,
            rules.addressable)
FLOAT = (rules.static_shapes, rules.float32)
INT8 = (rules.static_shapes, rules.int8)

#: Title in the manual -> constraints, in the order in which they are checked.
TABLE: dict[str, tuple[rules.Constraint, ...]] = {
    "convolution": FLOAT + CONV, "dense": FLOAT + DENSE, "transposed convolution": FLOAT + TRANSPOSED,
    "quantized convolution": INT8 + CONV + QUANTIZED, "quantized dense": INT8 + DENSE + QUANTIZED,
    "quantized transposed convolution": INT8 + TRANSPOSED + QUANTIZED, "add": FLOAT + ADD,
    "quantized add": INT8 + ADD + QUANTIZED_ADD, "concatenation": CONCAT + (rules.like_ranges,),
    "quantized concatenation": INT8 + CONCAT[2:] + QUANTIZED_ADD, "padding": PAD, "upsampling": UPSAMPLE,
    "pooling": POOL, "elementwise": UNARY, "PReLU": FLOAT + PRELU,
    "arithmetic of two computed tensors": (rules.only_sums,),
    "arithmetic with a constant": (rules.constant_per_channel,), "reshape and transpose": VIEW,
    "quantize and dequantize": BOUNDARY}


#: Title without "quantized" by type; a convolution's says more.
KINDS = {AddCandidate: "add", ConcatCandidate: "concatenation", PadCandidate: "padding",
         UpsampleCandidate: "upsampling", PoolCandidate: "pooling", UnaryCandidate: "elementwise",
         PreluCandidate: "PReLU",
         ViewCandidate: "reshape and transpose", BoundaryCandidate: "quantize and dequantize"}


def kind(candidate: Candidate) -> str:
    """Key of `TABLE` for a candidate; "" for an op of no pattern."""
    title = KINDS.get(type(candidate), "")
    if isinstance(candidate, ConvCandidate):
        title = ("transposed " if candidate.transposed else "") + ("convolution" if candidate.layout else "dense")
    if isinstance(candidate, ArithmeticCandidate):
        return "arithmetic with a constant" if candidate.constant else "arithmetic of two computed tensors"
    return f"quantized {title}" if getattr(candidate, "quantized", False) else title


def unsupported(candidate: Candidate, target: Target) -> str | None:
    """Why `candidate` stays on the host, in one line; None when it may be offloaded."""
    if isinstance(candidate, OtherCandidate):
        return candidate.missing or "no pattern has this op"
    return rules.broken(candidate, target, TABLE[kind(candidate)])
