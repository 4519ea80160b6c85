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
    # load: 40 B are words 0..9, the last one available at 42. D = 42, start 43, 16 B / 4 = 4 cycles, end 47,
    # visible 47 + 64 = 111. halt: word 10, D = 43, executes at 111: 112 cycles.
    result = run(TINY, inst("load", binding=0, row_bytes=16), HALT)
    assert result.cycles == 112
    dma, dispatch = result.total.unit("dma_in"), result.total.unit("dispatch")
    assert (dma.busy_cycles, dma.stalls) == (4, (("idle", 108),))
    assert (dispatch.busy_cycles, dispatch.stalls) == (2, (("fetch", 42), ("drain", 68)))


def test_load_rows_and_planes() -> None:
    # 2 planes x 3 rows x ceil(5 B / 4) = 12 cycles: end 55, visible 119, 120 cycles.
    result = run(TINY, inst("load", binding=0, row_bytes=5, rows=3, planes=2, sram_row_stride=5,
                            sram_plane_stride=15), HALT)
    assert result.cycles == 120
    assert result.total.stream_bytes("external_read") == result.total.stream_bytes("dma_write") == 30


@pytest.mark.case("B34")
def test_dense_4x4() -> None:
    # load   words 0..9    D = 42, dma_in 43..44, visible 108: token to array
    # ageo   words 10..17  D = 50, array 51..52
    # conv   words 18..21  D = 54; mask word 22 in cycle 55; rows words 23..26 in cycles 56..59, decode_end 60,
    #                      decoded 62; pass at max(52, 55, token 108, 62) = 108..109, visible 112: token to post
    # par    words 27, 28  D = 61 (word 28); 36 B of payload are words 29..37 in cycles 62..70; post 71..72
    # pgeo   words 38..48  D = 81, post 82..83
    # post   words 49..53  D = 86; at max(83, 87, token 112) = 112..113, visible 123: token to dma_out
    # store  words 54..63  D = 96; at max(97, token 123) = 123..124, visible 188
    # halt   word 64: its FIFO slot is that of word 0, free since 33; available 97, executes at 188: 189 cycles.
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
    assert result.cycles == 189
    assert dict(result.total.unit("array").stalls) == {"idle": 51 + 3 + 80, "token:dma_in": 108 - 55}
    # post: idle to 62, parameters to 71, busy, idle to 82, busy, idle to 87, token to 112, busy, idle
    assert dict(result.total.unit("post").stalls) == {
        "idle": 62 + 10 + 4 + 76, "parameters": 9, "token:array": 25}
    assert (result.total.macs, result.total.slots, result.total.tiles) == (16, 16, 1)
    assert result.total.stream_bytes("consumed") == result.total.stream_bytes("fetched") == 260


def test_decode_bound_tiles() -> None:
    # ageo  B 0..31    word 1, D = 34, array 35..36
    # conv  B 32..47   word 2, D = 35; mask B 48..51, word 3, in cycle 36
    # tile 0 B 52..67  rows in cycles 37..40 (word 4 is there since 37), decode_end 41, decoded 43, pass 43..44
    # tile 1           the shadow buffer is free at 43: rows 43..46, decoded 49, pass 49..50
    # tile 2           shadow free at 49: rows 49..52, decode_end 53, decoded 55, pass 55..56, visible 59
    # halt             D = 53, executes at 59: 60 cycles. A tile takes 4 + 2 cycles.
    result = run(WIDE_FETCH, inst("ageo", run_bytes=12), conv(3), HALT)
    assert result.cycles == 60
    assert result.total.unit("array").stall_cycles("weights") == (43 - 36) + (49 - 44) + (55 - 50)
    assert result.total.unit("dispatch").stall_cycles("decoder") == (43 - 41) + (49 - 47)
    assert result.total.unit("decoder").busy_cycles == 1 + 3 * 4


