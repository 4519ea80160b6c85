"""A library under the graph executor: inputs of any name, and one line for arrays that do not fit."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from byoc_accel.errors import RunError  # noqa: E402
from byoc_accel.relay import build_model  # noqa: E402
from byoc_accel.relay.files.execute import Executor  # noqa: E402
from tests.relay.qdq_models import Net  # noqa: E402

WEIGHT = np.random.default_rng(2).uniform(-1, 1, (4, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """(sin(key) + value) W, its inputs named like the parameters of TVM's own set_input."""
    folder = tmp_path_factory.mktemp("execute")
    net = Net(0)
    for name in ("key", "value"):
        net.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 4]))
    y = net.node("MatMul", [net.node("Add", [net.node("Sin", ["key"]), "value"]), net.constant(WEIGHT)])
    onnx.save(net.model([y]), folder / "net.onnx")
    rng = np.random.default_rng(0)
    samples = {name: rng.uniform(-1, 1, (8, 6, 4)).astype(np.float32) for name in ("key", "value")}
    build_model(folder / "net.onnx", calibration=samples, out=folder / "net.so")
    return folder / "net.so"


def test_any_input_names(library: Path) -> None:
    rng = np.random.default_rng(1)
    sample = {name: rng.uniform(-1, 1, (6, 4)).astype(np.float32) for name in ("key", "value")}
    (found,) = Executor(library).run(sample)
    assert np.abs(found - (np.sin(sample["key"]) + sample["value"]) @ WEIGHT).max() < 0.05


@pytest.mark.parametrize("sample", [
    {}, {"key": np.zeros((6, 4))}, {"key": np.zeros((6, 4)), "values": np.zeros((6, 4))},
    {"key": np.zeros((6, 4)), "value": np.zeros((4, 6))}, {"key": np.zeros((6, 4)), "value": [1, 2]}])
def test_samples_that_do_not_fit(library: Path, sample: dict[str, np.ndarray]) -> None:
    """TVM would run with whatever an input held before."""
    expected = r"^run: the sample holds .*; give 'key' \[6, 4\], 'value' \[6, 4\]$"
    with pytest.raises(RunError, match=expected):
        Executor(library).run(sample)
