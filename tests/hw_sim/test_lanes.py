"""Codec lanes in the simulator: cycles by hand, the decoder against the reference, the cache of decoded weights.

The derivations use the target `tiny` as tests/hw_sim/test_hand_cycles.py does; it decodes a row a cycle and takes at
most 8 B (4 words) of a payload a cycle.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel import sim
from byoc_accel.isa import machine
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.lane_decode import LaneDecoder
from byoc_accel.isa.lane_layout import LaneShape, Work, conv_tiles, conv_work
from byoc_accel.isa.lane_table import CLASSES, Table, code_lengths
from byoc_accel.isa.lanes import choose_table
from byoc_accel.isa.lanes import encode as encode_lanes
from byoc_accel.isa.parameters import parameters
from byoc_accel.lane_reader import LaneReader
from byoc_accel.target import Target, load_target
from tests.hw_sim.clocked import Clocked
from tests.hw_sim.test_hand_cycles import HALT, TINY, WIDE_FETCH, run
from tests.strategies_isa import Case, programs

#: 1 and -1 are 1s, s the sign; one zero is 0. Every lane of a few rows has all its bits in its first word.
ONES = Table(tuple({0: 1, 7: 1}.get(i, 0) for i in range(CLASSES)))


def wtab(table: Table, fresh: bool = True) -> Inst:
    return inst("wtab", fresh=int(fresh), masks=int(table.masks), centre=table.centre, payload=table.pack())


def lanes(weights: np.ndarray, table: Table, target: Target = TINY, **fields: object) -> tuple[Inst, Inst]:
    """wtab and conv of weights (run_bytes, columns)."""
    work = conv_work(weights[None, None], target.array_rows)
    ((payload,),) = encode_lanes([(table, [work])], LaneShape(target.array_columns, target.decoder_rows_per_cycle))
    return wtab(table), inst("conv", columns=weights.shape[1], codec="lanes", payload=payload, **fields)


# ---- cycles ----

def test_one_tile() -> None:
    # ageo  B 0..7     word 0, D = 33, array 34..35
    # wtab  B 8..11    word 0, D = 34; 16 payload bytes in cycles 35..50
    # conv  B 28..39   D = 51. Row 0: 2 words for each of 4 lanes, which are 2 cycles: 52, 53. Row 1: a word more for
    #       each lane, which lies behind the 16 B of the payload: 54. Rows 2, 3: no word, cycles 55, 56. decode_end 57,
    #       decoded 59, pass 59..60, visible 63
    # halt  D = 57, executes at 63: 64 cycles
    result = run(WIDE_FETCH, inst("ageo", run_bytes=4), *lanes(np.ones((4, 4), np.int8), ONES), HALT)
    assert result.cycles == 64
    decoder, dispatch = result.total.unit("decoder"), result.total.unit("dispatch")
    assert decoder.busy_cycles == 5
    assert dict(dispatch.stalls) == {"fetch": 33, "drain": 6}
    assert dict(decoder.stalls) == {"idle": 52 + 7}
    assert result.total.stream_bytes("consumed") == 8 + 20 + 12 + 16 + 4


def test_one_tile_at_a_byte_a_cycle() -> None:
    # Byte k is available in cycle k + 33.
    # ageo  byte 7, D = 40.  wtab  byte 11, D = 44; bytes 12..27 in cycles 45..60.  conv  byte 39, D = 72
    # Row 0: bytes 40..47 in cycle 80, 48..55 in cycle 88; rows 1..3 in 89..91; decode_end 92, decoded 94, pass
    # 94..95, visible 98. halt byte 59, D = 92, executes at 98: 99 cycles.
    target = replace(TINY, name="slow", fetch_bytes_per_cycle=1)
    result = run(target, inst("ageo", run_bytes=4), *lanes(np.ones((4, 4), np.int8), ONES), HALT)
    assert result.cycles == 99
    assert result.total.unit("decoder").stall_cycles("fetch") == (80 - 73) + (88 - 81)


def test_zero_tiles_at_the_end_delay_the_tokens() -> None:
    # conv  D = 51 as above. The control lane asks for 3 words, and for another one before its second symbol: 4 + 8
    #       words of step 0 are 3 cycles, 52..54; rows 1..3 in 55..57; decode_end 58, decoded 60, pass 60..61, until 64
    #       Six tiles without a pass: cycles 58..63, decoded 66: only then it is clear that no pass follows.
    # sync  D = 64, token 66: 66..67. halt D = 65, executes at 67: 68 cycles.
    weights = np.zeros((28, 4), np.int8)
    weights[:4] = 1
    code = lanes(weights, replace(ONES, masks=True), signal=("post",))
    result = run(WIDE_FETCH, inst("ageo", run_bytes=28), *code, inst("sync_post", wait=("array",)), HALT)
    assert result.cycles == 68
    assert len(code[1].payload) == 24
    assert (result.total.tiles, result.total.zero_tiles, result.total.skipped_macs) == (1, 6, 6 * 16)
    assert result.total.unit("decoder").busy_cycles == 6 + 6


def test_zero_tiles_in_front_do_not_wait_for_the_shadow_buffer() -> None:
    # First conv: as in test_one_tile, with 16 positions: pass 59..75; its 16 B of payload are B 44..59, decode_end 57.
    # ageo  B 60..71, D = 57.  wtab  B 72..91, D = 58, payload in cycles 59..74
    # conv  B 92..103, D = 75. Control lane: 3 + 1 words for column mask and tile 0 (no pass): 1 cycle, 76. Tile 1: the
    #       lanes have used 8 bits and hold enough for all of the program: rows in 77..80, decode_end 81, decoded 83,
    #       pass 83..99
    # conv  D = 81. Its zero tile goes through in 82, when the shadow buffer is still taken; rows in 83..86, decoded 89,
    #       pass 99..115, visible 118
    # halt  D = 87, executes at 118: 119 cycles
    ones, table = np.ones((4, 4), np.int8), replace(ONES, masks=True)
    tail = np.concatenate([np.zeros_like(ones), ones])
    parts = [(ONES, [conv_work(ones[None, None], 4)]), (table, [conv_work(tail[None, None], 4)] * 2)]
    (first,), second = encode_lanes(parts, LaneShape(4, 1))
    convs = [inst("conv", columns=4, codec="lanes", payload=p) for p in (first, *second)]
    geometry = inst("ageo", width=4, height=4, run_bytes=4)
    result = run(WIDE_FETCH, geometry, wtab(ONES), convs[0], geometry.replace(run_bytes=8), wtab(table, fresh=False),
                 *convs[1:], HALT)
    assert result.cycles == 119
    assert result.total.unit("dispatch").stall_cycles("decoder") == 0


def test_no_tile_at_all() -> None:
    # Column mask and three tiles without a pass: cycles 52..54, decode_end 55, known at 57. Pass 57..73, visible 76;
    # halt D = 55, executes at 76: 77 cycles.
    code = lanes(np.zeros((12, 4), np.int8), replace(ONES, masks=True))
    geometry = inst("ageo", width=4, height=4, run_bytes=12)
    result = run(WIDE_FETCH, geometry, *code, HALT)
    assert result.cycles == 77
    assert (result.total.tiles, result.total.zero_tiles, result.total.skipped_macs) == (0, 3, 3 * 16 * 16)
    # With something to add to: 1 cycle, 57..58, visible 61, 62 cycles.
    assert run(WIDE_FETCH, geometry, code[0], code[1].replace(accumulate=1), HALT).cycles == 62


# ---- the decoder against the reference ----

SHAPES = ((16, 2, 16), (4, 1, 4), (32, 4, 32), (5, 3, 7))


@pytest.mark.parametrize("columns, parities, rows", SHAPES)
@settings(max_examples=60)
@given(data=st.data())
def test_any_bits_decode_alike(columns: int, parities: int, rows: int, data: st.DataObject) -> None:
    """On every kernel: values, and what is left in the lanes, which the next payload shows."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    target = replace(load_target("reference"), array_columns=columns, array_rows=rows, sram_port_bytes=64,
                     decoder_rows_per_cycle=parities)
    slow = LaneDecoder(LaneShape(columns, parities))
    fast = [LaneReader(target, sim.KERNELS.index(kernel)) for kernel in sim.kernels()]
    for number in range(data.draw(st.integers(1, 6))):
        if number == 0 or rng.random() < 0.4:
            lengths = code_lengths(rng.integers(0, 1 << rng.integers(1, 14), CLASSES))
            table = Table(lengths, int(rng.integers(-128, 128)), bool(rng.integers(2)))
            fresh = number == 0 or bool(rng.integers(2))
            slow.load(table, fresh)
            for reader in fast:
                reader.load(wtab(table, fresh))
        runs, run_rows, used = int(rng.integers(1, 4)), int(rng.integers(1, 90)), int(rng.integers(1, columns + 1))
        payload = rng.bytes(4 * int(rng.integers(0, 1 + runs * run_rows * used // 4)))
        expected = slow.decode(payload, conv_tiles(runs, run_rows, rows), used)
        for reader in fast:
            got = reader.decode(payload, runs, run_rows, used)
            assert (got is None) == bool(expected.problem)
            assert got is None or np.array_equal(got, expected.values)


@pytest.mark.parametrize("columns, rows", [(16, 16), (9, 32), (3, 5)])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_bits_ask_for_the_same_words(columns: int, rows: int, seed: int) -> None:
    """Of every kernel, also of those that decode no values in mode counts; two rows a cycle."""
    rng = np.random.default_rng(seed)
    target = replace(load_target("reference"), array_columns=columns, array_rows=rows, sram_port_bytes=64,
                     decoder_rows_per_cycle=2, decoder_lane_bytes_per_cycle=int(rng.choice([2, 16])))
    body = [inst("ageo", run_bytes=int(rng.integers(1, 90)), runs_x=int(rng.integers(1, 5)))]
    for number in range(int(rng.integers(1, 5))):
        lengths = code_lengths(rng.integers(0, 1 << rng.integers(1, 14), CLASSES))
        table = Table(lengths, int(rng.integers(-128, 128)), bool(rng.integers(2)))
        used, words = int(rng.integers(1, columns + 1)), int(rng.integers(0, 2000))
        body += [wtab(table, number == 0 or bool(rng.integers(2))),
                 inst("conv", columns=used, codec="lanes", payload=rng.bytes(4 * words))]
    code = b"".join(map(encode, [*body, HALT]))
    expected = sim.simulate(code, target, [], writable=[], trace=True, kernel="portable").total
    for kernel in sim.kernels():
        for mode in ("full", "counts"):
            assert sim.simulate(code, target, [], writable=[], mode=mode, kernel=kernel).total == expected


# ---- the cache ----

def simulated(case: Case, target: Target, mode: str, runs: int) -> tuple[list[np.ndarray], sim.SimResult]:
    simulator = sim.Machine(target, mode=mode)
    for _ in range(runs):
        buffers = [content.copy() for content in case.contents]
        result = simulator.run(case.program.code, buffers, [b.kind != "input" for b in case.program.buffers])
    return buffers, result


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@settings(max_examples=40)
@given(data=st.data())
def test_a_cache_changes_nothing(share: float, data: st.DataObject) -> None:
    case = data.draw(programs(TINY))
    expected, result = simulated(case, TINY, "full", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim, "CACHE_BYTES", int(share * data.draw(st.integers(0, 4000))))
        for mode in ("full", "counts"):
            buffers, again = simulated(case, TINY, mode, 3)
            assert again.total == result.total
            assert mode == "counts" or all(map(np.array_equal, buffers, expected))


def test_geometry_that_differs_from_iteration_to_iteration() -> None:
    """The lanes of a later instruction of the stretch depend on the tiles of an earlier one: the same rows, cut in
    tiles otherwise, in the second iteration."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-99, 99, (8, 4)).astype(np.int8)
    works = [Work(weights, (4, 4)), Work(weights[::-1].copy(), (4, 4))]
    table, _ = choose_table(works, LaneShape(4, 1))
    ((first, second),) = encode_lanes([(table, works)], LaneShape(4, 1))
    two, four = inst("ageo", run_bytes=4, runs_x=2, run_x_stride=4), inst("ageo", run_bytes=8)
    one = inst("ageo", run_bytes=3, runs_x=2, run_x_stride=4)
    body = (wtab(table), inst("conv", columns=4, codec="lanes", payload=first),
            inst("conv", columns=4, acc_base=1, codec="lanes", payload=second))
    scale = parameters(np.zeros(4, int), np.array([1 << 30]), np.array([34]), uniform=True)
    results = inst("par", clamp_low=-128, clamp_high=127, **scale)
    stores = [inst("pgeo", width=2, out_x_step=4), inst("sync_array", signal=("post",)),
              inst("post", wait=("array",), signal=("dma_out",), columns=4, out_address=64),
              inst("store", wait=("post",), signal=("array",), binding=1, external_reg=1, sram_address=64, row_bytes=8),
              inst("sync_array", wait=("dma_out",))]
    for between in ((two, four), (one, two), (four, one), (two, two)):
        code = b"".join(map(encode, (
            inst("load", binding=0, row_bytes=16, signal=("array",)), inst("sync_array", wait=("dma_in",)), results,
            inst("setr", reg=1, value=0), between[0], inst("loop", count=4), *body, *stores, between[1],
            inst("addr", reg=1, increment=8, limit=24), inst("endl"), HALT)))
        x = rng.integers(-128, 128, 16).astype(np.int8)
        expected = machine.run(code, TINY, [x, np.zeros(32, np.int8)])[1]
        y = np.zeros(32, np.int8)
        simulator = sim.Machine(TINY)
        for _ in range(2):
            result = simulator.run(code, [x, y], [False, True])
            assert np.array_equal(y, expected)
        assert result.cycles == Clocked(code, TINY).run()


def test_a_cache_of_other_code_is_dropped() -> None:
    simulator = sim.Machine(TINY)
    masked = replace(ONES, masks=True)
    weights = ((np.ones((4, 4), np.int8), ONES), (np.zeros((4, 4), np.int8), masked), (np.ones((4, 4), np.int8), ONES))
    code = [b"".join(map(encode, (inst("ageo", run_bytes=4), *lanes(w, table), HALT))) for w, table in weights]
    cycles = [simulator.run(c, [], []).cycles for c in code]
    assert cycles[0] == cycles[2] != cycles[1]


# ---- prepared weights ----

@settings(max_examples=40)
@given(data=st.data())
def test_prepared_weights_change_nothing(data: st.DataObject) -> None:
    """Also those of another machine, with another fetch width and mode."""
    case = data.draw(programs(TINY))
    wide = replace(WIDE_FETCH, decoder_lane_bytes_per_cycle=data.draw(st.sampled_from([2, 8, 64])))
    code, writable = case.program.code, [b.kind != "input" for b in case.program.buffers]
    prepared = sim.Machine(wide).prepare(code)
    for target in (TINY, wide):
        expected, result = simulated(case, target, "full", 1)
        for mode in ("full", "counts", "functional"):
            buffers = [content.copy() for content in case.contents]
            got = sim.simulate(code, target, buffers, writable=writable, mode=mode, prepared=prepared)
            assert mode == "functional" or got.total == result.total
            assert mode == "counts" or all(map(np.array_equal, buffers, expected))


@pytest.mark.parametrize("wrong", ["code", "decoder", "values"])
def test_prepared_weights_of_something_else_are_refused(wrong: str) -> None:
    code = b"".join(map(encode, (inst("ageo", run_bytes=4), *lanes(np.ones((4, 4), np.int8), ONES), HALT)))
    other = replace(TINY, name="other", decoder_rows_per_cycle=2)
    maker = sim.Machine(other if wrong == "decoder" else TINY, mode="counts" if wrong == "values" else "full")
    prepared = maker.prepare(code[4:] if wrong == "code" else code)
    with pytest.raises(sim.RunError, match="prepared for other code"):
        sim.Machine(TINY).prepare(code, prepared)
