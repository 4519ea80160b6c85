"""Which constraints apply to which kind of candidate, and the check itself."""
from __future__ import annotations

from ..target import Target
from . import constraints as rules
from .candidate import (
    AddCandidate,
    BoundaryCandidate,
    Candidate,
    ConvCandidate,
    OtherCandidate,
    PoolCandidate,
    UnaryCandidate,
    ViewCandidate,
)

CONV = (rules.known_layout, rules.known_kernel_layout, rules.constant_weight, rules.weight_dtype, rules.kernel_size,
        rules.group_channels, rules.addressable, rules.clip_bounds)
DENSE = (rules.constant_weight, rules.weight_dtype, rules.dense_shape, rules.addressable, rules.clip_bounds)
QUANTIZED = (rules.result_int8, rules.symmetric_weights, rules.constant_scales, rules.bias_int32,
             rules.requantize_form, rules.encodable_scale, rules.sums_fit)
ADD = (rules.equal_shapes, rules.addressable, rules.clip_bounds)
QUANTIZED_ADD = (rules.constant_scales, rules.add_arithmetic, rules.encodable_scale)
POOL = (rules.static_shapes, rules.supported_dtypes, rules.known_layout, rules.kernel_size, rules.pool_window,
        rules.raw_average, rules.addressable)
UNARY = (rules.static_shapes, rules.supported_dtypes, rules.known_function, rules.clip_bounds,
         rules.rank_of_elementwise, rules.addressable)
VIEW = (rules.static_shapes, rules.supported_dtypes, rules.keeps_elements, rules.addressable)
BOUNDARY = (rules.static_shapes, rules.boundary_dtypes, rules.constant_scales, rules.rank_of_elementwise,
            rules.addressable)
FLOAT = (rules.static_shapes, rules.float32)
INT8 = (rules.static_shapes, rules.int8)

#: Title in the manual -> constraints, in the order in which they are checked.
TABLE: dict[str, tuple[rules.Constraint, ...]] = {
    "convolution": FLOAT + CONV, "dense": FLOAT + DENSE, "quantized convolution": INT8 + CONV + QUANTIZED,
    "quantized dense": INT8 + DENSE + QUANTIZED, "add": FLOAT + ADD, "quantized add": INT8 + ADD + QUANTIZED_ADD,
    "pooling": POOL, "elementwise": UNARY, "reshape and transpose": VIEW,
    "quantize and dequantize": BOUNDARY}


def kind(candidate: Candidate) -> str:
    """Key of `TABLE` for a candidate; "" for an op of no pattern."""
    if isinstance(candidate, ConvCandidate):
        return ("quantized " if candidate.quantized else "") + ("convolution" if candidate.layout else "dense")
    if isinstance(candidate, AddCandidate):
        return "quantized add" if candidate.quantized else "add"
    return {PoolCandidate: "pooling", UnaryCandidate: "elementwise", ViewCandidate: "reshape and transpose",
            BoundaryCandidate: "quantize and dequantize"}.get(
        type(candidate), "")


def unsupported(candidate: Candidate, target: Target) -> str | None:
    """Why `candidate` stays on the host, in one line; None when it may be offloaded."""
    if isinstance(candidate, OtherCandidate):
        return candidate.missing or "no pattern has this op"
    return rules.broken(candidate, target, TABLE[kind(candidate)])
