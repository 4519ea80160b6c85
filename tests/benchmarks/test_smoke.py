"""Every benchmark runs on a small case and writes what it promises; no figure is judged."""
from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = [
    pytest.mark.relay,
    pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None,
                       reason="the bench extra is not installed: make bench")]
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")


def run(tmp_path: Path, script: str, *arguments: str) -> dict[str, Any]:
    """What the script writes as JSON."""
    path = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), "--json", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) > 1  # a table
    return json.loads(path.read_text(encoding="utf-8"))


def test_imagenet(tmp_path: Path) -> None:
    (row,) = run(tmp_path, "imagenet", "--networks", "mobilenet_v2", "--size", "32")["rows"]
    assert row["equal"] and row["different_layers"] == [] and row["regions"] == 1
    assert row["macs_offloaded"] == row["macs"] and row["bound_cycles"] <= row["cycles"]
    kinds = row["program_bytes_by_kind"]
    assert sum(kinds.values()) == row["program_bytes"] < row["library_bytes"]
    assert kinds["weights"] <= 1.05 * row["weight_bytes"]
    assert set(row["seconds"]) == {"partition", "build", "export"}
    assert {"calibrate", "schedule", "emit", "verify_program", "pack"} <= set(row["stage_seconds"])
    for key in ("utilisation", "compile_s", "compile_cpu_s", "peak_bytes", "simulated_s", "gmac_per_s"):
        assert row[key] > 0


def test_compile_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the demo's model, as where no real models are."""
    monkeypatch.setenv("BYOC_ACCEL_SHARED", str(tmp_path))
    found = run(tmp_path, "compile_time", "--no-resnet", "--widths", "8", "--export-bytes", "1000000")
    (row,) = found["rows"]
    assert row["model"] == "mnist_cnn" and row["ours_offloaded"] > 0.99
    assert 0 < row["library_overhead_bytes"] == row["ours_library_bytes"] - row["ours_program_bytes"]
    for key in ("cpu_ratio", "wall_ratio", "ours_peak_bytes", "tvm_peak_bytes", "ours_cpu_s", "tvm_cpu_s"):
        assert row[key] > 0
    assert row["ours_stages_cpu_s"]["emit"] < row["ours_steps_cpu_s"]["partition"]
    assert found["growth"][0]["width"] == 8 and found["growth"][0]["cpu_s"] > 0
    assert found["import"]["cpu_s"] > 0 and found["export"]["library_bytes"] > 1_000_000


def test_sim_speed(tmp_path: Path) -> None:
    rows = run(tmp_path, "sim_speed", "--networks", "tiny")["rows"]
    assert all(row["equal_to_tvm"] for row in rows)
    runs = {(row["kernel"], row["mode"]) for row in rows}
    assert {("portable", "full"), ("portable", "counts"), ("plain C", "sums"), ("TVM llvm", "int8")} <= runs
    assert all(row["gmac_per_s"] > 0 and row["to_tvm"] > 0 for row in rows)
    for row in rows:
        assert (row["prepare_s"] is None) == (row["kernel"] in ("plain C", "TVM llvm"))
        assert (row["counts_speedup_prepared"] is None) == (row["mode"] != "full")


def test_scaling(tmp_path: Path) -> None:
    found = run(tmp_path, "scaling", "--points", "2")
    assert [(row["axis"], row["value"]) for row in found["rows"]] == [
        ("width", 16), ("width", 32), ("depth", 2), ("depth", 4), ("resolution", 8), ("resolution", 16)]
    for row in found["rows"]:
        assert row["bound_cycles"] <= row["cycles"] and row["program_bytes"] > 0
        assert row["compile_cpu_s"] > 0 and row["simulated_s"] > 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
