"""Golden listings: what the emitter makes of a small network on each target."""
from __future__ import annotations

import pytest

from byoc_accel.emit.emit import emit
from byoc_accel.isa.asm import listing
from byoc_accel.schedule.schedule import schedule
from byoc_accel.target import load_target
from tests import qregions as q


@pytest.mark.parametrize("name, size, channels, codec", [("reference", 8, 8, "raw"), ("tiny", 16, 16, "auto")])
def test_listing(golden, name, size, channels, codec):
    target = load_target(name)
    program = emit(schedule(q.residual_net(size, channels), target), target, codec)
    golden(f"emit/residual_net_{name}", listing(program.code, program.layers))
