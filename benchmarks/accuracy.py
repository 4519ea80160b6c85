"""Float models quantized after training: how close int8 comes to float, beside TFLite's int8 file of the same model.

    python benchmarks/accuracy.py [--json FILE] [--models NAME ...] [--ranges METHOD] [--no-bias-correction]
                                  [--equalize]

Every model is partitioned with calibration inputs, built, and run on the simulator; the float module and TFLite's int8
module run on TVM's host. No evaluated input calibrates: the 20 and 28 images, and the frames, are halves that calibrate
for each other (images with ten views each: mirrored, moved by a sixteenth). SQNR is that of the outputs before the
softmax, 10 log10(sum float^2 / sum (float - int8)^2). "views" repeats the agreement on ten views of every image.
Models come from $BYOC_ACCEL_SHARED or ../shared and from the packages that make bench installs; what is not there is
left out, with the reason.
"""
from __future__ import annotations

import argparse
import logging
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from _accuracy_cases import CASES, Case, Missing, Model, load_case
from _common import write_json
from tvm import relay
from tvm.contrib import graph_executor

from byoc_accel.quantize.methods import DEFAULT_RANGES
from byoc_accel.quantize.report import LayerError
from byoc_accel.relay import host, partition
from byoc_accel.relay.report import PartitionReport

SCALES = ("multiplier", "fixed_point")
WORST = 3


def run(module: tvm.IRModule, model: Model, x: np.ndarray, params: dict | None = None) -> list[np.ndarray]:
    """All outputs of a built module, flattened to (len(x), -1), in float64."""
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target=host.TARGET, params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    outputs = []
    for sample in x:
        executor.set_input(model.input, sample.reshape(model.shape))
        executor.run()
        outputs.append([executor.get_output(i).numpy().ravel() for i in range(executor.get_num_outputs())])
    return [np.array(column, np.float64) for column in zip(*outputs)]


def run_folds(case: Case, x: Sequence[np.ndarray], scale: str,
              options: dict[str, Any]) -> tuple[list[list[np.ndarray]], list[PartitionReport]]:
    """Outputs of the int8 modules, one per fold, each on its part of x; and what partition reported."""
    found, reports = [], []
    for fold, part in zip(case.folds, x):
        samples = [{case.model.input: sample.reshape(case.model.shape)} for sample in fold.calibration]
        module, report = partition(case.model.module, case.model.params, calibration=samples, scale=scale,
                                   name=case.name, **options)
        found.append(run(module, case.model, part))
        reports.append(report)
    return found, reports


def join(parts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(column) for column in zip(*parts)]


def decibels(real: np.ndarray, found: np.ndarray) -> float:
    noise = float(np.square(real - found).sum())
    return 10 * math.log10(float(np.square(real).sum()) / noise) if noise else math.inf


def compare(case: Case, real: list[np.ndarray], found: list[np.ndarray], plain: np.ndarray) -> dict[str, Any]:
    """plain: which of the rows are inputs as they came, and not views of them."""
    row: dict[str, Any] = {"sqnr_db": [decibels(r[plain], f[plain]) for r, f in zip(real, found)]}
    if case.top1 is not None:
        same = real[case.top1].argmax(1) == found[case.top1].argmax(1)
        row |= {"agree": int(same[plain].sum()), "agree_views": int(same.sum())}
        labels = [fold.label for fold in case.folds if fold.label is not None]
        if labels:
            row["correct"] = int((found[case.top1][plain].argmax(1) == np.concatenate(labels)).sum())
    return row


def worst_layers(reports: Sequence[PartitionReport]) -> list[dict[str, Any]]:
    """The layers of least SQNR on calibration inputs, each the worst of the folds."""
    ratios: dict[str, float] = {}
    for report in reports:
        for number, region in enumerate(report.quantization):
            for layer in region.layers:
                name = f"{number}.{layer.name}" if len(report.quantization) > 1 else layer.name
                ratios[name] = min(ratios.get(name, math.inf), _ratio(layer))
    ranked = sorted(ratios.items(), key=lambda item: item[1])
    return [{"layer": name, "sqnr_db": value} for name, value in ranked[:WORST]]


