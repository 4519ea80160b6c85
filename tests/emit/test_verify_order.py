"""Program verifier, order between units: tokens, races, chain tokens; and random valid programs."""
from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.emit.program import Buffer
from byoc_accel.emit.verify import verify
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.payload import pack_weights
from byoc_accel.target import Target
from tests.small_programs import (
    HALT,
    LINE,
    LINE_OUT,
    LOAD,
    REFERENCE,
    TINY,
    accepted,
    conv,
    dwc,
    par,
    program,
    refusal,
    refused,
)
from tests.strategies_isa import Case, programs

# --- tokens -------------------------------------------------------------------------------------------------


def test_tokens_balance() -> None:
    give, take = inst("sync_array", signal=("post",)), inst("sync_post", wait=("array",))
    accepted(give, take)
    assert "waits for a token from array, but no earlier instruction gives one; add a signal" in refused(take, give)
    assert "tokens are left over: 1 from array to post; take or drop them" in refusal(program(give, HALT, buffers=()))
    # In a loop every iteration must balance.
    loop = inst("loop", count=2), inst("endl")
    accepted(loop[0], give, take, loop[1])
    assert "loop iteration 1: waits for a token" in refused(give, loop[0], take, loop[1])


def test_token_counters_do_not_overflow() -> None:
    """A queue of 2 and one running instruction may be taken later than in program order: 255 - 3 tokens."""
    give, take = inst("sync_array", signal=("post",)), inst("sync_post", wait=("array",))
    accepted(*[give] * 252, *[take] * 252)
    assert "gives token 253 to post before one is taken; at most 252 may be open" in refused(
        *[give] * 253, *[take] * 253)


# --- races --------------------------------------------------------------------------------------------------


def test_load_before_conv() -> None:
    message = refused(LOAD, LINE, conv(LINE))
    assert message == ("program: p: instruction 2 (conv at offset 20, layer 'only'): reads SRAM bytes 0 to 8 "
                       "(ifm_address) while instruction 0 (load at offset 0, layer 'only') may still use them; make it "
                       "wait for a token from dma_in")
    accepted(LOAD.replace(signal=("array",)), LINE, conv(LINE, wait=("dma_in",)))
    accepted(LOAD, LINE, conv(LINE, ifm_address=64))


def test_write_after_read() -> None:
    assert "writes SRAM bytes 0 to 64 (sram_address) while instruction 1 (conv" in refused(LINE, conv(LINE), LOAD)
    accepted(LINE, conv(LINE, signal=("dma_in",)), LOAD.replace(wait=("array",)))


def test_write_after_write() -> None:
    post = inst("post", source_sram=1, a_address=100, out_address=60)
    assert "writes SRAM bytes 60 to 68 (out_address) while instruction 0 (load" in refused(LOAD, par(), LINE_OUT, post)
    accepted(LOAD, par(), LINE_OUT, post.replace(out_address=64))


def test_accumulators_race() -> None:
    head = [LINE, LINE_OUT, par(), conv(LINE)]
    post = inst("post", out_address=100)
    assert "reads accumulators 0 to 8 (acc_base) while instruction 3 (conv" in refused(*head, post)
    ordered = [*head[:3], conv(LINE, signal=("post",)), post.replace(wait=("array",))]
    accepted(*ordered)
    assert "writes accumulators 7 to 15 (acc_base) while instruction 4 (post" in refused(*ordered,
                                                                                         conv(LINE, acc_base=7))
    accepted(*ordered, conv(LINE, acc_base=8))
    accepted(*ordered[:4], ordered[4].replace(signal=("array",)), conv(LINE, acc_base=7, wait=("post",)))


def test_scratch_race() -> None:
    out, back = inst("store", binding=2, row_bytes=8), inst("load", binding=2, row_bytes=8, sram_address=100)
    assert "reads bytes of buffer 2 0 to 8 (external_offset) while instruction 0 (store" in refused(out, back)
    accepted(out, back.replace(external_offset=8))
    accepted(out.replace(signal=("dma_in",)), back.replace(wait=("dma_out",)))


