"""The command line: help, one-line errors, and the commands that need no TVM."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.cli import COMMANDS, main
from byoc_accel.compile import compile_region
from byoc_accel.container.image import Image
from byoc_accel.modelinfo import ModelInfo, OpRow, pack
from byoc_accel.region.region import Conv2d, Pool, Port, Region, Tensor

CONV_MACS = 12 * 10 * 20 * (3 * 3 * 5)
DENSE_MACS = 20 * 7


def small_region(name: str = "net/ä") -> Region:
    """float32 12 x 10 x 5 image -> 3 x 3 convolution to 20 channels -> mean -> dense to 7."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.2, shape).astype(np.float32)

    tensors = (Tensor("x", (1, 12, 10, 5)), Tensor("c", (1, 12, 10, 20)), Tensor("m", (1, 1, 1, 20)),
               Tensor("y", (1, 1, 1, 7)))
    nodes = (Conv2d("conv", "x", "c", weights(20, 3, 3, 5), weights(20), padding=(1, 1, 1, 1), clip=(0.0, 6.0)),
             Pool("mean", "c", "m", "avg", (12, 10), (12, 10)),
             Conv2d("dense", "m", "y", weights(7, 1, 1, 20), weights(7)))
    return Region(name, tensors, nodes, (Port("x", (1, 12, 10, 5), "float32", (0, 1, 2, 3)),),
                  (Port("y", (1, 7), "float32", (0, 1, 2, 3)),))


@pytest.fixture(scope="module")
def image() -> Image:
    rng = np.random.default_rng(4)
    calibration = [[rng.normal(0, 1, (1, 12, 10, 5)).astype(np.float32)] for _ in range(4)]
    return compile_region(small_region(), "reference", calibration=calibration)


@pytest.fixture
def library(image: Image, tmp_path: Path) -> Path:
    """Bytes like those of a library: something, the image at a multiple of 64, the model record at the end."""
    info = ModelInfo("net.onnx", "relay", CONV_MACS + DENSE_MACS + 1000, CONV_MACS + DENSE_MACS,
                     (OpRow("conv", "nn.conv2d", CONV_MACS, "net", ""), OpRow("s", "nn.softmax", 0, "", "why")))
    path = tmp_path / "net.so"
    path.write_bytes(b"\x7fELF" + b"\0" * 252 + image.data + pack(info))
    return path


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line with which a command refuses."""
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.endswith("\n")
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert COMMANDS[command][1:] in " ".join(capsys.readouterr().out.split())


def test_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "see byoc-accel --help" in fails(capsys)
    assert "invalid choice: 'link'" in fails(capsys, "link")
    assert "--inputs; see byoc-accel run --help" in fails(capsys, "run", "x.so")


def test_report_json(library: Path, image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(library), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "net.onnx"
    assert report["macs"] == CONV_MACS + DENSE_MACS + 1000
    assert report["macs_offloaded"] == CONV_MACS + DENSE_MACS
    (region,) = report["regions"]
    code_bytes = len(image.program.code)
    assert report["program_bytes"] == sum(layer["program_bytes"] for layer in region["layers"]) == code_bytes
    io_bytes = 12 * 10 * 5 + 7
    assert report["bound_cycles"] == max(-(-(CONV_MACS + DENSE_MACS) // 256), -(-code_bytes // 8), -(-io_bytes // 8))
    assert report["cycles"] == sum(layer["cycles"] for layer in region["layers"]) >= report["bound_cycles"]
    assert region["utilisation"] == pytest.approx((CONV_MACS + DENSE_MACS) / 256 / report["cycles"])
    macs = {layer["name"]: layer["macs"] for layer in region["layers"]}
    assert macs["conv"] == CONV_MACS and macs["dense"] == DENSE_MACS
    kinds = report["program_bytes_by_kind"]
    assert sum(kinds.values()) == code_bytes and kinds == region["program_bytes_by_kind"]
    for layer in region["layers"]:
        by_kind = layer["program_bytes_by_kind"]
        assert sum(by_kind.values()) == layer["program_bytes"]
        stream = ("weights", "weight_tables", "weight_headers")
        assert sum(by_kind[kind] for kind in stream) == layer["weight_bytes"]


def test_report_counts_shared_programs_per_call(image: Image, tmp_path: Path,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    once, twice = tmp_path / "once.so", tmp_path / "twice.so"
    once.write_bytes(image.data)
    info = ModelInfo("m", "relay", 2 * (CONV_MACS + DENSE_MACS), 2 * (CONV_MACS + DENSE_MACS), (),
                     (("wia_m_0", image.name), ("wia_m_1", image.name)))
    twice.write_bytes(image.data + pack(info))
    reports = []
    for path in (once, twice):
        assert main(["report", str(path), "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    for key in ("macs", "macs_offloaded", "cycles", "bound_cycles"):
        assert reports[1][key] == 2 * reports[0][key]
    assert reports[1]["program_bytes"] == reports[0]["program_bytes"]


def test_report_text(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(library)]) == 0
    text = capsys.readouterr().out
    for part in ("net/ä on reference", "conv", f"{CONV_MACS:,}", "array stalls", "MACs offloaded",
                 "program bytes: weights "):
        assert part in text
    assert max(map(len, text.splitlines())) <= 200


def test_disasm(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(library), "--region", "net/ä"]) == 0
    text = capsys.readouterr().out
    for word in ("image net/ä", "conv wait=", "halt", "target reference"):
        assert word in text


def test_unknown_region(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no region other; its regions are: net/ä" in fails(capsys, "disasm", str(library), "--region", "other")


def test_files_without_anything_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.so").write_bytes(b"\x7fELF")
    for command in ("report", "disasm"):
        assert "holds no compiled region" in fails(capsys, command, str(tmp_path / "other.so"))
        assert "No such file" in fails(capsys, command, str(tmp_path / "none.so"))
        assert "Is a directory" in fails(capsys, command, str(tmp_path))


def test_damaged_and_foreign_images(image: Image, library: Path, tmp_path: Path,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    """A report of the regions that are left would look like one of the whole model."""
    newer, flipped = bytearray(image.data), bytearray(image.data)
    newer[8] += 1
    flipped[len(flipped) // 2] ^= 1
    other = tmp_path / "other.so"
    for blob, message in ((newer, "found 2, this version knows 1"), (flipped, "the file is damaged"),
                          (image.data[:-64], "only")):
        first = image.data + bytes(-len(image.data) % 64)
        for content, at in ((bytes(blob), 0), (first + bytes(blob), len(first))):
            other.write_bytes(content)
            for command in ("report", "disasm"):
                line = fails(capsys, command, str(other))
                assert f"the image at byte {at} is unusable" in line and message in line
    info = ModelInfo("m", "relay", 1, 1, (), (("wia_m_0", image.name), ("wia_m_1", "gone")))
    other.write_bytes(image.data + pack(info))
    assert "lacks the images of gone; copy or compile it again" in fails(capsys, "report", str(other))


def test_reader_that_leaves_early(library: Path) -> None:
    command = f'"{sys.executable}" -m byoc_accel disasm "{library}" | head -1'
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stdout == "image net/ä\n" and result.stderr == ""
