"""Program verifier: one broken program per rule with its message, and valid ones that look suspicious."""
from __future__ import annotations

import dataclasses

import pytest

from byoc_accel.emit.program import Buffer, Layer
from byoc_accel.emit.verify import verify
from byoc_accel.isa.encode import encode_all
from byoc_accel.isa.inst import Inst, inst
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
    weights,
)

# --- structure ----------------------------------------------------------------------------------------------


def test_smallest_program() -> None:
    verify(program(inst("store", binding=1, row_bytes=64), HALT), TINY)


def test_target_digest() -> None:
    assert "p: made for target " in refusal(program(HALT, target=REFERENCE))


@pytest.mark.parametrize("buffer", [Buffer("b", "weights", 4), Buffer("b", "input", 0), Buffer("b", "input", 1 << 30)])
def test_buffers(buffer: Buffer) -> None:
    assert f"buffer 'b' is {buffer.kind} of {buffer.bytes} bytes; allowed are" in refusal(program(HALT,
                                                                                               buffers=(buffer,)))


@pytest.mark.parametrize("code, message", [
    (b"", "0 halt instructions"),
    (b"\xff\0\0\0", "offset 0: opcode 0xff is no instruction"),
    (encode_all([inst("endl")]), "0 halt instructions, at [] of 1; exactly the last instruction must be halt"),
    (encode_all([HALT, HALT]), "2 halt instructions, at [0, 1] of 2"),
    (encode_all([HALT, inst("setr", reg=1)]), "1 halt instructions, at [0] of 2"),
])
def test_code_decodes_and_ends_with_halt(code: bytes, message: str) -> None:
    assert message in refusal(program(HALT, code=code))


@pytest.mark.parametrize("spans, message", [
    ([], "layers end at byte 0 of 12"),
    ([(0, 8)], "layers end at byte 8 of 12"),
    ([(4, 12)], "layer 'l0' spans bytes 4 to 12; spans must follow each other (next is 0)"),
    ([(0, 8), (4, 12)], "layer 'l1' spans bytes 4 to 12; spans must follow each other (next is 8)"),
    ([(0, 4), (4, 12)], "layer 'l0' spans bytes 0 to 4"),
    ([(0, 8), (8, 4)], "layer 'l1' spans bytes 8 to 4"),
])
def test_layers_tile_the_code(spans: list, message: str) -> None:
    layers = tuple(Layer(f"l{i}", "conv", start, end, 0, 0) for i, (start, end) in enumerate(spans))
    assert message in refusal(program(inst("setr", reg=1, value=1), HALT, layers=layers))


def test_errors_name_instruction_offset_layer_and_iteration() -> None:
    body = [inst("setr", reg=1, value=8190), inst("loop", count=5),
            inst("fill", row_bytes=1, sram_reg=1), inst("addr", reg=1, increment=1, limit=9999), inst("endl")]
    code = encode_all([*body, HALT])
    layers = (Layer("first", "conv", 0, 12, 0, 0), Layer("second", "conv", 12, len(code), 0, 0))
    message = refusal(program(*body, HALT, layers=layers, buffers=()))
    assert message == ("program: p: instruction 2 (fill at offset 12, layer 'second'), loop iteration 2: sram_address "
                       "reaches SRAM bytes 8192 to 8193; the limit is 8192, move or shrink it")


def test_loops() -> None:
    loop, end, nop = inst("loop", count=2), inst("endl"), inst("setr", reg=1)
    accepted(*[loop] * 4, nop, *[end] * 4)
    assert "(endl at offset 4, layer 'only'): closes an empty loop; remove it" in refused(loop, end)
    assert "(endl at offset 0, layer 'only'): closes no loop; remove it" in refused(end)
    assert "is never closed; add an endl" in refused(loop, nop)
    assert "loop 5 deep; fetch.loop_depth is 4, unroll one" in refused(*[loop] * 5, nop, *[end] * 5)
    assert "at most 1000000 are allowed" in refused(loop.replace(count=1 << 24), nop, end)


# --- limits of the target -----------------------------------------------------------------------------------


def test_columns() -> None:
    assert "columns = 5; array.columns is 4, split the channels" in refused(LINE, conv(LINE, 5))
    assert "columns = 5; array.columns is 4" in refused(par(5))
    assert "columns = 3; the par before loaded 2, load more" in refused(
        par(2), LINE_OUT, inst("post", source_sram=1, columns=3))


