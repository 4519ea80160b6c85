"""Convolutions cut by channels of their result: all rows fit the accumulators, result or residual are outside."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.emit.emit import emit
from byoc_accel.emit.verify import verify as verify_program
from byoc_accel.errors import ScheduleError
from byoc_accel.quantize.interpret import interpret
from byoc_accel.schedule.cost import Operands, input_cycles, step_cycles
from byoc_accel.schedule.schedule import schedule
from byoc_accel.schedule.text import to_text
from byoc_accel.schedule.verify import verify
from byoc_accel.sim import simulate_program
from byoc_accel.target import load_target
from tests import qregions as q
from tests.differential.machines import check, random_inputs

REFERENCE, TINY = load_target("reference"), load_target("tiny")


def wide(size, depth, channels, residual=True, kernel=1, groups=1, bordered=False):
    """A convolution of many channels, with a residual that is the network's second input, or none; the result may be
    read by one that needs a border."""
    rng = np.random.default_rng(channels + kernel)
    shape = (1, size, size, channels)
    tensors = [q.tensor("x", (1, size, size, depth), 2), q.tensor("a", shape, -4)]
    nodes = [q.conv(rng, "wide", "x", "a", (channels, kernel, kernel, depth // groups), padding=(kernel // 2,) * 4,
                    groups=groups)]
    if residual:
        tensors += [q.tensor("r", shape, 6), q.tensor("s", shape)]
        nodes.append(q.add("add", "a", "r", "s"))
    last = tensors[-1].name
    if bordered:
        tensors.append(q.tensor("y", (1, size, size, 8)))
        nodes.append(q.conv(rng, "after", last, "y", (8, 3, 3, channels), padding=q.SAME))
    return q.region("wide", tensors, nodes, ["x", "r"] if residual else ["x"], [tensors[-1].name])


@pytest.mark.parametrize("region", [
    wide(5, 12, 160), wide(5, 12, 160, bordered=True), wide(4, 20, 600, residual=False), wide(5, 16, 160, kernel=3),
    wide(5, 160, 160, residual=True, kernel=3, groups=160)], ids=["add", "border", "plain", "3x3", "depthwise"])
def test_every_byte(region):
    plan = schedule(region, TINY)
    assert any(p.blocks.channels for p in plan.steps)
    check(region, TINY)


@pytest.mark.parametrize("width", [16, 8, 4])
@pytest.mark.parametrize("residual", [True, False])
def test_weights_are_fetched_once_and_cycles_are_as_estimated(width, residual):
    """The last layer of a block of ResNet-50: 1 x 1, 256 to 1024 channels, with a residual of 200 KB."""
    target = replace(REFERENCE, fetch_bytes_per_cycle=width)
    region = wide(14, 256, 1024, residual)
    plan = schedule(region, target)
    verify(plan, target)
    assert plan.steps[-1].blocks.channels or not residual
    program = emit(plan, target)
    verify_program(program, target)
    inputs = random_inputs(region, 0)
    outputs, result = simulate_program(program, target, dict(zip(["x", "r"], inputs)))
    name = region.outputs[0].tensor
    assert np.array_equal(outputs[name].reshape(-1), interpret(region, inputs)[name].reshape(-1))
    assert program.layers[-1].weight_bytes < 1.02 * 256 * 1024
    (step,), places = plan.steps, dict(plan.places)
    x, y, y_outside = places["x"].layout, region.by_name()[name], step.stage(name) is not None
    operands = Operands(x, y, None, False, step.stage("r") is not None, y_outside)
    estimate = input_cycles(x, target) + (0 if y_outside else input_cycles(places[name].layout, target)) + step_cycles(
        step.step, operands, step.blocks, bool(step.stage_spacing_bytes), target, len(program.code))
    assert abs(estimate - result.total.cycles) <= 0.02 * result.total.cycles


def test_text_and_refusal():
    plan = schedule(wide(5, 12, 160), TINY)
    (step,) = plan.steps
    assert f"in {step.blocks.count} x {step.blocks.channels} channels of 5 rows" in to_text(plan)
    broken = replace(step, blocks=replace(step.blocks, count=step.blocks.count - 1))
    with pytest.raises(ScheduleError, match="channels do not cover 160 channels of 5 rows"):
        verify(replace(plan, steps=(broken,)), TINY)
