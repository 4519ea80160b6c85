"""Simulation speed: every kernel, with and without arithmetic, beside a plain C loop and TVM's own int8 run.

    python benchmarks/sim_speed.py [--json FILE] [--networks NAME ...] [--codec auto|raw|lanes]

All on one thread and in one run, in processor time, the shortest of several. Full: results and cycles. Counts: the same
cycles without arithmetic. Functional: results alone. "Prepare" decodes the weights of the program once, for any number
of machines; "first" is the first run of a machine that decodes as it goes, "prepared" the first run of one that has the
decoded weights; "again" is a later run, for which a machine keeps weights and counters. The plain C loop (gcc -O3)
computes the int32 sums of the same convolutions and nothing else; TVM's run is the llvm build of the same quantized
network, whose output bytes must be those of the simulator.
"""
from __future__ import annotations

import os

os.environ["TVM_NUM_THREADS"] = "1"  # before TVM is imported

import ctypes  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import _networks as networks  # noqa: E402
import numpy as np  # noqa: E402
import tvm  # noqa: E402
from _common import (  # noqa: E402
    best_seconds,
    host_build,
    options,
    progress,
    regions_of,
    table,
    write_json,
)
from tvm.contrib import graph_executor  # noqa: E402

from byoc_accel.compile import compile_stages  # noqa: E402
from byoc_accel.emit.program import Program  # noqa: E402
from byoc_accel.emit.weights import CODEC_CHOICES  # noqa: E402
from byoc_accel.relay import partition  # noqa: E402
from byoc_accel.sim import Machine, kernels  # noqa: E402
from byoc_accel.target import Target  # noqa: E402

NETWORKS: dict[str, Callable[[], networks.Network]] = {
    "resnet8": lambda: networks.resnet8(networks.Int8()),
    "resnet50": lambda: networks.resnet_v1(networks.Int8(), 50),
    "tiny": lambda: networks.resnet8(networks.Int8(), 8, 8)}
DEFAULT = ("resnet8", "resnet50")
MODES = ("full", "counts", "functional")
FIRST_RUNS = 5  # of a machine of its own each
TIMES = ("prepare_s", "first_s", "prepared_s", "seconds")
PLAIN_C = """
#include <stddef.h>
#include <stdint.h>
/* NHWC x, (kh, kw, ic, oc) weights, int32 sums; x is padded already. */
void conv(const int8_t *restrict x, const int8_t *restrict w, int32_t *restrict y, int width, int oh, int ow, int ic,
          int oc, int kh, int kw, int stride)
{
    for (int v = 0; v < oh; v++)
        for (int u = 0; u < ow; u++) {
            int32_t *restrict acc = y + ((size_t)v * ow + u) * oc;
            for (int o = 0; o < oc; o++) acc[o] = 0;
            for (int b = 0; b < kh; b++)
                for (int a = 0; a < kw; a++)
                    for (int i = 0; i < ic; i++) {
                        int32_t value = x[((size_t)(v * stride + b) * width + u * stride + a) * ic + i];
                        const int8_t *restrict row = w + ((size_t)(b * kw + a) * ic + i) * oc;
                        for (int o = 0; o < oc; o++) acc[o] += value * row[o];
                    }
        }
}
"""


def plain_c(folder: Path) -> Any:
    """The C loop, compiled for this machine."""
    source, library = folder / "conv.c", folder / "conv.so"
    source.write_text(PLAIN_C, encoding="utf-8")
    subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library)).conv


