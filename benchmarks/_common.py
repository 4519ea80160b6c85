"""What the benchmarks share: where the models are, our stages as calls, wall times, and the JSON file."""
from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tvm

from byoc_accel.compile import compile_region
from byoc_accel.container.image import Image
from byoc_accel.emit.program import Program
from byoc_accel.relay import partition
from byoc_accel.relay.importer import Imported, import_function
from byoc_accel.relay.model_file import ImportedModel
from byoc_accel.relay.report import PartitionReport
from byoc_accel.target import Target

MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "str_ww_ref_model",
          "pretrainedResnet_large_int8")
Result = TypeVar("Result")


def shared_folder() -> Path:
    """$BYOC_ACCEL_SHARED, or ../shared beside the checkout; ends the program when it holds no models."""
    place = Path(os.environ.get("BYOC_ACCEL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (place / "models" / "mlperf_tiny").is_dir():
        raise SystemExit(f"no models at {place}; set BYOC_ACCEL_SHARED to the folder with models/")
    return place.resolve()


def model_path(name: str) -> Path:
    return shared_folder() / "models" / "mlperf_tiny" / f"{name}.tflite"


def parse(doc: str | None) -> argparse.Namespace:
    """The options of every benchmark: json, where to write, and models, which to run."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME",
                        help="only these; one or more of " + ", ".join(MODELS))
    logging.disable(logging.WARNING)  # TVM's advice to tune the host's operators
    warnings.simplefilter("ignore")
    return parser.parse_args()


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def seconds(action: Callable[[], Result]) -> tuple[float, Result]:
    """Wall time of one call, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def best_seconds(action: Callable[[], object], budget_s: float = 0.5, least: int = 3) -> float:
    """Shortest of at least `least` calls, and of as many as the budget allows."""
    times: list[float] = []
    while len(times) < least or sum(times) < budget_s:
        times.append(seconds(action)[0])
    return min(times)


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
