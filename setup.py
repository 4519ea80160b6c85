"""Build of the C parts: two cffi modules, and the static archive that exported libraries link.

Everything else about the package is in pyproject.toml. Run from the root of the project.
"""
from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError

CFFI_MODULES = ("hw_sim/build.py:ffibuilder", "runtime_c/build.py:ffibuilder")
ARCHIVE_SOURCES = ("runtime_c/src/*.c", "runtime_c/hal/hal_sim.c", "runtime_c/tvm/*.c", "hw_sim/src/*.c")
# The stand-alone simulator program, and what only makes counting faster, without which WIA_SIM_SMALL does.
NOT_IN_ARCHIVE = ("hw_sim/src/main.c", "hw_sim/src/coast.c", "hw_sim/src/laps.c", "hw_sim/src/lanes_words_avx2.c")
INCLUDE_DIRS = ("runtime_c/include", "runtime_c/src", "hw_sim/include", "hw_sim/src")
# -g0: debug information would carry the paths of the build machine into every exported library. No unwind tables
# (8 KiB of each): no exception passes through C. -Os: a library shall have at most 100 KB beside its programs.
ARCHIVE_FLAGS = ("-std=gnu11", "-DWIA_SIM_SMALL", "-Os", "-g0", "-fPIC", "-fvisibility=hidden", "-ffunction-sections",
                 "-fno-ident", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
#: Optimised as one program: functions and tables of headers, of which every file has its own, are stored once (12 KB).
#: GCC 9 or newer; others compile file by file.
WHOLE = ("-flto", "-flto-partition=one", "-fmerge-all-constants")
#: What regions and users of a library call; every other name would stand in each library's symbol table.
ENTRY_POINTS = ("wia_tvm_call", "wia_tvm_stats", "wia_tvm_reset_stats")
C_FILES = ("runtime_c/**/*.[ch]", "hw_sim/**/*.[ch]", "runtime_c/README.md", "hw_sim/README.md")


def files(*patterns: str) -> list[str]:
    """Paths that match, in a fixed order, relative to the root."""
    return [p.as_posix() for pattern in patterns for p in sorted(Path().glob(pattern))]


class BuildExt(build_ext):
    """build_ext that also makes ``byoc_accel/_lib/libwia_host.a``: runtime, simulator and their TVM glue."""

    def run(self) -> None:
        super().run()
        in_place = self.inplace or self.editable_mode
        package = Path("byoc_accel" if in_place else Path(self.build_lib) / "byoc_accel")
        self.build_archive(package / "_lib")

    def build_archive(self, folder: Path) -> None:
        temp = Path(self.build_temp) / "archive"
        whole = str(temp / "wia_host.o")
        try:
            self.build_whole(temp, whole, (*ARCHIVE_FLAGS, *WHOLE), ("-flinker-output=nolto-rel",))
        except BaseError:
            self.build_whole(temp, whole, ARCHIVE_FLAGS, ())
        self.spawn(["objcopy", *(f"--keep-global-symbol={name}" for name in ENTRY_POINTS), whole])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "libwia_host.a").unlink(missing_ok=True)
        self.compiler.create_static_lib([whole], "wia_host", output_dir=str(folder))

    def build_whole(self, temp: Path, whole: str, flags: Sequence[str], link_flags: Sequence[str]) -> None:
        """All of the archive as one object file `whole`, without what no entry point reaches."""
        sources = [s for s in files(*ARCHIVE_SOURCES) if s not in NOT_IN_ARCHIVE]
        objects = self.compiler.compile(sources, output_dir=str(temp), include_dirs=list(INCLUDE_DIRS),
                                        extra_postargs=list(flags))
        roots = [f"-Wl,--undefined={name}" for name in ENTRY_POINTS]
        self.spawn([self.compiler.compiler_so[0], *flags, *link_flags, "-r", "-nostdlib", "-Wl,--gc-sections", *roots,
                    "-o", whole, *objects])


class BuildPy(build_py):
    """build_py that puts the C sources into the wheel as ``byoc_accel/_csrc``, for users with a board."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source in files(*C_FILES):
            copy = Path(self.build_lib) / "byoc_accel" / "_csrc" / source
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


setup(cffi_modules=list(CFFI_MODULES), cmdclass={"build_ext": BuildExt, "build_py": BuildPy})
