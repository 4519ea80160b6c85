"""Chains: every byte on the simulator and the golden machine, cycles as estimated, refusals of verify."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.emit.emit import emit
from byoc_accel.emit.verify import verify as verify_program
from byoc_accel.errors import ScheduleError
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.qregion import QPool
from byoc_accel.schedule import merge
from byoc_accel.schedule.chain import read_layout
from byoc_accel.schedule.chain_cost import ChainCost
from byoc_accel.schedule.cost import Operands, input_cycles
from byoc_accel.schedule.plan import Blocks, ChainStep
from byoc_accel.schedule.schedule import schedule, start
from byoc_accel.schedule.text import to_text
from byoc_accel.schedule.verify import verify
from byoc_accel.sim import simulate_program
from byoc_accel.target import load_target
from tests import chains
from tests import qregions as q
from tests.differential.machines import on_golden_machine, random_inputs

REFERENCE, TINY = load_target("reference"), load_target("tiny")


def run(region, plan, target, seed):
    """Plan and program verified; outputs of the simulator compared; its cycles."""
    verify(plan, target)
    program = emit(plan, target)
    verify_program(program, target)
    inputs = random_inputs(region, seed)
    outputs, result = simulate_program(program, target, {"t0": inputs[0]}, fill="noise", seed=seed)
    name = region.outputs[0].tensor
    assert np.array_equal(outputs[name].reshape(-1), interpret(region, inputs)[name].reshape(-1))
    return program, result.total.cycles


@pytest.mark.parametrize("part", range(4))
def test_random_chains_on_the_small_target(part):
    """Everything is cut: stripes in loops and written out, pieces of the accumulators, edges of every kind."""
    found = kinds = 0
    for seed in range(part * 12, part * 12 + 12):
        rng = np.random.default_rng(seed)
        region = chains.random_net(rng, 40, 20)
        try:
            plan = chains.chained(region, TINY, rng)
        except ScheduleError as error:
            assert "one row per block needs" in str(error)
            continue
        run(region, plan, TINY, seed)
        found += bool(chains.chains_of(plan))
        kinds += any(chain.direct or chain.pool for chain in chains.chains_of(plan))
    assert found >= 4 and kinds >= 2


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 7, 8, 9])
def test_random_chains(seed):
    rng = np.random.default_rng(1000 + seed)
    region = chains.random_net(rng, 70, 64)
    plan = chains.chained(region, REFERENCE, rng, outside=0.0)
    assert chains.chains_of(plan)
    run(region, plan, REFERENCE, seed)


def separable(height=56, channels=64, outputs=64, stride=1, residual=False):
    """Expand, depthwise, project, as in MobileNet."""
    rng = np.random.default_rng(height + channels)
    low = -(-height // stride)
    shapes = {"t0": (height, outputs), "t1": (height, channels), "t2": (low, channels), "t3": (low, outputs)}
    tensors = [q.tensor(name, (1, n, n, c), 5) for name, (n, c) in shapes.items()]
    nodes = [q.conv(rng, "expand", "t0", "t1", (channels, 1, 1, outputs)),
             q.conv(rng, "depthwise", "t1", "t2", (channels, 3, 3, 1), padding=q.SAME, groups=channels,
                    stride=(stride, stride)),
             q.conv(rng, "project", "t2", "t3", (outputs, 1, 1, channels))]
    if residual:
        tensors.append(q.tensor("t4", tensors[-1].shape))
        nodes.append(q.add("add", "t3", "t0", "t4"))
    return q.region("separable", tensors, nodes, ["t0"], [tensors[-1].name])


def estimate_of(region, plan, target, code_bytes):
    """The scheduler's estimate for a plan of one chain, with what is moved as a whole before and behind it."""
    (chain,), places = plan.steps, dict(plan.places)
    x, y = chain.step.x, region.by_name()[chain.step.y]
    stage, y_stage = chain.stage(x), chain.stage(y.name)
    operands = Operands(read_layout(chain.step, places[x].layout, y), y, None if stage is None else stage.strips,
                        stage is not None, False, y_stage is not None)
    paired = bool(chain.stage_spacing_bytes)
    return ChainCost(chain.step, y, target).cycles(operands, chain.blocks, paired, code_bytes) + sum(
        input_cycles(places[name].layout, target) for name, moved in ((x, stage), (y.name, y_stage)) if moved is None)


