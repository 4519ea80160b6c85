"""QRegion interpret = program on the golden machine, on regions of all kinds and two targets."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.isa.encode import decode_all
from byoc_accel.schedule.schedule import schedule
from byoc_accel.target import load_target
from tests import qregions as q
from tests import strategies_region
from tests.differential.machines import check

TARGETS = {name: load_target(name) for name in ("tiny", "reference")}
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


@each_target
@settings(max_examples=60)
@given(qregion=strategies_region.qregions())
def test_random_regions(target, qregion):
    check(qregion, target)


@each_target
@pytest.mark.parametrize("size, channels", [(8, 8), (6, 6), (16, 16), (10, 20), (18, 5)])
def test_residual_net(target, size, channels):
    check(q.residual_net(size, channels), target)


@each_target
@pytest.mark.parametrize("batch", [2, 5])
def test_batch(target, batch):
    check(q.residual_net(6, 6, batch), target)


@pytest.mark.parametrize("kernel, options", [
    ((40, 3, 3, 12), {"padding": q.SAME}),
    ((12, 3, 3, 12), {"padding": (2, 0, 1, 1), "stride": (2, 1)}),
    ((12, 3, 2, 1), {"padding": (0, 1, 2, 0), "groups": 12}),
    ((24, 3, 3, 3), {"padding": q.SAME, "groups": 4}),
    ((12, 2, 3, 12), {"dilation": (3, 2), "padding": (1, 2, 3, 4)}),
    ((12, 3, 3, 1), {"groups": 12, "dilation": (2, 2), "padding": (2, 2, 2, 2), "stride": (2, 2)}),
    ((5, 1, 1, 12), {"stride": (3, 3)}),
])
def test_larger_than_sram(kernel, options):
    """40 x 30 x 12 bytes are more than tiny's SRAM: input and output are staged in blocks, in a hardware loop."""
    program = check(q.one_conv((1, 40, 30, 12), kernel, **options), TARGETS["tiny"])
    assert any(inst.mnemonic == "loop" for _, inst in decode_all(program.code))


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_larger_than_sram_and_copied(copies):
    """A result that is read again and is an output several times: each block goes to scratch and to each copy."""
    rng = np.random.default_rng(copies)
    tensors = [q.tensor("x", (1, 40, 30, 12), 3), q.tensor("a", (1, 40, 30, 11), -5), q.tensor("b", (1, 40, 30, 7), 1)]
    nodes = [q.conv(rng, "first", "x", "a", (11, 3, 3, 12), padding=q.SAME),
             q.conv(rng, "second", "a", "b", (7, 3, 3, 11), padding=q.SAME)]
    region = q.region("copied", tensors, nodes, ["x"], ["a"] * copies + ["b"])
    plan = schedule(region, TARGETS["tiny"])
    first = next(p for p in plan.steps if p.step.y == "a")
    assert len(first.stores) == copies and first.blocks.count > 1
    program = check(region, TARGETS["tiny"])
    assert any(inst.mnemonic == "loop" for _, inst in decode_all(program.code))


@pytest.mark.parametrize("inputs, outputs", [(1, 1), (3, 5), (15, 17), (16, 16), (17, 33), (255, 257), (3, 1025)])
def test_channel_counts(inputs, outputs):
    check(q.one_conv((1, 3, 3, inputs), (outputs, 3, 3, inputs), padding=q.SAME), TARGETS["reference"])


def test_weights_of_blocks_are_stored_once():
    """A convolution cut into many blocks holds each weight byte once."""
    region = q.one_conv((1, 40, 30, 12), (8, 3, 3, 12), padding=q.SAME)
    program = check(region, TARGETS["tiny"])
    weights = region.nodes[0].weight.size
    assert weights <= sum(layer.weight_bytes for layer in program.layers) < 1.1 * weights
