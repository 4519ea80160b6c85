"""Importing the package is cheap, and its public surface is small."""
from __future__ import annotations

import subprocess
import sys
import time

import byoc_accel

LIMIT_SECONDS = 0.3
HEAVY = ("numpy", "tvm", "rich", "cffi", "onnx")


def best_time(code: str) -> float:
    """Shortest of five runs of `code` in a new process: the others measure a busy machine."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def test_import_is_fast() -> None:
    assert best_time("import byoc_accel, byoc_accel.cli") < LIMIT_SECONDS


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, byoc_accel, byoc_accel.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[]"


def test_public_names_exist_and_are_few() -> None:
    assert len(byoc_accel.__all__) <= 10
    for name in byoc_accel.__all__:
        assert getattr(byoc_accel, name) is not None
        assert name in dir(byoc_accel)
