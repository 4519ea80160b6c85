"""compile, run and explain on model files: results, bad input in one line, nothing half-written."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc_accel.cli import main
from byoc_accel.modelinfo import unpack

pytestmark = pytest.mark.relay

RNG = np.random.default_rng(11)
WEIGHT = RNG.normal(0, 0.3, (6, 3, 3, 3)).astype(np.float32)
BIAS = RNG.normal(0, 0.1, 6).astype(np.float32)
MACS = 6 * 3 * 3 * 3 * 8 * 7


def save_model(path: Path, weight: np.ndarray = WEIGHT, host_op: str = "Sin", batch: int | str = 1) -> Path:
    """x (1, 3, 8, 7) -> convolution -> relu = output 0; `host_op` of it = output 1."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"], "relu"), helper.make_node(host_op, ["r"], ["s"], "host")]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 7])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, 6, 8, 7]) for n in "rs"],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(BIAS, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 7
    onnx.save(model, str(path))
    return path


def reference(x: np.ndarray) -> np.ndarray:
    """relu(conv(x)) in float64, by sums over shifted copies."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    out = np.zeros((6, 8, 7)) + BIAS[:, None, None]
    for dy in range(3):
        for dx in range(3):
            out += np.einsum("oi,ihw->ohw", WEIGHT[:, :, dy, dx].astype(np.float64), padded[:, dy:dy + 8, dx:dx + 7])
    return np.maximum(out, 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "net work.onnx")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    np.savez(tmp_path / "samples.npz", x=RNG.normal(0, 1, (12, 1, 3, 8, 7)).astype(np.float32))
    return tmp_path / "samples.npz"


def fails(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """The one line with which a command refuses."""
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_compile_run_report(model: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library, outputs, stats = tmp_path / "é.so", tmp_path / "out.npz", tmp_path / "stats.json"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0
    out = capsys.readouterr().out
    assert "100.0 % of 9,072 MACs offloaded; on the host: sin" in out and "SQNR" in out
    assert main(["run", str(library), "--inputs", str(samples), "--outputs", str(outputs), "--stats",
                 str(stats)]) == 0
    results = np.load(outputs)
    x = np.load(samples)["x"]
    assert results["output_0"].shape == results["output_1"].shape == (12, 1, 6, 8, 7)
    expected = np.stack([reference(sample[0]) for sample in x])[:, None]
    assert np.abs(results["output_0"] - expected).max() < 0.02 * expected.max()
    np.testing.assert_allclose(results["output_1"], np.sin(results["output_0"]), atol=1e-5)
    capsys.readouterr()
    assert main(["report", str(library), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["macs"] == report["macs_offloaded"] == MACS
    counted = json.loads(stats.read_text())
    assert counted["samples"] == 12 and counted["cycles"] == 12 * report["cycles"]


def test_single_sample_comes_back_unstacked(model: Path, samples: Path, tmp_path: Path) -> None:
    library = tmp_path / "net.so"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0
    np.savez(tmp_path / "one.npz", whatever=np.load(samples)["x"][0])
    assert main(["run", str(library), "--inputs", str(tmp_path / "one.npz"), "--outputs",
                 str(tmp_path / "out.npz")]) == 0
    assert np.load(tmp_path / "out.npz")["output_1"].shape == (1, 6, 8, 7)


def test_fixed_point_and_own_target(model: Path, samples: Path, tmp_path: Path, root: Path,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.toml"
    target.write_text((root / "byoc_accel/targets/tiny.toml").read_text().replace('"tiny"', '"mine"'))
    library = tmp_path / "net.so"
    assert main(["compile", str(model), "--calibration", str(samples), "--scale", "fixed_point", "--target",
                 str(target), "-o", str(library)]) == 0
    capsys.readouterr()
    assert main(["report", str(library), "--json"]) == 0
    assert {region["target"] for region in json.loads(capsys.readouterr().out)["regions"]} == {"mine"}


def test_guessed_ranges_warn(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "-o", str(tmp_path / "net.so")]) == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: no calibration inputs") and err.count("\n") == 1


def test_unknown_batch_becomes_one(tmp_path: Path, samples: Path) -> None:
    model = save_model(tmp_path / "dynamic.onnx", batch="N")
    library = tmp_path / "net.so"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0


@pytest.mark.case("B36")
def test_equal_bytes_in_every_process(model: Path, samples: Path, tmp_path: Path) -> None:
    libraries = []
    for seed in ("0", "1"):
        folder = tmp_path / f"folder {seed}"
        folder.mkdir()
        command = [sys.executable, "-m", "byoc_accel", "compile", str(model), "--calibration", str(samples), "-o",
                   str(folder / "net.so")]
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed})
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        libraries.append((folder / "net.so").read_bytes())
    assert libraries[0] == libraries[1]
    assert str(tmp_path).encode() not in libraries[0]


def test_explain(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(model)]) == 0
    out, err = capsys.readouterr()
    assert "the accelerator has no sin" in out and "3 of 4 ops" in out and err == ""
    assert main(["explain", str(model), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ops"]
    by_op = {row["op"]: row for row in rows}
    assert by_op["nn.conv2d"]["macs"] == MACS and by_op["nn.conv2d"]["region"] and not by_op["nn.conv2d"]["reason"]
    assert by_op["sin"]["region"] == "" and by_op["sin"]["reason"]


def test_record_survives_in_the_library(model: Path, samples: Path, tmp_path: Path) -> None:
    library = tmp_path / "net.so"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0
    info = unpack(library.read_bytes())
    assert info is not None and info.model == "net work" and len(info.regions) == 1


@pytest.mark.parametrize("name, content, message", [
    ("none.onnx", None, "none.onnx: no such file"),
    ("net.pt", b"", "net.pt: cannot import .pt"),
    ("text.onnx", b"this is no model", "no valid ONNX model"),
    ("empty.onnx", b"", "no valid ONNX model"),
    ("text.tflite", b"this is no model", "no TFLite model"),
    ("cut.tflite", b"\x1c\x00\x00\x00TFL3" + b"\xff" * 40, "TVM cannot import it"),
])
def test_unreadable_models(name: str, content: bytes | None, message: str, tmp_path: Path,
                           capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = sorted(os.listdir(tmp_path))
    assert message in fails(capsys, "compile", tmp_path / name, "-o", tmp_path / "net.so")
    assert message in fails(capsys, "explain", tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before


def test_unknown_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_model(tmp_path / "net.onnx", host_op="Det")
    assert "Det" in fails(capsys, "compile", model, "-o", tmp_path / "net.so")


@pytest.mark.case("B25")
def test_not_a_number_in_weights(tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = WEIGHT.copy()
    weight[4, 2, 1, 0] = np.nan
    model = save_model(tmp_path / "net.onnx", weight)
    line = fails(capsys, "compile", model, "--calibration", samples, "-o", tmp_path / "net.so")
    assert "nan" in line and "4" in line
    assert not (tmp_path / "net.so").exists()


@pytest.mark.case("B25")
def test_infinity_in_calibration(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.ones((3, 1, 3, 8, 7), np.float32)
    x[2, 0, 1, 5, 6] = np.inf
    np.savez(tmp_path / "bad.npz", x=x)
    (tmp_path / "net.so").write_text("old")
    line = fails(capsys, "compile", model, "--calibration", tmp_path / "bad.npz", "-o", tmp_path / "net.so")
    assert "sample 2" in line and "'x'" in line and "inf" in line
    assert (tmp_path / "net.so").read_text() == "old"
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_wrong_arguments(model: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "net.so"
    assert "no such target" in fails(capsys, "compile", model, "--target", "mega", "-o", out)
    (tmp_path / "bad.toml").write_text("[array]\nrows = 'many'\n")
    assert "bad.toml" in fails(capsys, "compile", model, "--target", tmp_path / "bad.toml", "-o", out)
    assert "ends with .so" in fails(capsys, "compile", model, "-o", tmp_path / "net")
    assert "does not exist" in fails(capsys, "compile", model, "-o", tmp_path / "no" / "net.so")
    np.savez(tmp_path / "wrong.npz", x=np.ones((2, 3, 8, 8), np.float32))
    assert "[2, 3, 8, 8]" in fails(capsys, "compile", model, "--calibration", tmp_path / "wrong.npz", "-o", out)
    assert not out.exists()


def test_every_folder_will_do(model: Path, tmp_path: Path) -> None:
    """TVM makes a folder for itself in the current one, and gives up where it cannot."""
    for folder in (tmp_path / "empty", Path("/proc")):
        folder.mkdir(exist_ok=True)
        result = subprocess.run([sys.executable, "-m", "byoc_accel", "explain", str(model)], cwd=folder,
                                capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
        assert result.returncode == 0, result.stderr
    assert os.listdir(tmp_path / "empty") == []


def test_full_disk(model: Path, samples: Path, tmp_path: Path) -> None:
    """Files of 16 KiB at the most: the linker's own words, and nothing half-written."""
    command = f'ulimit -f 16; "{sys.executable}" -m byoc_accel compile "{model}" --calibration "{samples}" -o net.so'
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1
    assert "File size limit exceeded" in result.stderr or "File too large" in result.stderr
    assert sorted(os.listdir(tmp_path)) == [model.name, samples.name]


def test_wrong_inputs_at_run_time(model: Path, samples: Path, tmp_path: Path,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    library = tmp_path / "net.so"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0
    capsys.readouterr()
    np.savez(tmp_path / "wrong.npz", x=np.ones((1, 3, 7, 8), np.float32))
    outputs = tmp_path / "out.npz"
    assert "[1, 3, 7, 8]" in fails(capsys, "run", library, "--inputs", tmp_path / "wrong.npz", "--outputs", outputs)
    np.savez(tmp_path / "batch.npz", x=np.ones((2, 3, 8, 7), np.float32))  # larger than it was compiled for
    assert "[2, 3, 8, 7]" in fails(capsys, "run", library, "--inputs", tmp_path / "batch.npz", "--outputs", outputs)
    for words, message in ((("--outputs", tmp_path / "out.csv"), "name the file so"),  # all before anything is run
                           (("--outputs", outputs, "--stats", outputs), "is the file of the outputs"),
                           (("--outputs", outputs, "--stats", tmp_path / "no" / "s.json"), "does not exist")):
        assert message in fails(capsys, "run", library, "--inputs", tmp_path / "none.npz", *words)
    assert not outputs.exists()


@pytest.mark.case("B35")
def test_damaged_libraries(model: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library, cut = tmp_path / "net.so", tmp_path / "cut.so"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0
    capsys.readouterr()
    blob = library.read_bytes()
    for size, message in ((0, "no shared library"), (50, "no shared library"), (100, "is cut off"),
                          (5000, "is cut off"), (len(blob) // 2, "is cut off")):
        cut.write_bytes(blob[:size])
        assert message in fails(capsys, "run", cut, "--inputs", samples)
    cut.write_bytes(b"no library at all" * 20)
    assert "no shared library" in fails(capsys, "run", cut, "--inputs", samples)


def test_damaged_image_at_run_time(model: Path, samples: Path, tmp_path: Path,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    """One flipped bit of the program inside of the library: a line with the check that failed."""
    from byoc_accel.container.dump import find_images

    library = tmp_path / "net.so"
    assert main(["compile", str(model), "--calibration", str(samples), "-o", str(library)]) == 0
    capsys.readouterr()
    blob = bytearray(library.read_bytes())
    ((offset, image),) = find_images(bytes(blob))
    blob[offset + image.sections["program"][0] + 200] ^= 1
    library.write_bytes(blob)
    outputs = tmp_path / "out.npz"
    assert "checksum" in fails(capsys, "run", library, "--inputs", samples, "--outputs", outputs)
    assert not outputs.exists()
