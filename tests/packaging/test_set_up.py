"""The finder of Python 3.10 takes the first one that works, and says what to do when there is none."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 10), reason="looks for Python 3.10, runs in it")


def find(root: Path, folder: Path, *tools: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    """Run .ci/venv where PATH has only a few system tools and the given scripts (name, shell text)."""
    tool_folder = folder / "bin"
    tool_folder.mkdir()
    for name in ("env", "sh", "uname", "dirname", "mkdir", "rm"):
        os.symlink(f"/usr/bin/{name}", tool_folder / name)
    for name, text in tools:
        (tool_folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (tool_folder / name).chmod(0o755)
    env = {"PATH": str(tool_folder), "HOME": str(folder), "PYENV_ROOT": str(folder / "none")}
    return subprocess.run(["/bin/sh", root / ".ci" / "venv", folder / "venv"], cwd=folder, env=env, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL)


BROKEN_SHIM = "echo 'version 3.10 is not installed' >&2; exit 127"
REAL = f'exec "{sys.executable}" "$@"'


def test_broken_shim_is_passed_over(root: Path, tmp_path: Path) -> None:
    result = find(root, tmp_path, ("python3.10", BROKEN_SHIM), ("python3", REAL))
    assert result.returncode == 0, result.stderr
    assert "from python3\n" in result.stdout
    again = subprocess.run(["/bin/sh", root / ".ci" / "venv", tmp_path / "venv"], cwd=tmp_path, text=True,
                           capture_output=True)
    assert again.returncode == 0 and again.stdout == ""


def test_uv_comes_last(root: Path, tmp_path: Path) -> None:
    record = f'echo "$@" > "{tmp_path}/arguments"'
    result = find(root, tmp_path, ("python3.10", BROKEN_SHIM), ("uv", record))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "arguments").read_text().split() == ["venv", "--clear", "--seed", "--python", "3.10",
                                                          str(tmp_path / "venv")]


def test_no_python_at_all(root: Path, tmp_path: Path) -> None:
    result = find(root, tmp_path, ("python3.10", BROKEN_SHIM))
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "set-up: needs Python 3.10, or uv, or any Python 3 with venv and pip; install one of them")
