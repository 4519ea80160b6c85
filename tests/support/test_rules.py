"""Constraints: each has a rule to print, and each is broken by the candidate that it is about."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.support import constraints, ops
from byoc_accel.support.candidate import (
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
    Requantize,
    Scale,
    UnaryCandidate,
    UpsampleCandidate,
    Value,
    ViewCandidate,
)
from byoc_accel.target import load_target

REFERENCE = load_target("reference")
WEIGHT = np.random.default_rng(0).normal(size=(3, 3, 4, 8)).astype("float32")


def value(shape: tuple, dtype: str = "float32", name: str = "v") -> Value:
    return Value(name, shape, dtype)


CONV = ConvCandidate("c", "nn.conv2d", value((1, 6, 6, 4)), value((1, 4, 4, 8)), "NHWC", "HWIO", WEIGHT, (1, 1),
                     (0, 0, 0, 0), (1, 1), 1)
REQUANTIZE = Requantize(np.float32(0.001), np.int32(0), 3, "upward", "int64", "int8", Scale(0.05, 3))
QCONV = replace(CONV, op="qnn.conv2d", x=value((1, 6, 6, 4), "int8"), y=value((1, 4, 4, 8), "int8"),
                weight=np.arange(-100, 188).clip(-127, 127).reshape(3, 3, 4, 8).astype("int8"),
                x_scale=Scale(0.1, -5), weight_scale=np.float32(0.01), weight_zero_point=np.int32(0),
                requantize=REQUANTIZE, bias=np.arange(8))
DENSE = replace(CONV, op="nn.dense", layout="", kernel_layout="OI", x=value((2, 4)), y=value((2, 3)),
                weight=WEIGHT[0, 0, :, :3].T)
ADD = AddCandidate("a", "add", value((1, 4)), value((1, 4)), value((1, 4)))
QADD = AddCandidate("a", "qnn.add", value((1, 4), "int8"), value((1, 4), "int8"), value((1, 4), "int8"),
                    x1_scale=Scale(0.1, 0), x2_scale=Scale(0.2, 1), y_scale=Scale(0.3, 2))
POOL = PoolCandidate("p", "nn.avg_pool2d", value((1, 6, 6, 4)), value((1, 3, 3, 4)), "avg", "NHWC", (2, 2), (2, 2),
                     (0, 0, 0, 0))
UNARY = UnaryCandidate("u", "tanh", value((1, 4)), value((1, 4)), "tanh")
VIEW = ViewCandidate("v", "transpose", value((2, 3)), value((3, 2)), (1, 0))
EDGE = BoundaryCandidate("q", "qnn.quantize", value((1, 4)), value((1, 4), "int8"), Scale(0.1, 3))
TRANSPOSED = replace(CONV, op="nn.conv2d_transpose", y=value((1, 8, 8, 8)))
CONCAT = ConcatCandidate("k", "concatenate", (value((1, 4)), value((1, 3))), value((1, 7)), 1)
QCONCAT = ConcatCandidate("k", "qnn.concatenate", (value((4,), "int8"),) * 2, value((8,), "int8"), 0,
                          (Scale(0.1, 0), Scale(0.2, 1)), Scale(0.3, 2))
PAD = PadCandidate("d", "nn.pad", value((1, 4)), value((1, 6)), ((0, 0), (1, 1)), 0.0)
UP = UpsampleCandidate("s", "image.resize2d", value((1, 3, 3, 2)), value((1, 6, 9, 2)), "NHWC")
PRELU = PreluCandidate("r", "nn.prelu", value((1, 4)), value((1, 4)), np.arange(4, dtype="float32"))
TABLE = replace(UNARY, op="qnn.requantize", function="table", x=value((4,), "int8"), y=value((4,), "int8"),
                table=np.arange(-128, 128).astype("int8"), y_scale=Scale(0.1, 3))
LONGEST = replace(CONV, x=value((1, 65536, 6, 4)), y=value((1, 65534, 4, 8)))
GOOD = (PRELU, TABLE, TRANSPOSED, CONCAT, QCONCAT, PAD, UP, EDGE, CONV, QCONV, DENSE, ADD, QADD, POOL, UNARY, VIEW,
        LONGEST)


def requantize(**changes: object) -> Candidate:
    return replace(QCONV, requantize=replace(REQUANTIZE, **changes))


BROKEN = [
    (replace(CONV, x=value((None, 6, 6, 4))), "every dimension is at least 1: an operand has shape (?"),
    (replace(CONV, y=value((1, 0, 4, 8))), "the result has shape (1, 0, 4, 8)"),
    (replace(CONV, x=value((1, 6, 6, 4), "float16")), "float16 in, float32 out"),
    (replace(CONV, layout="NCHW4c"), "'NCHW4c'"),
    (replace(CONV, out_layout="NCHW"), "NHWC in, NCHW out"),
    (replace(CONV, kernel_layout="IHWO"), "kernel layout 'IHWO'"),
    (replace(CONV, weight=None), "computed at run time"),
    (replace(CONV, weight=WEIGHT.astype("float64")), "they are float64"),
    (replace(CONV, weight=np.zeros((300, 3, 4, 8), "float32")), "1 to 256 rows and columns"),
    (replace(CONV, dilation=(0, 1)), "dilation (0, 1)"),
    (replace(CONV, padding=(0, -1, 0, 0)), "padding (0, -1, 0, 0)"),
    (replace(CONV, groups=3), "4 to 8 channels in 3 groups"),
    (replace(CONV, groups=2), "2 groups"),
    (replace(CONV, clip=(1.0, 0.0)), "clip (1.0, 0.0)"),
    (replace(CONV, x=value((1, 65537, 6, 4)), y=value((1, 65535, 4, 8))), "65536 positions"),
    (replace(ADD, **dict.fromkeys(("x1", "x2", "y"), value((1 << 16, 1 << 15)))), "exceeds"),
    (replace(DENSE, x=value((2, 5))), "for operand (2, 5)"),
    (replace(DENSE, x=value((4,))), "operand (4,)"),
    (replace(QCONV, weight_zero_point=np.arange(8)), "symmetric: their zero point is 0: zero point 1"),
    (replace(QCONV, weight_zero_point=None), "computed at run time"),
    (replace(QCONV, x_scale=Scale(None, 0)), "operand has scale that is no scalar constant"),
    (replace(QCONV, x_scale=Scale(0.1, 200)), "zero point 200"),
    (replace(QCONV, bias=np.full(8, 2 ** 31)), "exceed 32 bits"),
    (replace(QCONV, bias=np.zeros(8)), "it is float64"),
    (requantize(y=Scale(float("inf"), 0)), "scale inf"),
    (requantize(rounding=None), "rounding of another kind"),
    (requantize(compute_dtype="float32"), "compute_dtype float32"),
    (requantize(acc_zero_point=np.int32(1)), "another zero point"),
    (requantize(acc_scale=None), "computed at run time"),
    (requantize(acc_scale=np.ones(8, "float32"), axis=1), "axis 1, channels along axis 3"),
    (requantize(acc_scale=np.float32(1e-30)), "it would scale by"),
    (requantize(acc_scale=np.float32(1e30)), "it would scale by"),
    (requantize(acc_scale=np.array([np.nan] * 8, "float32")), "not a finite number"),
    (requantize(out_dtype="int32"), "requantize to int32, clip None"),
    (replace(QCONV, bias=np.full(8, 2 ** 31 - 1)), "can reach"),
    (replace(ADD, x2=value((4, 4))), "(1, 4) and (4, 4)"),
    (replace(ADD, **dict.fromkeys(("x1", "x2", "y"), value((1, 4), "int8"))), "int8 and int8 in"),
    (replace(QADD, x1_scale=Scale(1e12, 0)), "it would scale by"),
    (replace(QADD, rounding=None), "rounding of another kind"),
    (replace(QADD, compute_dtype="float32"), "compute_dtype float32"),
    (replace(POOL, x=value((1, 6, 6, 4), "int32"), y=value((1, 3, 3, 4), "int32")), "int32 in, int32 out"),
    (replace(POOL, y=value((1, 3, 3, 4), "int8")), "float32 in, int8 out"),
    (replace(CONCAT, y=value((1, 7), "int8")), "float32 and float32 in, int8 out"),
    (replace(POOL, dilation=(2, 1)), "dilation (2, 1)"),
    (replace(POOL, ceil_excess=True), "count_include_pad"),
    (replace(POOL, padding=(2, 0, 0, 0)), "in the padding entirely"),
    (replace(POOL, x=value((1, 6, 6, 4), "int8"), y=value((1, 3, 3, 4), "int8")), "no casts around it"),
    (replace(UNARY, function="cosh", op="cosh"), "Elementwise functions are abs"),
    (replace(UNARY, x=value((1, 4), "int8"), y=value((1, 4), "int8")), "of stored integers"),
    (replace(UNARY, x=value(()), y=value(())), "a scalar"),
    (replace(UNARY, function="clip", args=(-200.0, 0.0), x=value((4,), "int8"), y=value((4,), "int8")), "-200"),
    (replace(PRELU, slopes=None), "computed at run time"),
    (ArithmeticCandidate("m", "multiply", *(value((1, 4)),) * 3, False), "only the sum: multiply of (1, 4) and (1, 4)"),
    (ArithmeticCandidate("m", "add", *(value((1, 4)),) * 3, True), "channels only"),
    (replace(TABLE, y_scale=Scale(None, 3)), "result has scale that is no scalar constant"),
    (replace(TRANSPOSED, groups=2), "2 groups"),
    (replace(TRANSPOSED, dilation=(2, 1)), "dilation (2, 1)"),
    (replace(CONCAT, axis=2), "axis 2 of (1, 7)"),
    (replace(CONCAT, coarser=2.5), "of more than 2 times its own: 2.5 times"),
    (replace(QCONCAT, x_scales=(Scale(0.1, 0), Scale(1e12, 0))), "it would scale by"),
    (replace(QCONCAT, x_scales=(Scale(0.1, 0), Scale(None, 0))), "operand 1 has scale that is no scalar constant"),
    (replace(PAD, mode="edge"), "mode edge"),
    (replace(PAD, value=None), "computed at run time"),
    (replace(PAD, widths=((0, 0), (-1, 1))), "widths"),
    (replace(PAD, value=257.0), "value 257"),
    (replace(PAD, x=value((1, 4), "int8"), y=value((1, 6), "int8"), value=0.5), "value 0.5"),
    (replace(UP, method="linear"), "method linear"),
    (replace(UP, y=value((1, 6, 8, 2))), "(1, 3, 3, 2) to (1, 6, 8, 2)"),
    (replace(UP, mode="half_pixel"), "half_pixel with rounding none"),
    (replace(UP, x=value((1, 9999, 1, 2)), y=value((1, 199980, 1, 2))), "in floating point"),
    (replace(VIEW, y=value((3, 3))), "(2, 3) to (3, 3)"),
    (replace(VIEW, axes=(0, 0)), "axes (0, 0)"),
    (replace(EDGE, y=value((1, 4), "uint8")), "float32 in, uint8 out"),
    (replace(EDGE, scale=Scale(0.0, 3)), "tensor has scale 0"),
    (OtherCandidate("o", "nn.softmax", value((1, 4))), "no pattern has this op"),
]


@pytest.mark.parametrize("candidate", GOOD, ids=[c.op for c in GOOD])
def test_good_candidates(candidate: Candidate) -> None:
    assert ops.unsupported(candidate, REFERENCE) is None


@pytest.mark.parametrize("candidate,words", BROKEN, ids=[words[:40] for _, words in BROKEN])
def test_broken_candidates(candidate: Candidate, words: str) -> None:
    reason = ops.unsupported(candidate, REFERENCE)
    assert reason is not None and words in reason and "\n" not in reason and "{" not in reason


def test_every_constraint_is_broken_by_some_candidate() -> None:
    """So that no rule is dead: each is the first one broken, somewhere above."""
    used = {c for row in ops.TABLE.values() for c in row}
    seen = {constraint for candidate, _ in BROKEN if ops.kind(candidate)
            for constraint in [next(r for r in ops.TABLE[ops.kind(candidate)]
                                    if r(candidate, REFERENCE) is not None)]}
    assert {c.__name__ for c in used - seen} == {"int8"}


def test_int8_rule() -> None:
    candidate = replace(QCONV, x=value((1, 6, 6, 4), "uint8"))
    assert "Operands and results are int8: uint8 in, int8 out" in ops.unsupported(candidate, REFERENCE)


def test_rules_are_one_line_with_their_limits() -> None:
    for row in ops.TABLE.values():
        for constraint in row:
            text = constraints.rule(constraint)
            assert text.endswith(".") and "\n" not in text and "{" not in text
