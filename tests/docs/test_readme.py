"""The README's examples run as they stand there."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def blocks(root: Path, language: str) -> list[str]:
    text = (root / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def run(command: list[str], folder: Path) -> str:
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env,
                            stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """An empty folder that holds the demo model, as the examples expect."""
    shutil.copy(root / "byoc_accel" / "demo" / "mnist_cnn.onnx", tmp_path)
    return tmp_path


@pytest.mark.relay
def test_python_example(root: Path, folder: Path) -> None:
    (example,) = blocks(root, "python")
    assert len(example.splitlines()) <= 30
    (folder / "example.py").write_text(example, encoding="utf-8")
    assert run([sys.executable, "example.py"], folder).strip()


@pytest.mark.relay
def test_shell_example(root: Path, folder: Path) -> None:
    (example,) = blocks(root, "bash")
    output = run(["bash", "-euo", "pipefail", "-c", example], folder)
    assert "mnist_cnn" in output


def test_folder_map_is_complete(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    folders = ["runtime_c", "hw_sim", "tests", "benchmarks", "docs",
               *(f.name for f in (root / "byoc_accel").iterdir() if (f / "__init__.py").is_file())]
    assert not [name for name in folders if f"{name}/" not in text]