def _ratio(layer: LayerError) -> float:
    return math.inf if layer.sqnr_db is None else layer.sqnr_db


def measure(case: Case, options: dict[str, Any]) -> dict[str, Any]:
    """One row of the table."""
    x = [np.concatenate(case.views(fold.x)) if case.views else fold.x for fold in case.folds]
    plain = np.concatenate([np.arange(len(part)) < len(fold.x) for part, fold in zip(x, case.folds)])
    real = join([run(case.model.module, case.model, np.concatenate(x), case.model.params)])
    row: dict[str, Any] = {"model": case.name, "data": case.data, "inputs": int(plain.sum()), "views": len(plain),
                           "calibration": [len(fold.calibration) for fold in case.folds]}
    for scale in SCALES:
        found, reports = run_folds(case, x, scale, options)
        row[scale] = compare(case, real, join(found), plain) | {"worst": worst_layers(reports)}
        row |= {"macs": reports[0].macs, "macs_offloaded": reports[0].macs_offloaded,
                "regions": len(reports[0].regions)}
    row["float"] = compare(case, real, real, plain)
    if case.integer and case.quantize:
        found = run(case.integer.module, case.integer, case.quantize(np.concatenate(x)), case.integer.params)
        row["tflite_int8"] = compare(case, real, found, plain)
    return row


def cells(row: dict[str, Any], key: str) -> str:
    if key not in row:
        return f"{'-':>14}{'-':>11}{'-':>12}"
    part = row[key]
    ratio = " ".join(f"{value:.1f}" for value in part["sqnr_db"])
    if "agree" not in part:
        return f"{ratio:>14}{'-':>11}{'-':>12}"
    views = f"{part['agree_views']}/{row['views']}" if row["views"] > row["inputs"] else "-"
    return f"{ratio:>14}{part['agree']:>6}/{row['inputs']:<4}{views:>12}"


def line(row: dict[str, Any]) -> str:
    share = 100 * row["macs_offloaded"] / row["macs"]
    return (f"{row['model']:<29}{share:>6.1f}{row['regions']:>4}" + cells(row, "multiplier") + cells(row, "fixed_point")
            + cells(row, "tflite_int8"))


def details(row: dict[str, Any]) -> str:
    worst = "; ".join(f"{w['layer']} {w['sqnr_db']:.1f} dB" for w in row["multiplier"]["worst"])
    text = f"    {row['data']}; worst layers: {worst}"
    if "correct" in row["float"]:
        right = ", ".join(f"{key} {row[key]['correct']}" for key in ("float", *SCALES, "tflite_int8") if key in row)
        text += f"; right answers of {row['inputs']}: {right}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME",
                        help="only these; one or more of " + ", ".join(CASES))
    parser.add_argument("--ranges", default=DEFAULT_RANGES, metavar="METHOD", help="as of byoc-accel compile")
    parser.add_argument("--no-bias-correction", dest="correct_bias", action="store_false")
    parser.add_argument("--equalize", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # TVM's advice to tune the host's operators
    warnings.simplefilter("ignore")
    options = {"ranges": args.ranges, "correct_bias": args.correct_bias, "equalize": args.equalize}
    head = f"{'SQNR dB':>14}{'agree':>11}{'views':>12}"
    print(f"{'':<39}{'multiplier':>37}{'fixed_point':>37}{'int8 file of TFLite':>37}")
    print(f"{'model':<29}{'% MAC':>6}{'reg':>4}{head}{head}{head}")
    rows, missing = [], {}
    for name in args.models:
        try:
            rows.append(measure(load_case(name), options))
        except Missing as reason:
            missing[name] = str(reason)
            print(f"{name:<29}left out: {reason}")
            continue
        print(line(rows[-1]), details(rows[-1]), sep="\n", flush=True)
    write_json(args.json, {"options": options, "rows": rows, "missing": missing})


if __name__ == "__main__":
    main()
