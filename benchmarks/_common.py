"""What the benchmarks share: where the models are, our stages as calls, times and memory, tables, the JSON file."""
from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relay

from byoc_accel.compile import compile_region
from byoc_accel.container.image import Image
from byoc_accel.emit.program import Program
from byoc_accel.relay import partition
from byoc_accel.relay.files.model_file import ImportedModel
from byoc_accel.relay.importer import Imported, import_function
from byoc_accel.relay.report import PartitionReport
from byoc_accel.target import Target

MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "str_ww_ref_model",
          "pretrainedResnet_large_int8")
HOST = "llvm -mtriple=x86_64-linux-gnu"
Result = TypeVar("Result")


def shared_folder() -> Path:
    """$BYOC_ACCEL_SHARED, or ../shared beside the checkout; ends the program when it holds no models."""
    place = Path(os.environ.get("BYOC_ACCEL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (place / "models" / "mlperf_tiny").is_dir():
        raise SystemExit(f"no models at {place}; set BYOC_ACCEL_SHARED to the folder with models/")
    return place.resolve()


def model_path(name: str) -> Path:
    return shared_folder() / "models" / "mlperf_tiny" / f"{name}.tflite"


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the option of every benchmark: json, where to write. Silences TVM's advice."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    logging.disable(logging.WARNING)  # TVM's advice to tune the host's operators
    warnings.simplefilter("ignore")
    return parser


def parse(doc: str | None) -> argparse.Namespace:
    """The options of benchmarks of the MLPerf Tiny models: json, and models, which to run."""
    parser = options(doc)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME",
                        help="only these; one or more of " + ", ".join(MODELS))
    return parser.parse_args()


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def progress(text: str) -> None:
    """Say on a terminal what is being measured; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="" if text else "\r", file=sys.stderr, flush=True)


@dataclass
class Meter:
    """Seconds of named steps, wall and processor (children such as the C compiler included), and peak memory."""

    wall_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)

    def run(self, name: str, action: Callable[[], Result]) -> Result:
        progress(name)
        wall, cpu = time.perf_counter(), cpu_seconds()
        result = action()
        self.wall_s[name] = self.wall_s.get(name, 0.0) + time.perf_counter() - wall
        self.cpu_s[name] = self.cpu_s.get(name, 0.0) + cpu_seconds() - cpu
        progress("")
        return result


def cpu_seconds() -> float:
    """User and system time of this process and of its ended children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_child(script: str, *arguments: str) -> dict[str, Any]:
    """What `script --child ARGUMENTS` prints as JSON, in a process of its own: peak memory is per process."""
    run = subprocess.run([sys.executable, script, "--child", *arguments], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise SystemExit(f"{Path(script).name} --child {' '.join(arguments)} failed with code {run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


def host_build(module: tvm.IRModule, params: dict[str, Any] | None = None) -> Any:
    """TVM's own build for this machine; of a partitioned module, with our code generator."""
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(module, target=HOST, params=params)


def table(rows: Sequence[Sequence[object]], titles: Sequence[str]) -> None:
    """Print rows under their titles, numbers to the right."""
    cells = [list(titles), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    for row in cells:
        print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())
    sys.stdout.flush()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def seconds(action: Callable[[], Result]) -> tuple[float, Result]:
    """Wall time of one call, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def best_seconds(action: Callable[[], object], budget_s: float = 0.5, least: int = 3) -> float:
    """Shortest processor time of at least `least` calls, and of as many as the budget allows: on a machine that others
    use as well, wall times of more than a few milliseconds are theirs."""
    best, spent, count = float("inf"), 0.0, 0
    while count < least or spent < budget_s:
        start = time.process_time()
        action()
        taken = time.process_time() - start
        best, spent, count = min(best, taken), spent + max(taken, 1e-6), count + 1
    return best


def regions_of(module: tvm.IRModule) -> list[Imported]:
    """What the code generator would be given, in the order of the symbols."""
    functions = {v.name_hint: f for v, f in module.functions.items() if f.attrs and "Compiler" in f.attrs.keys()}
    return [import_function(functions[name]) for name in sorted(functions)]


def compile_all(regions: Sequence[Imported]) -> list[Image]:
    return [compile_region(r.region, r.target, ranges=r.ranges, scale=r.scale) for r in regions]


def images_for(model: ImportedModel, target: Target) -> tuple[list[Image], PartitionReport]:
    """Images of `model`, planned for `target`, and what stays on the host."""
    module, report = partition(model.module, model.params, target=target, name=model.name)
    return compile_all(regions_of(module)), report


def random_inputs(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {b.name: rng.integers(-128, 128, b.bytes).astype(np.int8) for b in program.buffers if b.kind == "input"}