def test_accumulators_end() -> None:
    accepted(LOAD.replace(signal=("array",)), LINE, conv(LINE, acc_base=56, wait=("dma_in",)))
    assert "acc_base reaches accumulators 57 to 65; the limit is 64" in refused(
        LOAD.replace(signal=("array",)), LINE, conv(LINE, acc_base=57, wait=("dma_in",)))


@pytest.mark.parametrize("fields, message", [
    ({"runs_x": 3, "runs_y": 2, "run_x_stride": 1, "run_y_stride": 8}, "a window of 2 x 3 taps; array.rows is 4"),
    ({"runs_x": 2, "run_x_stride": 2, "x_step": 3, "width": 2}, "x_step = 3 is no multiple of run_x_stride = 2"),
    ({"runs_x": 2, "run_x_stride": 0}, "x_step = 0 is no multiple of run_x_stride = 0"),
    ({"runs_y": 2, "run_y_stride": 4, "y_step": 2, "height": 2}, "y_step = 2 is no multiple of run_y_stride = 4"),
    ({"runs_x": 2, "runs_y": 2, "run_x_stride": 1, "run_y_stride": 20, "x_step": 1, "width": 16},
     "17 input positions in a row; line_buffer.positions is 16, narrow the block"),
])
def test_depthwise_windows(fields: dict, message: str) -> None:
    assert message in refused(*dwc(inst("ageo", **fields)))


def test_line_buffer_rows() -> None:
    target = dataclasses.replace(TINY, line_buffer_rows=1)
    g = inst("ageo", runs_y=3, run_y_stride=8)
    assert "runs_y = 3; line_buffer.rows is 1 earlier rows, cut the window" in refused(*dwc(g), target=target)
    accepted(*dwc(g))


def test_depthwise_windows_at_their_limits() -> None:
    accepted(*dwc(inst("ageo", runs_x=2, runs_y=2, run_x_stride=1, run_y_stride=20, x_step=1, width=15)))
    accepted(*dwc(inst("ageo", runs_x=4, run_x_stride=1, x_step=1, width=40)))  # one row needs no line buffer
    accepted(*dwc(inst("ageo", x_step=3, width=2, run_x_stride=2)))  # one tap: steps are free


def test_weights_fit_the_geometry() -> None:
    assert "8 bytes of tiles; mask and geometry ask for 1, padded to words; repack for this ageo" in refused(
        LINE, inst("conv", payload=weights(LINE.replace(run_bytes=2), 4)))
    assert "padding after the last tile is not zero" in refused(LINE, inst("conv", payload=weights(LINE, 3)))
    assert "the mask names tiles beyond the 1 of this geometry" in refused(LINE, inst("conv", payload=b"\2\0\0\0"))
    # The same bytes under another ageo.
    wide = LINE.replace(run_bytes=8)
    assert "instruction 3 (conv at offset 48, layer 'only'): weights: the mask names tiles" in refused(
        wide, conv(wide), LINE, conv(wide))


@pytest.mark.parametrize("instruction, message", [
    (par(shift=0), "has multiplier [1073741824] and shift [0]; shifts are 1 to 62, multipliers below 2^31"),
    (par(shift=63), "and shift [63]"),
    (par(clamp_low=5, clamp_high=4), "clamp_low = 5 is above clamp_high = 4"),
    (par().replace(payload=bytes(3) + b"\1"), "padding after the shifts is not zero"),
    (inst("addp", shift_b=1, shift_out=1), "multiplier_a = 0, shift_a = 0"),
    (inst("addp", shift_a=1, shift_b=1, shift_out=63), "multiplier_out = 0, shift_out = 63"),
    (inst("addp", shift_a=1, shift_b=1, shift_out=1, multiplier_b=1 << 31), "multiplier_b = 2147483648, shift_b = 1"),
    (inst("addp", shift_a=1, shift_b=1, shift_out=1, left_shift=24), "left_shift = 24; at most 23 fits 32 bits"),
    (inst("addp", shift_a=1, shift_b=1, shift_out=1, clamp_high=-1), "clamp_low = 0 is above clamp_high = -1"),
])
def test_parameters(instruction: Inst, message: str) -> None:
    assert message in refused(instruction)


