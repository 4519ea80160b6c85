"""Inputs of few channels stored as strips, and first layers that begin before their whole input is loaded: interpret =
program, resident and staged, with every kind of edge."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.isa.encode import decode_all
from byoc_accel.quantize.prune import prune
from byoc_accel.schedule.schedule import schedule
from byoc_accel.target import load_target
from tests import qregions as q
from tests.differential.machines import check

REFERENCE, TINY = load_target("reference"), load_target("tiny")
SLOW_LOADS = replace(REFERENCE, dma_bytes_per_cycle=1, accumulator_entries_per_bank=128)


def _in_strips(region, target) -> tuple[bool, bool]:
    """Whether the first layer's input is stored as strips as a whole, and whether its stage is."""
    plan = schedule(prune(region), target)
    return (any(place.layout.strips is not None for _, place in plan.places),
            any(stage.strips is not None for step in plan.steps for stage in step.stages))


@pytest.mark.parametrize("x, kernel, options", [
    ((1, 49, 10, 1), (40, 10, 4, 1), {"stride": (2, 2), "padding": (4, 1, 5, 1)}),
    ((1, 9, 11, 2), (33, 3, 3, 2), {"padding": q.SAME}),
    ((1, 11, 9, 1), (16, 5, 5, 1), {"padding": (2, 4, 3, 0), "stride": (3, 1)}),  # several strips of other widths
    ((1, 9, 9, 1), (16, 3, 4, 1), {}),
    ((1, 7, 6, 1), (70, 3, 7, 1), {"padding": (0, 6, 0, 6)}),  # strips with one position of the input
    ((1, 20, 9, 3), (64, 3, 3, 3), {"padding": (1, 0, 0, 2), "stride": (1, 2)}),
    ((1, 80, 1, 1), (40, 3, 1, 1), {"padding": (1, 0, 1, 0)}),
    ((2, 6, 6, 1), (16, 3, 3, 1), {"padding": q.SAME}),
])
def test_whole_input(x, kernel, options):
    region = q.one_conv(x, kernel, **options)
    assert _in_strips(region, REFERENCE) == (True, False)
    check(region, REFERENCE)


@pytest.mark.parametrize("x, kernel, options", [
    ((1, 100, 90, 1), (12, 5, 3, 1), {"padding": (2, 1, 2, 1)}),
    ((1, 100, 90, 1), (12, 5, 3, 1), {"padding": (0, 2, 3, 0), "stride": (2, 2)}),
    ((1, 120, 80, 1), (12, 4, 3, 1), {}),
])
def test_blocks(x, kernel, options):
    """The input stays outside; each block loads the strips of its rows."""
    region = q.one_conv(x, kernel, **options)
    assert _in_strips(region, TINY) == (False, True)
    check(region, TINY)


def test_positions_that_a_stride_skips_are_not_loaded():
    """1x1 kernel with stride 3 and 2: a block loads every third row and every second position of them."""
    region = q.one_conv((1, 40, 31, 12), (5, 1, 1, 12), stride=(3, 2))
    stage, = [s for step in schedule(region, TINY).steps for s in step.stages if s.strips is not None]
    assert (stage.strips.count, stage.strips.row_step) == (16, 3) and stage.bytes % (16 * 12) == 0
    check(region, TINY)


def test_input_with_another_reader_stays_in_rows():
    region = q.one_conv((1, 9, 9, 1), (16, 3, 4, 1))
    second = replace(region.nodes[0], name="again", y="z")
    tensors = (*region.tensors, replace(region.tensors[1], name="z"))
    both = q.region("both", list(tensors), [*region.nodes, second], ["x"], ["y", "z"])
    assert _in_strips(both, REFERENCE) == (False, False)
    check(both, REFERENCE)


def test_wide_rows_stay_rows():
    """16 channels fill the lanes of a tile, so strips would only take more loads."""
    assert _in_strips(q.one_conv((1, 9, 9, 16), (16, 3, 3, 16), padding=q.SAME), REFERENCE) == (False, False)


@pytest.mark.parametrize("x, kernel, options", [
    ((1, 24, 20, 3), (4, 3, 3, 3), {"padding": (0, 0, 1, 1), "stride": (2, 2)}),
    ((1, 24, 20, 3), (6, 5, 3, 3), {"padding": (2, 1, 2, 1)}),
    ((1, 40, 18, 4), (4, 1, 1, 4), {"stride": (2, 1)}),
    ((1, 30, 10, 4), (4, 3, 3, 1), {"padding": q.SAME, "groups": 4}),
    ((2, 24, 20, 3), (4, 3, 3, 3), {"padding": q.SAME}),
])
def test_blocks_begin_when_their_rows_are_loaded(x, kernel, options):
    region = q.one_conv(x, kernel, **options)
    heights = schedule(prune(region), SLOW_LOADS).steps[0].blocks.heights
    assert len(heights) > 1
    program = check(region, SLOW_LOADS)
    code = [inst.mnemonic for _, inst in decode_all(program.code)]
    assert code.count("load") >= len(heights) and "loop" not in code[:code.index("post")]


def test_strips_of_a_part_of_the_rows():
    """Both at once: strips whose rows come in several loads."""
    region = q.one_conv((1, 60, 60, 1), (32, 5, 5, 1), padding=(2, 2, 2, 2))
    blocks = schedule(prune(region), REFERENCE).steps[0].blocks
    assert _in_strips(region, REFERENCE) == (True, False) and len(blocks.heights) > 1
    check(region, REFERENCE)


def test_rows_that_the_first_layer_does_not_read_are_loaded_too():
    """Its stride leaves out the last rows, which another step reads."""
    rng = np.random.default_rng(2)
    shape = (1, 40, 18, 4)
    tensors = [q.tensor("x", shape), q.tensor("y", (1, 14, 18, 4)), q.tensor("z", shape)]
    nodes = [q.conv(rng, "a", "x", "y", (4, 1, 1, 4), stride=(3, 1)), q.conv(rng, "b", "x", "z", (4, 1, 1, 4))]
    region = q.region("two", tensors, nodes, ["x"], ["y", "z"])
    assert len(schedule(region, SLOW_LOADS).steps[0].blocks.heights) > 1
    check(region, SLOW_LOADS)


def test_first_block_may_lie_in_the_border():
    region = q.one_conv((1, 30, 20, 3), (4, 1, 1, 3), padding=(9, 0, 9, 0))
    assert schedule(prune(region), SLOW_LOADS).steps[0].blocks.heights[0] < 9
    check(region, SLOW_LOADS)
