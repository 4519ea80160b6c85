"""The cost model against the simulator: single layers of many shapes, and chains, at four fetch widths."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.emit.emit import emit
from byoc_accel.quantize.qregion import QPool, QRegion, Requant
from byoc_accel.schedule.schedule import schedule
from byoc_accel.schedule.timeline import plan_cycles
from byoc_accel.sim import simulate_program
from byoc_accel.target import Target, load_target
from tests import qregions as q

REFERENCE = load_target("reference")
WIDTHS = (16, 8, 4, 1)
PART, CYCLES = 0.02, 48  # allowed difference: a part of the layer, and for short layers so many cycles


def compare(region: QRegion, target: Target) -> tuple[float, int]:
    """Estimated and simulated cycles of the whole program."""
    plan = schedule(region, target)
    program = emit(plan, target)
    inputs = {b.name: np.zeros(b.bytes, np.int8) for b in program.buffers if b.kind == "input"}
    _, result = simulate_program(program, target, inputs, mode="counts")
    sizes = [(layer.end - layer.start, layer.weight_bytes) for layer in program.layers]
    return plan_cycles(plan, sizes, target)[-1], result.total.cycles


def check(region: QRegion) -> None:
    for width in WIDTHS:
        estimate, cycles = compare(region, replace(REFERENCE, fetch_bytes_per_cycle=width))
        assert abs(estimate - cycles) <= max(PART * cycles, CYCLES), (width, estimate, cycles)


@pytest.mark.parametrize("x, kernel, options", [
    ((1, 49, 10, 1), (64, 10, 4, 1), {"stride": (2, 2), "padding": (4, 1, 5, 1)}),
    ((1, 32, 32, 3), (16, 3, 3, 3), {"padding": q.SAME}),
    ((1, 96, 96, 3), (8, 3, 3, 3), {"padding": (0, 0, 1, 1), "stride": (2, 2)}),
    ((1, 16, 16, 32), (32, 3, 3, 32), {"padding": q.SAME}),
    ((1, 17, 13, 24), (40, 3, 3, 24), {"padding": q.SAME, "stride": (2, 2)}),
    ((1, 25, 5, 64), (64, 1, 1, 64), {}),
    ((1, 25, 5, 64), (64, 3, 3, 1), {"padding": q.SAME, "groups": 64}),
    ((1, 24, 24, 32), (32, 3, 3, 1), {"padding": (0, 0, 1, 1), "groups": 32, "stride": (2, 2)}),
    ((1, 15, 1, 128), (128, 15, 1, 1), {"groups": 128}),
    ((1, 9, 9, 12), (12, 5, 5, 1), {"padding": (2, 2, 2, 2), "groups": 12}),
    ((1, 1, 1, 640), (128, 1, 1, 640), {}),
    ((1, 1, 1, 128), (640, 1, 1, 128), {}),
    ((1, 3, 3, 256), (256, 1, 1, 256), {}),
    ((1, 12, 12, 16), (24, 3, 3, 16), {"dilation": (2, 2), "padding": (2, 2, 2, 2)}),
    ((1, 14, 14, 64), (64, 1, 1, 64), {"stride": (2, 2)}),
    ((1, 6, 40, 5), (33, 3, 7, 5), {"padding": (1, 3, 1, 3), "stride": (1, 2)}),
])
def test_one_layer(x, kernel, options):
    check(q.one_conv(x, kernel, **options))


@pytest.mark.parametrize("seed", range(12))
def test_random_layers(seed):
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(4, 30, 2))
    depth, channels = (int(n) for n in rng.integers(1, 100, 2))
    k = int(rng.choice([1, 3, 5]))
    options = {"padding": (k // 2,) * 4, "stride": (int(rng.integers(1, 3)),) * 2}
    if rng.random() < 0.4:
        check(q.one_conv((1, height, width, depth), (depth, k, k, 1), groups=depth, seed=seed, **options))
    else:
        check(q.one_conv((1, height, width, depth), (channels, k, k, depth), seed=seed, **options))


@pytest.mark.parametrize("kind, kernel, stride", [("max", (2, 2), (2, 2)), ("max", (3, 3), (2, 2)),
                                                  ("avg", (25, 5), (1, 1)), ("avg", (8, 8), (1, 1))])
def test_pools(kind, kernel, stride):
    size = (25, 5) if kernel == (25, 5) else (8, 8) if kind == "avg" else (16, 18)
    out = [(n - k) // s + 1 for n, k, s in zip(size, kernel, stride)]
    requants = ((kernel[0] * kernel[1], Requant((1 << 31) // (kernel[0] * kernel[1]), 31)),) if kind == "avg" else ()
    pool = QPool("pool", "x", "y", kind, kernel, stride, q.PLAIN, False, 3, 3, requants, "upward")
    tensors = [q.tensor("x", (1, *size, 64)), q.tensor("y", (1, *out, 64))]
    check(q.region("pool", tensors, [pool], ["x"], ["y"]))


@pytest.mark.parametrize("size, channels", [(8, 8), (16, 16), (20, 40)])
def test_chain_with_a_residual(size, channels):
    check(q.residual_net(size, channels))