def test_pass_bound_tiles() -> None:
    # As before, with passes of 4 x 4 = 16 cycles: 43..59, 59..75 (tile 1 decoded at 49), 75..91 (tile 2: shadow
    # free at 59, decoded at 65). visible 94; halt D = 63, executes at 94: 95 cycles.
    result = run(WIDE_FETCH, inst("ageo", width=4, height=4, run_bytes=12), conv(3), HALT)
    assert result.cycles == 95
    assert result.total.unit("array").busy_cycles == 1 + 48
    assert result.total.macs == 3 * 16 * 16 and result.total.slots == 48 * 16


def test_fetch_bound_tiles() -> None:
    # 4 rows a cycle, no decoder latency: a tile is one decoder cycle, but four fetch words.
    # ageo  words 0..7   D = 40, array 41..42
    # conv  words 8..11  D = 44; mask word 12 in cycle 45
    # tiles words 13..16, 17..20, 21..24: last words available at 49, 53, 57; decode_end and pass at 50, 54, 58
    # last pass ends at 59, visible 62; halt word 25, D = 58, executes at 62: 63 cycles.
    # Dispatcher waits for bytes: 40 for ageo, 41..44 for conv, then 46..49, 50..53, 54..57.
    target = replace(TINY, name="quick_decoder", decoder_rows_per_cycle=4, decoder_latency_cycles=0)
    result = run(target, inst("ageo", run_bytes=12), conv(3), HALT)
    assert result.cycles == 63
    assert dict(result.total.unit("dispatch").stalls) == {"fetch": 40 + 3 + 3 + 3 + 3, "drain": 4}


def chained(chain: int) -> SimResult:
    return run(WIDE_FETCH, inst("ageo", width=4, height=4, run_bytes=4), par(), inst("pgeo", width=4, height=4),
               conv(1, chain=chain, signal=("post",)), inst("post", wait=("array",), columns=4), HALT)


def test_post_after_conv() -> None:
    # ageo  B 0..31     D = 34, array 35..36
    # par   B 32..39    word 2, D = 35; 24 B of payload in cycles 36..41 (word 3 since 36); post 42..43
    # pgeo  B 64..107   D = 42, post 43..44
    # conv  B 108..123  D = 43; mask in cycle 44; rows in cycles 45..48, decode_end 49, decoded 51, pass 51..67,
    #                   visible 70: token
    # post  B 144..163  D = 49; at max(44, 50, token 70) = 70..86, visible 96
    # halt  D = 50, executes at 96: 97 cycles
    assert chained(0).cycles == 97


def test_post_chained_to_conv() -> None:
    # As before, but the token is given at 51 + 3 = 54: post 54..70, visible 80, 81 cycles.
    result = chained(1)
    assert result.cycles == 81
    assert result.total.unit("post").stall_cycles("token:array") == 54 - 50


def test_post_chained_to_dwc() -> None:
    # As test_post_after_conv up to the decode of the taps at 51. rows_in = columns_in = 5: pass 51..76, visible 79.
    # The token comes 4 * 4 cycles before that, at 63: post 63..79, whose last read at 78 is of the position that the
    # pass finished in cycle 75. visible 89, 90 cycles.
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
    # ageo D = 34, array 35..36; dwc D = 35; mask in cycle 36, taps in cycles 37..40, decoded 43, pass 43..68,
    # visible 71; halt D = 41, executes at 71: 72 cycles.
    result = dwc(1)
    assert result.cycles == 72
    assert result.total.stream_bytes("array_read") == 25 * 4
    assert (result.total.macs, result.total.slots) == (16 * 4 * 4, 25 * 16)


def test_depthwise_stride_2() -> None:
    # rows_in = columns_in = min(3 * 2 + 2, 4 * 2) = 8: 64 cycles, pass 43..107, visible 110, 111 cycles.
    assert dwc(2).cycles == 111


