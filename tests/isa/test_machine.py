"""Golden machine: every instruction against results worked out by hand."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.errors import EncodeError, ProgramError
from byoc_accel.isa.encode import encode_all
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.machine import Machine, run
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_table, pack_taps, pack_weights
from byoc_accel.isa.semantics import requantize
from byoc_accel.isa.table import ROUNDINGS
from byoc_accel.target import load_target
from tests.strategies_isa import Case, programs

TINY = load_target("tiny")  # 4 rows x 4 columns
HALT = inst("halt")
OUT = 1000  # SRAM address of results in these programs


def outputs(x: list[int], size: int, *program: Inst, fill: int = 0) -> list[int]:
    """Load x to SRAM 0, run `program`, store `size` bytes from OUT; returns the output buffer."""
    code = encode_all([inst("load", binding=0, row_bytes=len(x)), *program,
                       inst("store", binding=1, sram_address=OUT, row_bytes=size), HALT])
    buffers = [np.array(x, np.int8), np.zeros(size, np.int8)]
    return run(code, TINY, buffers, fill)[1].tolist()


def identity(columns: int, bias: int = 0, **fields: object) -> Inst:
    """par that passes values through: times 2**30 / 2**30, clamp to int8."""
    scale = parameters(np.full(columns, bias), np.array([1 << 30]), np.array([30]), uniform=True)
    return inst("par", **{**scale, "clamp_low": -128, "clamp_high": 127, **fields})


def flat(width: int, columns: int, **fields: object) -> Inst:
    """pgeo of one row of positions, results side by side."""
    return inst("pgeo", width=width, out_x_step=columns, **fields)


def weights(values: object, shape: tuple[int, int, int, int]) -> bytes:
    return pack_weights(np.array(values, np.int8).reshape(shape), TINY.array_rows)


# --- data movement ------------------------------------------------------------------------------------------


def test_load_and_store_move_planes_and_rows() -> None:
    x = np.arange(100, dtype=np.int8)
    # Two planes (60 apart) of two rows (10 apart) of three bytes, from byte 5; packed 3 and 8 apart in the SRAM.
    code = encode_all([
        inst("load", binding=0, external_offset=5, row_bytes=3, rows=2, planes=2, external_row_stride=10,
             external_plane_stride=60, sram_address=40, sram_row_stride=3, sram_plane_stride=8),
        inst("store", binding=1, external_offset=1, row_bytes=14, sram_address=40), HALT])
    y = run(code, TINY, [x, np.full(16, -1, np.int8)], fill=9)[1]
    assert y.tolist() == [-1, 5, 6, 7, 15, 16, 17, 9, 9, 65, 66, 67, 75, 76, 77, -1]


def test_later_rows_of_a_transfer_win() -> None:
    assert outputs([1, 2, 3, 4, 5, 6], 4, inst("load", binding=0, row_bytes=3, rows=2, external_row_stride=3,
                                               sram_address=OUT, sram_row_stride=1)) == [1, 4, 5, 6]


def test_fill_writes_borders() -> None:
    # Left and right border of 3 rows of 4 bytes: one row of 2 bytes every 4, wrapping round the row end.
    border = inst("fill", value=-7, sram_address=OUT, row_bytes=1, rows=2, sram_row_stride=3, planes=3,
                  sram_plane_stride=4)
    assert outputs([0], 12, border) == [-7, 0, 0, -7] * 3


def test_buffers_of_the_caller_are_not_changed() -> None:
    y = np.zeros(4, np.int8)
    run(encode_all([inst("fill", value=3, row_bytes=4), inst("store", binding=0, row_bytes=4), HALT]), TINY, [y])
    assert not y.any()


# --- array --------------------------------------------------------------------------------------------------


def test_conv_even_kernel_with_padding() -> None:
    """1-D: x = 1..8, w = [1, 2, 4, 8], one zero on the left and two on the right."""
    y = outputs([0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0], 8, inst("ageo", width=8, x_step=1, run_bytes=4),
                inst("conv", columns=1, payload=weights([1, 2, 4, 8], (1, 1, 4, 1))),
                identity(1), flat(8, 1), inst("post", out_address=OUT, columns=1))
    assert y == [34, 49, 64, 79, 94, 109, 52, 23]


def test_conv_runs_slices_and_columns() -> None:
    # 2 x 2 positions on a 3 x 3 image of 3 channels; 2 x 2 kernel: run of 2 * 3 bytes = slices of 4 and 2 lanes.
    image = np.arange(-13, 14).reshape(3, 3, 3)
    kernel = np.random.default_rng(7).integers(-5, 6, (2, 2, 3, 4))  # ky, kx, c, o
    kernel[1, 0] = 0
    expected = [[sum(int(image[y + ky, x + kx, c]) * int(kernel[ky, kx, c, o])
                     for ky in range(2) for kx in range(2) for c in range(3))
                 for o in range(4)] for y in range(2) for x in range(2)]
    y = outputs(image.reshape(-1).tolist(), 16,
                inst("ageo", width=2, height=2, x_step=3, y_step=9, run_bytes=6, runs_y=2, run_y_stride=9),
                inst("conv", columns=4, acc_base=3, payload=weights(kernel, (2, 1, 6, 4))),
                identity(4), inst("pgeo", width=2, height=2, out_x_step=4, out_y_step=8),
                inst("post", out_address=OUT, columns=4, acc_base=3))
    assert y == np.clip(expected, -128, 127).reshape(-1).tolist()


def test_conv_runs_along_x() -> None:
    # Taps 0 and 2 of a dilated kernel are two runs along x, 4 bytes apart, of 2 channels.
    y = outputs([1, 2, 3, 4, 5, 6, 7, 8], 2, inst("ageo", width=2, x_step=2, run_bytes=2, runs_x=2, run_x_stride=4),
                inst("conv", columns=1, payload=weights([1, 10, 2, 3], (1, 2, 2, 1))),
                identity(1), flat(2, 1), inst("post", out_address=OUT, columns=1))
    assert y == [1 * 1 + 2 * 10 + 5 * 2 + 6 * 3, 3 * 1 + 4 * 10 + 7 * 2 + 8 * 3]


@pytest.mark.parametrize("fill", [0, -1, 0x55])
def test_accumulate_and_all_zero_weights(fill: int) -> None:
    def conv(value: int, accumulate: int) -> Inst:
        return inst("conv", columns=1, accumulate=accumulate, payload=weights([value], (1, 1, 1, 1)))

    tail = identity(1), flat(1, 1), inst("post", out_address=OUT, columns=1)
    geometry = inst("ageo", run_bytes=1)
    assert outputs([5], 1, geometry, conv(0, 0), *tail, fill=fill) == [0]
    assert outputs([5], 1, geometry, conv(3, 0), conv(0, 1), *tail, fill=fill) == [15]
    assert outputs([5], 1, geometry, conv(3, 0), conv(-4, 1), *tail, fill=fill) == [-5]
    assert outputs([5], 1, geometry, conv(3, 0), conv(0, 0), *tail, fill=fill) == [0]


def test_columns_of_other_channels_stay() -> None:
    geometry, three = inst("ageo", run_bytes=1), identity(3)
    y = outputs([2], 3, geometry, inst("conv", columns=3, payload=weights([1, 2, 3], (1, 1, 1, 3))),
                inst("conv", columns=1, payload=weights([9], (1, 1, 1, 1))), three, flat(1, 3),
                inst("post", out_address=OUT, columns=3))
    assert y == [18, 4, 6]


def test_accumulators_wrap_at_32_bits() -> None:
    # A bias of 2**31 - 1 plus 1 wraps to -2**31.
    y = outputs([1], 1, inst("ageo", run_bytes=1), inst("conv", columns=1, payload=weights([1], (1, 1, 1, 1))),
                identity(1, bias=(1 << 31) - 1), flat(1, 1), inst("post", out_address=OUT, columns=1))
    assert y == [-128]


def test_dwc_dilated() -> None:
    """Eight ones, three taps of 1 two apart, zeros around: [2, 2, 3, 3, 3, 3, 2, 2]."""
    y = outputs([0, 0] + [1] * 8 + [0, 0], 8, inst("ageo", width=8, x_step=2, runs_x=3, run_x_stride=2),
                inst("dwc", columns=1, payload=pack_taps(np.ones((1, 3, 1), np.int8))), identity(1), flat(8, 1),
                inst("post", out_address=OUT, columns=1))
    assert y[:4] == [2, 3, 3, 2]  # x_step 2: every other position
    y = [outputs([0, 0] + [1] * 8 + [0, 0], 1, inst("ageo", runs_x=3, run_x_stride=2),
                 inst("dwc", columns=1, ifm_address=i, payload=pack_taps(np.ones((1, 3, 1), np.int8))), identity(1),
                 flat(1, 1), inst("post", out_address=OUT, columns=1))[0] for i in range(8)]
    assert y == [2, 2, 3, 3, 3, 3, 2, 2]


def test_dwc_channels_keep_apart() -> None:
    # 2 x 2 taps on a 2 x 3 image of 2 channels; channel 1 uses its own weights.
    image = np.array([[[1, 10], [2, 20], [3, 30]], [[4, 40], [5, 50], [6, 60]]])
    taps = np.array([[[1, -1], [0, 0]], [[2, 0], [0, 1]]], np.int8)
    y = outputs(image.reshape(-1).tolist(), 4,
                inst("ageo", width=2, x_step=2, runs_x=2, run_x_stride=2, runs_y=2, run_y_stride=6),
                inst("dwc", columns=2, payload=pack_taps(taps)), identity(2), flat(2, 2),
                inst("post", out_address=OUT, columns=2))
    assert y == [1 + 8, -10 + 50, 2 + 10, -20 + 60]


# --- post ---------------------------------------------------------------------------------------------------


def post_values(x: list[int], par: Inst, *program: Inst, **fields: object) -> list[int]:
    """Post instruction over x, one byte each, read from the SRAM."""
    return outputs(x, len(x), par, *program, flat(len(x), 1, a_x_step=1, r_x_step=1),
                   inst("post", source_sram=1, out_address=OUT, columns=1, **fields))


@pytest.mark.parametrize("rounding, expected", [
    ("upward", [-1, 0, 1, 2]), ("nearest", [-2, -1, 1, 2]), ("truncate", [-1, 0, 0, 1]), ("double", [-1, 0, 1, 2])])
def test_roundings_of_halves(rounding: str, expected: list[int]) -> None:
    """-1.5, -0.5, 0.5, 1.5: values times 2**30 / 2**31."""
    half = parameters(np.zeros(1, int), np.array([1 << 30]), np.array([31]))
    par = inst("par", rounding=rounding, clamp_low=-128, clamp_high=127, **half)
    assert post_values([-3, -1, 1, 3], par) == expected


def test_double_rounds_twice() -> None:
    """5 / 4 is 2 with TFLite's two roundings (2.5 -> 3, 1.5 -> 2) and 1 with one; 1 / 4 is 1 and 0."""
    quarter = parameters(np.zeros(1, int), np.array([1 << 30]), np.array([32]))
    for rounding, expected in (("double", [2, 1]), ("upward", [1, 0]), ("nearest", [1, 0])):
        par = inst("par", rounding=rounding, clamp_low=-128, clamp_high=127, **quarter)
        assert post_values([5, 1], par) == expected


