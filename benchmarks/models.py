"""MLPerf Tiny models through Relay: cycles and bytes, compile time beside TVM's own, simulation speed.

    python benchmarks/models.py [--json FILE]

Models come from $BYOC_ACCEL_SHARED or ../shared. Every figure is measured in this run; times are of this machine,
so read the ratios.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from byoc_accel.compile import compile_region
from byoc_accel.relay import partition
from byoc_accel.relay.importer import import_function
from byoc_accel.relay.model_file import import_model
from byoc_accel.sim import simulate_program
from byoc_accel.target import load_target

MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "str_ww_ref_model",
          "pretrainedResnet_large_int8")
HOST = "llvm -mtriple=x86_64-linux-gnu"
RUNS = 20


def seconds(action) -> tuple[float, object]:
    """Wall time of one call, and its result."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def build(module, params=None):
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(module, target=HOST, params=params)


def simulate(program, target, mode: str) -> tuple[float, int]:
    """Seconds of one run (the best of several) and its cycles."""
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.integers(-128, 128, b.bytes).astype(np.int8) for b in program.buffers if b.kind == "input"}
    runs = [seconds(lambda: simulate_program(program, target, inputs, mode=mode)) for _ in range(RUNS)]
    return min(r[0] for r in runs), runs[0][1][1].cycles


def measure(path: Path) -> dict[str, object]:
    """One row of the table."""
    target = load_target("reference")
    model = import_model(path)
    host_s, _ = seconds(lambda: build(model.module, model.params))
    partition_s, (module, report) = seconds(lambda: partition(model.module, model.params, target=target))
    build_s, _ = seconds(lambda: build(module))
    functions = [f for f in module.functions.values() if f.attrs and "Compiler" in f.attrs.keys()]
    imported = [import_function(f) for f in functions]
    stages_s, images = seconds(lambda: [compile_region(i.region, target, ranges=i.ranges) for i in imported])
    programs = [image.program for image in images]
    full = [simulate(p, target, "full") for p in programs]
    counts = [simulate(p, target, "counts") for p in programs]
    macs = sum(layer.macs for p in programs for layer in p.layers)
    cycles, speed = sum(c for _, c in full), sum(s for s, _ in full)
    code = sum(len(p.code) for p in programs)
    return {"model": path.stem, "macs": macs, "regions": len(programs), "cycles": cycles,
            "bound_cycles": max(-(-macs // target.macs_per_cycle), -(-code // target.fetch_bytes_per_cycle)),
            "program_bytes": code, "weight_bytes": sum(x.weight_bytes for p in programs for x in p.layers),
            "tvm_build_s": host_s, "partition_s": partition_s, "build_s": build_s, "stages_s": stages_s,
            "ours_to_tvm": (partition_s + build_s) / host_s, "simulated_mmac_per_s": macs / speed / 1e6,
            "counts_only_speedup": speed / sum(s for s, _ in counts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    root = Path(os.environ.get("BYOC_ACCEL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    folder = root / "models" / "mlperf_tiny"
    if not folder.is_dir():
        print(f"no models at {folder}; set BYOC_ACCEL_SHARED")
        return
    rows = [measure(folder / f"{name}.tflite") for name in MODELS]
    print(f"{'model':<28}{'MACs':>12}{'cycles':>10}{'bound':>9}{'ratio':>7}{'program B':>11}{'weight B':>10}"
          f"{'TVM s':>7}{'ours s':>7}{'ratio':>7}{'MMAC/s':>9}")
    for r in rows:
        print(f"{r['model']:<28}{r['macs']:>12,}{r['cycles']:>10,}{r['bound_cycles']:>9,}"
              f"{r['cycles'] / r['bound_cycles']:>7.2f}{r['program_bytes']:>11,}{r['weight_bytes']:>10,}"
              f"{r['tvm_build_s']:>7.2f}{r['partition_s'] + r['build_s']:>7.2f}{r['ours_to_tvm']:>7.2f}"
              f"{r['simulated_mmac_per_s']:>9,.0f}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