# --- addresses and bindings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("insts, message", [
    ([LOAD.replace(sram_address=8129)], "sram_address reaches SRAM bytes 8129 to 8193; the limit is 8192"),
    ([LOAD.replace(external_offset=1)], "external_offset reaches bytes of buffer 0 1 to 65; the limit is 64"),
    ([LOAD.replace(row_bytes=16, rows=4, external_row_stride=17, sram_row_stride=16)],
     "external_offset reaches bytes of buffer 0 0 to 67"),
    ([LOAD.replace(row_bytes=8, planes=2, external_plane_stride=57)], "external_offset reaches bytes of buffer 0 0 to"),
    ([inst("fill", row_bytes=2, rows=2, sram_row_stride=8191)], "sram_address reaches SRAM bytes 0 to 8193"),
    ([LINE.replace(x_step=1171), conv(LINE)], "ifm_address reaches SRAM bytes 0 to 8198"),
    ([inst("setr", reg=2, value=8192), LINE.replace(width=1), conv(LINE, ifm_reg=2)],
     "ifm_address reaches SRAM bytes 8192 to 8193"),
    ([par(), LINE_OUT, inst("post", source_sram=1, out_address=8185)], "out_address reaches SRAM bytes 8185 to 8193"),
    ([par(), LINE_OUT, inst("post", source_sram=1, a_address=8185)], "a_address reaches SRAM bytes 8185 to 8193"),
    ([par(), LINE_OUT.replace(window_x=2, window_x_stride=8185), inst("post", source_sram=1)],
     "a_address reaches SRAM bytes 0 to 8193"),
])
def test_addresses(insts: list[Inst], message: str) -> None:
    assert message in refused(*insts)


def test_residual_address() -> None:
    addp = inst("addp", shift_a=1, shift_b=1, shift_out=1)
    assert "r_address reaches SRAM bytes 8185 to 8193" in refused(
        par(), addp, LINE_OUT, inst("post", source_sram=1, residual=1, r_address=8185, out_address=100))


def test_last_iteration_counts() -> None:
    def body(count: int) -> list[Inst]:
        return [inst("setr", reg=1, value=0), inst("loop", count=count), inst("fill", row_bytes=1024, sram_reg=1),
                inst("addr", reg=1, increment=1024, limit=1 << 30), inst("endl")]

    accepted(*body(8))
    assert "loop iteration 8: sram_address reaches SRAM bytes 8192 to 9216" in refused(*body(9))


@pytest.mark.parametrize("instruction, message", [
    (LOAD.replace(binding=3), "binding = 3; the program has 3 buffers"),
    (LOAD.replace(binding=1), "binding = 1 is output 'y'; load takes input or scratch buffers only"),
    (inst("store", binding=0), "binding = 0 is input 'x'; store takes output or scratch buffers only"),
])
def test_binding_kinds(instruction: Inst, message: str) -> None:
    assert message in refused(instruction)


def test_every_output_byte_is_written() -> None:
    rows = inst("store", binding=1, row_bytes=7, rows=8, external_row_stride=8, sram_row_stride=8)
    assert ("(halt at offset 24, layer 'only'): 8 bytes of output 'y' are never written, the first is byte 7; "
            "store them") in refusal(program(rows, HALT))
    column = inst("store", binding=1, rows=8, external_offset=7, external_row_stride=8)
    verify(program(rows, column, HALT), TINY)


# --- state --------------------------------------------------------------------------------------------------


def test_state_is_set_before_use() -> None:
    post = inst("post", source_sram=1, out_address=100)
    addp, table = inst("addp", shift_a=1, shift_b=1, shift_out=1), inst("lut", payload=bytes(256))
    assert "needs ageo state, which was never set; put a ageo before" in refused(conv(LINE))
    assert "needs pgeo state" in refused(par(), post)
    assert "needs par state" in refused(LINE_OUT, post)
    assert "needs addp state" in refused(LINE_OUT, par(), table, post.replace(residual=1))
    assert "needs lut state" in refused(LINE_OUT, par(), addp, post.replace(table=1))
    accepted(LINE_OUT, par(), addp, table, post.replace(residual=1, table=1, r_address=200))


def test_registers_are_set_before_use() -> None:
    assert "uses r1, which was never set; put a setr before" in refused(LOAD.replace(sram_reg=1))
    assert "uses r1, which was never set" in refused(inst("addr", reg=1))
    assert "sets r0; r1 to r7 can be set" in refused(inst("setr", reg=0))
    assert "uses r3, which was never set" in refused(inst("flip", reg=3, value=9))
    assert "flips r1 = 5 by 4; the value must not be less" in refused(inst("setr", reg=1, value=5),
                                                                      inst("flip", reg=1, value=4))
    accepted(inst("setr", reg=1, value=0), inst("flip", reg=1, value=64), LOAD.replace(sram_reg=1, sram_address=8064))
    few = dataclasses.replace(TINY, fetch_address_registers=2)
    assert "sets r2; r1 to r1 can be set" in refused(inst("setr", reg=2), target=few)
    assert "uses r2; fetch.address_registers is 2" in refused(LOAD.replace(sram_reg=2), target=few)