@settings(max_examples=300)
@given(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-200, 200),
       st.integers(0, (1 << 31) - 1) | st.sampled_from((1 << 30, (1 << 31) - 1)), st.integers(1, 62))
def test_requantize_is_exact(v: int, multiplier: int, shift: int) -> None:
    """Against fractions of Python integers, and TFLite's functions written with them."""
    product, unit = v * multiplier, 1 << shift
    sign = -1 if product < 0 else 1
    expected = {"upward": (2 * product + unit) // (2 * unit), "truncate": sign * (abs(product) // unit),
                "nearest": sign * ((2 * abs(product) + unit) // (2 * unit)), "double": tflite(v, multiplier, shift)}
    for rounding in ROUNDINGS:
        result = requantize(np.array([v]), np.array([multiplier]), np.array([shift]), rounding)
        assert result.tolist() == [expected[rounding]], rounding


def tflite(v: int, multiplier: int, shift: int) -> int:
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    v = max(min(v << left, (1 << 31) - 1), -(1 << 31))
    nudge = (1 << 30) if v >= 0 else 1 - (1 << 30)
    high = abs(v * multiplier + nudge) >> 31
    high = high if v * multiplier + nudge >= 0 else -high
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def test_zero_point_and_clamp() -> None:
    par = identity(1, bias=2, zero_point=-10, clamp_low=-20, clamp_high=5)
    assert post_values([-128, -13, -12, 0, 12, 13, 14, 127], par) == [-20, -20, -20, -8, 4, 5, 5, 5]


def test_parameters_per_channel() -> None:
    scale = parameters(np.array([0, 100, -3]), np.array([1 << 30, 1 << 29, 3 << 29]), np.array([30, 31, 30]))
    par = inst("par", clamp_low=-128, clamp_high=127, **scale)
    y = outputs([1, 2, 3, 4, 5, 6], 6, par, flat(2, 3, a_x_step=3),
                inst("post", source_sram=1, out_address=OUT, columns=3))
    # Channel 0: v; channel 1: (v + 100) / 4, halves up; channel 2: (v - 3) * 1.5, halves up.
    assert y == [1, 26, 0, 4, 26, 5]


def test_residual_add() -> None:
    """((v - 2) + (r - 1)) / 2 + 3, rounded up, clamped; identity scales inside, r read from behind v."""
    addp = inst("addp", zero_point_a=2, zero_point_b=1, zero_point_out=3, multiplier_a=1 << 30, multiplier_b=1 << 30,
                multiplier_out=1 << 30, shift_a=30, shift_b=30, shift_out=31, clamp_low=-9, clamp_high=40)
    x = [10, 10, 100, -100, 11, 10, 100, -100]
    y = outputs(x, 4, identity(1), addp, flat(4, 1, a_x_step=1, r_x_step=1),
                inst("post", source_sram=1, residual=1, r_address=4, out_address=OUT, columns=1))
    assert y == [(8 + 10) // 2 + 3, (8 + 9 + 1) // 2 + 3, 40, -9]


def test_residual_left_shift_and_scales() -> None:
    """a / 3 + b * 0.75 with 20 extra bits, then back: as the TFLite add does it."""
    third = round((1 << 31) / 3 * 2)  # 2/3 with 31 bits; shift 32 halves it
    addp = inst("addp", rounding="nearest", left_shift=20, multiplier_a=third // 2, shift_a=31, multiplier_b=3 << 29,
                shift_b=31, multiplier_out=1 << 30, shift_out=50, clamp_low=-128, clamp_high=127)
    y = outputs([30, -31, 7, 4], 2, identity(1), addp, flat(2, 1, a_x_step=1, r_x_step=1),
                inst("post", source_sram=1, residual=1, r_address=2, out_address=OUT, columns=1))
    assert y == [round(30 / 3 + 7 * 0.75), round(-31 / 3 + 4 * 0.75)]


def test_lookup_table_comes_last() -> None:
    table = inst("lut", payload=pack_table(np.arange(127, -129, -1).astype(np.int8)))  # value -> -1 - value
    assert post_values([-128, -1, 0, 127], identity(1, zero_point=1), table, table=1) == [126, -1, -2, -128]


def test_maximum_window() -> None:
    # 4 x 4 image, one channel, 2 x 2 window, step 2.
    image = [1, 5, 2, 0, 3, 4, 8, 1, -9, -8, 0, 0, -7, -6, 0, 3]
    geometry = inst("pgeo", width=2, height=2, a_x_step=2, a_y_step=8, window_x=2, window_y=2, window_x_stride=1,
                    window_y_stride=4, out_x_step=1, out_y_step=2)
    y = outputs(image, 4, identity(1), geometry, inst("post", source_sram=1, out_address=OUT, columns=1))
    assert y == [5, 8, -6, 3]


def test_accumulator_positions_follow_the_geometry() -> None:
    # 6 accumulators written as 3 x 2 are read as 2 x 3 and spread over the output with gaps.
    y = outputs([1, 2, 3, 4, 5, 6], 11, inst("ageo", width=3, height=2, x_step=1, y_step=3, run_bytes=1),
                inst("conv", columns=1, payload=weights([1], (1, 1, 1, 1))), identity(1),
                inst("pgeo", width=2, height=3, out_x_step=2, out_y_step=4),
                inst("fill", value=0, sram_address=OUT, row_bytes=11),
                inst("post", out_address=OUT, columns=1))
    assert y == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6]


def test_residual_in_place() -> None:
    addp = inst("addp", multiplier_a=1 << 30, multiplier_b=1 << 30, multiplier_out=1 << 30, shift_a=30, shift_b=30,
                shift_out=30, clamp_low=-128, clamp_high=127)
    y = outputs([1, 2, 3], 3, inst("load", binding=0, row_bytes=3, sram_address=OUT), identity(1), addp,
                flat(3, 1, a_x_step=1, r_x_step=1),
                inst("post", source_sram=1, residual=1, r_address=OUT, out_address=OUT, columns=1))
    assert y == [2, 4, 6]


# --- control and tokens -------------------------------------------------------------------------------------


def test_loops_and_registers() -> None:
    # r1 walks the input and skips one byte (clamped to 4) after three; r2 walks every other output byte.
    program = [inst("setr", reg=1, value=0), inst("setr", reg=2, value=OUT), inst("loop", count=2),
               inst("loop", count=3),
               inst("load", binding=0, external_reg=1, sram_reg=2, row_bytes=1),
               inst("addr", reg=1, increment=1, limit=99), inst("addr", reg=2, increment=2, limit=99999),
               inst("endl"), inst("addr", reg=1, increment=1, limit=4), inst("endl")]
    assert outputs([1, 2, 3, 4, 5, 6, 7], 11, *program) == [1, 0, 2, 0, 3, 0, 5, 0, 6, 0, 7]


def test_addr_clamps() -> None:
    program = [inst("setr", reg=3, value=OUT), inst("loop", count=4),
               inst("fill", value=1, row_bytes=2, sram_reg=3), inst("addr", reg=3, increment=3, limit=OUT + 5),
               inst("endl"), inst("fill", value=7, row_bytes=1, sram_reg=3)]
    assert outputs([0], 8, *program) == [1, 1, 0, 1, 1, 7, 1, 0]


def test_flip_alternates() -> None:
    program = [inst("setr", reg=3, value=OUT), inst("setr", reg=1, value=0), inst("loop", count=4),
               inst("load", binding=0, external_reg=1, sram_reg=3, row_bytes=1),
               inst("flip", reg=3, value=2 * OUT + 3), inst("addr", reg=1, increment=1, limit=9), inst("endl")]
    assert outputs([1, 2, 3, 4], 4, *program) == [3, 0, 0, 4]


def error_of(*program: Inst) -> str:
    with pytest.raises(ProgramError) as error:
        run(encode_all(program), TINY, [np.zeros(8, np.int8)])
    return str(error.value)


def test_tokens_are_counted() -> None:
    give, take = inst("sync_array", signal=("post",)), inst("sync_post", wait=("array",))
    run(encode_all([give, give, take, take, HALT]), TINY, [])
    assert "offset 4 (sync_post): -1 tokens from dma_in to post" in error_of(give, take.replace(wait=("dma_in",)), HALT)
    assert "tokens {'array to post': 1} and 0 open loops are left" in error_of(give, HALT)
    assert "256 tokens from array to post; allowed are 0 to 255" in error_of(*[give] * 256, HALT)


@pytest.mark.parametrize("program, message", [
    ((inst("load", binding=0, row_bytes=9), HALT), "offset 0 (load): address 8 is accessed, the memory ends at 8"),
    ((inst("load", binding=1), HALT), "binding 1 is used, there are 1 buffers"),
    ((inst("fill", sram_address=8191, row_bytes=2), HALT), "address 8192 is accessed, the memory ends at 8192"),
    ((inst("conv", payload=bytes(4)), HALT), "ageo state is used but never set"),
    ((inst("pgeo"), inst("post"), HALT), "par state is used but never set"),
    ((identity(1), inst("pgeo"), inst("post", columns=2), HALT), "post uses 2 columns, its par loaded 1"),
    ((inst("endl"), HALT), "no loop is open"),
    ((*[inst("loop")] * 5, HALT), "loops nest deeper than 4"),
    ((inst("loop"), HALT), "1 open loops are left"),
    ((inst("setr", reg=0), HALT), "r0 is set, it always reads 0"),
    ((inst("setr", reg=1, value=5), inst("flip", reg=1, value=4), HALT), "flip by 4 of r1 = 5"),
    ((inst("ageo", run_bytes=2), inst("conv", payload=bytes(8)), HALT), "padded to words"),
])
def test_errors_name_the_instruction(program: tuple[Inst, ...], message: str) -> None:
    assert message in error_of(*program)


def test_register_beyond_the_target() -> None:
    target = dataclasses.replace(TINY, fetch_address_registers=2)
    with pytest.raises(ProgramError, match="r2 is used, the target has 2"):
        run(encode_all([inst("setr", reg=2), HALT]), target, [])


def test_running_past_the_end() -> None:
    with pytest.raises(EncodeError, match="the program ended"):
        run(encode_all([inst("setr", reg=1)]), TINY, [])


def test_fill_reaches_every_memory() -> None:
    assert (Machine(b"", TINY, [], fill=-1).state.accumulators == -1).all()
    assert (Machine(b"", TINY, [], fill=3).state.sram == 3).all()
    noise = Machine(b"", TINY, [], fill=np.random.default_rng(1)).state
    assert len(np.unique(noise.sram)) == 256 and len(np.unique(noise.accumulators)) > 200


@settings(max_examples=40)
@given(programs(TINY))
def test_results_do_not_depend_on_what_memories_held(case: Case) -> None:
    first = run(case.program.code, TINY, case.contents, 0)
    for fill in (-1, np.random.default_rng(5)):
        for a, b in zip(first, run(case.program.code, TINY, case.contents, fill)):
            assert np.array_equal(a, b)
