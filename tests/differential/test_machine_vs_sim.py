"""NumPy golden machine and C simulator give the same bytes for random valid programs, whatever the options.

The golden machine is written from the instruction table by other means than the simulator; the programs come from
tests/strategies_isa.py and show the whole memory in their output.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel import sim
from byoc_accel.isa import machine
from byoc_accel.sim_result import SimResult
from byoc_accel.target import Target, load_target
from tests.strategies_isa import Case, programs

TINY, REFERENCE = load_target("tiny"), load_target("reference")
# Odd sizes: rows and columns that are no multiple of any vector, several fetch words and rows per cycle, a FIFO
# that is no multiple of the fetch width, a queue of one.
ODD = replace(TINY, name="odd", array_rows=9, array_columns=27, sram_port_bytes=28, decoder_rows_per_cycle=2,
              fetch_bytes_per_cycle=24, fetch_fifo_bytes=100, fetch_queue_depth=1, fetch_latency_cycles=3,
              accumulator_banks=3, accumulator_entries_per_bank=21, post_parameter_bytes_per_cycle=7,
              dma_bytes_per_cycle=3, dma_latency_cycles=0)
WIDE = replace(REFERENCE, name="wide", array_rows=32, array_columns=32, sram_port_bytes=32, fetch_bytes_per_cycle=64,
               fetch_fifo_bytes=64, decoder_rows_per_cycle=32, sram_bytes=4096)
TARGETS = (TINY, REFERENCE, ODD, WIDE)


def golden(case: Case, target: Target) -> list[np.ndarray]:
    return machine.run(case.program.code, target, case.contents, np.random.default_rng(1))


def simulated(case: Case, target: Target, runs: int = 1, **options: object) -> tuple[list[np.ndarray], SimResult]:
    writable = [b.kind != "input" for b in case.program.buffers]
    simulator = sim.Machine(target, **options)
    for _ in range(runs):
        buffers = [content.copy() for content in case.contents]
        result = simulator.run(case.program.code, buffers, writable, case.program.layers)
    return buffers, result


def assert_equal(case: Case, got: list[np.ndarray], expected: list[np.ndarray], what: object) -> None:
    for buffer, a, b in zip(case.program.buffers, got, expected):
        wrong = np.flatnonzero(a != b)
        assert wrong.size == 0, f"{what}: {buffer.name}: {wrong.size} bytes differ, first at {wrong[0]}"


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(max_examples=60)
@given(data=st.data())
def test_same_bytes(target: Target, data: st.DataObject) -> None:
    case = data.draw(programs(target))
    expected = golden(case, target)
    for kernel in sim.kernels():
        got, _ = simulated(case, target, fill="noise", seed=5, kernel=kernel)
        assert_equal(case, got, expected, kernel)


@pytest.mark.parametrize("target", (TINY, ODD), ids=lambda t: t.name)
@settings(max_examples=30)
@given(data=st.data())
def test_options_change_neither_bytes_nor_cycles(target: Target, data: st.DataObject) -> None:
    case = data.draw(programs(target))
    expected, first = simulated(case, target)
    for options in ({"fill": "ones"}, {"fill": "noise"}, {"runs": 2}, {"runs": 2, "fill": "noise"}, {"trace": True}):
        got, result = simulated(case, target, **options)
        assert_equal(case, got, expected, options)
        assert result.total == first.total and result.layers == first.layers, options
    got, result = simulated(case, target, mode="functional")
    assert_equal(case, got, expected, "functional")
    assert result.cycles == 0
    got, result = simulated(case, target, mode="counts")
    assert_equal(case, got, [c for c in case.contents], "counts")
    assert result.total == first.total and result.layers == first.layers


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(max_examples=40)
@given(data=st.data())
def test_counters_are_consistent(target: Target, data: st.DataObject) -> None:
    case = data.draw(programs(target))
    _, result = simulated(case, target, mode="counts")
    total = result.total
    assert 0.0 <= result.utilisation <= 1.0
    assert total.macs <= total.slots <= result.cycles * target.macs_per_cycle
    for unit in total.units:
        assert unit.busy_cycles + sum(n for _, n in unit.stalls) == result.cycles, unit
    assert sum(s.counters.cycles for s in result.layers) == result.cycles
    assert sum(s.counters.macs for s in result.layers) == total.macs
    assert total.stream_bytes("consumed") <= total.stream_bytes("fetched")
    for name, floor in lower_bounds(result, target).items():
        assert result.cycles >= floor, name


def lower_bounds(result: SimResult, target: Target) -> dict[str, int]:
    """What no machine of these widths can beat."""
    total = result.total
    return {"array": -(-total.macs // target.macs_per_cycle),
            "program": -(-total.stream_bytes("consumed") // target.fetch_bytes_per_cycle) + target.fetch_latency_cycles,
            "input": -(-total.stream_bytes("external_read") // target.dma_bytes_per_cycle),
            "output": -(-total.stream_bytes("external_write") // target.dma_bytes_per_cycle)}
