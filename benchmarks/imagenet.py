"""Networks with ImageNet-size inputs through Relay: cycles, bytes, compile time, memory, and equality layer by layer.

    python benchmarks/imagenet.py [--json FILE] [--networks NAME ...] [--size PIXELS] [--layers]

Float networks are those of relay.testing and MobileNetV2 with fixed-seed weights, quantized with one calibration
input; the int8 one is made of QNN ops. Each runs in a process of its own, which its peak memory is of. Every tensor
that the simulator computes is compared with the meaning of the quantized region (NumPy): once with the program as it
is, and once with a program that keeps every layer's result. Times are of this machine.
"""
from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _networks as networks
import numpy as np
from _common import (
    Meter,
    best_seconds,
    host_build,
    in_child,
    options,
    peak_bytes,
    random_inputs,
    regions_of,
    table,
    write_json,
)
from _layers import different_layers, different_outputs, random_input
from _stages import staged

from byoc_accel.compile import compile_qregion, quantize_region
from byoc_accel.quantize.qregion import QConv, QRegion
from byoc_accel.relay import partition
from byoc_accel.report import report_image, to_json
from byoc_accel.sim import Machine

NETWORKS: dict[str, Callable[[int], networks.Network]] = {
    "mobilenet_v1": networks.mobilenet_v1,
    "mobilenet_v2": lambda size: networks.mobilenet_v2(networks.Float(), size),
    "resnet18": lambda size: networks.resnet(18, size),
    "resnet50": lambda size: networks.resnet(50, size),
    "resnet50_int8": lambda size: networks.resnet_v1(networks.Int8(), 50, size)}


def measure(name: str, size: int) -> dict[str, Any]:
    """Everything about one network; needs a fresh process, because peak memory never falls."""
    network = NETWORKS[name](size)
    steps, stages, before = Meter(), Meter(), peak_bytes()
    calibration = [network.sample()] if network.dtype == "float32" else None
    with staged(stages):
        module, report = steps.run("partition", lambda: partition(
            network.module, network.params, calibration=calibration, name=network.name))
        library = steps.run("build", lambda: host_build(module))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.so"
        steps.run("export", lambda: library.export_library(str(path)))
        library_bytes = path.stat().st_size
    peak = peak_bytes()
    regions = [_region(each) for each in regions_of(module)]
    total = to_json([r["report"] for r in regions], report.macs)
    weights = sum(r["weights"] for r in regions)
    simulated = sum(r["simulated_s"] for r in regions)
    return {
        "network": name, "input": list(network.shape), "dtype": network.dtype, "regions": len(regions),
        **{key: total[key] for key in ("macs", "macs_offloaded", "cycles", "bound_cycles", "utilisation",
                                       "program_bytes", "program_bytes_by_kind", "image_bytes")},
        "bound_to_cycles": total["bound_cycles"] / total["cycles"], "weight_bytes": weights,
        "program_to_weight_bytes": total["program_bytes"] / weights, "library_bytes": library_bytes,
        "seconds": steps.wall_s, "cpu_seconds": steps.cpu_s, "stage_seconds": stages.wall_s,
        "compile_s": sum(steps.wall_s.values()), "compile_cpu_s": sum(steps.cpu_s.values()),
        "peak_bytes_before": before, "peak_bytes": peak,
        "simulated_s": simulated, "gmac_per_s": total["macs_offloaded"] / simulated / 1e9,
        "different_layers": sorted({x for r in regions for x in r["different"]}),
        "equal": not any(r["different"] for r in regions),
        "layers": [layer for region in total["regions"] for layer in region["layers"]]}


def _region(imported: Any) -> dict[str, Any]:
    qregion, quantization = quantize_region(imported.region, ranges=imported.ranges, scale=imported.scale)
    image = compile_qregion(qregion, quantization, imported.target).image
    program = image.program
    buffers = [random_inputs(program)[b.name] if b.kind == "input" else np.zeros(b.bytes, np.int8)
               for b in program.buffers]
    machine = Machine(imported.target)
    run_s = best_seconds(lambda: machine.run(program.code, buffers, [b.kind != "input" for b in program.buffers]),
                         budget_s=0.0)
    inputs = random_input(qregion)
    different = different_layers(qregion, imported.target, inputs) + different_outputs(qregion, imported.target, inputs)
    return {"report": report_image(image), "weights": _weights(qregion), "simulated_s": run_s, "different": different}


def _weights(qregion: QRegion) -> int:
    return sum(node.weight.size for node in qregion.nodes if isinstance(node, QConv))


def worst_layers(row: dict[str, Any], count: int = 5) -> list[tuple[object, ...]]:
    """The layers that lose the most cycles to their bound, and what the array waits for."""
    lost = sorted(row["layers"], key=lambda x: x["bound_cycles"] - x["cycles"])[:count]
    return [(x["name"], x["kind"], x["cycles"], x["bound_cycles"], x["cycles"] - x["bound_cycles"],
             ", ".join(f"{reason} {n:,}" for reason, n in sorted(x["stalls"].items(), key=lambda i: -i[1])[:3] if n))
            for x in lost]


def show(row: dict[str, Any], every_layer: bool) -> None:
    kinds = ", ".join(f"{k.replace('_', ' ')} {v:,}" for k, v in row["program_bytes_by_kind"].items() if v)
    stages = ", ".join(f"{k} {v:.2f}" for k, v in row["stage_seconds"].items())
    steps = ", ".join(f"{k} {v:.2f}" for k, v in row["seconds"].items())
    print(f"{row['network']} {row['input']}: program bytes: {kinds}")
    print(f"  seconds: {steps}; of them in stages: {stages}; peak {row['peak_bytes'] >> 20} MiB, "
          f"{row['peak_bytes_before'] >> 20} before compiling")
    if row["different_layers"]:
        print(f"  DIFFERENT from the meaning: {', '.join(row['different_layers'])}")
    table(worst_layers(row, len(row["layers"]) if every_layer else 5),
          ("  most cycles lost", "kind", "cycles", "bound", "lost", "array stalls"))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), metavar="NAME",
                        help="only these; one or more of " + ", ".join(NETWORKS))
    parser.add_argument("--size", type=int, default=224, help="height and width of the input")
    parser.add_argument("--layers", action="store_true", help="print all layers, not only the worst")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.child, args.size)))
        return
    rows = []
    for name in args.networks:
        rows.append(in_child(__file__, name, "--size", str(args.size)))
        show(rows[-1], args.layers)
    print()
    table([(r["network"], r["macs"], r["regions"], r["cycles"], r["bound_cycles"], r["bound_to_cycles"],
            r["utilisation"], r["program_bytes"], r["program_to_weight_bytes"], r["compile_s"], r["compile_cpu_s"],
            r["peak_bytes"] >> 20, r["simulated_s"], r["gmac_per_s"], r["equal"]) for r in rows],
          ("network", "MACs", "regions", "cycles", "bound", "to bound", "utilisation", "program B", "to weights",
           "compile s", "cpu s", "peak MiB", "simulated s", "GMAC/s", "equal"))
    write_json(args.json, {"rows": rows})


if __name__ == "__main__":
    main()
