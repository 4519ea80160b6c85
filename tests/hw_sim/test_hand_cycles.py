"""Cycle counts computed by hand from docs/ISA.md "Timing"; the derivations stand beside the numbers.

Target of all of them is `tiny` (4 x 4 array, latency 3; decoder 1 row a cycle, latency 2; fetch 4 B a cycle,
latency 32, FIFO 256 B; queue of 2; DMA 4 B a cycle, latency 64; post latency 10, 4 parameter bytes a cycle), some
with one number changed. Fetch word k is issued in cycle k and available in cycle k + 33 unless the text says more.
"D" is the cycle of dispatch; a unit starts at D + 1 at the earliest.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel import sim
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_taps, pack_weights
from byoc_accel.sim_result import SimResult
from byoc_accel.target import Target, load_target

TINY = load_target("tiny")
WIDE_FETCH = replace(TINY, name="wide_fetch", fetch_bytes_per_cycle=16)  # word k holds bytes 16 k .. 16 k + 15


def run(target: Target, *program: Inst) -> SimResult:
    code = b"".join(encode(i) for i in program)
    buffers = [np.zeros(4096, np.int8), np.zeros(4096, np.int8)]
    result = sim.simulate(code, target, buffers, writable=[False, True])
    assert sim.simulate(code, target, buffers, writable=[False, True], mode="counts").total == result.total
    for unit in result.total.units:
        assert unit.busy_cycles + sum(n for _, n in unit.stalls) == result.cycles
    return result


def conv(tiles: int, **fields: object) -> Inst:
    """A conv of `tiles` tiles of 4 x 4 weights: 4 B mask and 16 B a tile."""
    return inst("conv", columns=4, payload=pack_weights(np.ones((1, 1, 4 * tiles, 4), np.int8), 4), **fields)


def par() -> Inst:
    """4 channels of 32 bits of bias, 16 of multiplier and none of shift: 8 B and 24 B of payload."""
    scale = parameters(np.array([-(1 << 31), 1, 2, 3]), np.full(4, (1 << 30) + (1 << 14)), np.full(4, 30))
    return inst("par", clamp_low=-128, clamp_high=127, **scale)


HALT = inst("halt")


def test_load() -> None:
    # load: only row_bytes is not 0, 8 B are words 0 and 1, available at 34. D = 34, start 35, 16 B / 4 = 4 cycles,
    # end 39, visible 39 + 64 = 103. halt: word 2, D = 35, executes at 103: 104 cycles.
    result = run(TINY, inst("load", binding=0, row_bytes=16), HALT)
    assert result.cycles == 104
    dma, dispatch = result.total.unit("dma_in"), result.total.unit("dispatch")
    assert (dma.busy_cycles, dma.stalls) == (4, (("idle", 100),))
    assert (dispatch.busy_cycles, dispatch.stalls) == (2, (("fetch", 34), ("drain", 68)))


def test_load_rows_and_planes() -> None:
    # planes, row_bytes, rows, two strides: 24 B are words 0..5, D = 38. 2 planes x 3 rows x ceil(5 B / 4) = 12 cycles
    # from 39: end 51, visible 115, 116 cycles.
    result = run(TINY, inst("load", binding=0, row_bytes=5, rows=3, planes=2, sram_row_stride=5,
                            sram_plane_stride=15), HALT)
    assert result.cycles == 116
    assert result.total.stream_bytes("external_read") == result.total.stream_bytes("dma_write") == 30


@pytest.mark.case("B34")
def test_dense_4x4() -> None:
    # load   words 0, 1    D = 34, dma_in 35..36, visible 100: token to array
    # ageo   words 2, 3    D = 36, array 37..38
    # conv   words 4..6    D = 39; mask word 7 in cycle 40; rows words 8..11 in cycles 41..44, decode_end 45,
    #                      decoded 47; pass at max(38, 40, token 100, 47) = 100..101, visible 104: token to post
    # par    words 12, 13  D = 46 (word 13); 36 B of payload are words 14..22 in cycles 47..55; post 56..57
    # pgeo   word 23       D = 56, post 57..58
    # post   words 24, 25  D = 58; at max(58, 59, token 104) = 104..105, visible 115: token to dma_out
    # store  words 26..29  D = 62; at max(63, token 115) = 115..116, visible 180
    # halt   word 30       D = 63, executes at 180: 181 cycles.
    # 4 channels of 32 bits of bias, 30 of multiplier and 6 of shift: 34 B, padded to 36.
    scale = parameters(np.array([-(1 << 31), 1, 2, 3]), np.full(4, (1 << 31) - 1), np.array([30, 30, 30, 62]))
    result = run(TINY,
                 inst("load", binding=0, row_bytes=4, signal=("array",)),
                 inst("ageo", run_bytes=4),
                 conv(1, wait=("dma_in",), signal=("post",)),
                 inst("par", clamp_low=-128, clamp_high=127, **scale),
                 inst("pgeo"),
                 inst("post", wait=("array",), signal=("dma_out",), columns=4, out_address=64),
                 inst("store", wait=("post",), binding=1, sram_address=64, row_bytes=4),
                 HALT)
    assert result.cycles == 181
    assert dict(result.total.unit("array").stalls) == {"idle": 37 + 2 + 80, "token:dma_in": 100 - 40}
    # post: idle to 47, parameters to 56, busy, busy, idle to 59, token to 104, busy, idle
    assert dict(result.total.unit("post").stalls) == {
        "idle": 47 + 1 + 76, "parameters": 9, "token:array": 45}
    assert (result.total.macs, result.total.slots, result.total.tiles) == (16, 16, 1)
    assert result.total.stream_bytes("consumed") == result.total.stream_bytes("fetched") == 31 * 4


def test_decode_bound_tiles() -> None:
    # ageo  B 0..7     word 0, D = 33, array 34..35
    # conv  B 8..19    word 1, D = 34; mask B 20..23, word 1, in cycle 35
    # tile 0 B 24..39  rows in cycles 36..39 (word 2 is there since 35), decode_end 40, decoded 42, pass 42..43
    # tile 1           the shadow buffer is free at 42: rows 42..45, decoded 48, pass 48..49
    # tile 2           shadow free at 48: rows 48..51, decode_end 52, decoded 54, pass 54..55, visible 58
    # halt             D = 52, executes at 58: 59 cycles. A tile takes 4 + 2 cycles.
    result = run(WIDE_FETCH, inst("ageo", run_bytes=12), conv(3), HALT)
    assert result.cycles == 59
    assert result.total.unit("array").stall_cycles("weights") == (42 - 35) + (48 - 43) + (54 - 49)
    assert result.total.unit("dispatch").stall_cycles("decoder") == (42 - 40) + (48 - 46)
    assert result.total.unit("decoder").busy_cycles == 1 + 3 * 4


def test_pass_bound_tiles() -> None:
    # As before (ageo B 0..11, conv B 12..23, word 1), with passes of 4 x 4 = 16 cycles: 42..58, 58..74 (tile 1 decoded
    # at 48), 74..90 (tile 2: shadow free at 58, decoded at 64). visible 93; halt D = 62, executes at 93: 94 cycles.
    result = run(WIDE_FETCH, inst("ageo", width=4, height=4, run_bytes=12), conv(3), HALT)
    assert result.cycles == 94
    assert result.total.unit("array").busy_cycles == 1 + 48
    assert result.total.macs == 3 * 16 * 16 and result.total.slots == 48 * 16


def test_fetch_bound_tiles() -> None:
    # 4 rows a cycle, no decoder latency: a tile is one decoder cycle, but four fetch words.
    # ageo  words 0, 1   D = 34, array 35..36
    # conv  words 2..4   D = 37; mask word 5 in cycle 38
    # tiles words 6..9, 10..13, 14..17: last words available at 42, 46, 50; decode_end and pass at 43, 47, 51
    # last pass ends at 52, visible 55; halt word 18, D = 51, executes at 55: 56 cycles.
    # Dispatcher waits for bytes: 34 for ageo, 35..37 for conv, then 39..42, 43..46, 47..50.
    target = replace(TINY, name="quick_decoder", decoder_rows_per_cycle=4, decoder_latency_cycles=0)
    result = run(target, inst("ageo", run_bytes=12), conv(3), HALT)
    assert result.cycles == 56
    assert dict(result.total.unit("dispatch").stalls) == {"fetch": 34 + 2 + 3 + 3 + 3, "drain": 4}


def chained(chain: int) -> SimResult:
    return run(WIDE_FETCH, inst("ageo", width=4, height=4, run_bytes=4), par(), inst("pgeo", width=4, height=4),
               conv(1, chain=chain, signal=("post",)), inst("post", wait=("array",), columns=4), HALT)


def test_post_after_conv() -> None:
    # ageo  B 0..11     D = 33, array 34..35
    # par   B 12..19    word 1, D = 34; 24 B of payload in cycles 35..40 (word 2 since 35); post 41..42
    # pgeo  B 44..51    D = 41, post 42..43
    # conv  B 52..63    D = 42; mask in cycle 43; rows in cycles 44..47, decode_end 48, decoded 50, pass 50..66,
    #                   visible 69: token
    # post  B 84..91    D = 48; at max(43, 49, token 69) = 69..85, visible 95
    # halt  D = 49, executes at 95: 96 cycles
    assert chained(0).cycles == 96


def test_post_chained_to_conv() -> None:
    # As before, but the token is given at 50 + 3 = 53: post 53..69, visible 79, 80 cycles.
    result = chained(1)
    assert result.cycles == 80
    assert result.total.unit("post").stall_cycles("token:array") == 53 - 49


def test_post_chained_to_dwc() -> None:
    # ageo B 0..27, word 1, D = 34: up to the decode of the taps at 51 all is a cycle later than in
    # test_post_after_conv. rows_in = columns_in = 5: pass 51..76, visible 79. The token comes 4 * 4 cycles
    # before that, at 63: post 63..79, whose last read at 78 is of the position that the pass finished in cycle 75.
    # visible 89, 90 cycles.
    taps = inst("dwc", columns=4, chain=1, signal=("post",), payload=pack_taps(np.ones((2, 2, 4), np.int8)))
    result = run(WIDE_FETCH, inst("ageo", width=4, height=4, runs_x=2, runs_y=2, run_x_stride=4, run_y_stride=40,
                                  x_step=4, y_step=40), par(), inst("pgeo", width=4, height=4), taps,
                 inst("post", wait=("array",), columns=4), HALT)
    assert result.cycles == 90


def test_loop_fetches_again() -> None:
    # loop   word 0, D = 33; sync_in word 1, D = 34, dma_in 35..36; endl word 2, D = 35: jump
    # fetch issues the body anew at 36, available 69: sync_in D = 69, dma_in 70..71; endl D = 70: jump
    # issued at 71, available 104: sync_in D = 104, dma_in 105..106; endl D = 105: falls through
    # halt is the third word of that stretch: available 106, D = 106, everything is visible at 106: 107 cycles.
    result = run(TINY, inst("loop", count=3), inst("sync_in"), inst("endl"), HALT)
    assert result.cycles == 107
    # Each stretch reads to the end of the program: 16 + 12 + 12 B. Executed: loop, 3 x (sync_in, endl), halt.
    assert result.total.stream_bytes("fetched") == 40
    assert result.total.stream_bytes("consumed") == 4 + 3 * 8 + 4
    assert result.total.instructions == 8


def dwc(step: int) -> SimResult:
    geometry = inst("ageo", width=4, height=4, runs_x=2, runs_y=2, run_x_stride=4, run_y_stride=40,
                    x_step=4 * step, y_step=40 * step)
    work = inst("dwc", columns=4, payload=pack_taps(np.ones((2, 2, 4), np.int8)))
    return run(WIDE_FETCH, geometry, work, HALT)


def test_depthwise_stride_1() -> None:
    # rows_in = columns_in = min(3 * 1 + 2, 4 * 2) = 5, so the pass takes max(16, 25) = 25 cycles.
    # ageo B 0..27, D = 34, array 35..36; dwc D = 35; mask in cycle 36, taps in cycles 37..40, decoded 43, pass 43..68,
    # visible 71; halt D = 41, executes at 71: 72 cycles.
    result = dwc(1)
    assert result.cycles == 72
    assert result.total.stream_bytes("array_read") == 25 * 4
    assert (result.total.macs, result.total.slots) == (16 * 4 * 4, 25 * 16)


def test_depthwise_stride_2() -> None:
    # rows_in = columns_in = min(3 * 2 + 2, 4 * 2) = 8: 64 cycles, pass 43..107, visible 110, 111 cycles.
    assert dwc(2).cycles == 111


def test_queue_full() -> None:
    # fill: 8 B = 2 words, 400 B / 4 = 100 cycles, each after the one before is visible (= its end).
    # 0: D = 34, 35..135.  1: D = 36, 135..235.  2: D = 38 (0 has started at 35), 235..335.
    # 3: words 6 and 7, available 40, but 1 starts at 135: D = 135, 335..435.
    # halt D = 136, executes at 435: 436 cycles.
    result = run(TINY, *[inst("fill", row_bytes=400) for _ in range(4)], HALT)
    assert result.cycles == 436
    assert result.total.unit("dispatch").stall_cycles("queue") == 135 - 40
    assert result.total.unit("dma_in").busy_cycles == 400


def test_post_waits_for_its_own_results() -> None:
    # par   B 0..7     D = 33; payload B 8..31 in cycles 34..39, post 40..41
    # pgeo  B 32..55   word 3 available 36, D = 40, post 41..42
    # post  B 56..63   D = 41, post 42..46 (4 positions), visible 56
    # post  B 64..71   D = 42; reads the SRAM: starts at 56; 4 positions x 2 reads = 8 cycles, end 64, visible 74
    # halt  D = 43, executes at 74: 75 cycles
    result = run(WIDE_FETCH, par(), inst("pgeo", width=4, out_x_step=4, window_x=2, window_x_stride=4, a_x_step=4),
                 inst("post", columns=4), inst("post", columns=4, source_sram=1, out_address=64), HALT)
    assert result.cycles == 75
    assert result.total.unit("post").stall_cycles("order") == 56 - 46


def test_small_fifo() -> None:
    # 64 B are 16 words. Word 16 takes the slot of word 0, which the dispatcher took at 33: issued 33, available
    # 66. No word of the loads is 0; the second is words 10..19; word 19 takes the slot of word 3 (36): available 69,
    # D = 69. dma_in 70..74, visible 138; halt word 20, slot of word 4 (37), available 70, D = 70, executes at 138.
    target = replace(TINY, name="small_fifo", fetch_fifo_bytes=64)
    load = inst("load", binding=0, row_bytes=4, rows=2, planes=2, external_offset=4, sram_address=4,
                external_row_stride=4, sram_row_stride=4, external_plane_stride=8, sram_plane_stride=8)
    result = run(target, load, load, HALT)
    assert result.cycles == 139
    # Fetch: words 0..15 in cycles 0..15, then 33 ..: it waits from 16 to 33.
    assert result.total.unit("fetch").stall_cycles("fifo") == 33 - 16


def test_zero_tiles_take_no_cycles() -> None:
    # ageo D = 33, array 34..35; conv D = 34, mask in cycle 35. All tiles zero and nothing to add to: one pass of
    # 16 cycles without weights, at max(35, D + 1) = 35..51, visible 54; halt B 28..31, word 1, D = 36: 55 cycles.
    zero = pack_weights(np.zeros((1, 1, 12, 4), np.int8), 4)
    geometry = inst("ageo", width=4, height=4, run_bytes=12)
    result = run(WIDE_FETCH, geometry, inst("conv", columns=4, payload=zero), HALT)
    assert result.cycles == 55
    assert (result.total.tiles, result.total.zero_tiles, result.total.skipped_macs) == (0, 3, 3 * 16 * 16)
    # With something to add to: 1 cycle, 35..36, visible 39, 40 cycles.
    result = run(WIDE_FETCH, geometry, inst("conv", columns=4, accumulate=1, payload=zero), HALT)
    assert result.cycles == 40


def test_chain_of_an_empty_conv_waits_for_the_one_before() -> None:
    # As test_post_after_conv: the first conv passes 50..66. The second has only a zero tile to add:
    # conv B 84..95, D = 48; mask in cycle 49; 1 cycle at 66..67, visible 70. Its token is given min(1, 16) cycles
    # before that, at 69, when the first conv is visible too: post (D = 50) 69..85, visible 95, 96 cycles.
    zero = pack_weights(np.zeros((1, 1, 4, 4), np.int8), 4)
    result = run(WIDE_FETCH, inst("ageo", width=4, height=4, run_bytes=4), par(), inst("pgeo", width=4, height=4),
                 conv(1), inst("conv", columns=4, accumulate=1, chain=1, signal=("post",), payload=zero),
                 inst("post", wait=("array",), columns=4), HALT)
    assert result.cycles == 96
