"""The scoreboard of the simulator and the clocked model agree on every start, end and visible time."""
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel import sim
from byoc_accel.target import Target, load_target
from tests.hw_sim.clocked import Clocked
from tests.strategies_isa import programs

TINY = load_target("tiny")
TARGETS = (
    TINY,
    replace(load_target("reference"), sram_bytes=4096, accumulator_entries_per_bank=16),
    # Everything odd: two rows a cycle, a FIFO of 4 words with 4 bytes left over, a queue of one.
    replace(TINY, name="odd", array_rows=9, array_columns=11, sram_port_bytes=13, decoder_rows_per_cycle=2,
            decoder_lane_bytes_per_cycle=5, decoder_latency_cycles=0,
            fetch_bytes_per_cycle=24, fetch_fifo_bytes=100, fetch_queue_depth=1,
            fetch_latency_cycles=3, post_parameter_bytes_per_cycle=7, dma_bytes_per_cycle=3, dma_latency_cycles=0),
    # One fetch word in the FIFO at a time: headers and tiles are longer than the FIFO.
    replace(TINY, name="narrow", fetch_bytes_per_cycle=64, fetch_fifo_bytes=64, fetch_latency_cycles=0,
            decoder_rows_per_cycle=32, decoder_lane_bytes_per_cycle=256, array_latency_cycles=1, post_latency_cycles=1),
    replace(TINY, name="slow_fetch", fetch_bytes_per_cycle=1, fetch_fifo_bytes=64, fetch_latency_cycles=70),
    replace(TINY, name="slow_lanes", decoder_lane_bytes_per_cycle=2, decoder_latency_cycles=9,
            fetch_bytes_per_cycle=32),
)


def traced(line: str) -> tuple[str, str, int, int, int]:
    """(unit, mnemonic, start, end, visible) of a trace line."""
    words = line.split()
    fields = dict(zip(words[::2], words[1::2]))
    return fields["unit"], fields["op"], int(fields["start"]), int(fields["end"]), int(fields["visible"])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(max_examples=25)
@given(data=st.data())
def test_same_times(target: Target, data: st.DataObject) -> None:
    case = data.draw(programs(target, steps=12))
    result = sim.simulate(case.program.code, target, [c.copy() for c in case.contents],
                          writable=[b.kind != "input" for b in case.program.buffers], trace=True)
    model = Clocked(case.program.code, target)
    assert model.run() == result.cycles
    work = [line for line in result.trace if " unit dispatch " not in line
            and not (" op conv " in line or " op dwc " in line) or " rows " in line]
    assert sorted(map(traced, work)) == sorted(model.log)
    assert result.total.stream_bytes("fetched") == model.fetched_bytes
