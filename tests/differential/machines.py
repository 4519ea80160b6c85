"""Run a QRegion through schedule, emit and a machine, and compare every output byte with interpret."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_accel.emit.emit import emit
from byoc_accel.emit.program import Program
from byoc_accel.emit.verify import verify as verify_program
from byoc_accel.isa import machine
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.qregion import QRegion
from byoc_accel.schedule.schedule import schedule
from byoc_accel.schedule.verify import verify as verify_plan
from byoc_accel.target import Target

Run = Callable[[Program, Target, list[np.ndarray], int], list[np.ndarray]]


def build(qregion: QRegion, target: Target) -> Program:
    """Scheduled, emitted and verified."""
    plan = schedule(qregion, target)
    verify_plan(plan, target)
    program = emit(plan, target)
    verify_program(program, target)
    return program


def on_golden_machine(program: Program, target: Target, inputs: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Output buffers of the NumPy machine whose memories start with noise."""
    rng = np.random.default_rng(seed)
    given = iter(inputs)
    buffers = [next(given).reshape(-1).copy() if b.kind == "input"
               else rng.integers(-128, 128, b.bytes).astype(np.int8) for b in program.buffers]
    buffers = machine.run(program.code, target, buffers, rng)
    return [buffer for buffer, b in zip(buffers, program.buffers) if b.kind == "output"]


def random_inputs(qregion: QRegion, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = qregion.by_name()
    return [rng.integers(-128, 128, shapes[p.tensor].shape).astype(np.int8) for p in qregion.inputs]


def check(qregion: QRegion, target: Target, run: Run = on_golden_machine, seed: int = 0) -> Program:
    """Assert that `run` gives exactly what interpret says; returns the program."""
    program = build(qregion, target)
    inputs = random_inputs(qregion, seed)
    expected = interpret(qregion, inputs)
    for port, got in zip(qregion.outputs, run(program, target, inputs, seed)):
        wrong = np.flatnonzero(got.reshape(-1) != expected[port.tensor].reshape(-1))
        assert wrong.size == 0, f"{port.tensor}: {wrong.size} of {got.size} bytes differ, first at {wrong[0]}"
    return program
