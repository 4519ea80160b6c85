"""Weights of emitted programs: every codec means the same, payloads hold the weights, the cheaper codec is taken."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel import sim
from byoc_accel.emit import weights
from byoc_accel.emit.emit import emit
from byoc_accel.emit.program import Program
from byoc_accel.emit.verify import verify
from byoc_accel.errors import ProgramError
from byoc_accel.isa import machine
from byoc_accel.isa.encode import decode_all, encoded_size
from byoc_accel.isa.inst import Inst
from byoc_accel.isa.lane_decode import LaneDecoder
from byoc_accel.isa.lane_layout import LaneShape, conv_tiles, dwc_tiles
from byoc_accel.isa.lane_table import unpack_table
from byoc_accel.isa.payload import unpack_weights
from byoc_accel.quantize.qregion import QConv, QRegion
from byoc_accel.schedule.schedule import schedule
from byoc_accel.target import Target, load_target
from tests import qregions as q
from tests.strategies_region import qregions

TINY, REFERENCE = load_target("tiny"), load_target("reference")


def compiled(region: QRegion, target: Target, codec: str) -> Program:
    program = emit(schedule(region, target), target, codec)
    verify(program, target)
    return program


def narrow(region: QRegion, seed: int = 0) -> QRegion:
    """The same region with weights of few bits, of which lanes make much less."""
    rng = np.random.default_rng(seed)
    nodes = [replace(n, weight=np.rint(rng.laplace(0, 4, n.weight.shape)).clip(-127, 127).astype(np.int8))
             if isinstance(n, QConv) else n for n in region.nodes]
    return replace(region, nodes=tuple(nodes))


def instructions(program: Program) -> list[Inst]:
    return [instruction for _, instruction in decode_all(program.code)]


def weights_of(program: Program, target: Target) -> list[np.ndarray]:
    """Rows x columns of every conv and dwc in program order, through the reference decoder."""
    decoder, found, geometry = LaneDecoder(LaneShape(target.array_columns, target.decoder_rows_per_cycle)), [], None
    for i in instructions(program):
        if i.mnemonic in ("loop", "endl"):
            decoder.close()
        elif i.mnemonic == "wtab":
            decoder.load(unpack_table(i.payload, i.centre, bool(i.masks)), bool(i.fresh))
        elif i.mnemonic == "ageo":
            geometry = i
        elif i.mnemonic in ("conv", "dwc"):
            dense = i.mnemonic == "conv"
            runs, rows = geometry.runs_x * geometry.runs_y, geometry.run_bytes
            runs, rows = (runs, rows) if dense else (1, runs)
            if i.codec == "raw":
                unpacked = unpack_weights(i.payload, 1, runs, rows, i.columns, target.array_rows)
                found.append(unpacked.reshape(-1, i.columns))
                continue
            decoded = decoder.decode(i.payload, conv_tiles(runs, rows, target.array_rows) if dense else dwc_tiles(rows),
                                     i.columns)
            assert decoded.problem == ""
            found.append(decoded.values)
    return found


def outputs(program: Program, target: Target, run: object) -> list[np.ndarray]:
    rng = np.random.default_rng(9)
    buffers = [rng.integers(-128, 128, b.bytes).astype(np.int8) for b in program.buffers]
    if run is machine:
        got = machine.run(program.code, target, buffers)
    else:
        got = [b.copy() for b in buffers]
        sim.simulate(program.code, target, got, writable=[b.kind != "input" for b in program.buffers])
    return [b for b, buffer in zip(got, program.buffers) if buffer.kind == "output"]


REGIONS = {
    "residual": (q.residual_net(), TINY),
    "narrow residual": (narrow(q.residual_net()), TINY),
    "loops": (narrow(q.one_conv((1, 40, 30, 12), (8, 3, 3, 12), padding=q.SAME)), TINY),
    "depthwise": (narrow(q.one_conv((1, 9, 9, 24), (24, 3, 3, 1), padding=q.SAME, groups=24)), TINY),
    "grouped, with zero tiles": (narrow(q.one_conv((1, 6, 6, 40), (24, 3, 3, 10), padding=q.SAME, groups=4)), TINY),
    "reference": (narrow(q.residual_net(size=12, channels=40)), REFERENCE),
}


@pytest.mark.parametrize("name", REGIONS)
def test_codecs_have_one_meaning(name: str) -> None:
    region, target = REGIONS[name]
    programs = {codec: compiled(region, target, codec) for codec in ("raw", "lanes", "auto")}
    expected = outputs(programs["raw"], target, machine)
    stored = weights_of(programs["raw"], target)
    for codec, program in programs.items():
        used = {i.codec for i in instructions(program) if i.mnemonic in ("conv", "dwc")}
        assert codec == "auto" or used == {codec}
        assert all(map(np.array_equal, outputs(program, target, machine), expected))
        assert all(map(np.array_equal, outputs(program, target, sim), expected))
        for got, wanted in zip(weights_of(program, target), stored, strict=True):
            assert np.array_equal(got, wanted)


@settings(max_examples=25)
@given(qregions())
def test_lanes_of_random_regions(region: QRegion) -> None:
    raw, lanes = (compiled(region, TINY, codec) for codec in ("raw", "lanes"))
    assert all(map(np.array_equal, outputs(lanes, TINY, sim), outputs(raw, TINY, sim)))


def test_equal_plans_give_equal_bytes() -> None:
    region = narrow(q.residual_net())
    assert compiled(region, TINY, "auto") == compiled(region, TINY, "auto")


def test_unknown_codec() -> None:
    with pytest.raises(ProgramError, match="residual_net: codec 'best' is unknown; use one of auto, raw, lanes"):
        emit(schedule(q.residual_net(), TINY), TINY, "best")


@pytest.mark.parametrize("name", REGIONS)
def test_weight_bytes_are_all_that_brings_weights(name: str) -> None:
    region, target = REGIONS[name]
    program = compiled(region, target, "lanes")
    for layer in program.layers:
        span = [i for offset, i in decode_all(program.code) if layer.start <= offset < layer.end]
        assert layer.weight_bytes == sum(encoded_size(i) for i in span if i.mnemonic in ("conv", "dwc", "wtab"))


@pytest.mark.parametrize("name", REGIONS)
def test_the_first_table_of_a_stretch_is_fresh(name: str) -> None:
    fresh = True
    for i in instructions(compiled(*REGIONS[name], "lanes")):
        if i.mnemonic in ("loop", "endl"):
            fresh = True
        elif i.mnemonic == "wtab":
            assert i.fresh == fresh
            fresh = False
        elif i.mnemonic in ("conv", "dwc"):
            assert not fresh


def weight_bytes(program: Program) -> int:
    return sum(layer.weight_bytes for layer in program.layers)


@pytest.mark.parametrize("name", REGIONS)
def test_auto_takes_what_is_smaller(name: str) -> None:
    region, target = REGIONS[name]
    slow = replace(target, fetch_bytes_per_cycle=1)  # so that bytes decide
    sizes = {codec: weight_bytes(compiled(region, slow, codec)) for codec in ("raw", "lanes", "auto")}
    assert sizes["auto"] <= min(sizes["raw"], sizes["lanes"])


def test_random_bytes_stay_raw_and_narrow_weights_do_not() -> None:
    region = q.one_conv((1, 4, 4, 64), (64, 1, 1, 64))
    raw = compiled(region, REFERENCE, "auto")
    assert {i.codec for i in instructions(raw) if i.mnemonic == "conv"} == {"raw"}
    assert weight_bytes(raw) < weight_bytes(compiled(region, REFERENCE, "lanes"))
    small = compiled(narrow(region), REFERENCE, "auto")
    assert {i.codec for i in instructions(small) if i.mnemonic == "conv"} == {"lanes"}
    assert weight_bytes(small) < 0.7 * weight_bytes(raw)


def test_raw_where_decoding_lanes_takes_longer() -> None:
    """A position per tile and words that enter slowly: lanes would be smaller and take more cycles."""
    target = replace(REFERENCE, name="slow_lanes", decoder_lane_bytes_per_cycle=4, fetch_bytes_per_cycle=64)
    region = narrow(q.one_conv((1, 1, 1, 64), (64, 1, 1, 64)))
    programs = {codec: compiled(region, target, codec) for codec in ("raw", "lanes", "auto")}
    assert weight_bytes(programs["lanes"]) < weight_bytes(programs["raw"])
    assert programs["auto"].code == programs["raw"].code

    def cycles(codec: str) -> int:
        program = programs[codec]
        buffers = [np.zeros(b.bytes, np.int8) for b in program.buffers]
        return sim.simulate(program.code, target, buffers, writable=[b.kind != "input" for b in program.buffers],
                            mode="counts").cycles

    assert cycles("raw") < cycles("lanes")


def test_long_programs_have_many_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    region = narrow(q.residual_net(size=12, channels=40))
    whole = compiled(region, REFERENCE, "lanes")
    monkeypatch.setattr(weights, "STRETCH_WEIGHTS", 3000)
    cut = compiled(region, REFERENCE, "lanes")
    starts = [sum(i.mnemonic == "wtab" and i.fresh for i in instructions(p)) for p in (whole, cut)]
    assert starts[0] == 1 < starts[1]
    assert all(map(np.array_equal, outputs(cut, REFERENCE, sim), outputs(whole, REFERENCE, sim)))
