"""Cycles, bytes, compile time and simulation time against the size of a network: width, depth and resolution.

    python benchmarks/scaling.py [--json FILE] [--png FILE] [--points N]

The network is a chain of int8 3 x 3 convolutions, 32 channels wide, 8 layers deep, 32 x 32 pixels, of which one number
changes at a time. Compile time is processor time of all stages from the region on; simulation time that of one run with
the timing model. Without --png the plot stands beside the JSON file.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import _networks as networks
import numpy as np
from _common import Meter, best_seconds, compile_all, options, progress, regions_of, table, write_json

from byoc_accel.container.image import Image
from byoc_accel.relay import partition
from byoc_accel.report import report_library, totals
from byoc_accel.sim import Machine

BASE = {"width": 32, "depth": 8, "resolution": 32}
POINTS: dict[str, tuple[int, ...]] = {
    "width": (16, 32, 64, 128, 256), "depth": (2, 4, 8, 16, 32, 64), "resolution": (8, 16, 32, 64, 128)}
PLOTTED = {"cycles": "cycles", "program_bytes": "program bytes", "compile_cpu_s": "compile time, s of processor",
           "simulated_s": "simulation time, s"}


def chain(width: int, depth: int, resolution: int) -> networks.Network:
    """`depth` convolutions and a classifier of 10 classes."""
    layers = networks.Int8()
    data = layers.input(resolution)
    x = data
    for _ in range(depth):
        x = layers.conv(x, width, 3)
    return networks.network(f"chain_{width}_{depth}_{resolution}", layers, data, layers.classifier(x, 10))


def measure(axis: str, value: int) -> dict[str, Any]:
    size = {**BASE, axis: value}
    progress(f"{axis} {value}")
    network = chain(**size)
    regions = regions_of(partition(network.module)[0])  # a pool of more than the SRAM stays on the host: two then
    meter = Meter()
    images = meter.run("compile", lambda: compile_all(regions))
    total = totals(report_library(images))
    run_s = sum(_run_seconds(image) for image in images)
    progress("")
    return {"axis": axis, "value": value, **size, "regions": len(images), "macs": total["macs"],
            "cycles": total["cycles"], "bound_cycles": total["bound_cycles"], "program_bytes": total["program_bytes"],
            "compile_s": meter.wall_s["compile"], "compile_cpu_s": meter.cpu_s["compile"], "simulated_s": run_s}


def _run_seconds(image: Image) -> float:
    program, machine = image.program, Machine(image.target)
    buffers = [np.zeros(b.bytes, np.int8) for b in program.buffers]
    writable = [b.kind != "input" for b in program.buffers]
    return best_seconds(lambda: machine.run(program.code, buffers, writable), budget_s=0.1)


def slopes(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each axis, the exponent with which each quantity grows from the middle of the axis to its end."""
    out: dict[str, dict[str, float]] = {}
    for axis in dict.fromkeys(row["axis"] for row in rows):
        line = [row for row in rows if row["axis"] == axis]
        first, last = line[len(line) // 2], line[-1]
        if first is not last:
            growth = np.log(last["value"] / first["value"])
            out[axis] = {key: float(np.log(last[key] / first[key]) / growth) for key in PLOTTED}
    return out


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """One column per axis, one row per quantity, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure, panels = pyplot.subplots(len(PLOTTED), len(axes), figsize=(4 * len(axes), 2.6 * len(PLOTTED)),
                                     squeeze=False, sharex="col", sharey="row")
    for column, axis in enumerate(axes):
        line = [row for row in rows if row["axis"] == axis]
        x = [row["value"] for row in line]
        for panel, (key, title) in zip(panels[:, column], PLOTTED.items()):
            panel.loglog(x, [row[key] for row in line], "o-", base=2, label="measured")
            if key == "cycles":
                panel.loglog(x, [row["bound_cycles"] for row in line], "--", base=2, label="bound")
                panel.legend()
            panel.set_ylabel(title if column == 0 else "")
            panel.grid(True, which="major", alpha=0.3)
        panels[-1, column].set_xlabel(axis)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--png", type=Path, help="write the plot to this file")
    parser.add_argument("--points", type=int, default=99, help="at most this many points of each axis")
    args = parser.parse_args()
    png = args.png or (args.json.with_suffix(".png") if args.json else None)
    rows = [measure(axis, value) for axis, values in POINTS.items() for value in values[:args.points]]
    table([(f"{r['axis']} {r['value']}", r["macs"], r["cycles"], r["bound_cycles"], r["program_bytes"],
            r["compile_cpu_s"], r["simulated_s"] * 1e3) for r in rows],
          ("size", "MACs", "cycles", "bound", "program B", "compile cpu s", "simulated ms"))
    exponents = slopes(rows)
    for axis, by_key in exponents.items():
        print(f"growth with {axis}: " + ", ".join(f"{key} ^{value:.2f}" for key, value in by_key.items()))
    if png:
        plot(rows, png)
    write_json(args.json, {"rows": rows, "exponents": exponents})


if __name__ == "__main__":
    main()
