"""Compile time and memory beside TVM's own build of the same model, in one run; import, export and library size.

    python benchmarks/compile_time.py [--json FILE] [--models NAME ...] [--export-bytes N]

Ours is partition and relay.build of the result, TVM's own is relay.build of the model, each in a process of its own
after everything is imported; processor time includes the C compiler. Growth is ResNet-50 at several widths. Models
come from $BYOC_ACCEL_SHARED or ../shared; without them the demo's model stands in.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _networks as networks
import numpy as np
import tvm
from _common import MODELS, Meter, cpu_seconds, host_build, in_child, options, peak_bytes, table, write_json
from _stages import staged

from byoc_accel.relay import partition
from byoc_accel.relay.files.model_file import import_model
from byoc_accel.relay.hook import build_module

DEMO = Path(__file__).resolve().parents[1] / "byoc_accel" / "demo" / "mnist_cnn.onnx"
#: ResNet-50 for 224 x 224 pixels: float, quantized with one input, and made of QNN ops.
RESNETS = {"resnet50_224": lambda: networks.resnet(50),
           "resnet50_int8_224": lambda: networks.resnet_v1(networks.Int8(), 50, 224)}
WIDTHS = (16, 32, 64)  # channels of ResNet-50's first stage: 2 to 25 million weights
IMPORTS = 5


def model_files(chosen: list[str]) -> dict[str, Path]:
    """MLPerf Tiny models, or the demo's where there are none."""
    root = Path(os.environ.get("BYOC_ACCEL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    paths = {name: root / "models" / "mlperf_tiny" / f"{name}.tflite" for name in chosen}
    there = {name: path for name, path in paths.items() if path.is_file()}
    return there or {"mnist_cnn": DEMO}


def load(name: str, path: str) -> tuple[Any, Any, list[dict[str, np.ndarray]] | None]:
    """Module, parameters and calibration inputs of a model file (path), one of RESNETS or ResNet-50 at a width (no
    path)."""
    if not path:
        network = RESNETS[name]() if name in RESNETS else networks.resnet_v1(networks.Int8(), 50, 64, int(name))
        return network.module, network.params, [network.sample()] if network.dtype == "float32" else None
    model = import_model(path)
    if path.endswith(".onnx"):
        rng = np.random.default_rng(0)
        return model.module, model.params, [
            {name: rng.random(info.shape).astype(np.float32) for name, info in model.inputs.items()}]
    return model.module, model.params, None


def child(kind: str, name: str, path: str) -> dict[str, Any]:
    """Times and peak memory of one build, "ours" or "tvm"."""
    module, params, calibration = load(name, path)
    meter, stages, before = Meter(), Meter(), peak_bytes()
    out: dict[str, Any] = {"peak_bytes_before": before, "fp32_weight_bytes": 4 * _weights(module, params)}
    if kind == "tvm":
        meter.run("build", lambda: host_build(module, params))
    else:
        with staged(stages):
            part, report = meter.run("partition", lambda: partition(module, params, calibration=calibration, name=name))
            library = meter.run("build", lambda: host_build(part))
        out.update(_exported(library), offloaded=report.macs_offloaded / report.macs if report.macs else 0.0,
                   host_ops=sum(not op.region for op in report.ops))
    return {**out, "peak_bytes": peak_bytes(), "wall_s": sum(meter.wall_s.values()), "cpu_s": sum(meter.cpu_s.values()),
            "steps_cpu_s": meter.cpu_s, "stages_cpu_s": stages.cpu_s}


def _weights(module: Any, params: Any) -> int:
    """Values of all constants and parameters."""
    sizes = [int(np.prod(array.shape)) for array in (params or {}).values()]
    tvm.relay.analysis.post_order_visit(module["main"], lambda e: sizes.append(int(np.prod(e.data.shape)))
                                        if isinstance(e, tvm.relay.Constant) else None)
    return sum(sizes)


def _exported(library: Any) -> dict[str, int]:
    from byoc_accel.cli.libraries import read_library

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        library.export_library(str(path))
        images = {image.data: image.program for image in read_library(path).images}
        return {"library_bytes": path.stat().st_size, "program_bytes": sum(len(p.code) for p in images.values()),
                "weight_bytes": sum(layer.weight_bytes for p in images.values() for layer in p.layers)}


def compare(name: str, path: str) -> dict[str, Any]:
    """One row: ours beside TVM's own."""
    ours, tvm = in_child(__file__, "ours", name, path), in_child(__file__, "tvm", name, path)
    return {"model": name, **{f"ours_{k}": v for k, v in ours.items()}, **{f"tvm_{k}": v for k, v in tvm.items()},
            "cpu_ratio": ours["cpu_s"] / tvm["cpu_s"], "wall_ratio": ours["wall_s"] / tvm["wall_s"],
            "library_overhead_bytes": ours["library_bytes"] - ours["program_bytes"],
            "peak_over_tvm_to_fp32_weights": (ours["peak_bytes"] - tvm["peak_bytes"]) / ours["fp32_weight_bytes"]}


def growth(widths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Processor time of our stages for ResNet-50 at several widths, and per million program bytes."""
    rows = []
    for width in widths:
        row = in_child(__file__, "ours", str(width), "")
        rows.append({"width": width, "program_bytes": row["program_bytes"], "cpu_s": row["cpu_s"],
                     "wall_s": row["wall_s"], "cpu_s_per_mb": row["cpu_s"] / row["program_bytes"] * 1e6})
    return rows


def import_seconds() -> dict[str, float]:
    """Shortest wall and processor time to import byoc_accel and its compiler, without TVM, beyond starting Python."""
    code = "import byoc_accel; byoc_accel.compile_region"

    def run(text: str) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), cpu_seconds()
        subprocess.run([sys.executable, "-c", text], check=True)
        return time.perf_counter() - wall, cpu_seconds() - cpu

    whole, bare = ([min(column) for column in zip(*(run(text) for _ in range(IMPORTS)))] for text in (code, "pass"))
    return {"wall_s": whole[0] - bare[0], "cpu_s": whole[1] - bare[1]}


def export_seconds(size_bytes: int) -> dict[str, Any]:
    """Time to make a module of a program of `size_bytes` and to export it."""
    meter = Meter()
    image = np.random.default_rng(0).integers(0, 256, size_bytes, np.uint8).tobytes()
    module = meter.run("module", lambda: build_module("wia_synthetic_0_0123456789abcdef", image))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.so"
        meter.run("export", lambda: module.export_library(str(path)))
        return {"bytes": size_bytes, "seconds": meter.wall_s, "cpu_seconds": meter.cpu_s,
                "library_bytes": path.stat().st_size}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS), metavar="NAME",
                        help="model files to compile; one or more of " + ", ".join(MODELS))
    parser.add_argument("--no-resnet", action="store_true", help="leave out ResNet-50")
    parser.add_argument("--widths", type=int, nargs="*", default=list(WIDTHS), help="of the ResNet-50 that grows")
    parser.add_argument("--export-bytes", type=int, default=100_000_000, help="size of the program to export")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(*args.child)))
        return
    models = {**model_files(args.models), **({} if args.no_resnet else dict.fromkeys(RESNETS, ""))}
    rows = [compare(name, str(path)) for name, path in models.items()]
    table([(r["model"], r["ours_wall_s"], r["tvm_wall_s"], r["wall_ratio"], r["ours_cpu_s"], r["tvm_cpu_s"],
            r["cpu_ratio"], r["ours_peak_bytes"] >> 20, r["tvm_peak_bytes"] >> 20, r["ours_program_bytes"],
            r["ours_library_bytes"], r["library_overhead_bytes"], r["ours_host_ops"],
            r["peak_over_tvm_to_fp32_weights"]) for r in rows],
          ("model", "ours s", "TVM s", "ratio", "ours cpu s", "TVM cpu s", "ratio", "peak MiB", "TVM MiB", "program B",
           "library B", "over program", "host ops", "peak over TVM / fp32"))
    for row in rows:
        parts = {**row["ours_steps_cpu_s"], **row["ours_stages_cpu_s"]}
        print(f"{row['model']}, cpu s: " + ", ".join(f"{name} {taken:.2f}" for name, taken in parts.items()))
    grown = growth(tuple(args.widths))
    table([tuple(r.values()) for r in grown], ("ResNet-50 width", "program B", "cpu s", "wall s", "cpu s per MB"))
    imported, exported = import_seconds(), export_seconds(args.export_bytes)
    print(f"import of byoc_accel without TVM: {imported['wall_s']:.3f} s, {imported['cpu_s']:.3f} s of processor, "
          "beyond starting Python")
    print(f"program of {exported['bytes']:,} B: module {exported['seconds']['module']:.2f} s, export "
          f"{exported['seconds']['export']:.2f} s")
    write_json(args.json, {"rows": rows, "growth": grown, "import": imported, "export": exported})


if __name__ == "__main__":
    main()
