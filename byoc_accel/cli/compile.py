"""byoc-accel compile: a model file into a library that TVM's runtime loads."""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError
from ..quantize.methods import DEFAULT_RANGES, METHODS
from .files import atomic
from .models import add_model_arguments, check_model, shapes, summary
from .progress import steps

if TYPE_CHECKING:
    from ..relay.report import PartitionReport

EPILOG = """\
Calibration inputs give float models their int8 ranges; they are arrays named like the model's inputs, as for
byoc-accel run. Without them the ranges are guessed, with a warning. Quantized models need none.

  byoc-accel compile model.onnx --calibration samples.npz -o model.so
  byoc-accel compile model_int8.tflite -o model.so
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_model_arguments(parser)
    parser.add_argument("--calibration", type=Path, metavar="FILE.npz", help="typical inputs, for float models")
    parser.add_argument("--scale", choices=("multiplier", "fixed_point"), default="multiplier",
                        help="31-bit multipliers, or powers of two only (default: multiplier)")
    parser.add_argument("--ranges", metavar="METHOD", default=DEFAULT_RANGES,
                        help=f"activation ranges of float models: {METHODS} (default: {DEFAULT_RANGES})")
    parser.add_argument("--no-bias-correction", dest="correct_bias", action="store_false",
                        help="leave the biases of float models as they are, though quantization shifts means")
    parser.add_argument("--equalize", action="store_true",
                        help="rescale the channels of float models, where their ranges differ much")
    parser.add_argument("--rounding", choices=("tvm", "tflite"), default="tvm",
                        help="bytes of quantized models equal TVM's lowering or TFLite's reference kernels "
                             "(default: tvm)")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.so", required=True, help="the library to write")


def run(args: argparse.Namespace) -> int:
    from ..samples import load_npz
    from ..target import load_target

    check_model(args.model)
    if args.output.suffix != ".so":
        raise ModelError(f"{args.output}: a library's name ends with .so; name it so")
    target = load_target(args.target)
    calibration = load_npz(args.calibration) if args.calibration else None
    with atomic(args.output) as path, steps() as show:
        show("loading TVM")
        from ..relay.files.build import build_model

        report = build_model(args.model, target=target, calibration=calibration, scale=args.scale,
                             rounding=args.rounding, ranges=args.ranges, correct_bias=args.correct_bias,
                             equalize=args.equalize, shapes=shapes(args), out=path, progress=show)
    print_library(args.output, report)
    return 0


def print_library(path: Path, report: PartitionReport) -> None:
    """The regions of a new library, and a line about the rest."""
    from .libraries import read_library
    from .table import print_table

    programs = [image.program for image in read_library(path).images]
    rows = [(p.name, len(p.layers), sum(x.macs for x in p.layers), sum(x.weight_bytes for x in p.layers), len(p.code))
            for p in programs]
    print_table(f"{path}: {path.stat().st_size:,} bytes", ("region", ">layers", ">MACs", ">weight B", ">program B"),
                rows, ("total", *(sum(row[i] for row in rows) for i in range(1, 5))))
    print(summary(report.model_info()))
    ratios = [layer.sqnr_db for region in report.quantization for layer in region.layers
              if layer.sqnr_db is not None]
    if ratios:
        print(f"quantization error of the layers: {min(ratios):.1f} to {max(ratios):.1f} dB SQNR")