def test_same_unit_needs_no_token() -> None:
    accepted(LOAD, inst("fill", row_bytes=8), LOAD.replace(sram_address=3))
    accepted(LINE, conv(LINE), conv(LINE, accumulate=1))
    post = inst("post", source_sram=1, a_address=0, out_address=100)
    accepted(par(), LINE_OUT, post, post.replace(a_address=100, out_address=200), post.replace(out_address=0,
                                                                                              a_address=100))


def test_tokens_order_through_a_third_unit() -> None:
    """load -> conv -> post: the post knows that the load is done."""
    post = inst("post", out_address=0, wait=("array",))
    accepted(LOAD.replace(signal=("array",)), LINE, conv(LINE, wait=("dma_in",), signal=("post",)), par(), LINE_OUT,
             post)
    # A token given before the access proves nothing about it.
    early = inst("sync_in", signal=("array",))
    assert "while instruction 1 (load" in refused(early, LOAD, LINE, conv(LINE, wait=("dma_in",)))


def test_tokens_are_taken_in_the_order_they_are_given() -> None:
    """The first take matches the first give, so a second one is needed to be ordered after the second load."""
    first, second = LOAD.replace(signal=("array",)), LOAD.replace(signal=("array",), sram_address=64)
    one, two = conv(LINE, ifm_address=64, wait=("dma_in",)), conv(LINE, wait=("dma_in",))
    assert "while instruction 1 (load" in refused(first, second, LINE, one, two)
    accepted(first, second, LINE, two, one)


def test_race_between_iterations() -> None:
    """The body is ordered in itself, but its load may overtake the conv of the iteration before."""
    body = [LOAD.replace(signal=("array",)), conv(LINE, wait=("dma_in",))]
    loop = inst("loop", count=2), inst("endl")
    assert "loop iteration 1: writes SRAM bytes 0 to 64 (sram_address) while instruction 3 (conv" in refused(
        LINE, loop[0], *body, loop[1])
    balanced = [inst("sync_array", signal=("dma_in",)), inst("sync_in", wait=("array",))]
    accepted(LINE, loop[0], *body, *balanced, loop[1])


def test_registers_move_accesses_apart() -> None:
    """Iterations on different halves do not meet; the third one comes back to the first half."""
    def body(count: int) -> list[Inst]:
        return [inst("setr", reg=1, value=0), LINE, inst("loop", count=count),
                LOAD.replace(sram_reg=1, signal=("array",)), conv(LINE, ifm_reg=1, wait=("dma_in",)),
                inst("addr", reg=1, increment=64, limit=64), inst("endl")]

    accepted(*body(2))
    assert "loop iteration 2: writes SRAM bytes 64 to 128" in refused(*body(3))


def test_channel_slices_of_rows_do_not_race() -> None:
    """post writes channels 0..1 of rows that dma_out reads channels 2..3 of."""
    g = inst("pgeo", width=4, height=3, out_x_step=4, out_y_step=20)
    post = inst("post", source_sram=1, a_address=500, columns=2)
    store = inst("store", binding=2, row_bytes=2, rows=4, planes=3, sram_row_stride=4, sram_plane_stride=20,
                 external_row_stride=2, external_plane_stride=8, sram_address=2)
    accepted(par(2), g, post, store)
    for offset in (0, 1, 3, 20, 23):  # 3: its second channel is the next position's first
        assert "reads SRAM bytes" in refused(par(2), g, post, store.replace(sram_address=offset))
    accepted(par(2), g, post, store.replace(sram_address=16, rows=1))  # the gap at each row's end


# --- chain --------------------------------------------------------------------------------------------------


def chained(conv_fields: dict, post_fields: dict, geometry: Inst = LINE_OUT) -> list[Inst]:
    return [LINE, geometry, par(), conv(LINE, **{"chain": 1, "signal": ("post",), **conv_fields}),
            inst("post", **{"wait": ("array",), "out_address": 100, **post_fields})]


