"""byoc-accel run: a library, inputs from an .npz file, outputs into another."""
from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from ..samples import load_npz, split
from .files import atomic, check_writable
from .progress import progress

EPILOG = """\
Arrays of IN.npz are named like the model's inputs (any name will do for a single input). Each has
the input's shape, or one more leading axis for N samples; the outputs come back the same way as
output_0, output_1, ...

  byoc-accel run model.so --inputs in.npz --outputs out.npz --stats stats.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("library", type=Path, metavar="OUT.so", help="library made by byoc-accel compile")
    parser.add_argument("--inputs", type=Path, metavar="IN.npz", required=True, help="arrays to run on")
    parser.add_argument("--outputs", type=Path, metavar="OUT.npz", help="where the outputs go")
    parser.add_argument("--stats", type=Path, metavar="STATS.json", help="where the counters go")


def run(args: argparse.Namespace) -> int:
    from ..relay.files.execute import Executor

    check_outputs(args)
    arrays = load_npz(args.inputs)
    executor = Executor(args.library)
    samples = split(arrays, executor.inputs, str(args.inputs))
    with progress(f"run {args.library.name}", len(samples.inputs)) as advance:
        results = [advance(executor.run(sample)) for sample in samples.inputs]
    outputs = {f"output_{i}": np.stack(column) if samples.stacked else column[0]
               for i, column in enumerate(zip(*results))}
    stats = {"samples": len(samples.inputs), **executor.stats()}
    if args.outputs:
        with atomic(args.outputs) as path:
            np.savez(path, **outputs)
    if args.stats:
        with atomic(args.stats) as path:
            path.write_text(json.dumps(stats, indent=2) + "\n", encoding="utf-8")
    for line in summary(outputs, stats):
        print(line)
    return 0


def check_outputs(args: argparse.Namespace) -> None:
    """Raise ModelError for names that could not be written after the run."""
    if args.outputs and args.outputs.suffix != ".npz":
        raise ModelError(f"{args.outputs}: outputs are written as .npz; name the file so")
    if args.outputs and args.outputs == args.stats:
        raise ModelError(f"{args.stats}: is the file of the outputs; name another one for the counters")
    for path in (args.outputs, args.stats):
        if path:
            check_writable(path)


def summary(outputs: dict[str, np.ndarray], stats: dict[str, Any]) -> Iterator[str]:
    """One line for the outputs, one for the cycles."""
    shapes = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in outputs.items())
    yield f"{stats['samples']} sample{'s' * (stats['samples'] != 1)} -> {shapes}"
    if "cycles" in stats:
        yield f"{stats['cycles'] / stats['samples']:,.0f} accelerator cycles per sample"
