"""MLPerf Tiny models: every output byte of the quantized ones equals TVM's own lowering; float ones stay accurate."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.relay.files.model_file import import_model  # noqa: E402
from tests.relay.models import build, host_ops, run_library  # noqa: E402

SOFTMAX = ["nn.softmax", "qnn.quantize"]


def tflite(shared: Path, name: str) -> tuple[tvm.IRModule, dict]:
    model = import_model(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    return model.module, model.params


@pytest.mark.parametrize("name,left,limit", [
    ("pretrainedResnet_quant", SOFTMAX, None), ("ad01_int8", [], None), ("kws_ref_model", SOFTMAX, None),
    ("str_ww_ref_model", SOFTMAX, None), ("vww_96_int8", SOFTMAX, 4), ("pretrainedResnet_large_int8", SOFTMAX, 4)])
def test_quantized_models_are_exact(shared: Path, name: str, left: list[str], limit: int | None) -> None:
    """On real inputs, against outputs recorded from TVM's llvm lowering. `limit` bounds the samples, for time."""
    data = np.load(shared / "data" / "tvm_host" / f"{name}.npz")
    part, report = ba.partition(*tflite(shared, name), name=name)
    assert len(report.regions) == 1 and host_ops(report) == left
    assert report.macs_offloaded == report.macs > 0
    (variable,) = part["main"].params
    shape = [int(d) for d in variable.checked_type.shape]
    executor = graph_executor.GraphModule(build(part)["default"](tvm.cpu()))
    for x, expected in list(zip(data["x"], data["host"]))[:limit]:
        executor.set_input(variable.name_hint, x.reshape(shape))
        executor.run()
        np.testing.assert_array_equal(executor.get_output(0).numpy().reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"])
def test_tflite_rounding_gives_the_bytes_of_tflite(shared: Path, name: str) -> None:
    """Five random inputs against outputs of TFLite's reference kernels; TVM's own differ by up to 64."""
    data = np.load(shared / "models" / "golden" / f"{name}.npz")
    part, _ = ba.partition(*tflite(shared, name), name=name, rounding="tflite")
    (variable,) = part["main"].params
    library = build(part)
    for x, expected in zip(data["in0"], data["out0_ref"]):
        (found,) = run_library(library, {variable.name_hint: x.reshape(tuple(map(int, variable.checked_type.shape)))})
        np.testing.assert_array_equal(found.reshape(-1), expected.reshape(-1))


def test_quantize_and_dequantize_at_the_ends_are_part_of_the_region(shared: Path) -> None:
    """A model with float inputs and outputs is one region; every bit of the floats is TVM's."""
    mod, params = tflite(shared, "model_ToyCar_quant_fullint")
    part, report = ba.partition(mod, params)
    assert len(report.regions) == 1 and not host_ops(report)
    with tvm.transform.PassContext(opt_level=3):
        plain = tvm.relay.build(mod, target="llvm -mtriple=x86_64-linux-gnu", params=params)
    ours, (variable,) = build(part), part["main"].params
    shape = [int(d) for d in variable.checked_type.shape]
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 30.0):
        x = {variable.name_hint: (rng.normal(size=shape) * scale).astype("float32")}
        np.testing.assert_array_equal(run_library(ours, x)[0], run_library(plain, x)[0])


def test_macs_are_those_of_the_models(shared: Path) -> None:
    """Against the counts of models.md."""
    for name, macs in (("kws_ref_model", 2_656_768), ("pretrainedResnet_quant", 12_501_632), ("ad01_fp32", 264_192)):
        _, report = ba.partition(*tflite(shared, name), calibration=None)
        assert report.macs == macs


def test_float_resnet_keeps_its_answers(shared: Path) -> None:
    """Ten images to calibrate, ten others to test: the int8 network names the float network's class."""
    images = np.load(shared / "data" / "cifar10_foolbox20.npz")["x"].astype("float32")
    mod, params = tflite(shared, "pretrainedResnet")
    name = next(v.name_hint for v in mod["main"].params if v.name_hint not in params)
    part, report = ba.partition(mod, params, calibration=[{name: x[None]} for x in images[:10]])
    assert len(report.regions) == 1 and host_ops(report) == ["nn.softmax"]
    assert min(layer.sqnr_db for layer in report.quantization[0].layers) > 15
    with tvm.transform.PassContext(opt_level=3):
        plain = tvm.relay.build(mod, target="llvm -mtriple=x86_64-linux-gnu", params=params)
    ours = build(part)
    agree = sum(int(run_library(ours, {name: x[None]})[0].argmax() == run_library(plain, {name: x[None]})[0].argmax())
                for x in images[10:])
    assert agree >= 9


def test_same_model_twice_gives_the_same_module(shared: Path) -> None:
    modules = [ba.partition(*tflite(shared, "ad01_int8"), name="ad01")[0] for _ in range(2)]
    texts = [sorted(v.name_hint for v in m.functions) for m in modules]
    assert texts[0] == texts[1]
    tvm.ir.assert_structural_equal(*modules)
