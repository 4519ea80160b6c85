"""Random quantized graphs of layers, views and layouts: every byte is TVM's, whatever the regions turn out to be."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

from tests.relay.models import check_library, const, module, qadd, qconcat, qconv2d, qdense  # noqa: E402

ONE = (0.05, -5)  # scale and zero point of every tensor
ZP, SCALES = (-5, -5), (0.05, 0.05)


def shape_of(x: relay.Expr) -> list[int]:
    return [int(d) for d in relay.transform.InferTypeLocal(x).shape]


def other_shape(rng: np.random.Generator, total: int) -> tuple[int, ...]:
    """Of rank 2 or 4, with the same number of elements."""
    a = int(rng.choice([d for d in range(1, total + 1) if total % d == 0]))
    return (a, total // a) if rng.random() < 0.5 else (1, a, 1, total // a)


def layer(kind: str, x: relay.Expr, others: list[relay.Expr], rng: np.random.Generator) -> relay.Expr | None:
    """One more op on x, or None where it does not apply."""
    shape = shape_of(x)
    layout = str(rng.choice(["NHWC", "NCHW"]))
    if kind == "dense" and len(shape) == 2:
        return qdense(x, int(rng.choice([1, 3, 8])), rng, in_units=shape[1], zp=ZP, scales=SCALES)
    if kind == "reshape":
        return relay.reshape(x, other_shape(rng, int(np.prod(shape))))
    if kind == "add":
        equal = [v for v in others if shape_of(v) == shape]
        return qadd(x, equal[int(rng.integers(len(equal)))], ONE, ONE, ONE)
    if kind == "concat":
        axis = int(rng.integers(len(shape)))
        same = [v for v in others if len(shape_of(v)) == len(shape)
                and all(a == axis or m == n for a, (m, n) in enumerate(zip(shape_of(v), shape)))]
        parts = [x, *(same[int(i)] for i in rng.integers(len(same), size=int(rng.integers(1, 3))))]
        return qconcat(parts, [ONE] * len(parts), ONE, axis)
    if kind == "table":
        real = relay.qnn.op.dequantize(x, const(ONE[0], "float32"), const(ONE[1], "int32"))
        return relay.qnn.op.quantize(relay.tanh(real), const(ONE[0], "float32"), const(ONE[1], "int32"),
                                     out_dtype="int8")
    if kind == "pad":
        widths = [(0, 0), *((int(a), int(b)) for a, b in rng.integers(0, 3, (len(shape) - 1, 2)))]
        return relay.nn.pad(x, widths, pad_value=int(rng.choice([ONE[1], 9])))
    if kind == "repeat":
        return relay.repeat(x, 2, int(rng.integers(len(shape))))
    if kind == "host":
        return relay.reverse(x, axis=len(shape) - 1)
    if len(shape) != 4:
        return None
    if kind == "conv":
        kernel = tuple(min(3, shape[layout.index(a)] + 2) for a in "HW")
        return qconv2d(x, int(rng.choice([1, 3, 4, 6])), kernel, rng, in_channels=shape[layout.index("C")],
                       layout=layout, zp=ZP, scales=SCALES, padding=(1, 1))
    if kind == "upsample":
        return relay.nn.upsampling(x, int(rng.integers(1, 3)), int(rng.integers(1, 4)), layout)
    if kind == "pool":
        return relay.nn.max_pool2d(x, (2, 2), (1, 1), padding=(1, 0, 0, 1), layout=layout)
    return relay.transpose(x, [0, *(1 + int(a) for a in rng.permutation(3))])


LAYERS = ("conv", "conv", "conv", "pool", "transpose", "reshape", "dense", "add", "host")
MOVES = ("conv", "conv", "pool", "transpose", "reshape", "add", "concat", "concat", "pad", "upsample", "repeat",
         "table")


def random_model(seed: int, kinds: tuple[str, ...]) -> tvm.IRModule:
    rng = np.random.default_rng(seed)
    x = relay.var("x", shape=tuple(int(rng.integers(1, 3 if axis == 0 else 7)) for axis in range(4)), dtype="int8")
    values: list[relay.Expr] = [x]
    for _ in range(int(rng.integers(4, 12))):
        source = values[int(rng.integers(max(0, len(values) - 4), len(values)))]
        made = layer(str(rng.choice(kinds)), source, values, rng)
        if made is not None and np.prod(shape_of(made)) < 20_000:
            values.append(made)
    return module(relay.Tuple([values[-1], *values[1:-1:3]]), x)


@pytest.mark.parametrize("seed", range(12))
def test_every_byte(seed: int) -> None:
    check_library(random_model(seed, LAYERS), seed, target="tiny" if seed % 3 == 0 else "reference")


@pytest.mark.parametrize("seed", range(10))
def test_every_byte_with_moves(seed: int) -> None:
    check_library(random_model(seed, MOVES), seed, target="tiny" if seed % 3 == 0 else "reference")
