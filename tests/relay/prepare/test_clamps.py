"""Clamps of sums behind their requantize: moved where no byte changes, left where one would."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

from byoc_accel.relay.ir.graph import build_graph  # noqa: E402
from byoc_accel.relay.prepare.clamps import move_clamps  # noqa: E402
from tests.relay.models import const, module, run  # noqa: E402

SHAPE = (2, 3, 4, 4)  # NCHW and NHWC alike: a wrong axis is no shape error
RANK_AXIS = 3


def requantize(x: relay.Expr, in_scale: object = 0.01, in_zero: int = 0, **attrs: object) -> relay.Expr:
    parameters = (const(np.asarray(in_scale), "float32"), const(in_zero, "int32"), const(0.7, "float32"),
                  const(-3, "int32"))
    return relay.qnn.op.requantize(x, *parameters, axis=RANK_AXIS, out_dtype="int8", **attrs)


def low(x: relay.Expr, bound: object) -> relay.Expr:
    return relay.maximum(x, const(np.asarray(bound), "int32"))


#: name -> (requantized clamp of x, whether the clamp moves)
CASES = {
    "lower": (lambda x: requantize(low(x, -700)), True),
    "upper": (lambda x: requantize(relay.minimum(x, const(900, "int32"))), True),
    "relu": (lambda x: requantize(relay.nn.relu(x)), True),
    "both": (lambda x: requantize(relay.clip(x, -350, 2000)), True),
    "chain": (lambda x: requantize(relay.minimum(low(x, -700), const(900, "int32"))), True),
    "scales per channel, one bound": (lambda x: requantize(relay.nn.relu(x), [0.01, 0.011, 0.012, 0.013]), True),
    "bounds that round to two bytes": (lambda x: requantize(low(x, [-70, -700, -7000, 0])), False),
    "bounds that round to one byte": (lambda x: requantize(low(x, [-700, -702, -704, -698])), True),
    "bounds along another axis": (lambda x: requantize(low(x, np.full((4, 1), -700) + np.arange(4)[:, None])), False),
    "zero point of the sums": (lambda x: requantize(relay.nn.relu(x), in_zero=150), False),
    "float arithmetic": (lambda x: requantize(relay.nn.relu(x), compute_dtype="float32"), False),
    "a ratio that could leave int32": (lambda x: requantize(relay.nn.relu(x), 0.5), False),
    "a tie, upward": (lambda x: requantize(low(x, -21), 0.35), True),
    "a tie, nearest": (lambda x: requantize(low(x, -21), 0.35, rounding="TONEAREST"), True),
    "crossed bounds": (lambda x: requantize(relay.minimum(low(x, 900), const(-700, "int32"))), False),
}


def test_moved_clamps_change_no_byte() -> None:
    x = relay.var("x", shape=SHAPE, dtype="int32")
    before = module(relay.Tuple([make(x) for make, _ in CASES.values()]), x)
    after = relay.transform.InferType()(tvm.IRModule.from_expr(move_clamps(before["main"])))
    rng = np.random.default_rng(0)
    values = rng.integers(-3000, 3000, SHAPE)
    values[1] //= 10
    values.reshape(-1)[:6] = [-2 ** 31, 2 ** 31 - 2, -700, -701, -735, 0]
    inputs = {"x": values.astype(np.int32)}
    for name, found, expected in zip(CASES, run(after, inputs), run(before, inputs), strict=True):
        np.testing.assert_array_equal(found, expected, name)
        assert len(np.unique(expected)) > 10 or name in ("crossed bounds", "a ratio that could leave int32"), name


@pytest.mark.parametrize("name", CASES)
def test_which_clamps_move(name: str) -> None:
    make, moves = CASES[name]
    graph = build_graph(move_clamps(module(make(relay.var("x", shape=SHAPE, dtype="int32")))["main"]))
    last = graph.nodes[graph.result].op
    assert last == ("clip" if moves else "qnn.requantize")
