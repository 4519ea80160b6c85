"""Inputs of every float region during calibration are those of the unpartitioned model, as TVM computes them."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.relay import host  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from byoc_accel.relay.regions import calibrate, search  # noqa: E402
from tests.relay.models import const, external_functions, module, qdense, random_inputs  # noqa: E402


def normal(*shape: int, seed: int = 0) -> relay.Expr:
    return const(np.random.default_rng(seed).normal(size=shape) / 4, "float32")


def mixed(batch: int = 1) -> tvm.IRModule:
    """float conv -> host -> int8 dense -> float dense, with a second reader of the first and a value used twice."""
    x = relay.var("x", shape=(batch, 3, 5, 4), dtype="float32")
    a = relay.nn.relu(relay.nn.conv2d(x, normal(6, 3, 3, 3), channels=6, kernel_size=(3, 3)))  # (batch, 6, 3, 2)
    b = relay.sin(relay.nn.batch_flatten(a))
    q = relay.qnn.op.quantize(b, const(0.01, "float32"), const(3, "int32"), out_dtype="int8")
    c = qdense(q, 8, np.random.default_rng(0), in_units=36, zp=(3, 7), scales=(0.01, 0.06))
    c = relay.qnn.op.dequantize(c, const(0.06, "float32"), const(7, "int32"))
    d = relay.nn.dense(relay.tanh(relay.cos(c)), normal(5, 8, seed=2))
    e = relay.nn.conv2d(relay.cos(a), normal(4, 6, 1, 1, seed=3), channels=4, kernel_size=(1, 1))
    return module(relay.Tuple([d, e, relay.add(d, d)]))


@pytest.mark.parametrize("batch", [1, 2])
def test_ranges_are_those_of_tvm(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recorded node equals TVM's own value of it."""
    mod, traces = mixed(batch), []
    original = calibrate.Trace

    def keep(*args: object) -> calibrate.Trace:
        traces.append(original(*args))
        return traces[-1]

    monkeypatch.setattr(search.calibrate, "Trace", keep)
    samples = [random_inputs(mod, seed) for seed in range(3)]
    _, report = ba.partition(mod, calibration=samples)
    (trace,) = traces
    assert len(report.regions) == 4
    known = sorted(set(trace.values[0]) - {n.index for n in trace.graph.nodes if n.op == "var"})
    assert len(known) >= 5
    function = relay.Function(mod["main"].params, relay.Tuple([trace.graph.nodes[i].expr for i in known]))
    function = relay.Function(relay.analysis.free_vars(function.body), function.body)
    for values, expected in zip(trace.values, host.run(function, trace.module, samples)):
        for index, array in zip(known, expected):
            if array.dtype == np.int8:
                assert np.abs(values[index].astype(int) - array).max() <= 1  # a float input may differ by a bit
            else:
                np.testing.assert_allclose(values[index], array, atol=1e-4 if array.shape != (batch, 8) else 0.061)


def test_the_range_of_a_second_region_is_that_of_its_input() -> None:
    """What the first region gives is doubled on the host: the second region's range doubles, too."""
    def model(gain: float) -> tvm.IRModule:
        x = relay.var("x", shape=(1, 8), dtype="float32")
        y = relay.nn.dense(x, normal(8, 8))
        return module(relay.nn.dense(relay.multiply(relay.sin(y), const(np.full((1, 8), gain), "float32")),
                                     normal(4, 8, seed=1)))

    bounds = []
    for gain in (1.0, 2.0):
        mod = model(gain)
        part, _ = ba.partition(mod, calibration=[random_inputs(mod, seed) for seed in range(5)])
        second = list(external_functions(part).values())[-1]
        bounds.append(np.array(import_function(second).ranges.bounds))
    np.testing.assert_allclose(bounds[1], 2 * bounds[0], rtol=1e-5)


def test_nothing_is_built_when_regions_read_the_models_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = relay.var("x", shape=(1, 8), dtype="float32")
    mod = module(relay.nn.dense(x, normal(8, 8)))
    monkeypatch.setattr(host, "run", lambda *args: pytest.fail("TVM was asked to run the model"))
    _, report = ba.partition(mod, calibration=[random_inputs(mod)])
    assert len(report.regions) == 1


def test_quantized_models_need_no_calibration(recwarn: pytest.WarningsRecorder) -> None:
    x = relay.var("x", shape=(1, 8), dtype="int8")
    mod = module(qdense(x, 8, np.random.default_rng(0), in_units=8))
    first, _ = ba.partition(mod)
    second, _ = ba.partition(mod, calibration=[random_inputs(mod)])
    assert not recwarn.list
    tvm.ir.assert_structural_equal(first, second, map_free_vars=True)


def test_fixed_point_scales_are_powers_of_two() -> None:
    x = relay.var("x", shape=(1, 8), dtype="float32")
    mod = module(relay.nn.dense(x, normal(8, 8)))
    _, report = ba.partition(mod, calibration=[random_inputs(mod)], scale="fixed_point")
    (q,) = report.quantization
    assert q.mode == "fixed_point"
    assert all(np.log2(layer.scale) % 1 == 0 for layer in q.layers)


def test_generators_are_read_once() -> None:
    x = relay.var("x", shape=(1, 8), dtype="float32")
    mod = module(relay.nn.dense(relay.sin(relay.nn.dense(x, normal(8, 8))), normal(8, 8, seed=1)))
    _, report = ba.partition(mod, calibration=(random_inputs(mod, seed) for seed in range(4)))
    assert [q.samples for q in report.quantization] == [4, 4]
