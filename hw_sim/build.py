"""Build of the cffi module ``byoc_accel._wia_sim``, the simulator as Python sees it.

setup.py names `ffibuilder`; ``python hw_sim/build.py`` builds in place, into byoc_accel/. Paths are relative to
the repository's root, as setuptools wants them.
"""
from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent
HEADERS = (ROOT / "hw_sim/include/wia_sim.h", ROOT / "hw_sim/src/lanes.h")
STANDALONE = "main.c"  # the command-line runner is a program of its own
# -O3 makes stepping a fifth faster; with its own cost model it would widen the portable kernel's loops to no good.
COMPILE_ARGS = ["-std=c11", "-O3", "-fvect-cost-model=very-cheap", "-g0"]
INCLUDE_DIRS = ["hw_sim/include", "hw_sim/src", "runtime_c/include"]


def declarations() -> str:
    """The parts of the headers between their ``cdef begin`` and ``cdef end`` lines."""
    return "\n".join(map(_declarations, HEADERS))


def _declarations(header: Path) -> str:
    lines = header.read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("/* cdef begin"))
    end = next(i for i, line in enumerate(lines) if line.startswith("/* cdef end"))
    return "\n".join(lines[begin + 1:end])


def sources() -> list[str]:
    """C files of the simulator, relative to the root, in a fixed order."""
    return [f"hw_sim/src/{p.name}" for p in sorted(ROOT.glob("hw_sim/src/*.c")) if p.name != STANDALONE]


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source("byoc_accel._wia_sim", '#include "wia_sim.h"\n#include "lanes.h"\n', sources=sources(),
                      include_dirs=INCLUDE_DIRS, extra_compile_args=COMPILE_ARGS)

if __name__ == "__main__":
    os.chdir(ROOT)
    ffibuilder.compile(verbose=False)
    for source in sources():
        Path(source).with_suffix(".o").unlink(missing_ok=True)
