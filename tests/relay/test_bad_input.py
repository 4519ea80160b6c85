"""Types, shapes, files and calibration sets that do not fit: exact, on the host with a reason, or one line that names
what is wrong. Nothing here is built."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.cli import main  # noqa: E402
from byoc_accel.errors import HostError, ModelError, QuantizeError, TargetError  # noqa: E402
from byoc_accel.relay.files.model_file import import_model  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from tests.relay.models import external_functions, host_ops, reason  # noqa: E402
from tests.relay.qdq_models import Net  # noqa: E402

WEIGHT = np.random.default_rng(0).integers(-7, 8, (6, 4)).astype(np.float32)  # exact in every type below
NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float64": TensorProto.DOUBLE,
          "float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2, "int4": TensorProto.INT4}


def save_matmul(path: Path, dtype: int, shape: list[int | str], cast: bool = True) -> Path:
    """y = x w with w of `dtype`, cast to float32 unless x has that type too."""
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT)] if cast else []
    nodes.append(helper.make_node("MatMul", ["x", "wide" if cast else "w"], ["y"], "product"))
    kind = TensorProto.FLOAT if cast else dtype
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info("y", kind, [shape[0], 4])],
                              [helper.make_tensor("w", dtype, WEIGHT.shape, WEIGHT.ravel().tolist())])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.save(model, str(path))
    return path


def fails(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """The one line with which a command refuses."""
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.mark.parametrize("name", NARROW)
def test_weights_of_other_types_are_converted_exactly(name: str, tmp_path: Path) -> None:
    model = import_model(save_matmul(tmp_path / "net.onnx", NARROW[name], [2, 6]))
    part, report = ba.partition(model.module, model.params, calibration=[{"x": np.ones((2, 6), np.float32)}])
    assert not host_ops(report)
    (function,) = external_functions(part).values()
    (node,) = import_function(function).region.nodes
    np.testing.assert_array_equal(node.weight.reshape(4, 6), WEIGHT.T)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_activations_of_other_types_stay_on_the_host(name: str, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    path = save_matmul(tmp_path / "net.onnx", NARROW[name], [2, 6], cast=False)
    model = import_model(path)
    _, report = ba.partition(model.module, model.params)
    assert not report.regions and f"{name} in" in reason(report, "nn.dense")
    assert main(["explain", str(path)]) == 0
    assert f"{name} in" in capsys.readouterr().out


def test_int16_activations_stay_on_the_host(tmp_path: Path) -> None:
    net = Net(1, "int16", opset=21)
    weight, _ = net.weight((8, 8, 3, 3))
    y = net.quantized(net.node("Conv", [net.float_input((1, 8, 8, 8)), weight]), 0.001, 3)
    onnx.save(net.model([y]), tmp_path / "net.onnx")
    model = import_model(tmp_path / "net.onnx")
    _, report = ba.partition(model.module, model.params)
    assert not report.regions and all(row.reason for row in report.ops)
    assert any("int16" in row.reason for row in report.ops)


@pytest.mark.parametrize("shape, bad", [([2, "width"], "[2, 0]"), (["batch", "width"], "[1, 0]")])
def test_unknown_sizes(shape: list[int | str], bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, shape)
    line = fails(capsys, "compile", path, "-o", tmp_path / "net.so")
    assert "'x'" in line and bad in line and "export it with fixed ones" in line
    assert not (tmp_path / "net.so").exists()


def test_open_sizes_come_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Anything that the file contradicts is refused with the shapes that it has."""
    path = save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, ["rows", 6], cast=False)
    assert import_model(path).inputs["x"].shape == (1, 6)
    assert import_model(path, {"x": (3, 6)}).inputs["x"].shape == (3, 6)
    for given, shown in (("x=3,7", "'x' cannot have the shape 3,7; its inputs are 'x' 3,6"),
                         ("x=3", "'x' cannot have the shape 3; its inputs are 'x' 1,6"),
                         ("y=1,6", "'y' cannot have the shape 1,6; its inputs are 'x' 1,6")):
        assert shown in fails(capsys, "explain", path, "--shape", given)
    for text in ("x", "x=", "x=0,6", "x=a,6", "=1,6"):
        with pytest.raises(SystemExit):
            main(["explain", str(path), "--shape", text])
        assert "give a name and sizes of 1 or more" in capsys.readouterr().err
    assert main(["explain", str(path), "--shape", "x=3,6", "--json"]) == 0
    assert '"macs": 72,' in capsys.readouterr().out



@pytest.mark.parametrize("sample, said", [
    ({"image": np.ones((2, 6), np.float32)}, "holds 'image'"), ({}, "holds nothing"),
    ({"x": np.ones((2, 6), np.float32), "y": np.ones(3)}, "holds 'x', 'y'"),
    ({"x": np.ones((3, 6), np.float32)}, "is float32 (3, 6)"), ({"x": np.ones((6, 2), np.float32)}, "float32 (6, 2)"),
    ({"x": np.full((2, 6), "a")}, "(2, 6); give")])
