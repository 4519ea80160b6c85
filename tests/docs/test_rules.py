"""Rules that keep the project readable: file length, who may import what, no path of one machine."""
from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MAX_LINES = 500
SOURCES = (".py", ".c", ".h", ".cc")
FREESTANDING = {"stdint.h", "stddef.h", "stdbool.h"}

# The order of the pipeline: a file imports only from its own or an earlier row.
STAGES = (
    ("errors", "target", "generated", "isa", "lane_reader", "samples", "modelinfo"),
    ("region",),
    ("quantize",),
    ("schedule",),
    ("emit",),
    ("timing",),
    ("container",),
    ("sim", "sim_result", "runtime", "support"),
    ("report",),
    ("compile",),
    ("relay", "relax"),
    ("cli",),
    ("demo", "__main__"),
)
# The same within relay/.
RELAY_PARTS = (
    ("load", "options", "host", "report", "programs", "ir", "codegen"),
    ("patterns", "prepare"),
    ("match",),
    ("importer",),
    ("regions",),
    ("partition", "hook", "generate"),
    ("files",),
)


def ranks(rows: tuple[tuple[str, ...], ...]) -> dict[str, int]:
    return {name: rank for rank, row in enumerate(rows) for name in row}


RANK, RELAY_RANK = ranks(STAGES), ranks(RELAY_PARTS)
# Rounding and lookup tables are defined once; the meaning of a quantized Region needs them as well.
FOR_ALL = ("byoc_accel.quantize.fixedpoint", "byoc_accel.quantize.tables")
C_MODULES = {"_wia_sim": ("sim", "runtime", "lane_reader"), "_wia_runtime": ("runtime",)}


def tracked(root: Path) -> list[str]:
    """Files of the project: committed ones, or ones that are about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [name for name in listing.splitlines() if (root / name).is_file()]


def imports(path: Path, package: str) -> Iterator[str]:
    """Full names that a file of `package` (dotted) imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)


def package_imports(root: Path) -> Iterator[tuple[str, str, str]]:
    """(file, its stage, imported module) for every import in byoc_accel."""
    for path in sorted((root / "byoc_accel").rglob("*.py")):
        relative = path.relative_to(root)
        stage = relative.parts[1].removesuffix(".py")
        for name in imports(path, ".".join(relative.parts[:-1])):
            yield str(relative), stage, name


def test_files_are_short(root: Path) -> None:
    long = {}
    for name in tracked(root):
        if name.endswith(SOURCES) and "/gen/" not in name:
            count = len((root / name).read_text(encoding="utf-8").splitlines())
            if count > MAX_LINES:
                long[name] = count
    assert not long, f"files over {MAX_LINES} lines: {long}"


def test_only_frontends_import_tvm(root: Path) -> None:
    wrong = {file for file, stage, name in package_imports(root)
             if name.split(".")[0] in ("tvm", "tvm_ffi") and stage not in ("relay", "relax")}
    assert not wrong


def test_few_modules_import_the_c_parts(root: Path) -> None:
    wrong = [(file, name) for file, stage, name in package_imports(root)
             if any(part in C_MODULES and stage not in C_MODULES[part] for part in name.split("."))
             or name.split(".")[0] == "cffi"]
    assert not wrong


def test_no_stage_imports_a_later_one(root: Path) -> None:
    wrong, unknown = set(), set()
    for file, stage, name in package_imports(root):
        parts = name.split(".")
        if parts[0] != "byoc_accel" or stage == "__init__" or name.startswith(FOR_ALL):
            continue
        other = parts[1] if len(parts) > 1 else ""
        if stage not in RANK:
            unknown.add(stage)
        elif other in RANK and RANK[other] > RANK[stage]:
            wrong.add((file, other))
    assert not unknown, "give these a place in STAGES"
    assert not wrong


def test_no_part_of_relay_imports_a_later_one(root: Path) -> None:
    here, wrong, parts = "byoc_accel.relay.", set(), set()
    for file, stage, name in package_imports(root):
        part = Path(file).parts[2].removesuffix(".py") if stage == "relay" else "__init__"
        if part == "__init__":
            continue
        parts.add(part)
        other = name.removeprefix(here).split(".")[0] if name.startswith(here) else ""
        if RELAY_RANK.get(other, 0) > RELAY_RANK[part]:
            wrong.add((file, other))
    assert parts == set(RELAY_RANK), "give each a place in RELAY_PARTS"
    assert not wrong


def test_the_runtime_is_freestanding(root: Path) -> None:
    files = sorted((root / "runtime_c" / "src").glob("*.[ch]"))
    assert files
    for file in files:
        system = set(re.findall(r"^\s*#\s*include\s*<([^>]+)>", file.read_text(encoding="utf-8"), re.M))
        assert system <= FREESTANDING, f"{file.name} includes {sorted(system - FREESTANDING)}"


def test_no_path_of_one_machine(root: Path) -> None:
    pattern = re.compile(r"(?:^|[\s\"'`=(:])/(?:work|root|home)/", re.M)
    found = []
    for name in tracked(root):
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {match.group()!r}" for match in pattern.finditer(text)]
    assert not found
