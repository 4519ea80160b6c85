"""The built wheel works outside of the checkout: it holds its C parts and compiles and runs a model."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.demo.data import load_digits

FILES = (
    "byoc_accel/_lib/libwia_host.a",
    "byoc_accel/_csrc/runtime_c/include/wia/wia.h",
    "byoc_accel/_csrc/runtime_c/include/wia/gen/wia_isa.h",
    "byoc_accel/_csrc/hw_sim/include/wia_sim.h",
    "byoc_accel/relay/codegen/wia_module.cc",
    "byoc_accel/targets/reference.toml",
    "byoc_accel/targets/tiny.toml",
    "byoc_accel/demo/mnist_cnn.onnx",
)
PIP = (sys.executable, "-m", "pip")


def run(*command: str | Path, cwd: Path) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True,
                            stdin=subprocess.DEVNULL)
    assert result.returncode == 0, f"{command}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def copy_project(root: Path, goal: Path) -> None:
    """The tracked files only, so that nothing left over from another build helps."""
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root,
                             capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    for name in listing.stdout.splitlines():
        if (root / name).is_file() and not name.startswith("tests/"):
            (goal / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, goal / name)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    copy_project(root, folder / "source")
    run(*PIP, "wheel", "-q", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, folder / "source",
        cwd=folder)
    (path,) = folder.glob("byoc_accel-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel; dependencies come from this one's site-packages.

    A path in a .pth file does not run the .pth files in that place, so the checkout stays invisible.
    """
    folder = tmp_path_factory.mktemp("installed with space")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(*PIP, "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    return folder


@pytest.mark.slow
def test_wheel_holds_what_it_needs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in FILES if name not in names]
    assert any("_wia_sim" in name and name.endswith(".so") for name in names)
    assert any("_wia_runtime" in name and name.endswith(".so") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"byoc_accel"}


@pytest.mark.slow
@pytest.mark.relay
def test_installed_wheel_compiles_and_runs(environment: Path) -> None:
    bin_folder, work = environment / "venv" / "bin", environment / "elsewhere"
    work.mkdir()
    code = "import byoc_accel; print(byoc_accel.__file__)"
    place = run(bin_folder / "python", "-c", code, cwd=work).strip()
    assert Path(place).is_relative_to(environment)
    training, test = load_digits()
    np.savez(work / "calibration.npz", image=training.x[:32, None])
    np.savez(work / "in.npz", image=test.x[:20, None])
    model = Path(place).parent / "demo" / "mnist_cnn.onnx"
    program = bin_folder / "byoc-accel"
    run(program, "compile", model, "--calibration", "calibration.npz", "-o", "digits.so", cwd=work)
    run(program, "run", "digits.so", "--inputs", "in.npz", "--outputs", "out.npz", cwd=work)
    scores = np.load(work / "out.npz")["output_0"]
    assert scores.shape == (20, 1, 10)
    assert (scores[:, 0].argmax(axis=1) == test.label[:20]).sum() >= 18
