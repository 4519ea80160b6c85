"""Compile the C tests with the sources of runtime, HALs and simulator."""
from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDES = ("runtime_c/include", "runtime_c/hal", "hw_sim/include", "tests/runtime_c")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
#: Every out-of-bounds read and every undefined operation ends the program.
SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CORE = tuple(sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("runtime_c/src/*.c")))
HALS = ("runtime_c/hal/hal_record.c", "runtime_c/hal/hal_sim.c")
SIMULATOR = tuple(sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("hw_sim/src/*.c") if p.name != "main.c"))
TVM = tuple(sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("runtime_c/tvm/*.c")))


def compiler(name: str = "gcc") -> str:
    """Path of a compiler; skips the test where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run_cc(arguments: Sequence[str], name: str = "gcc") -> None:
    """Run a compiler in the root of the checkout; its messages become the failure."""
    result = subprocess.run([compiler(name), *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def objects(folder: Path, sources: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Object files of `sources` in `folder`, each made once."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for source in sources:
        path = folder / (source.replace("/", "_") + ".o")
        if not path.is_file():
            run_cc([*flags, *[f"-I{i}" for i in INCLUDES], "-c", source, "-o", str(path)])
        made.append(str(path))
    return made


def program(folder: Path, source: str, *, with_tvm: bool = False) -> Path:
    """Executable of one test source under ASan and UBSan, linked with everything."""
    parts = [*CORE, *HALS, *SIMULATOR, *(TVM if with_tvm else ())]
    shared = objects(folder / "objects", parts, ["-std=gnu11", *SANITIZERS])
    own = objects(folder, [source], ["-std=gnu11", *SANITIZERS, *WARNINGS])
    path = folder / Path(source).stem
    run_cc([*SANITIZERS, *own, *shared, "-o", str(path), "-lpthread", "-lm"])
    return path


def run(path: Path, *arguments: str | Path, environment: dict[str, str] | None = None) -> str:
    """Output of a program that must exit with 0."""
    result = subprocess.run([str(path), *map(str, arguments)], capture_output=True, text=True, errors="replace",
                            env=environment)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout
