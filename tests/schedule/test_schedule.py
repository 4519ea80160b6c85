"""Plans: golden text, what happens when the SRAM is too small, and the refusal when nothing fits."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.emit.emit import emit
from byoc_accel.errors import ScheduleError
from byoc_accel.isa.encode import decode_all
from byoc_accel.quantize.qregion import QReshape
from byoc_accel.schedule.alloc import Overflow, Request, allocate
from byoc_accel.schedule.plan import Blocks, ConvStep, ElementStep, Layout, Stage
from byoc_accel.schedule.schedule import schedule
from byoc_accel.schedule.text import to_text
from byoc_accel.schedule.verify import verify
from byoc_accel.target import load_target
from tests import qregions as q
from tests.differential.machines import check

REFERENCE, TINY = load_target("reference"), load_target("tiny")


@pytest.mark.parametrize("target, size, channels", [(REFERENCE, 8, 8), (TINY, 16, 16)], ids=["sram", "staged"])
def test_golden(golden, target, size, channels):
    plan = schedule(q.residual_net(size, channels), target)
    verify(plan, target)
    golden(f"schedule/residual_net_{target.name}", to_text(plan))


def test_add_is_fused_into_the_later_convolution():
    steps = [p.step for p in schedule(q.residual_net(), REFERENCE).steps]
    assert [type(s).__name__ for s in steps] == ["ConvStep", "ConvStep", "PoolStep", "ConvStep"]
    assert isinstance(steps[1], ConvStep) and steps[1].residual == "x" and not steps[1].add_first


def test_add_of_a_tensor_with_two_readers_is_not_fused():
    region = q.residual_net()
    outputs = (*region.outputs, replace(region.outputs[0], tensor="b", host_shape=(1, 8, 8, 8)))
    steps = [p.step for p in schedule(replace(region, outputs=outputs), REFERENCE).steps]
    assert any(isinstance(s, ElementStep) and s.add for s in steps)


def test_bordered_tensor_that_is_also_reshaped_gets_a_copy():
    rng = np.random.default_rng(3)
    tensors = [q.tensor("x", (1, 4, 4, 4)), q.tensor("a", (1, 4, 4, 4)), q.tensor("b", (1, 4, 4, 4)),
               q.tensor("f", (1, 1, 1, 64)), q.tensor("d", (1, 1, 1, 3))]
    nodes = [q.conv(rng, "c1", "x", "a", (4, 1, 1, 4)), q.conv(rng, "c2", "a", "b", (4, 3, 3, 4), padding=q.SAME),
             QReshape("r", "a", "f"), q.conv(rng, "fc", "f", "d", (3, 1, 1, 64))]
    plan = schedule(q.region("r", tensors, nodes, ["x"], ["b", "d"]), REFERENCE)
    assert [p.step.name for p in plan.steps] == ["c1", "c2@border", "c2", "fc"]


def test_dense_batch_lies_along_the_width():
    """Weights of a dense layer are sent once for the whole batch."""
    region = q.one_conv((6, 1, 1, 20), (5, 1, 1, 20))
    plan = schedule(region, REFERENCE)
    assert len(plan.steps) == 1 and plan.steps[0].blocks.columns == 6


def test_refusal_names_the_step_and_the_limit():
    region = q.one_conv((1, 64, 64, 300), (300, 5, 5, 300), padding=q.SAME)
    with pytest.raises(ScheduleError, match=r"step 'conv.*one row per block needs [\d]+ B of SRAM.*8192 B"):
        schedule(region, TINY)


def test_allocate_never_overlaps():
    rng = np.random.default_rng(0)
    for _ in range(50):
        spans = np.sort(rng.integers(0, 12, (30, 2)))
        requests = [Request(f"r{i}", int(rng.integers(1, 200)), int(a), int(b)) for i, (a, b) in enumerate(spans)]
        found = allocate(requests, 4000, 16)
        assert not isinstance(found, Overflow)
        for a in requests:
            for b in requests:
                if a.name < b.name and a.first <= b.last and b.first <= a.last:
                    assert (found[a.name] + a.bytes <= found[b.name] or found[b.name] + b.bytes <= found[a.name])


def test_allocate_tries_other_orders_before_it_gives_up():
    """Largest first, `a` lies where `c` has to lie beside `d` and `b`; the longest first, all fill the 224 bytes."""
    requests = [Request("a", 80, 3, 3), Request("b", 64, 3, 4), Request("c", 80, 1, 3), Request("d", 96, 1, 1)]
    assert allocate(requests, 224, 16) == {"c": 0, "b": 80, "d": 80, "a": 144}


def test_allocate_reports_the_worst_step():
    found = allocate([Request("a", 60, 0, 2), Request("b", 50, 1, 1)], 100, 16)
    assert found == Overflow(1, 110)


def test_blocks_do_not_fetch_large_weights_again_and_again():
    """A shortcut of ResNet-50: 2 MB of weights, an input that is larger than what fits, and a residual."""
    rng = np.random.default_rng(0)
    tensors = [q.tensor("x", (1, 14, 14, 1024)), q.tensor("a", (1, 7, 7, 512)), q.tensor("b", (1, 7, 7, 2048)),
               q.tensor("c", (1, 7, 7, 2048)), q.tensor("d", (1, 7, 7, 2048))]
    nodes = [q.conv(rng, "c1", "x", "a", (512, 1, 1, 1024), stride=(2, 2)),
             q.conv(rng, "c2", "a", "b", (2048, 1, 1, 512)),
             q.conv(rng, "c3", "x", "c", (2048, 1, 1, 1024), stride=(2, 2)), q.add("add", "b", "c", "d")]
    plan = schedule(q.region("shortcut", tensors, nodes, ["x"], ["d"]), REFERENCE)
    verify(plan, REFERENCE)
    assert [p.blocks.count for p in plan.steps] == [1, 1, 1]


def _chain(zero_points=(7, 7)):
    """Two convolutions that read a border of one width, of zero points that may differ."""
    rng = np.random.default_rng(1)
    shape = (1, 6, 6, 8)
    tensors = [q.tensor(name, shape, {"a": zero_points[0], "c": zero_points[1]}.get(name, 3)) for name in "xabcde"]
    nodes = [q.conv(rng, f"c{i}", x, y, (8, k, k, 8), padding=q.SAME if k == 3 else q.PLAIN)
             for i, (x, y, k) in enumerate([("x", "a", 1), ("a", "b", 3), ("b", "c", 1), ("c", "d", 3), ("d", "e", 1)])]
    return q.region("chain", tensors, nodes, ["x"], ["e"])


def test_equal_borders_are_written_once():
    plan = schedule(_chain(), REFERENCE)
    verify(plan, REFERENCE)
    assert [p.fills for p in plan.steps] == [("a",), (), (), (), ()]
    assert dict(plan.places)["a"].address == dict(plan.places)["c"].address
    check(_chain(), REFERENCE)


def test_results_of_one_shape_keep_the_geometry_of_post():
    """b and d have no border of their own, but the pitch of a and c; e is an output and stays tight."""
    plan = schedule(_chain(), REFERENCE)
    assert {dict(plan.places)[name].layout.pitch_bytes for name in "abcd"} == {8 * 8}
    assert dict(plan.places)["b"].layout.value is None and dict(plan.places)["e"].layout.is_tight
    code = [inst.mnemonic for _, inst in decode_all(emit(plan, REFERENCE).code)]
    assert code.count("pgeo") == 2


def test_borders_of_other_values_are_not_shared():
    plan = schedule(_chain((7, -7)), REFERENCE)
    assert [p.fills for p in plan.steps] == [("a",), ("c",), (), (), ()]  # one step ahead
    check(_chain((7, -7)), REFERENCE)


@pytest.mark.parametrize("index, changes", [(0, {"fills": ()}), (1, {"fills": ()})])
def test_verify_wants_written_borders(index, changes):
    plan = schedule(_chain((7, -7)), REFERENCE)
    steps = [replace(p, **changes) if i == index else p for i, p in enumerate(plan.steps)]
    with pytest.raises(ScheduleError, match="the border of '[ac]' is not written, or overwritten"):
        verify(replace(plan, steps=tuple(steps)), REFERENCE)


def _broken(change):
    plan = schedule(q.residual_net(16, 16), TINY)
    return change(plan)


@pytest.mark.parametrize("change, message", [
    (lambda p: replace(p, steps=p.steps[1:]), "before it is produced"),
    (lambda p: _step(p, blocks=replace(p.steps[0].blocks, rows=1)), "do not cover"),
    (lambda p: _step(p, 1, blocks=Blocks(8, 2, 16)),
     "'c1': a block of 8 x 16 positions exceeds the 32 accumulator entries of a bank"),
    (lambda p: _step(p, 1, blocks=Blocks(8, 2, 16, (4, 12))), "'c1': a block of 12 x 16 positions exceeds"),
    (lambda p: _step(p, 1, blocks=Blocks(2, 8, 16, (2,) * 7)), "'c1': blocks of .* rows do not cover 16"),
    (lambda p: _step(p, stages=(Stage("x", 8000, 500),)), "the SRAM has 8192 B"),
    (lambda p: _step(p, stages=(Stage("x", 0, 500), Stage("a", 100, 500))), "overlap in SRAM"),
])
def test_verify_refuses(change, message):
    with pytest.raises(ScheduleError, match=message):
        verify(_broken(change), TINY)


def _step(plan, index=0, **changes):
    return replace(plan, steps=tuple(replace(p, **changes) if i == index else p for i, p in enumerate(plan.steps)))


def test_layout_offsets():
    layout = Layout(3, 4, 5, (1, 2, 0, 1), 7)
    assert layout.pitch_bytes == 35 and layout.bytes == 4 * 35
    assert layout.offset(0, 0) == 35 + 10 and layout.offset(-1, -2) == 0
