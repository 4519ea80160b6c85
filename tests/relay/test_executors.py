"""The same partitioned model under every executor: in-process, exported, in a fresh process; graph, VM and AOT."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import (  # noqa: E402
    build,
    compare,
    module,
    qconv2d,
    qdense,
    random_inputs,
    run,
    run_aot,
    run_library,
    run_vm,
)


def two_regions() -> tvm.IRModule:
    """Two inputs of different shapes, three outputs, a host op between two regions, one of them with two outputs."""
    rng = np.random.default_rng(0)
    a = relay.var("a", shape=(1, 3, 7, 6), dtype="int8")
    b = relay.var("b", shape=(1, 40), dtype="int8")
    y = qconv2d(a, 6, (3, 3), rng, in_channels=3, layout="NCHW", zp=(-5, 4))
    z = qconv2d(y, 5, (1, 1), rng, in_channels=6, layout="NCHW", zp=(4, 2))
    w = qdense(b, 100, rng, in_units=40, zp=(1, 2))
    host = relay.concatenate([relay.reshape(z, (1, -1)), relay.reverse(w, axis=1)], axis=1)
    return module(relay.Tuple([qdense(host, 9, rng, in_units=200, zp=(2, -1)), relay.maximum(y, y), w]), a, b)


@pytest.fixture(scope="module")
def case() -> tuple[tvm.IRModule, dict[str, np.ndarray], list[np.ndarray]]:
    mod = two_regions()
    inputs = random_inputs(mod)
    return ba.partition(mod)[0], inputs, run(mod, inputs)


def test_graph_in_process(case: tuple) -> None:
    part, inputs, expected = case
    compare(run(part, inputs), expected)


def test_vm_in_process(case: tuple) -> None:
    part, inputs, expected = case
    compare(run_vm(part, inputs), expected)


def test_aot(case: tuple, tmp_path: Path) -> None:
    """B36: two inputs of different shapes keep their order."""
    part, inputs, expected = case
    compare(run_aot(part, inputs, tmp_path), expected)


def test_graph_exported_to_an_odd_path_and_a_fresh_process(case: tuple, tmp_path: Path) -> None:
    part, inputs, expected = case
    folder = tmp_path / "dir with space" / "é"
    folder.mkdir(parents=True)
    library = build(part)
    library.export_library(str(folder / "model.so"))
    compare(run_library(tvm.runtime.load_module(str(folder / "model.so")), inputs), expected)
    np.savez(folder / "in.npz", **inputs)
    script = """if True:
        import sys, numpy, tvm
        from tvm.contrib import graph_executor
        m = graph_executor.GraphModule(tvm.runtime.load_module("model.so")["default"](tvm.cpu()))
        m.set_input(**dict(numpy.load("in.npz")))
        for _ in range(2):
            m.run()
        numpy.savez("out.npz", *[m.get_output(i).numpy() for i in range(3)])
        assert not [n for n in sys.modules if n.startswith("byoc")]
        """
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)
    with np.load(folder / "out.npz") as found:
        compare([found[f"arr_{i}"] for i in range(3)], expected)


def test_two_libraries_of_one_model_in_one_process(case: tuple) -> None:
    part, inputs, expected = case
    first, second = build(part), build(ba.partition(two_regions(), name="other", target="tiny")[0])
    compare(run_library(first, inputs), expected)
    compare(run_library(second, inputs), expected)
    compare(run_library(first, inputs), expected)


def test_float_inputs_and_outputs() -> None:
    """The host sees float32 NCHW; quantization and layout are ours. The bytes inside equal the NumPy meaning."""
    from byoc_accel.quantize import fixedpoint
    from byoc_accel.quantize.interpret import interpret
    from byoc_accel.quantize.quantize import quantize
    from byoc_accel.region.ports import to_device, to_host
    from byoc_accel.relay.importer import import_function
    from tests.relay.models import const, external_functions

    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
    y = relay.nn.conv2d(x, const(rng.normal(size=(5, 3, 3, 3)), "float32"), channels=5, kernel_size=(3, 3))
    mod = module(relay.nn.max_pool2d(relay.nn.relu(y), (2, 2), (2, 2)))
    inputs = random_inputs(mod)
    part, _ = ba.partition(mod, calibration=[random_inputs(mod, seed) for seed in range(1, 5)])
    imported = import_function(next(iter(external_functions(part).values())))
    qregion, _ = quantize(imported.region, ranges=imported.ranges)
    (into,), (out,) = qregion.inputs, qregion.outputs
    tensors = qregion.by_name()
    stored = fixedpoint.quantize_real(to_device(into, tensors[into.tensor].shape, inputs["x"]),
                                      tensors[into.tensor].scale, tensors[into.tensor].zero_point)
    result = interpret(qregion, [stored])[out.tensor]
    expected = fixedpoint.dequantize(to_host(out, result), tensors[out.tensor].scale, tensors[out.tensor].zero_point)
    for found in (run(part, inputs), run_vm(part, inputs)):
        np.testing.assert_array_equal(found[0], expected)
    assert np.abs(expected - run(mod, inputs)[0]).max() < 0.05 * np.abs(expected).max()
