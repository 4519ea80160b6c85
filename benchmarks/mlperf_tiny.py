"""MLPerf Tiny at several fetch widths, beside Arm's Vela on the same files in the same run.

    python benchmarks/mlperf_tiny.py [--json FILE] [--models NAME ...]

Ours: the model is partitioned and planned anew for every width, its cycles come from the simulator (counts
only), and everything that was offloaded is included. Vela: `cycles_total` and `total_npu_encoded_weights` of its
summary, an estimate of its own, which includes the softmax. `bound_cycles` counts the MACs of the model, also those
that the array does not compute, because a channel cannot change an output byte or all weights of a tile are zero;
`computed_macs` are those of the array, average pools included, and `bound_computed_cycles` counts them instead.
`weight_stream_bytes` are all bytes of conv, dwc and wtab (docs/performance.md, Weight stream). The Ethos-U gets its
weights at the same width, and 16 B/cycle for activations. Models, and Vela's memory configurations, come from
$BYOC_ACCEL_SHARED or ../shared.
"""
from __future__ import annotations

import csv
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from _common import images_for, model_path, parse, random_inputs, shared_folder, write_json

from byoc_accel.relay.files.model_file import ImportedModel, import_model
from byoc_accel.report import bound_cycles, io_bytes, report_library, totals
from byoc_accel.sim import simulate_program
from byoc_accel.target import load_target

WIDTHS_BYTES_PER_CYCLE = (16, 8, 4, 1)
#: Vela takes a U55's port as 8 B/cycle only in sections whose name starts with Ethos_U55; under any other name it
#: counts 16 B/cycle, so that the clock scales of the section mean twice the width.
SECTIONS = {"ethos-u55-256": "Ethos_U55_X_W{}", "ethos-u85-256": "P16_W{}"}
MEMORY_MODE = "Shared_Sram"  # weights behind the second port, activations and staged weights in SRAM


def ours(model: ImportedModel, width: int) -> dict[str, Any]:
    """Cycles and bytes of every region of `model` with a program fetch of `width` B/cycle."""
    target = replace(load_target("reference"), fetch_bytes_per_cycle=width)
    images, report = images_for(model, target)
    regions = report_library(images, report.model_info())
    total = totals(regions, report.macs)
    programs = [image.program for image in images]
    computed = [simulate_program(p, target, random_inputs(p), mode="counts")[1].total.macs for p in programs]
    bounds = [bound_cycles(target, macs, len(p.code), io_bytes(p)) for p, macs in zip(programs, computed)]
    return {"macs": total["macs"], "macs_on_host": total["macs"] - total["macs_offloaded"],
            "fetch_bytes_per_cycle": width, "cycles": total["cycles"], "bound_cycles": total["bound_cycles"],
            "computed_macs": sum(computed), "bound_computed_cycles": sum(bounds),
            "program_bytes": total["program_bytes"],
            "weight_stream_bytes": sum(layer.weight_bytes for region in regions for layer in region.layers)}


def vela(path: Path, accelerator: str, width: int) -> dict[str, str]:
    """The row of Vela's summary for the model in `path` with weights at `width` B/cycle."""
    program = Path(sys.executable).parent / "vela"
    if not program.is_file():
        raise SystemExit(f"no Vela at {program}; run make bench, or pip install 'byoc-accel[bench]'")
    with tempfile.TemporaryDirectory() as folder:
        command = [str(program), str(path), "--accelerator-config", accelerator,
                   "--config", str(shared_folder() / "vela_bandwidth.ini"),
                   "--system-config", SECTIONS[accelerator].format(width), "--memory-mode", MEMORY_MODE,
                   "--output-dir", folder]
        run = subprocess.run(command, capture_output=True, text=True)
        summaries = list(Path(folder).glob("*_summary_*.csv"))
        if run.returncode or len(summaries) != 1:
            raise SystemExit(f"{' '.join(command)} failed: {(run.stderr or run.stdout).strip()[-300:]}")
        with summaries[0].open(newline="", encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
    return row


def cells(name: str) -> list[dict[str, Any]]:
    """One row per width."""
    path = model_path(name)
    with ThreadPoolExecutor(max_workers=1) as pool:  # Vela is a process of its own: beside our compiler
        u55 = {w: pool.submit(vela, path, "ethos-u55-256", w) for w in WIDTHS_BYTES_PER_CYCLE}
        u85 = {w: pool.submit(vela, path, "ethos-u85-256", w) for w in WIDTHS_BYTES_PER_CYCLE}
        model = import_model(path)
        return [{"model": name, **ours(model, w),
                 "vela_u55_cycles": round(float(u55[w].result()["cycles_total"])),
                 "vela_u85_cycles": round(float(u85[w].result()["cycles_total"])),
                 "vela_weight_bytes": round(float(u55[w].result()["total_npu_encoded_weights"]))}
                for w in WIDTHS_BYTES_PER_CYCLE]


def ratio(row: dict[str, Any]) -> float:
    """Our cycles as a part of the better Ethos-U's."""
    return row["cycles"] / min(row["vela_u55_cycles"], row["vela_u85_cycles"])


def geometric_mean(rows: Sequence[dict[str, Any]]) -> float:
    return math.exp(sum(math.log(ratio(row)) for row in rows) / len(rows))


def main() -> None:
    args = parse(__doc__)
    rows = []
    print(f"{'model':<28}{'B/cycle':>8}{'cycles':>9}{'bound':>9}{'U55-256':>9}{'U85-256':>9}{'to better':>10}"
          f"{'program B':>11}{'weights B':>11}{'Vela B':>9}")
    for name in args.models:
        for row in cells(name):
            rows.append(row)
            print(f"{row['model']:<28}{row['fetch_bytes_per_cycle']:>8}{row['cycles']:>9,}{row['bound_cycles']:>9,}"
                  f"{row['vela_u55_cycles']:>9,}{row['vela_u85_cycles']:>9,}{ratio(row):>10.3f}"
                  f"{row['program_bytes']:>11,}{row['weight_stream_bytes']:>11,}{row['vela_weight_bytes']:>9,}",
                  flush=True)
    mean = geometric_mean(rows)
    print(f"geometric mean of cycles to the better Ethos-U's over {len(rows)} cells: {mean:.3f}; slower in "
          f"{sum(ratio(row) >= 1 for row in rows)}; more weight bytes than Vela in "
          f"{sum(row['weight_stream_bytes'] > row['vela_weight_bytes'] for row in rows)}")
    for row in rows:
        if row["computed_macs"] < row["macs"] and row["fetch_bytes_per_cycle"] == WIDTHS_BYTES_PER_CYCLE[0]:
            print(f"{row['model']}: the array computes {row['computed_macs']:,} of {row['macs']:,} MACs, the others "
                  f"cannot change a byte; the bound counts all, for these it is {row['bound_computed_cycles']:,}")
        if row["macs_on_host"] and row["fetch_bytes_per_cycle"] == WIDTHS_BYTES_PER_CYCLE[0]:
            print(f"{row['model']}: {row['macs_on_host']:,} MACs stay on the host and are not in the cycles")
    write_json(args.json, {"rows": rows, "geometric_mean_to_better": mean})


if __name__ == "__main__":
    main()