def test_calibration_sets_that_do_not_fit(sample: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    """The message says what is there and what was expected."""
    model = import_model(save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, [2, 6], cast=False))
    good = {"x": np.ones((2, 6), np.float32)}
    with pytest.raises(QuantizeError) as info:
        ba.partition(model.module, model.params, calibration=[good, sample])
    assert "sample 1" in str(info.value) and said in str(info.value)
    assert "float32 (2, 6)" in str(info.value) and "'x'" in str(info.value)


@pytest.mark.parametrize("options, error, message", [
    ({"params": [1]}, ModelError, "params is a list; give a dict of arrays by name, or nothing"),
    ({"params": {"x": "abc"}}, ModelError, "parameter 'x' is <U3, the model's variable float32; convert it"),
    ({"name": None}, ModelError, "name is None; give the model's name as text"),
    ({"target": 5}, TargetError, "5 is a int; give a Target"), ({"target": "mega"}, TargetError, "no such target"),
    ({"scale": None}, HostError, "scale None is unknown; use one of multiplier, fixed_point"),
    ({"rounding": "up"}, HostError, "rounding 'up' is unknown; use one of tvm, tflite"),
    ({"ranges": None}, QuantizeError, "range method None is unknown; use one of minmax"),
    ({"ranges": "percentile:200"}, QuantizeError, "'percentile:200' is unknown"),
    ({"calibration": 5}, QuantizeError, "calibration is a int; give an iterable of dicts"),
    ({"calibration": []}, QuantizeError, "the calibration set is empty; give at least one sample, or none at all"),
    ({"calibration": {"x": np.ones((2, 6))}}, QuantizeError, "calibration sample 0: holds a str"),
    ({"calibration": [np.ones((2, 6))]}, QuantizeError, "calibration sample 0: holds a ndarray"),
])
def test_arguments_of_partition(options: dict[str, object], error: type[Exception], message: str,
                                tmp_path: Path) -> None:
    model = import_model(save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, [2, 6], cast=False))
    with pytest.raises(error) as info:
        ba.partition(model.module, **options)
    assert message in str(info.value) and "\n" not in str(info.value)


@pytest.mark.parametrize("module", [None, 5, "net.onnx"])
def test_what_is_no_module(module: object) -> None:
    with pytest.raises(ModelError, match="is no module; give a tvm.IRModule"):
        ba.partition(module)


def test_calibration_files_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(2)
    for name in ("left", "right"):
        net.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]))
    onnx.save(net.model([net.node("Add", ["left", "right"])]), tmp_path / "net.onnx")
    good = np.ones((5, 1, 4), np.float32)
    for arrays, said in (({"left": good, "wrong": good}, "'left', 'wrong'"), ({"left": good}, "holds 'left'"),
                         ({"left": good, "right": good[:3]}, "left 5, right 3")):
        np.savez(tmp_path / "samples.npz", **arrays)
        line = fails(capsys, "compile", tmp_path / "net.onnx", "--calibration", tmp_path / "samples.npz", "-o",
                     tmp_path / "net.so")
        expected = "numbers of samples" if "right" in arrays else "'left' float32 [1, 4], 'right' float32 [1, 4]"
        assert said in line and expected in line
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "samples.npz"]


def test_every_truncation_of_an_onnx_file(tmp_path: Path) -> None:
    """A prefix of a protobuf is often a valid protobuf; none is a valid model."""
    blob = save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, [2, 6]).read_bytes()
    cut = tmp_path / "cut.onnx"
    for size in range(len(blob)):
        cut.write_bytes(blob[:size])
        with pytest.raises(ModelError, match="cut.onnx"):
            import_model(cut)


def test_truncated_tflite_files(shared: Path, tmp_path: Path) -> None:
    blob = (shared / "models/mlperf_tiny/kws_ref_model.tflite").read_bytes()
    cut = tmp_path / "cut.tflite"
    for size in (7, 8, 100, len(blob) // 2, len(blob) - 1000):
        cut.write_bytes(blob[:size])
        with pytest.raises(ModelError, match="cut.tflite"):
            import_model(cut)


def test_weights_in_a_file_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(str(save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, [2, 6])))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT, "w"))
    onnx.external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, str(tmp_path / "net.onnx"))
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in fails(capsys, "explain", tmp_path / "net.onnx")


def test_output_folder_that_takes_no_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_matmul(tmp_path / "net.onnx", TensorProto.FLOAT, [2, 6])
    assert "cannot write to /proc" in fails(capsys, "compile", path, "-o", "/proc/net.so")
