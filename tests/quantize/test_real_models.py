"""Real int8 models, by operator and whole: TFLite's reference kernels and TVM's own lowering, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.quantize import quantize
from byoc_accel.quantize.verify import verify as verify_qregion
from byoc_accel.region.interpret import interpret as interpret_region
from byoc_accel.region.verify import verify
from tests.quantize.tflite_reader import Reader, region_of

pytest.importorskip("tflite", reason="the tflite package reads the model files")
MODELS = ("ad01_int8", "kws_ref_model", "str_ww_ref_model", "pretrainedResnet_quant", "pretrainedResnet_large_int8",
          "vww_96_int8")


def ops(shared, model, rounding):
    return Reader(shared / "models" / "mlperf_tiny" / f"{model}.tflite", rounding).ops()


@pytest.mark.parametrize("model", MODELS)
def test_operators_equal_tflite_reference_kernels(shared, model):
    """Each operator is fed what TFLite's own kernels gave before it."""
    layers = np.load(shared / "models" / "layers" / f"{model}.npz")
    different = {}
    for op in ops(shared, model, "tflite"):
        region = region_of([op])
        verify(region)
        qregion, _ = quantize(region)
        verify_qregion(qregion)
        inputs = [layers[p.tensor].reshape(region.tensor(p.tensor).shape) for p in region.inputs]
        y = region.outputs[0].tensor
        expected = layers[y].reshape(region.tensor(y).shape)
        got = interpret(qregion, inputs)[y]
        assert np.array_equal(got, interpret_region(region, inputs)[y])
        if not np.array_equal(got, expected):
            different[op.nodes[-1].name] = int((got != expected).sum())
    assert not different


def test_autoencoder_equals_tvm(shared):
    """All ten layers in one region, 196 real inputs, against the stored output of TVM's llvm build."""
    stored = np.load(shared / "data" / "tvm_host" / "ad01_int8.npz")
    region = region_of(ops(shared, "ad01_int8", "tvm"))
    verify(region)
    qregion, _ = quantize(region)
    verify_qregion(qregion)
    y = interpret(qregion, [stored["x"].reshape(-1, 1, 1, 640)])[region.outputs[0].tensor]
    assert np.array_equal(y.reshape(stored["host"].shape), stored["host"])


@pytest.mark.parametrize("model", ["pretrainedResnet_quant", "kws_ref_model", "str_ww_ref_model", "vww_96_int8",
                                   "pretrainedResnet_large_int8"])
def test_classifiers_equal_tvm_before_the_softmax(shared, model):
    """The stored outputs are softmax(logits) as int8, computed here in float64: equal but for its own last digit."""
    stored = np.load(shared / "data" / "tvm_host" / f"{model}.npz")
    region = region_of(ops(shared, model, "tvm"))
    qregion, _ = quantize(region)
    verify_qregion(qregion)
    tensor = qregion.by_name()[region.outputs[0].tensor]
    x = stored["x"].reshape(-1, *region.tensor(region.inputs[0].tensor).shape[1:])
    logits = interpret(qregion, [x])[tensor.name].reshape(len(x), -1).astype(np.float64)
    real = np.exp(tensor.scale * (logits - logits.max(1, keepdims=True)))
    expected = np.clip(np.rint(real / real.sum(1, keepdims=True) * 256) - 128, -128, 127)
    difference = np.abs(expected - stored["host"].reshape(expected.shape))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01