def test_queue_full() -> None:
    # fill: 24 B = 6 words, 400 B / 4 = 100 cycles, each after the one before is visible (= its end).
    # 0: D = 38, 39..139.  1: D = 44, 139..239.  2: D = 50 (0 has started at 39), 239..339.
    # 3: words 18..23, available 56, but 1 starts at 139: D = 139, 339..439.
    # halt D = 140, executes at 439: 440 cycles.
    result = run(TINY, *[inst("fill", row_bytes=400) for _ in range(4)], HALT)
    assert result.cycles == 440
    assert result.total.unit("dispatch").stall_cycles("queue") == 139 - 56
    assert result.total.unit("dma_in").busy_cycles == 400


def test_post_waits_for_its_own_results() -> None:
    # par   B 0..7     D = 33; payload B 8..31 in cycles 34..39, post 40..41
    # pgeo  B 32..75   word 4 available 37, D = 40, post 41..42
    # post  B 76..95   D = 41, post 42..46 (4 positions), visible 56
    # post  B 96..115  D = 42; reads the SRAM: starts at 56; 4 positions x 2 reads = 8 cycles, end 64, visible 74
    # halt  D = 43, executes at 74: 75 cycles
    result = run(WIDE_FETCH, par(), inst("pgeo", width=4, out_x_step=4, window_x=2, window_x_stride=4, a_x_step=4),
                 inst("post", columns=4), inst("post", columns=4, source_sram=1, out_address=64), HALT)
    assert result.cycles == 75
    assert result.total.unit("post").stall_cycles("order") == 56 - 46


def test_small_fifo() -> None:
    # 64 B are 16 words. Word 16 takes the slot of word 0, which the dispatcher took at 33: issued 33, available
    # 66. The second load is words 10..19; word 19 takes the slot of word 3 (36): available 69, D = 69.
    # dma_in 70..71, visible 135; halt word 20, slot of word 4 (37), available 70, D = 70, executes at 135.
    target = replace(TINY, name="small_fifo", fetch_fifo_bytes=64)
    result = run(target, *[inst("load", binding=0, row_bytes=4) for _ in range(2)], HALT)
    assert result.cycles == 136
    # Fetch: words 0..15 in cycles 0..15, then 33 ..: it waits from 16 to 33.
    assert result.total.unit("fetch").stall_cycles("fifo") == 33 - 16


def test_zero_tiles_take_no_cycles() -> None:
    # ageo D = 34, array 35..36; conv D = 35, mask in cycle 36. All tiles zero and nothing to add to: one pass of
    # 16 cycles without weights, at max(36, D + 1) = 36..52, visible 55; halt B 52..55, word 3, D = 37: 56 cycles.
    zero = pack_weights(np.zeros((1, 1, 12, 4), np.int8), 4)
    geometry = inst("ageo", width=4, height=4, run_bytes=12)
    result = run(WIDE_FETCH, geometry, inst("conv", columns=4, payload=zero), HALT)
    assert result.cycles == 56
    assert (result.total.tiles, result.total.zero_tiles, result.total.skipped_macs) == (0, 3, 3 * 16 * 16)
    # With something to add to: 1 cycle, 36..37, visible 40, 41 cycles.
    result = run(WIDE_FETCH, geometry, inst("conv", columns=4, accumulate=1, payload=zero), HALT)
    assert result.cycles == 41


def test_chain_of_an_empty_conv_waits_for_the_one_before() -> None:
    # As test_post_after_conv: the first conv passes 51..67. The second has only a zero tile to add:
    # conv B 144..159, D = 49; mask in cycle 50; 1 cycle at 67..68, visible 71. Its token is given min(1, 16) cycles
    # before that, at 70, when the first conv is visible too: post (D = 51) 70..86, visible 96, 97 cycles.
    zero = pack_weights(np.zeros((1, 1, 4, 4), np.int8), 4)
    result = run(WIDE_FETCH, inst("ageo", width=4, height=4, run_bytes=4), par(), inst("pgeo", width=4, height=4),
                 conv(1), inst("conv", columns=4, accumulate=1, chain=1, signal=("post",), payload=zero),
                 inst("post", wait=("array",), columns=4), HALT)
    assert result.cycles == 97
