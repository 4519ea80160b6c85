"""Matrix products with a constant on either side, against TVM's own lowering (B22, B23)."""
from __future__ import annotations

import itertools

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    check_region,
    const,
    float_input,
    int8_input,
    module,
    normal,
    random_inputs,
    reason,
    run,
)

FLAGS = list(itertools.product([False, True], repeat=3))


def macs(mod: object) -> int:
    return ba.partition(mod, calibration=[random_inputs(mod)])[1].macs


@pytest.mark.parametrize("left,ta,tb", [f for f in FLAGS if f != (True, False, True)])  # that one is nn.dense
def test_matmul(left: bool, ta: bool, tb: bool) -> None:
    """Square operands: a wrong order shows in the values only. The bias runs along the units."""
    x = float_input(4, 4)
    a, b = (normal(4, 4), x) if left else (x, normal(4, 4))
    y = relay.nn.matmul(a, b, units=4, transpose_a=ta, transpose_b=tb)
    mod = module(relay.nn.relu(relay.add(y, normal(*((4, 1) if left else (4,)), seed=1))))
    assert len(check_region(mod).region.nodes) == 1
    assert macs(mod) == 64


@pytest.mark.parametrize("left,ta,tb", FLAGS)
def test_batch_matmul(left: bool, ta: bool, tb: bool) -> None:
    """x (2, 5, 4) and W (4, 4), in every orientation that fits."""
    rows = 5
    reduced_last = tb if left else not ta
    x = float_input(2, rows, 4) if reduced_last else float_input(2, 4, rows)
    w = const(np.repeat(np.random.default_rng(0).normal(size=(1, 4, 4)), 2, axis=0), "float32")
    y = relay.nn.batch_matmul(*((w, x) if left else (x, w)), transpose_a=ta, transpose_b=tb)
    mod = module(y)
    check_region(mod)
    assert macs(mod) == 2 * rows * 16


def test_one_constant_for_all_batches() -> None:
    check_region(module(relay.nn.batch_matmul(float_input(3, 5, 4), normal(1, 6, 4))))


def test_more_rows_than_the_memory_holds() -> None:
    """264,710 bytes: folded into rows of 206, and cut into blocks."""
    imported = check_region(module(relay.nn.batch_matmul(float_input(1, 1030, 257), normal(1, 3, 257))))
    assert [t.shape for t in imported.region.tensors] == [(1, 5, 206, 257), (1, 5, 206, 3)]


def test_batches_that_differ_stay_on_the_host() -> None:
    for x, w in ((float_input(2, 5, 4), normal(2, 6, 4)), (float_input(1, 5, 4), normal(2, 6, 4))):
        _, report = ba.partition(module(relay.nn.batch_matmul(x, w)))
        assert "batches" in reason(report, "nn.batch_matmul")


def test_two_computed_operands_stay_on_the_host() -> None:
    a, b = float_input(2, 5, 4, name="a"), float_input(2, 6, 4, name="b")
    _, report = ba.partition(module(relay.nn.batch_matmul(a, b), a, b))
    assert "computed at run time" in reason(report, "nn.batch_matmul")


def test_quantized_batch_matmul() -> None:
    """FakeQuantizationToInteger's form; the weights are symmetric."""
    rng = np.random.default_rng(0)
    w = np.repeat(rng.integers(-127, 128, (1, 6, 8)), 2, axis=0).astype("int8")
    y = relay.qnn.op.batch_matmul(int8_input(2, 3, 8), const(w), const(-5, "int32"), const(0, "int32"),
                                  const(0.05, "float32"), const(0.01, "float32"))
    y = relay.qnn.op.requantize(y, const(0.0005, "float32"), const(0, "int32"), const(0.06, "float32"),
                                const(7, "int32"), axis=2, out_dtype="int8")
    check_library(module(y), regions=1)


def test_rows_and_columns_in_turn() -> None:
    """As in MLP-Mixer: the order of axes changes between the two, so each is a region."""
    x = float_input(1, 6, 8)
    y = relay.nn.relu(relay.nn.batch_matmul(normal(1, 6, 6), x, transpose_b=False))
    mod = module(relay.nn.batch_matmul(y, normal(1, 5, 8, seed=1)))
    inputs = random_inputs(mod)
    part, report = ba.partition(mod, calibration=[inputs])
    assert len(report.regions) == 2 and report.macs_offloaded == report.macs == 6 * 6 * 8 + 6 * 8 * 5
    (found,), (expected,) = run(part, inputs), run(mod, inputs)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