def test_accumulators_are_written_before_use() -> None:
    post = inst("post", acc_base=0, out_address=100, wait=("array",))
    give = conv(LINE, signal=("post",), acc_base=1)
    assert ("reads 1 columns of accumulators 0 to 8, of which only 0 were written everywhere"
            in refused(LINE, LINE_OUT, par(), give, post))
    assert "reads 1 columns of accumulators 0 to 8, of which only 0" in refused(LINE, conv(LINE, accumulate=1))
    accepted(LINE, conv(LINE), conv(LINE, accumulate=1))
    assert "reads 2 columns of accumulators 1 to 9, of which only 1" in refused(
        LINE, LINE_OUT, par(2), give, post.replace(acc_base=1, columns=2))


def test_result_over_an_operand() -> None:
    addp = inst("addp", shift_a=1, shift_b=1, shift_out=1)
    post = inst("post", source_sram=1, residual=1, a_address=100, r_address=200, out_address=200)
    accepted(par(), addp, LINE_OUT, post)  # in place
    accepted(par(), addp, LINE_OUT, post.replace(out_address=100))
    accepted(par(), addp, LINE_OUT, post.replace(out_address=208))
    message = "overlaps operand r at 200 other than position by position; move one of them"
    assert "the result at 201 " + message in refused(par(), addp, LINE_OUT, post.replace(out_address=201))
    assert "the result at 200 " + message in refused(par(), addp, LINE_OUT.replace(r_x_step=2), post)
    # Positions that overlap each other are overwritten before they are read.
    assert "the result at 200 " + message in refused(
        par(2), addp, LINE_OUT, post.replace(columns=2))
    # A window reads neighbours.
    assert "overlaps operand a at 100" in refused(
        par(), addp, LINE_OUT.replace(window_x=2, window_x_stride=1), post.replace(out_address=100))
    # Interleaved channels do not overlap.
    spread = inst("pgeo", width=8, out_x_step=2, a_x_step=2, r_x_step=2)
    accepted(par(), addp, spread, post.replace(out_address=201))


# --- codec lanes --------------------------------------------------------------------------------------------

WTAB = inst("wtab", fresh=1, payload=b"\x11" + bytes(15))  # runs of one zero: 0; of two or three: 1 and a bit
LANES = inst("conv", columns=4, codec="lanes", payload=bytes(8))  # zero bits: one word of four is a zero
GEOMETRY = inst("ageo", run_bytes=4)


def test_lanes_go_on_until_a_loop_begins_or_ends() -> None:
    missing = "uses codec lanes without a fresh wtab since the last loop or endl; put one before"
    assert missing in refusal(program(GEOMETRY, LANES, HALT))
    assert missing in refusal(program(GEOMETRY, WTAB, inst("loop", count=2), LANES, inst("endl"), HALT))
    assert missing in refusal(program(GEOMETRY, inst("loop", count=2), WTAB, inst("endl"), LANES, HALT))
    assert "goes on with a stretch that a loop or endl has ended; set fresh = 1" in refusal(
        program(inst("loop", count=2), WTAB, inst("endl"), WTAB.replace(fresh=0), HALT))


def test_lane_tables_are_complete() -> None:
    assert "the code words fill 1024 of 2048 codes" in refusal(
        program(inst("wtab", fresh=1, payload=b"\x01" + bytes(15)), HALT))


def test_lane_payloads_are_what_the_weights_take() -> None:
    # Zeros: a one-zero symbol each. Four lanes ask for two words at their first row and for a third at their second:
    # 12 words.
    accepted(GEOMETRY, WTAB, LANES.replace(payload=bytes(24)))
    message = "payload of 32 bytes is not what the weights of this ageo take; encode them again"
    assert message in refusal(program(GEOMETRY, WTAB, LANES.replace(payload=bytes(32)), HALT))
    early = program(GEOMETRY, WTAB, LANES.replace(payload=b""), LANES.replace(payload=bytes(8)), HALT)
    assert "payload of 8 bytes is not what" in refusal(early)


def test_tiles_are_the_same_in_every_iteration() -> None:
    body = (WTAB, LANES.replace(payload=bytes(24)), inst("ageo", run_bytes=2, runs_x=2, run_x_stride=2))
    assert "has 2 runs of 2 rows and had others in an earlier iteration, which changes what the lanes hold; set ageo" \
        in refusal(program(GEOMETRY, inst("loop", count=2), *body, inst("endl"), HALT))
