"""The cost model against the simulator: single layers of many shapes, chains and whole random networks, at four fetch
widths. With codec raw nothing is estimated; with lanes only the encoder knows the bytes of each tile."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.emit.emit import emit
from byoc_accel.errors import ScheduleError
from byoc_accel.isa.byte_kinds import byte_kinds
from byoc_accel.quantize.qregion import QPool, QRegion, Requant
from byoc_accel.schedule.plan import Plan
from byoc_accel.schedule.schedule import schedule
from byoc_accel.sim import simulate_program
from byoc_accel.target import Target, load_target
from byoc_accel.timing.machine import Machine
from byoc_accel.timing.timeline import LayerBytes, plan_cycles
from tests import qregions as q
from tests.chains import chained, chains_of, random_net
from tests.strategies_region import LARGE, SMALL, qregions

REFERENCE, TINY = load_target("reference"), load_target("tiny")
WIDTHS = (16, 8, 4, 1)
PART = 0.02  # allowed difference, as a part of the cycles
RAW_CYCLES = 2  # codec raw: padding of a tile counts as spread over its steps
LAYER_CYCLES = 4  # and inside a network, where a layer begins and ends as its neighbours let it: a decoder's latency


def compare_plan(plan: Plan, target: Target, codec: str = "auto") -> tuple[list[int], list[int]]:
    """Estimated and simulated cycles of every layer; their sums are those of the whole program."""
    program = emit(plan, target, codec)
    inputs = {b.name: np.zeros(b.bytes, np.int8) for b in program.buffers if b.kind == "input"}
    _, result = simulate_program(program, target, inputs, mode="counts")
    sizes = [LayerBytes(layer.weight_bytes, byte_kinds(program.code, layer.start, layer.end)["weight_tables"])
             for layer in program.layers]
    estimates = np.diff(plan_cycles(plan, target, sizes), prepend=0).tolist()
    cycles = [layer.counters.cycles for layer in result.layers]
    assert sum(cycles) == result.total.cycles
    return estimates, cycles


def compare(region: QRegion, target: Target, codec: str = "auto") -> tuple[int, int]:
    """Estimated and simulated cycles of the whole program."""
    estimates, cycles = compare_plan(schedule(region, target), target, codec)
    return sum(estimates), sum(cycles)


def check(region: QRegion) -> None:
    """Within the allowed part at every fetch width."""
    for width in WIDTHS:
        estimate, cycles = compare(region, replace(REFERENCE, fetch_bytes_per_cycle=width))
        assert abs(estimate - cycles) <= PART * cycles, (width, estimate, cycles)


def check_raw(region: QRegion) -> None:
    for width in WIDTHS:
        estimate, cycles = compare(region, replace(REFERENCE, fetch_bytes_per_cycle=width), "raw")
        assert abs(estimate - cycles) <= RAW_CYCLES, (width, estimate, cycles)


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
    check_raw(q.one_conv(x, kernel, **options))


@pytest.mark.parametrize("x, kernel, options", [
    ((1, 112, 112, 32), (64, 1, 1, 32), {}),
    ((1, 112, 112, 64), (64, 3, 3, 1), {"padding": (0, 0, 1, 1), "groups": 64, "stride": (2, 2)}),
    ((1, 56, 56, 64), (128, 3, 3, 64), {"padding": q.SAME, "stride": (2, 2)}),
    ((1, 56, 56, 128), (64, 1, 1, 128), {"stride": (2, 2)}),
])
def test_tensors_larger_than_the_sram(x, kernel, options):
    region = q.one_conv(x, kernel, **options)
    assert any(step.stages for step in schedule(region, REFERENCE).steps)
    check(region)
    check_raw(region)


def pool_region(kind: str, kernel: tuple[int, int], stride: tuple[int, int], size: tuple[int, int]) -> QRegion:
    out = [(n - k) // s + 1 for n, k, s in zip(size, kernel, stride)]
    requants = ((kernel[0] * kernel[1], Requant((1 << 31) // (kernel[0] * kernel[1]), 31)),) if kind == "avg" else ()
    pool = QPool("pool", "x", "y", kind, kernel, stride, q.PLAIN, False, 3, 3, requants, "upward")
    tensors = [q.tensor("x", (1, *size, 64)), q.tensor("y", (1, *out, 64))]
    return q.region("pool", tensors, [pool], ["x"], ["y"])


@pytest.mark.parametrize("kind, kernel, stride, size", [
    ("max", (2, 2), (2, 2), (16, 18)), ("max", (3, 3), (2, 2), (16, 18)), ("max", (3, 3), (2, 2), (112, 111)),
    ("avg", (25, 5), (1, 1), (25, 5)), ("avg", (8, 8), (1, 1), (8, 8))])
def test_pools(kind, kernel, stride, size):
    check(pool_region(kind, kernel, stride, size))


@pytest.mark.parametrize("size, channels", [(8, 8), (16, 16), (20, 40)])
def test_network_with_a_residual(size, channels):
    check(q.residual_net(size, channels))


def test_chains():
    found = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        plan = chained(random_net(rng, 16, 12), TINY, rng)
        found += bool(chains_of(plan))
        for width in (8, 4, 1):
            estimates, cycles = compare_plan(plan, replace(TINY, fetch_bytes_per_cycle=width), "raw")
            assert abs(sum(estimates) - sum(cycles)) <= RAW_CYCLES, (seed, width, estimates, cycles)
    assert found >= 4


@settings(max_examples=60)
@given(qregions(SMALL), st.sampled_from((8, 4, 1)))
def test_random_networks_on_a_small_target(region, width):
    check_random(region, replace(TINY, fetch_bytes_per_cycle=width))


@settings(max_examples=30)
@given(qregions(LARGE), st.sampled_from(WIDTHS))
def test_random_networks(region, width):
    check_random(region, replace(REFERENCE, fetch_bytes_per_cycle=width))


def check_random(region: QRegion, target: Target) -> None:
    try:
        plan = schedule(region, target)
    except ScheduleError:
        return
    estimates, cycles = compare_plan(plan, target, "raw")
    assert max(abs(a - b) for a, b in zip(estimates, cycles)) <= RAW_CYCLES, (estimates, cycles)
    estimates, cycles = compare_plan(plan, target)
    assert abs(sum(estimates) - sum(cycles)) <= PART * sum(cycles), (sum(estimates), sum(cycles))


def test_equal_iterations_of_a_loop_are_not_repeated(monkeypatch):
    """What is left out changes no time."""
    region = q.one_conv((1, 56, 56, 64), (128, 3, 3, 64), padding=q.SAME)
    plan = schedule(region, REFERENCE)
    assert plan.steps[-1].blocks.count > 8
    passes: list[int] = []
    real = Machine._passes
    monkeypatch.setattr(Machine, "_passes", lambda self, event: (passes.append(0), real(self, event))[1])
    few = plan_cycles(plan, REFERENCE), len(passes)
    stands = iter(range(1 << 30))
    monkeypatch.setattr(Machine, "_stand", lambda self: (next(stands),))
    assert plan_cycles(plan, REFERENCE) == few[0]
    assert len(passes) - few[1] > few[1]
