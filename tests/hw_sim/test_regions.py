"""Compiled regions on the simulator: bytes as interpret says, cycles as the clocked model counts."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel import sim
from byoc_accel.compile import compile_qregion
from byoc_accel.emit.program import Program
from byoc_accel.isa.encode import decode_all
from byoc_accel.quantize.qregion import QRegion
from byoc_accel.quantize.report import QuantReport
from byoc_accel.target import Target, load_target
from tests import qregions, strategies_region
from tests.differential.machines import check
from tests.hw_sim.clocked import Clocked

TARGETS = {name: load_target(name) for name in ("tiny", "reference")}
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


def on_simulator(program: Program, target: Target, inputs: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Output buffers; memories, outputs and scratch start with noise. Checks what every result must obey."""
    names = [b.name for b in program.buffers if b.kind == "input"]
    named = {name: array.reshape(-1) for name, array in zip(names, inputs)}
    outputs, result = sim.simulate_program(program, target, named, fill="noise", seed=seed)
    again, counted = sim.simulate_program(program, target, named, mode="functional", fill="ones")
    assert all(np.array_equal(outputs[name], again[name]) for name in outputs) and counted.cycles == 0
    assert 0 <= result.utilisation <= 1
    assert sum(layer.counters.cycles for layer in result.layers) == result.cycles
    assert all(u.busy_cycles + sum(n for _, n in u.stalls) == result.cycles for u in result.total.units)
    return list(outputs.values())


@each_target
@settings(max_examples=25)
@given(qregion=strategies_region.qregions())
def test_random_regions(target: Target, qregion: QRegion) -> None:
    check(qregion, target, on_simulator)


@each_target
def test_residual_net_in_hardware_time(target: Target) -> None:
    program = check(qregions.residual_net(8, 8), target, on_simulator)
    inputs = {b.name: np.zeros(b.bytes, np.int8) for b in program.buffers if b.kind == "input"}
    _, result = sim.simulate_program(program, target, inputs, mode="counts")
    assert Clocked(program.code, target).run() == result.cycles


def test_blocks_in_hardware_time() -> None:
    """A convolution in many blocks: hardware loop, registers, overlapped transfers."""
    program = check(qregions.one_conv((1, 40, 30, 12), (40, 3, 3, 12), padding=qregions.SAME), TARGETS["tiny"],
                    on_simulator)
    inputs = {b.name: np.zeros(b.bytes, np.int8) for b in program.buffers if b.kind == "input"}
    _, result = sim.simulate_program(program, TARGETS["tiny"], inputs, mode="counts")
    assert Clocked(program.code, TARGETS["tiny"]).run() == result.cycles


@pytest.mark.parametrize("fetch_width", [1, 4, 8, 16, 64])
def test_counts_of_a_compiled_network_are_those_of_its_trace(fetch_width: int) -> None:
    """A network with many tiles and hardware loops: what is counted together is what a trace counts step by step."""
    target = replace(TARGETS["reference"], name="drawn", sram_bytes=32768, fetch_bytes_per_cycle=fetch_width)
    compiled = compile_qregion(qregions.residual_net(28, 64), QuantReport("net", "exact", "model", 0, ()), target)
    inputs = {b.name: np.zeros(b.bytes, np.int8) for b in compiled.program.buffers if b.kind == "input"}
    results = [sim.simulate_program(compiled.program, target, inputs, mode=mode, trace=trace)[1]
               for mode, trace in (("full", True), ("full", False), ("counts", False))]
    assert results[0].total.tiles > 500 and any("endl" in line for line in results[0].trace)
    for result in results[1:]:
        assert result.total == results[0].total and result.layers == results[0].layers


@each_target
@pytest.mark.parametrize("mode", ["full", "counts"])
def test_prepared_weights_are_all_of_a_program(target: Target, mode: str) -> None:
    """The second number of a cache counts its entries, one for each conv and dwc of codec lanes."""
    for net in (qregions.residual_net(8, 24), qregions.one_conv((1, 9, 9, 5), (5, 3, 3, 5), padding=qregions.SAME)):
        code = compile_qregion(net, QuantReport("net", "exact", "model", 0, ()), target, "lanes").program.code
        lanes = [i for _, i in decode_all(code) if i.mnemonic in ("conv", "dwc") and i.codec == "lanes"]
        assert int(sim.Machine(target, mode=mode).prepare(code).cache[1]) == len(lanes) > 0
