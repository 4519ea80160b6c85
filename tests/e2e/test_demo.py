"""The demo: its network is what the record says, and the whole way through Relay keeps its accuracy."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from byoc_accel.demo import train
from byoc_accel.demo.data import load_digits
from byoc_accel.demo.network import MODEL_FILE, RECORD_FILE, WEIGHTED, forward, load_parameters, predict

MACS = (28 * 28 * 16 * 9 * 1 + 14 * 14 * 48 * 9 * 16 + 2 * 7 * 7 * 48 * 9 * 48 + 4 * 4 * 96 * 9 * 48
        + 4 * 4 * 192 * 96 + 10 * 192)


def test_file_is_the_recorded_network() -> None:
    record = json.loads(RECORD_FILE.read_text())
    _, test = load_digits()
    parameters = load_parameters()
    assert MODEL_FILE.stat().st_size < 600_000
    assert sum(a.size for pair in parameters.values() for a in pair) == record["parameters"]
    accuracy = (predict(parameters, test.x).argmax(axis=1) == test.label).mean()
    assert accuracy == pytest.approx(record["test_accuracy"], abs=0.0011)
    assert record["test_accuracy"] >= 0.96


def test_numpy_forward_equals_onnx() -> None:
    _, test = load_digits()
    evaluator = ReferenceEvaluator(onnx.load(str(MODEL_FILE)))
    for image in test.x[:3]:
        (expected,) = evaluator.run(None, {"image": image[None]})
        np.testing.assert_allclose(predict(load_parameters(), image[None]), expected, rtol=1e-4, atol=1e-4)


def test_gradients_of_the_training_script() -> None:
    """Against central differences in float64, one entry of every weight and bias."""
    rng = np.random.default_rng(0)
    parameters = {name: (w.astype(np.float64), rng.normal(0, 0.1, b.shape))
                  for name, (w, b) in train.initial(rng).items()}
    x, label = rng.random((2, 28, 28, 1)), np.array([3, 8])

    def loss() -> float:
        return train.score_gradient(forward(parameters, x)["dense"], label)[1]

    outputs = forward(parameters, x)
    gradients = train.backward(parameters, x, outputs, train.score_gradient(outputs["dense"], label)[0])
    for layer in WEIGHTED:
        for array, gradient in zip(parameters[layer.name], gradients[layer.name]):
            at = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
            kept = array[at]
            array[at] = kept + 1e-6
            above = loss()
            array[at] = kept - 1e-6
            below = loss()
            array[at] = kept
            assert gradient[at] == pytest.approx((above - below) / 2e-6, rel=1e-3)


@pytest.mark.relay
@pytest.mark.slow
def test_demo_keeps_the_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from byoc_accel.demo.driver import main

    assert main(["--images", "1000", "--folder", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "demo.json").read_text())
    assert result["images"] == 1000
    assert result["int8_accuracy"] >= result["float_accuracy"] - 0.01
    assert result["agreement"] >= 0.98
    assert result["macs"] == MACS
    assert result["macs_offloaded"] == MACS
    assert result["bound_cycles"] <= result["cycles"] <= 2 * result["bound_cycles"]
    output = capsys.readouterr().out
    for row in ("float accuracy", "int8 accuracy", "agree", "cycles per image", "bound", "utilisation", "program",
                "simulated at"):
        assert row in output
