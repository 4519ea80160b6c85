"""Public bug reports about graphs of many ops (B10): no recursion, and no time that grows with their square."""
from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import compare, const, host_ops, module, qconv2d, random_inputs, run  # noqa: E402

S, Z = 0.05, -5  # one scale and zero point for all tensors


def float_chain(layers: int) -> tvm.IRModule:
    y, rng = relay.var("x", shape=(1, 4), dtype="float32"), np.random.default_rng(0)
    for _ in range(layers):
        y = relay.nn.relu(relay.nn.dense(y, const(rng.normal(size=(4, 4)) * 0.7, "float32"), units=4))
    return module(y)


CHAIN = """
import resource
import byoc_accel.relay as ba
from tests.regress.test_growth import float_chain
from tests.relay.models import random_inputs
mod = float_chain(2500)
_, report = ba.partition(mod, calibration=[random_inputs(mod)])
assert len(report.regions) == 1 and report.regions[0].ops == 5000
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB
"""


@pytest.mark.case("B10")
def test_chain_of_five_thousand_ops(root: Path) -> None:
    """No recursion limit, below 2 GiB in a process of its own."""
    result = subprocess.run([sys.executable, "-c", CHAIN], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.case("B10")
def test_time_grows_with_the_layers_and_not_with_their_square() -> None:
    """Four times the layers: at most seven times the processor time. (Before lifetimes and weight tables were found in
    one pass, it was ten times from 500 layers to 2,000.)"""
    seconds = []
    for layers in (200, 800):
        mod = float_chain(layers)
        inputs = random_inputs(mod)
        start = time.process_time()
        ba.partition(mod, calibration=[inputs])
        seconds.append(time.process_time() - start)
    assert seconds[1] < 7 * seconds[0], seconds


@pytest.mark.case("B10")
@pytest.mark.parametrize("layers", [8, 60])
def test_dense_block_is_one_region(layers: int) -> None:
    """Every layer reads all those before: 1,829 operands of concatenations at 60 layers, which TVM itself takes minutes
    to build, so that only the small one is run."""
    values: list[relay.Expr] = [relay.var("x", shape=(1, 4, 4, 2), dtype="int8")]
    for layer in range(layers):
        count = len(values)
        joined = values[0] if count == 1 else relay.qnn.op.concatenate(
            relay.Tuple(values), relay.Tuple([const(S, "float32")] * count), relay.Tuple([const(Z, "int32")] * count),
            const(S, "float32"), const(Z, "int32"), axis=3)
        values.append(qconv2d(joined, 2, (1, 1), np.random.default_rng(layer), in_channels=2 * count, zp=(Z, Z),
                              scales=(S, S)))
    mod = module(values[-1])
    start = time.process_time()
    part, report = ba.partition(mod)
    assert time.process_time() - start < 30
    assert len(report.regions) == 1 and not host_ops(report)
    if layers == 8:
        compare(run(part, random_inputs(mod)), run(mod, random_inputs(mod)))


@pytest.mark.case("B10")
@pytest.mark.parametrize("fits", [False, True])
def test_layers_that_do_not_fit_are_found_in_few_rounds(fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 layers of which none, or every second, fits the target. It took 22 rounds of matching before, one for every
    second layer that did not fit."""
    rounds = []
    search = importlib.import_module("byoc_accel.relay.regions.search")
    monkeypatch.setattr(search, "find_layers", lambda *a, find=search.find_layers: rounds.append(1) or find(*a))
    rng = np.random.default_rng(0)
    y: relay.Expr = relay.var("x", shape=(1, 1, 300, 64), dtype="int8")
    for layer in range(40):
        kernel = (1, 1) if fits and layer % 2 else (3, 3)
        y = qconv2d(y, 64, kernel, rng, in_channels=64, zp=(Z, Z), scales=(S, S),
                    padding=(1, 1) if kernel == (3, 3) else (0, 0))
    _, report = ba.partition(module(y), target="tiny")
    assert len(rounds) <= 4
    convolutions = [row for row in report.ops if row.op == "qnn.conv2d"]
    assert all("SRAM" in row.reason for row in convolutions if not row.region)
    assert not all(row.region for row in convolutions)
