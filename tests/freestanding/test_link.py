"""The runtime needs nothing: no library, no writable data, no warnings, on 64 and 32 bits and for boards."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime_c import building

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

#: What every freestanding C compiler may call by itself (GCC manual, "Language Standards"); no 64-bit division.
COMPILER_CALLS = {"memcpy", "memmove", "memset", "memcmp"}
PUBLIC = {"wia_init", "wia_load", "wia_port", "wia_run", "wia_start", "wia_poll", "wia_abort", "wia_error_text"}
INTERNAL = {"wia_parse", "wia_verify", "wia_verify_work", "wia_crc32"}
STRICT = ("-std=c99", "-ffreestanding", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef",
          "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Werror")
CROSS = (("gcc", ("-m64",)), ("gcc", ("-m32",)), ("gcc", ("-Os", "-fno-pic")), ("gcc", ("-O3",)), ("clang", ()),
         ("arm-none-eabi-gcc", ("-mcpu=cortex-m4", "-mthumb")), ("aarch64-linux-gnu-gcc", ()),
         ("riscv64-unknown-elf-gcc", ()))


def build(folder: Path, name: str, flags: tuple[str, ...]) -> list[Path]:
    """Object files of the core by one compiler."""
    made = []
    for source in building.CORE:
        path = folder / (Path(source).stem + ".o")
        building.run_cc([*STRICT, "-Os", *flags, "-Iruntime_c/include", "-c", source, "-o", str(path)], name)
        made.append(path)
    return made


def symbols(paths: list[Path]) -> dict[str, set[str]]:
    """Symbol names by nm's type letter."""
    found: dict[str, set[str]] = {}
    for path in paths:
        output = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
        for line in output.splitlines():
            *_, letter, name = line.split()
            found.setdefault(letter, set()).add(name)
    return found


@pytest.mark.case("B36")
@pytest.mark.parametrize(("name", "flags"), CROSS, ids=lambda v: v if isinstance(v, str) else "".join(v) or "plain")
def test_core_compiles_and_needs_nothing(name: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    found = symbols(build(tmp_path, building.compiler(name), flags))
    defined = {name for name in found["T"] if not name.startswith("__x86.get_pc_thunk")}  # of -m32 -fpic
    assert defined == PUBLIC | INTERNAL
    assert found.get("U", set()) - defined - {"_GLOBAL_OFFSET_TABLE_"} <= COMPILER_CALLS
    assert not {letter for letter in found if letter in "BbCDGgSs"}, "writable or common data"


def test_public_header_has_at_most_eight_functions(root: Path) -> None:
    text = (root / "runtime_c/include/wia/wia.h").read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    declared = set(re.findall(r"^[a-z][\w *]*?(wia_\w+)\(", text, re.M))
    assert declared == PUBLIC and len(declared) <= 8
    hal = (root / "runtime_c/include/wia/wia_hal.h").read_text(encoding="utf-8")
    assert len(re.findall(r"\(\*\w+\)\(", hal)) <= 6


def test_headers_stand_alone_in_c_and_cpp(root: Path, tmp_path: Path) -> None:
    headers = sorted(p.relative_to(root / "runtime_c/include").as_posix()
                     for p in (root / "runtime_c/include").rglob("*.h"))
    for index, header in enumerate(headers):
        for language, name, standard in (("c", "gcc", "-std=c99"), ("c++", "g++", "-std=c++11")):
            source = tmp_path / f"h{index}.{'c' if language == 'c' else 'cc'}"
            source.write_text(f'#include "{header}"\n#include "{header}"\nint used;\n')
            building.run_cc(["-x", language, standard, "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror",
                             "-Wno-unused-function", "-Iruntime_c/include", "-fsyntax-only", str(source)], name)


def test_the_example_in_the_header_compiles(root: Path, tmp_path: Path) -> None:
    text = (root / "runtime_c/include/wia/wia.h").read_text(encoding="utf-8")
    lines = re.findall(r"^ \*     (.*)$", text.split("*/", 1)[0], re.M)
    code = [re.sub(r"(?<=[;{])\s{2,}\S.*$|(?<=;)\s{6,}.*$", "", line) for line in lines]
    source = tmp_path / "example.c"
    source.write_text('#include "wia/wia.h"\n' + "\n".join(code) + "\n")
    assert "infer(" in source.read_text()
    building.run_cc(["-std=c99", "-Wall", "-Wextra", "-Werror", "-Iruntime_c/include", "-c", str(source), "-o",
                     str(tmp_path / "example.o")])


def test_the_code_in_the_porting_guide_compiles(root: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```c\n(.*?)```", (root / "docs/porting.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    (tmp_path / "conv.wia").write_bytes(b"image")
    (tmp_path / "flash.c").write_text(blocks[0])
    building.run_cc(["-c", str(tmp_path / "flash.c"), f"-Wa,-I{tmp_path}", "-o", str(tmp_path / "flash.o")])
    board = ("#include <stdint.h>\nvoid SCB_CleanDCache_by_Addr(uint32_t *, int32_t);\n"
             "void SCB_InvalidateDCache_by_Addr(void *, int32_t);\nvoid __WFI(void);\nuint64_t timer_ticks(void);\n")
    (tmp_path / "board.c").write_text(board + blocks[1])
    building.run_cc(["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-int-to-pointer-cast", "-Iruntime_c/include",
                     "-Iruntime_c/hal", "-c", str(tmp_path / "board.c"), "-o", str(tmp_path / "board.o")])


def measured(folder: Path) -> dict[str, int]:
    """Bytes of code, of constant data and of state, and the deepest stack frame sum of the runtime."""
    paths = build(folder, "gcc", ("-m64", "-fno-pic", "-fstack-usage"))
    output = subprocess.run(["size", "-A", *map(str, paths)], check=True, capture_output=True, text=True).stdout
    sizes = {"text_bytes": 0, "rodata_bytes": 0}
    for line in output.splitlines():
        words = line.split()
        if words and words[0].startswith(".text"):
            sizes["text_bytes"] += int(words[1])
        elif words and words[0].startswith(".rodata"):
            sizes["rodata_bytes"] += int(words[1])
    frames: dict[str, int] = {}
    for path in paths:
        for line in path.with_suffix(".su").read_text().splitlines():
            where, size, kind = line.split("\t")
            assert "dynamic" not in kind or "bounded" in kind, line
            frames[where] = int(size)
    sizes["largest_frame_bytes"] = max(frames.values())
    program = folder / "state.c"
    program.write_text('#include <stdio.h>\n#include "wia/wia.h"\n'
                       'int main(void) { printf("%zu", sizeof(wia_t)); return 0; }\n')
    building.run_cc(["-Iruntime_c/include", str(program), "-o", str(folder / "state")])
    sizes["state_bytes"] = int(building.run(folder / "state"))
    return sizes


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
def test_sizes_stay_below_the_committed_ones(tmp_path: Path) -> None:
    limits = tomllib.loads((Path(__file__).parent / "sizes.toml").read_text())["x86_64"]
    sizes = measured(tmp_path)
    assert set(sizes) == set(limits)
    assert all(sizes[key] <= limits[key] for key in limits), f"measured {sizes}, allowed {limits}"


def test_makefile_builds_the_library(root: Path, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    result = subprocess.run(["make", "-C", str(root / "runtime_c"), f"OUT={tmp_path}"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    listing = subprocess.run(["nm", "-g", str(tmp_path / "libwia.a")], check=True, capture_output=True, text=True)
    assert PUBLIC | {"wia_hal_mmio"} <= {line.split()[-1] for line in listing.stdout.splitlines() if " T " in line}