@pytest.mark.parametrize("width", [16, 8, 4, 1])
@pytest.mark.parametrize("options", [{}, {"stride": 2}])
def test_estimate_of_larger_chains(options, width):
    target = replace(REFERENCE, fetch_bytes_per_cycle=width)
    region = separable(112, 96, 16, **options)
    plan = chains.one_chain(region, target, ("t0", "t3"))
    assert len(chains.chains_of(plan)) == 1
    program, cycles = run(region, plan, target, 0)
    estimate = estimate_of(region, plan, target, len(program.code))
    assert abs(estimate - cycles) <= 0.02 * cycles, (estimate, cycles)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"residual": True}])
def test_golden_machine(options):
    region = separable(24, 20, 8, **options)
    plan = chains.chained(region, TINY, np.random.default_rng(0))
    assert chains.chains_of(plan)
    program = emit(plan, TINY)
    verify_program(program, TINY)
    inputs = random_inputs(region, 0)
    (got,) = on_golden_machine(program, TINY, inputs, 0)
    assert np.array_equal(got, interpret(region, inputs)[region.outputs[0].tensor].reshape(-1))


def test_loop_holds_weights_once():
    """A chain without a border is one loop: depthwise and project, whose input is larger than the SRAM."""
    rng = np.random.default_rng(2)
    tensors = [q.tensor("t0", (1, 56, 56, 96)), q.tensor("t1", (1, 54, 54, 96)), q.tensor("t2", (1, 54, 54, 96))]
    nodes = [q.conv(rng, "d", "t0", "t1", (96, 3, 3, 1), groups=96), q.conv(rng, "p", "t1", "t2", (96, 1, 1, 96))]
    region = q.region("pair", tensors, nodes, ["t0"], ["t2"])
    plan = schedule(region, REFERENCE)
    assert [c.name for c in chains.chains_of(plan)] == ["d+p"]
    program, _ = run(region, plan, REFERENCE, 0)
    weights = sum(node.weight.size for node in nodes)
    assert sum(layer.weight_bytes for layer in program.layers) < 1.1 * weights
    assert "inside t1 at" in to_text(plan)
    assert sum(layer.macs for layer in program.layers) == 54 * 54 * 96 * (9 + 96)


def first_layers():
    """The beginning of a MobileNet for 224 x 224: a first layer, depthwise, project."""
    rng = np.random.default_rng(4)
    tensors = [q.tensor("t0", (1, 224, 224, 3), -7), q.tensor("t1", (1, 112, 112, 32)),
               q.tensor("t2", (1, 112, 112, 32), 9), q.tensor("t3", (1, 112, 112, 16))]
    nodes = [q.conv(rng, "first", "t0", "t1", (32, 3, 3, 3), stride=(2, 2), padding=(0, 0, 1, 1)),
             q.conv(rng, "depthwise", "t1", "t2", (32, 3, 3, 1), padding=q.SAME, groups=32),
             q.conv(rng, "project", "t2", "t3", (16, 1, 1, 32))]
    return q.region("first_layers", tensors, nodes, ["t0"], ["t3"])


def test_input_gets_its_border_in_the_staging_buffer():
    """No copy of the network's input with a border lies outside, and nothing else does."""
    plan = chains.one_chain(first_layers(), REFERENCE, ("t0", "t3"))
    (chain,) = chains.chains_of(plan)
    assert chain.direct is not None and len(plan.steps) == 1
    assert [b.kind for b in plan.buffers] == ["input", "output"]
    program, cycles = run(first_layers(), plan, REFERENCE, 0)
    assert abs(estimate_of(first_layers(), plan, REFERENCE, len(program.code)) - cycles) <= 0.02 * cycles


def test_chains_are_chosen_where_they_pay():
    """Beside a layer of many weights the program may hold the few of the chain thrice, alone it may not; the expanded
    tensor, 1.2 MB, is in no memory outside."""
    few = separable(112, 96, 16, 2)
    rng = np.random.default_rng(5)
    many = q.conv(rng, "many", "t3", "t4", (512, 7, 7, 16), stride=(7, 7))
    region = q.region("net", [*few.tensors, q.tensor("t4", (1, 8, 8, 512))], [*few.nodes, many], ["t0"], ["t4"])
    plan = schedule(region, REFERENCE)
    assert [c.name for c in chains.chains_of(plan)] == ["expand+depthwise+project"]
    assert sum(b.bytes for b in plan.buffers if b.kind == "scratch") < 112 * 112 * 16
    program, *_ = run(region, plan, REFERENCE, 0)
    weights = sum(node.weight.size for node in region.nodes)
    assert sum(layer.weight_bytes for layer in program.layers) < (1 + 1 / 16) * weights
    assert not any("expand" in c.name for c in chains.chains_of(schedule(few, REFERENCE)))