def test_chain_rule() -> None:
    accepted(*chained({}, {}))
    accepted(*chained({}, {}, LINE_OUT.replace(width=4, height=2)))
    assert "chain gives tokens to dma_in, post; only post may follow" in refused(
        *chained({"signal": ("dma_in", "post")}, {}), inst("sync_in", wait=("array",)))
    assert "takes a chain token for 8 positions from entry 0 but reads 4 from 0" in refused(
        *chained({}, {}, LINE_OUT.replace(width=4)))
    assert "takes a chain token for 8 positions from entry 0 but reads 8 from 1" in refused(
        *chained({}, {"acc_base": 1}))
    assert "takes a chain token but does not read the accumulators" in refused(*chained({}, {"source_sram": 1}))


def test_chain_of_dwc() -> None:
    """Its token waits for the last results (docs/ISA.md, Timing), so a pass of 10 cycles for 8 positions may chain."""
    window = LINE.replace(runs_x=3, run_x_stride=1)
    accepted(*dwc(window, chain=1, signal=("post",)), LINE_OUT, par(),
             inst("post", wait=("array",), out_address=100))
    assert "chain gives tokens to dma_in; only post may follow" in refused(
        *dwc(window, chain=1, signal=("dma_in",)), inst("sync_in", wait=("array",)))


def test_chain_proves_nothing_about_the_running_conv() -> None:
    """The post may not write what the conv still reads, but what follows the post may."""
    assert "writes SRAM bytes 0 to 8 (out_address) while instruction 3 (conv" in refused(
        *chained({}, {"out_address": 0}))
    accepted(*chained({"chain": 0}, {"out_address": 0}))
    first = chained({}, {})
    second = inst("post", source_sram=1, a_address=200, out_address=0)
    accepted(*first, second)
    accepted(*first[:4], first[4].replace(signal=("dma_in",)), LOAD.replace(wait=("post",)))


def test_chain_proves_earlier_array_work() -> None:
    before = conv(LINE, ifm_address=300, acc_base=20)
    insts = chained({}, {"out_address": 300})
    accepted(insts[0], before, *insts[1:])


# --- random programs, speed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [TINY, REFERENCE], ids=lambda t: t.name)
def test_valid_programs_pass(target: Target) -> None:
    @settings(max_examples=60)
    @given(programs(target))
    def check(case: Case) -> None:
        verify(case.program, target)

    check()


def test_long_programs_are_fast() -> None:
    """20,000 instructions of a double-buffered layer with channel-sliced results: a few seconds at most."""
    g = inst("ageo", width=14, height=14, x_step=16, y_step=256, run_bytes=48, runs_y=3, run_y_stride=256)
    kernel = pack_weights(np.random.default_rng(0).integers(-9, 9, (3, 1, 48, 16)).astype(np.int8), 16)
    rounds = 5000
    insts = [par(16), g, inst("pgeo", width=14, height=14, out_x_step=64, out_y_step=896)]
    for k in range(rounds):
        half, slot, old, new = k % 2, 16 * (k // 2 % 4), k >= 2, k < rounds - 2
        out = 16384 * (half + 1) + slot
        insts += [
            inst("load", binding=0, row_bytes=256, rows=16, external_row_stride=256, sram_row_stride=256,
                 sram_address=4096 * half, wait=("array",) * old, signal=("array",)),
            inst("conv", columns=16, ifm_address=4096 * half, acc_base=1024 * half, payload=kernel,
                 wait=("dma_in", "post") if old else ("dma_in",), signal=("dma_in", "post") if new else ("post",)),
            inst("post", columns=16, acc_base=1024 * half, out_address=out,
                 wait=("array", "dma_out") if old else ("array",),
                 signal=("array", "dma_out") if new else ("dma_out",)),
            inst("store", binding=1, row_bytes=16, rows=196, external_row_stride=64, sram_row_stride=64,
                 sram_address=out, external_offset=slot, wait=("post",), signal=("post",) * new),
        ]
    buffers = (Buffer("x", "input", 4096), Buffer("y", "output", 196 * 64))
    long = program(*insts, HALT, buffers=buffers, target=REFERENCE)
    start = time.process_time()
    verify(long, REFERENCE)
    assert time.process_time() - start < 20  # about 1.5 s; the bound only catches quadratic behaviour
