"""What ``make demo`` does: compile the network through Relay, run it on the simulator, say what came out."""
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..cli import Parser
from ..cli.guard import guarded, stop_on_signals
from ..cli.libraries import read_library
from ..cli.progress import progress, steps
from ..cli.table import percent, print_table
from ..relay.files.build import build_model
from ..relay.files.execute import Executor
from ..report import RegionReport, report_library, totals
from .data import load_digits
from .network import MODEL_FILE, load_parameters, predict

CALIBRATION_IMAGES = 64


@dataclass(frozen=True)
class Result:
    """Shares are 0..1, `agreement` is how often float and int8 name the same digit, cycles are per image.

    `simulated_mmac_per_second` and the two times are of this machine; everything else is the same everywhere.
    """

    images: int
    float_accuracy: float
    int8_accuracy: float
    agreement: float
    macs: int
    macs_offloaded: int
    cycles: int
    bound_cycles: int
    utilisation: float
    program_bytes: int
    library_bytes: int
    compile_seconds: float
    run_seconds: float
    simulated_mmac_per_second: float


def run(images: int, target: str, library: Path) -> tuple[Result, tuple[RegionReport, ...]]:
    """Compile into `library` and run the first `images` test images on it."""
    training, test = load_digits()
    x, label = test.x[:images], test.label[:images]
    with steps() as show:
        start = time.perf_counter()
        report = build_model(MODEL_FILE, target=target, calibration={"image": training.x[:CALIBRATION_IMAGES, None]},
                             out=library, progress=show)
        compile_seconds = time.perf_counter() - start
    executor = Executor(library)
    start = time.perf_counter()
    with progress("simulate", len(x)) as advance:
        scores = np.concatenate([advance(executor.run({"image": image[None]})[0]) for image in x])
    run_seconds = time.perf_counter() - start
    expected, found = predict(load_parameters(), x).argmax(axis=1), scores.argmax(axis=1)
    compiled = read_library(library)
    regions = report_library(compiled.images, compiled.info)
    total = totals(regions, report.macs)
    result = Result(
        images=len(x), float_accuracy=_share(expected == label), int8_accuracy=_share(found == label),
        agreement=_share(expected == found), macs=total["macs"], macs_offloaded=total["macs_offloaded"],
        cycles=total["cycles"], bound_cycles=total["bound_cycles"], utilisation=total["utilisation"],
        program_bytes=total["program_bytes"], library_bytes=library.stat().st_size, compile_seconds=compile_seconds,
        run_seconds=run_seconds, simulated_mmac_per_second=total["macs_offloaded"] * len(x) / run_seconds / 1e6)
    return result, regions


def print_result(result: Result) -> None:
    """The table at the end of ``make demo``."""
    rows = [
        ("test images", f"{result.images:,}"),
        ("float accuracy", percent(result.float_accuracy, 1)),
        ("int8 accuracy on the accelerator", percent(result.int8_accuracy, 1)),
        ("float and int8 agree on", percent(result.agreement, 1)),
        ("multiply-accumulates per image", f"{result.macs:,}"),
        ("offloaded", percent(result.macs_offloaded, result.macs)),
        ("cycles per image", f"{result.cycles:,}"),
        ("bound", f"{result.bound_cycles:,} ({result.cycles / result.bound_cycles:.2f} x)"),
        ("array utilisation", percent(result.utilisation, 1)),
        ("program", f"{result.program_bytes:,} bytes"),
        ("exported library", f"{result.library_bytes:,} bytes"),
        ("compiled in", f"{result.compile_seconds:.1f} s"),
        ("simulated at", f"{result.simulated_mmac_per_second:,.0f} MMAC/s"),
    ]
    print_table("A trained CNN on the simulated accelerator", ("", ">"), rows, header=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's, whose signals then end it) and return its exit code."""
    name = "python -m byoc_accel.demo"
    if argv is None:
        stop_on_signals(name)
    return guarded(name, lambda: _demo(name, argv))


def _demo(name: str, argv: Sequence[str] | None) -> int:
    parser = Parser(prog=name, description=__doc__)
    parser.add_argument("--images", type=_count, default=1000, help="test images to run (default: all 1000)")
    parser.add_argument("--target", default="reference", help="a shipped target or a .toml file")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where demo.so and demo.json go")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    result, regions = run(args.images, args.target, args.folder / "demo.so")
    report = {**asdict(result), "regions": [asdict(region) for region in regions]}
    (args.folder / "demo.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print_result(result)
    print(f"More: byoc-accel report {args.folder / 'demo.so'}; all numbers: {args.folder / 'demo.json'}")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of 1 to 1000")
    return int(text)


def _share(hits: np.ndarray) -> float:
    return float(hits.mean())