def _broken(change):
    plan = chains.chained(separable(24, 20, 8), TINY, np.random.default_rng(0))
    index = next(i for i, p in enumerate(plan.steps) if isinstance(p.step, ChainStep))
    steps = list(plan.steps)
    steps[index] = replace(steps[index], **change(steps[index]))
    return replace(plan, steps=tuple(steps))


@pytest.mark.parametrize("change, message", [
    (lambda p: {"inner": (replace(p.inner[0], bytes=p.inner[0].bytes - 1), *p.inner[1:])}, "less than the rows behind"),
    (lambda p: {"inner": p.inner[1:]}, "have no buffer inside the chain"),
    (lambda p: {"inner": (replace(p.inner[0], address=TINY.sram_bytes), *p.inner[1:])}, "the SRAM has 8192 B"),
    (lambda p: {"step": replace(p.step, members=tuple(replace(m, x="t0") for m in p.step.members))},
     "does not read the result of 'expand' alone"),
    (lambda p: {"blocks": Blocks(p.blocks.rows, p.blocks.count - 1, p.blocks.columns)}, "do not cover"),
])
def test_verify_refuses(change, message):
    with pytest.raises(ScheduleError, match=message):
        verify(_broken(change), TINY)


def pooled(size, channels, padding=(1, 1, 0, 0), kernel=(3, 3), stride=(2, 2), border=q.SAME):
    """A convolution and a max pool, as ResNets begin."""
    rng = np.random.default_rng(size)
    out = [(size + padding[i] + padding[i + 2] - kernel[i]) // stride[i] + 1 for i in (0, 1)]
    wide = size + 2 - border[0] - border[2]
    tensors = [q.tensor("t0", (1, wide, wide, channels), 2), q.tensor("t1", (1, size, size, channels)),
               q.tensor("t2", (1, *out, channels))]
    pool = QPool("pool", "t1", "t2", "max", kernel, stride, padding, False, 3, 3, (), "upward")
    conv = q.conv(rng, "conv", "t0", "t1", (channels, 3, 3, channels), padding=border)
    return q.region("pooled", tensors, [conv, pool], ["t0"], ["t2"])


@pytest.mark.parametrize("options", [{}, {"padding": (1, 1, 1, 1)}, {"padding": q.PLAIN, "kernel": (2, 2)},
                                     {"padding": (2, 0, 0, 2), "stride": (2, 1)}])
def test_pool_behind_a_convolution(options):
    """Stripe by stripe, rows above kept from the stripe before, on both machines."""
    region = pooled(20, 12, **options)
    plan = chains.one_chain(region, TINY, ("t0", "t2"))
    assert [c.name for c in chains.chains_of(plan)] == ["conv+pool"]
    assert max(p.blocks.count for p in plan.steps) > 1
    program, _ = run(region, plan, TINY, 1)
    inputs = random_inputs(region, 2)
    (got,) = on_golden_machine(program, TINY, inputs, 2)
    assert np.array_equal(got, interpret(region, inputs)["t2"].reshape(-1))


def test_pool_costs_next_to_nothing_behind_a_convolution():
    region = pooled(112, 64, border=q.PLAIN)
    plan = schedule(region, REFERENCE)
    assert [p.step.name for p in plan.steps] == ["conv+pool"]
    program, cycles = run(region, plan, REFERENCE, 0)
    assert abs(estimate_of(region, plan, REFERENCE, len(program.code)) - cycles) <= 0.02 * cycles
    assert cycles < 1.02 * 112 * 112 * 64 * 64 * 9 / 256


@pytest.mark.parametrize("options", [{"padding": q.PLAIN}, {"padding": (0, 0, 1, 1), "kernel": (4, 4)}])
def test_pool_that_reads_below_its_stripe_stays_a_step(options):
    tables = start(pooled(20, 12, **options), TINY)[2]
    assert merge.pairs(tables, always=True) == []


def test_verify_refuses_a_pool_whose_stripes_overlap():
    plan = chains.one_chain(pooled(20, 12), TINY, ("t0", "t2"))
    steps = [replace(p, blocks=Blocks(3, 4, 10)) if isinstance(p.step, ChainStep) else p for p in plan.steps]
    with pytest.raises(ScheduleError, match="4 blocks of 3 rows cannot end with pool 'pool', whose result has 10 rows"):
        verify(replace(plan, steps=tuple(steps)), TINY)
