"""Compiled regions through the C runtime: the meaning of a QRegion, byte for byte, on two targets."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel import runtime
from byoc_accel.container.image import pack, unpack
from byoc_accel.emit.program import Program
from byoc_accel.target import Target, load_target
from tests import qregions as q
from tests import strategies_region
from tests.differential.machines import check

TARGETS = {name: load_target(name) for name in ("tiny", "reference")}
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


def on_runtime(program: Program, target: Target, inputs: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Pack, parse, verify and run; the seed is of no use: the simulated memories start with zeros."""
    del seed
    image = pack(program, target)
    assert unpack(image.data) == (program, target)
    return runtime.run_image(image, inputs)[0]


@each_target
@settings(max_examples=60)
@given(qregion=strategies_region.qregions())
def test_random_regions(target: Target, qregion) -> None:
    check(qregion, target, on_runtime)


@each_target
@pytest.mark.parametrize("batch", [1, 3])
def test_residual_net(target: Target, batch: int) -> None:
    check(q.residual_net(8, 8, batch), target, on_runtime)


def test_larger_than_sram() -> None:
    check(q.one_conv((1, 40, 30, 12), (40, 3, 3, 12), padding=q.SAME), TARGETS["tiny"], on_runtime)