def plain_c_seconds(conv: Any, region: Any) -> tuple[float, int]:
    """Seconds of all ordinary convolutions of `region`, and their multiply-accumulates."""
    shapes = {t.name: t.shape for t in region.tensors}
    total_s, macs = 0.0, 0
    rng = np.random.default_rng(0)
    for node in (n for n in region.nodes if hasattr(n, "weight") and n.groups == 1):
        oc, kh, kw, ic = node.weight.shape
        _, height, width, _ = shapes[node.x]
        _, oh, ow, _ = shapes[node.y]
        top, left, bottom, right = node.padding
        x = rng.integers(-128, 128, (height + top + bottom, width + left + right, ic)).astype(np.int8)
        w, y = np.ascontiguousarray(node.weight.transpose(1, 2, 3, 0)), np.empty((oh, ow, oc), np.int32)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, w, y)]
        total_s += best_seconds(lambda p=pointers, n=(x.shape[1], oh, ow, ic, oc, kh, kw, node.stride[0]): conv(*p, *n),
                                budget_s=0.0, least=1)
        macs += oh * ow * node.weight.size
    return total_s, macs


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, and its result."""
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def simulated(program: Program, target: Target, data: np.ndarray) -> tuple[list[dict[str, Any]], np.ndarray]:
    """A row per kernel and mode, and the output of the last full run."""
    macs, rows, output = sum(layer.macs for layer in program.layers), [], None
    cycles: set[int] = set()
    for kernel in kernels():
        for mode in MODES:
            progress(f"{program.name}: {kernel}, {mode}")
            buffers = [data.reshape(-1) if b.kind == "input" else np.zeros(b.bytes, np.int8) for b in program.buffers]
            row: dict[str, Any] = {"kernel": kernel, "mode": mode, "prepare_s": 1e9, "first_s": 1e9, "prepared_s": 1e9}

            def run(machine: Machine, buffers: list[np.ndarray] = buffers) -> Any:
                return machine.run(program.code, buffers, [b.kind != "input" for b in program.buffers], program.layers)

            for _ in range(FIRST_RUNS):
                machine = Machine(target, mode=mode, kernel=kernel)
                row["first_s"] = min(row["first_s"], seconds(partial(run, machine))[0])
                machine = Machine(target, mode=mode, kernel=kernel)
                row["prepare_s"] = min(row["prepare_s"], seconds(partial(machine.prepare, program.code))[0])
                spent, result = seconds(partial(run, machine))
                row["prepared_s"] = min(row["prepared_s"], spent)
            row["seconds"] = best_seconds(partial(run, machine))
            if mode != "functional":
                cycles.add(result.cycles)
            rows.append({**row, "gmac_per_s": macs / row["seconds"] / 1e9})
            if mode == "full":
                output = next(b for b, info in zip(buffers, program.buffers) if info.kind == "output")
    if len(cycles) != 1:
        raise SystemExit(f"{program.name}: kernels or modes differ in cycles: {sorted(cycles)}")
    progress("")
    return rows, output


def measure(name: str, conv: Any, codec: str) -> list[dict[str, Any]]:
    network = NETWORKS[name]()
    data = network.sample()["data"]
    (imported,) = regions_of(partition(network.module, name=name)[0])
    image = compile_stages(imported.region, imported.target, scale=imported.scale, codec=codec).image
    rows, output = simulated(image.program, imported.target, data)
    macs = sum(layer.macs for layer in image.program.layers)
    progress(f"{name}: plain C")
    c_s, c_macs = plain_c_seconds(conv, imported.region)
    progress(f"{name}: TVM's own build")
    executor = graph_executor.GraphModule(host_build(network.module)["default"](tvm.cpu()))
    executor.set_input("data", data)
    tvm_s = best_seconds(executor.run)
    expected = executor.get_output(0).numpy().reshape(-1)
    progress("")
    rows.append({"kernel": "plain C", "mode": "sums", "seconds": c_s, "gmac_per_s": c_macs / c_s / 1e9})
    rows.append({"kernel": "TVM llvm", "mode": "int8", "seconds": tvm_s, "gmac_per_s": macs / tvm_s / 1e9})
    counts = {r["kernel"]: r for r in rows if r["mode"] == "counts"}
    return [{"network": name, "macs": macs, **dict.fromkeys(TIMES), **r, "to_tvm": r["seconds"] / tvm_s,
             **{f"counts_speedup_{which}": r[key] / counts[r["kernel"]][key] if r["mode"] == "full" else None
                for which, key in (("first", "first_s"), ("prepared", "prepared_s"), ("again", "seconds"))},
             "equal_to_tvm": bool(np.array_equal(output, expected))} for r in rows]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(DEFAULT), metavar="NAME",
                        help="only these; one or more of " + ", ".join(NETWORKS))
    parser.add_argument("--codec", choices=CODEC_CHOICES, default="auto", help="of all weights; auto: what costs less")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        conv = plain_c(Path(folder))
        for name in args.networks:
            found = measure(name, conv, args.codec)
            rows += found
            table([(f"{r['network']}, {r['kernel']}, {r['mode']}",
                    *("-" if r[t] is None else r[t] * 1e3 for t in TIMES), r["gmac_per_s"], r["to_tvm"],
                    *(r[f"counts_speedup_{which}"] or "-" for which in ("first", "prepared", "again"))) for r in found],
                  ("run", "prepare ms", "first ms", "prepared ms", "again ms", "GMAC/s", "to TVM", "first to counts",
                   "prepared to counts", "again to counts"))
            print(f"{name}: output bytes equal to TVM's: {found[0]['equal_to_tvm']}")
    write_json(args.json, {"rows": rows})


if __name__ == "__main__":
    main()
