"""The program verifier of the C runtime: one row per rule, and: what it accepts cannot fault on the simulator."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byoc_accel import runtime
from byoc_accel.container.image import Image, pack
from byoc_accel.emit.program import Buffer
from byoc_accel.errors import C_ERRORS, EncodeError, ImageError, RunError
from byoc_accel.isa.encode import encode_all
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_taps, pack_weights
from byoc_accel.sim import simulate, simulate_program
from byoc_accel.target import Target, load_target
from tests import strategies_isa
from tests.runtime_c import images

TINY = load_target("tiny")  # 4 x 4 array, 8192 B SRAM, 2 x 32 accumulators, 3 line buffer rows of 16 positions
TEXT = {error.name: error.text for error in C_ERRORS}
BUFFERS = (Buffer("x", "input", 256), Buffer("y", "output", 256), Buffer("s", "scratch", 256))
PORTS = (images.port("x", (1, 4, 8, 8), 0), images.port("y", (1, 4, 8, 8), 1))
HALT = inst("halt")


def image(code: list[Inst] | bytes, target: Target = TINY) -> Image:
    return pack(images.program(target, code, BUFFERS, PORTS), target)


def weights(lanes: int, columns: int = 4, runs: int = 1, rows: int = 4) -> bytes:
    """Payload without zero tiles."""
    return pack_weights(np.ones((1, runs, lanes, columns), np.int8), rows)


def par(columns: int = 4, **fields: object) -> Inst:
    scale = parameters(np.arange(columns), np.full(columns, 1 << 30), np.full(columns, 31))
    return inst("par", **{**scale, "clamp_low": -128, "clamp_high": 127, **fields})


def addp(**fields: object) -> Inst:
    scale = {"multiplier_a": 1, "multiplier_b": 1, "multiplier_out": 1, "shift_a": 1, "shift_b": 1, "shift_out": 1}
    return inst("addp", **{**scale, "left_shift": 20, "clamp_low": -128, "clamp_high": 127, **fields})


def dwc(columns: int = 4, taps: tuple[int, int] = (1, 1), **fields: object) -> Inst:
    return inst("dwc", columns=columns, payload=pack_taps(np.ones((*taps, columns), np.int8)), **fields)


AGEO = inst("ageo", width=2, height=2, x_step=4, y_step=8, run_bytes=4)
PGEO = inst("pgeo", width=2, height=2, out_x_step=4, out_y_step=8, a_x_step=4, a_y_step=8, r_x_step=4, r_y_step=8)
CONV = inst("conv", columns=4, payload=weights(4))
WTAB = inst("wtab", fresh=1, payload=b"\x11" + bytes(15))  # two code words of one bit
LANES = inst("conv", columns=4, codec="lanes", payload=bytes(range(40)))
BIG = 0xFFFFFF  # largest 24-bit field

ACCEPTED = {
    "halt alone": [HALT],
    "load up to the ends": [inst("load", row_bytes=256, sram_address=8192 - 256), HALT],
    "load of the last byte": [inst("load", external_offset=255, sram_address=8191), HALT],
    "store to scratch": [inst("store", binding=2, row_bytes=256), HALT],
    "fill of all": [inst("fill", row_bytes=4096, rows=2, sram_row_stride=4096), HALT],
    "loop with registers": [inst("setr", reg=1, value=0), inst("loop", count=33),
                            inst("load", external_reg=1, row_bytes=4, external_offset=0),
                            inst("addr", reg=1, increment=8, limit=252), inst("endl"), HALT],
    "flip": [inst("setr", reg=1, value=100), inst("loop", count=5), inst("flip", reg=1, value=252),
             inst("load", external_reg=1, row_bytes=4), inst("endl"), HALT],
    "four loops": [*[inst("loop", count=2)] * 4, inst("fill"), *[inst("endl")] * 4, HALT],
    "conv": [AGEO, CONV, HALT],
    "conv at the end of the SRAM": [AGEO, inst("conv", columns=4, ifm_address=8192 - 16, payload=weights(4)), HALT],
    "conv at the end of the accumulators": [AGEO, inst("conv", columns=4, acc_base=60, payload=weights(4)), HALT],
    "conv with zero tiles": [inst("ageo", run_bytes=9, runs_x=2, run_x_stride=9),
                             inst("conv", columns=3, payload=pack_weights(
                                 np.concatenate([np.zeros((1, 1, 9, 3), np.int8), np.ones((1, 1, 9, 3), np.int8)], 1),
                                 4)), HALT],
    "lanes": [AGEO, WTAB, LANES, WTAB.replace(fresh=0, masks=1, centre=-128), LANES, LANES, HALT],
    "lanes of few bytes": [AGEO, WTAB, inst("conv", columns=4, codec="lanes"), HALT],
    "lanes of a dwc": [AGEO, WTAB, inst("dwc", columns=4, codec="lanes", payload=bytes(8)), HALT],
    "lanes in a loop": [AGEO, inst("loop", count=2), WTAB, LANES, inst("endl"), WTAB, LANES, HALT],
    "dwc": [inst("ageo", width=4, height=2, x_step=4, y_step=32, run_bytes=4, runs_y=2, runs_x=2, run_x_stride=4,
                 run_y_stride=32), dwc(taps=(2, 2)), HALT],
    "post": [AGEO, PGEO, par(), addp(), inst("lut", payload=bytes(256)),
             inst("post", columns=4, residual=1, table=1, out_address=8192 - 16, r_address=8192 - 16), HALT],
    "pool": [inst("pgeo", width=2, height=2, window_x=3, window_y=3, window_x_stride=4, window_y_stride=40,
                  a_x_step=8, a_y_step=80, out_x_step=4, out_y_step=8), par(),
             inst("post", source_sram=1, columns=4, a_address=0, out_address=1000), HALT],
    "uniform parameters": [par(**parameters(np.zeros(4, int), np.array([1]), np.array([62]), True)), HALT],
    "parameters of one bit": [par(bias_bits=1, multiplier_bits=0, shift_base=62, payload=bytes(4)), HALT],
    "widest parameters": [par(bias_bits=32, multiplier_bits=31, shift_bits=15, shift_base=1, normal=0,
                              payload=bytes(40)), HALT],
    "as many tokens as allowed": [*[inst("sync_in", signal=("array",))] * 252,
                                  *[inst("sync_array", wait=("dma_in",))] * 252, HALT],
}


@pytest.mark.parametrize("code", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_legal_programs(code: list[Inst]) -> None:
    made = image(code)
    runtime.check_image(made)
    runtime.check_image(made.data, TINY)
    outputs, cycles = runtime.run_image(made, [np.zeros((1, 4, 8, 8), np.int8)])
    assert cycles > 0 and outputs[0].shape == (1, 4, 8, 8)


def raw(*words: int) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


REFUSED: dict[str, tuple[str, list[Inst] | bytes]] = {
    "unknown opcode": ("OPCODE", raw(0xFE)),
    "reserved bit": ("OPCODE", raw(0x101)),
    "reserved codec": ("OPCODE", encode_all([AGEO]) + raw(0x21 | 2 << 18) + encode_all([HALT])),
    "token to itself": ("OPCODE", raw(0x13 | 1 << 8) + encode_all([HALT])),
    "no halt": ("PROGRAM_END", [inst("fill")]),
    "half an instruction": ("PROGRAM_END", encode_all([inst("fill")])[:8]),
    "payload without its last word": ("PROGRAM_END", encode_all([inst("lut", payload=bytes(256))])[:-4]),
    "half a payload": ("PROGRAM_END", encode_all([inst("lut", payload=bytes(256))])[:200]),
    "payload of 16 MiB": ("PROGRAM_END", encode_all([AGEO]) + raw(0x21 | 2 << 30, 0xFFFFFC00) + encode_all([HALT])),
    "stored word of zero": ("OPCODE", raw(0x04 | 1 << 8 | 1 << 31, 0) + encode_all([HALT])),
    "word missing": ("PROGRAM_END", raw(0x04 | 1 << 8 | 1 << 31)),
    "code after halt": ("PROGRAM_END", [HALT, inst("fill"), HALT]),
    "halt inside a loop": ("LOOP", [inst("loop", count=2), HALT]),
    "endl without loop": ("LOOP", [inst("endl"), HALT]),
    "empty loop": ("LOOP", [inst("loop", count=2), inst("endl"), HALT]),
    "five loops": ("LOOP", [*[inst("loop", count=2)] * 5, inst("fill"), *[inst("endl")] * 5, HALT]),
    "endless loops": ("LOOP", [*[inst("loop", count=1 << 24)] * 4, inst("fill"), *[inst("endl")] * 4, HALT]),
    "setr of register 0": ("OPCODE", [inst("setr", reg=0, value=1), HALT]),
    "addr of register 0": ("OPCODE", [inst("addr", reg=0, increment=1, limit=1), HALT]),
    "addr of an unset register": ("OPCODE", [inst("addr", reg=1, increment=1, limit=1), HALT]),
    "flip of register 0": ("OPCODE", [inst("flip", reg=0, value=1), HALT]),
    "flip of an unset register": ("OPCODE", [inst("flip", reg=1, value=1), HALT]),
    "flip below zero": ("OPCODE", [inst("setr", reg=1, value=2), inst("flip", reg=1, value=1), HALT]),
    "flip moves out": ("BOUNDS", [inst("setr", reg=1, value=0), inst("loop", count=2),
                                  inst("load", external_reg=1, row_bytes=4), inst("flip", reg=1, value=253),
                                  inst("endl"), HALT]),
    "unset register": ("OPCODE", [inst("load", sram_reg=3), HALT]),
    "load behind the buffer": ("BOUNDS", [inst("load", row_bytes=256, external_offset=1), HALT]),
    "load behind the SRAM": ("BOUNDS", [inst("load", row_bytes=2, sram_address=8191), HALT]),
    "load from an output": ("BOUNDS", [inst("load", binding=1), HALT]),
    "store to an input": ("BOUNDS", [inst("store", binding=0), HALT]),
    "unknown buffer": ("BOUNDS", [inst("load", binding=3), HALT]),
    "register moves out": ("BOUNDS", [inst("setr", reg=1, value=253), inst("load", external_reg=1, row_bytes=4), HALT]),
    "last iteration moves out": ("BOUNDS", [inst("setr", reg=1, value=0), inst("loop", count=34),
                                            inst("load", external_reg=1, row_bytes=4),
                                            inst("addr", reg=1, increment=8, limit=253), inst("endl"), HALT]),
    "sum above 2^32": ("BOUNDS", [inst("setr", reg=1, value=0xFFFFFFFF),
                                  inst("load", external_reg=1, external_offset=2), HALT]),
    "SRAM sum above 2^32": ("BOUNDS", [inst("setr", reg=1, value=0xFFFFFFFF), inst("fill", sram_reg=1, sram_address=2),
                                       HALT]),
    "largest transfer": ("BOUNDS", [inst("load", planes=65536, rows=65536, row_bytes=1 << 24, sram_row_stride=BIG,
                                         external_row_stride=0xFFFFFFFF, external_plane_stride=0xFFFFFFFF), HALT]),
    "external stride that is 0 modulo 2^32": ("BOUNDS", [inst("load", rows=32769, external_row_stride=0x20000), HALT]),
    "SRAM stride that is 0 modulo 2^32": ("BOUNDS", [inst("fill", rows=32769, sram_row_stride=0x20000), HALT]),
    "rows wander out": ("BOUNDS", [inst("load", rows=5, row_bytes=4, external_row_stride=64, sram_row_stride=4), HALT]),
    "planes wander out": ("BOUNDS", [inst("load", planes=5, external_plane_stride=64), HALT]),
    "fill wanders out": ("BOUNDS", [inst("fill", rows=2, planes=2, sram_row_stride=4096, sram_plane_stride=4096),
                                    HALT]),
    "conv without geometry": ("OPCODE", [CONV, HALT]),
    "conv with too many columns": ("OPCODE", [AGEO, inst("conv", columns=5, payload=weights(4, 5)), HALT]),
    "conv behind the SRAM": ("BOUNDS", [AGEO, inst("conv", columns=4, ifm_address=8192 - 15, payload=weights(4)),
                                        HALT]),
    "conv behind the accumulators": ("BOUNDS", [AGEO, inst("conv", columns=4, acc_base=61, payload=weights(4)), HALT]),
    "conv of 2^32 positions": ("BOUNDS", [inst("ageo", width=65536, height=65536), inst(
        "conv", columns=4, payload=weights(1)), HALT]),
    "conv with a short payload": ("OPCODE", [AGEO, inst("conv", columns=4, payload=weights(4)[:-4]), HALT]),
    "conv with a long payload": ("OPCODE", [AGEO, inst("conv", columns=4, payload=weights(4) + bytes(4)), HALT]),
    "conv with a tile too many": ("OPCODE", [AGEO, inst("conv", columns=4, payload=b"\3" + weights(4)[1:]), HALT]),
    "conv with dirty padding": ("OPCODE", [inst("ageo", run_bytes=3), inst(
        "conv", columns=3, payload=weights(3, 3)[:-1] + b"\1"), HALT]),
    "conv whose mask is too long": ("OPCODE", [inst("ageo", runs_x=256, runs_y=256), inst(
        "conv", columns=4, payload=bytes(64)), HALT]),
    "lanes without a table": ("OPCODE", [AGEO, LANES, HALT]),
    "lanes whose table is of before the loop": ("OPCODE", [AGEO, WTAB, inst("loop", count=2), LANES, inst("endl"),
                                                           HALT]),
    "lanes whose table is of inside the loop": ("OPCODE", [AGEO, inst("loop", count=1), WTAB, inst("endl"), LANES,
                                                           HALT]),
    "table that goes on with nothing": ("OPCODE", [WTAB.replace(fresh=0), HALT]),
    "table with free codes": ("OPCODE", [inst("wtab", fresh=1, payload=b"\x01" + bytes(15)), HALT]),
    "table with too many codes": ("OPCODE", [inst("wtab", fresh=1, payload=b"\x11\x01" + bytes(14)), HALT]),
    "table with a long code": ("OPCODE", [inst("wtab", fresh=1, payload=b"\x1c" + bytes(15)), HALT]),
    "half a table": ("PROGRAM_END", encode_all([WTAB])[:12]),
    "lanes with a payload of 16 MiB": ("PROGRAM_END", encode_all([AGEO, WTAB])
                                       + raw(0x21 | 1 << 18 | 2 << 30, 0xFFFFFC00) + encode_all([HALT])),
    "lanes with columns": ("OPCODE", [AGEO, WTAB, LANES.replace(columns=5), HALT]),
    "lanes behind the SRAM": ("BOUNDS", [AGEO, WTAB, LANES.replace(ifm_address=8192 - 15), HALT]),
    "dwc without geometry": ("OPCODE", [dwc(), HALT]),
    "dwc with more taps than lanes": ("OPCODE", [inst("ageo", runs_x=5, run_x_stride=4), dwc(taps=(1, 5)), HALT]),
    "dwc with odd steps": ("OPCODE", [inst("ageo", width=2, x_step=6, runs_x=2, run_x_stride=4), dwc(taps=(1, 2)),
                                      HALT]),
    "dwc with stride 0": ("OPCODE", [inst("ageo", width=2, x_step=4, runs_x=2, run_x_stride=0), dwc(taps=(1, 2)),
                                     HALT]),
    "dwc wider than the line buffers": ("OPCODE", [inst("ageo", width=16, x_step=4, runs_x=2, run_x_stride=4,
                                                        runs_y=2, run_y_stride=80), dwc(taps=(2, 2)), HALT]),
    "post without parameters": ("OPCODE", [PGEO, inst("post", columns=4), HALT]),
    "post without geometry": ("OPCODE", [par(), inst("post", columns=4), HALT]),
    "post with more columns than par": ("OPCODE", [PGEO, par(3), inst("post", columns=4), HALT]),
    "residual without addp": ("OPCODE", [PGEO, par(), inst("post", columns=4, residual=1), HALT]),
    "table without lut": ("OPCODE", [PGEO, par(), inst("post", columns=4, table=1), HALT]),
    "post result behind the SRAM": ("BOUNDS", [PGEO, par(), inst("post", columns=4, out_address=8192 - 15), HALT]),
    "post window behind the SRAM": ("BOUNDS", [
        inst("pgeo", window_x=2, window_x_stride=4), par(),
        inst("post", columns=4, source_sram=1, a_address=8192 - 7), HALT]),
    "residual behind the SRAM": ("BOUNDS", [PGEO, par(), addp(), inst("post", columns=4, residual=1,
                                                                        r_address=8192 - 15), HALT]),
    "post behind the accumulators": ("BOUNDS", [PGEO, par(), inst("post", columns=4, acc_base=61), HALT]),
    "par with too many columns": ("OPCODE", [par(5), HALT]),
    "crossed clamp": ("OPCODE", [par(clamp_low=1, clamp_high=0), HALT]),
    "shift 0": ("OPCODE", [par(**parameters(np.zeros(4, int), np.ones(4, int), np.array([31, 31, 31, 0]))), HALT]),
    "shift 63": ("OPCODE", [par(**parameters(np.zeros(4, int), np.ones(4, int), np.full(4, 63))), HALT]),
    "shift above its base": ("OPCODE", [par(bias_bits=1, multiplier_bits=0, normal=1, shift_bits=6, shift_base=60,
                                            payload=raw(1 << 4 | 3 << 22)), HALT]),
    "padding of par": ("OPCODE", [par(bias_bits=1, multiplier_bits=0, shift_base=30, payload=raw(16)), HALT]),
    "addp shift": ("OPCODE", [addp(shift_b=0), HALT]),
    "addp multiplier": ("OPCODE", [addp(multiplier_out=1 << 31), HALT]),
    "addp left shift": ("OPCODE", [addp(left_shift=24), HALT]),
    "addp crossed clamp": ("OPCODE", [addp(clamp_low=5, clamp_high=4), HALT]),
    "token that nobody gave": ("TOKEN", [inst("sync_in", wait=("post",)), HALT]),
    "token given later": ("TOKEN", [inst("sync_in", wait=("post",)), inst("sync_post", signal=("dma_in",)), HALT]),
    "token left over": ("TOKEN", [inst("sync_in", signal=("array",)), HALT]),
    "token for another unit": ("TOKEN", [inst("sync_in", signal=("array",)), inst("sync_post", wait=("dma_in",)),
                                         HALT]),
    "too many tokens": ("TOKEN", [*[inst("sync_in", signal=("array",))] * 253,
                                  *[inst("sync_array", wait=("dma_in",))] * 253, HALT]),
}


@pytest.mark.parametrize(("code", "program"), REFUSED.values(), ids=REFUSED.keys())
def test_illegal_programs(code: str, program: list[Inst] | bytes) -> None:
    made = image(program)
    with pytest.raises(ImageError, match="program byte") as info:
        runtime.check_image(made, max_steps=100_000)
    assert f"WIA_E_{code}: {TEXT[f'WIA_E_{code}']}" in str(info.value)
    with pytest.raises(ImageError):
        runtime.run_image(made, [np.zeros((1, 4, 8, 8), np.int8)])


def accepted(made: Image) -> bool:
    try:
        runtime.check_image(made, max_steps=20_000)
    except ImageError:
        return False
    return True


def faults(code: bytes, target: Target) -> int:
    """Code of the simulator's fault, 0 if there is none."""
    buffers = [np.zeros(256, np.int8) for _ in BUFFERS]
    try:
        simulate(code, target, buffers, writable=[False, True, True], work_limit_cycles=10_000_000)
    except RunError as error:
        return error.code
    return 0


LIMIT = next(error.code for error in C_ERRORS if error.name == "WIA_E_TIMEOUT")


@st.composite
def nearly_legal(draw) -> list[Inst]:
    """Legal programs with one field changed, or one instruction dropped, doubled or foreign."""
    code = list(draw(st.sampled_from([c for c in ACCEPTED.values() if len(c) < 20])))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(code) - 1))
        action = draw(st.sampled_from(["field", "field", "field", "drop", "double", "insert"]))
        if action == "field":
            foreign = draw(strategies_isa.instructions(code[at].mnemonic))
            names = [s.field.name for s in strategies_isa.OPERANDS[code[at].mnemonic]
                     if s.field.name not in ("payload_bytes",)]
            if names:
                name = draw(st.sampled_from(names))
                try:
                    code[at] = code[at].replace(**{name: foreign[name]})
                    encode_all([code[at]])
                except EncodeError:
                    pass
        elif action == "drop" and len(code) > 1:
            del code[at]
        else:
            code.insert(at, code[at] if action == "double" else draw(strategies_isa.instructions()))
    return [i for i in code if decodes(i)]


def decodes(instruction: Inst) -> bool:
    try:
        encode_all([instruction])
    except EncodeError:
        return False
    return True


@settings(max_examples=1500)
@example([inst("ageo", width=2, x_step=BIG), HALT])
@given(nearly_legal())
def test_what_is_accepted_does_not_fault(code: list[Inst]) -> None:
    if not code:
        return
    made = image(code)
    if accepted(made):
        assert faults(made.program.code, TINY) in (0, LIMIT)


@pytest.mark.parametrize("name", ["tiny", "reference"])
def test_runtime_equals_simulator(name: str) -> None:
    target = load_target(name)

    @settings(max_examples=60)
    @given(strategies_isa.programs(target))
    def check(case: strategies_isa.Case) -> None:
        ports = tuple(images.port(b.name, (1, 2, b.bytes // 8, 4), i)
                      for i, b in enumerate(case.program.buffers) if b.kind != "scratch")
        program = replace(case.program, ports=ports)
        made = pack(program, target)
        outputs, cycles = runtime.run_image(made, [case.contents[0].reshape(ports[0].device_shape)])
        expected, result = simulate_program(program, target, {"x": case.contents[0]})
        assert np.array_equal(outputs[0], expected["y"])
        assert cycles == result.cycles

    check()


def test_python_face_errors() -> None:
    made = images.conv_image(TINY)
    x = np.zeros((1, 2, 3, images.CHANNELS), np.int8)
    with pytest.raises(RunError, match="0 inputs, the region has 1"):
        runtime.run_image(made, [])
    with pytest.raises(RunError, match=r"input 0 is float32 .*give int8 \(1, 2, 3, 5\)"):
        runtime.run_image(made, [x.astype(np.float32)])
    with pytest.raises(RunError, match="give int8"):
        runtime.run_image(made, [x[0]])
    with pytest.raises(ImageError, match="array.rows is 4, the device has 16"):
        runtime.run_image(made, [x], target=load_target("reference"))
    with pytest.raises(ImageError, match="WIA_E_TARGET"):
        runtime.check_image(made, load_target("reference"))
    with pytest.raises(ImageError, match="WIA_E_TRUNCATED"):
        runtime.check_image(b"")
    with pytest.raises(ImageError, match="WIA_E_TRUNCATED"):
        runtime.check_image(made.data[:-1])
    with pytest.raises(ImageError, match="WIA_E_MAGIC"):
        runtime.check_image(bytes(200))
    outputs, cycles = runtime.run_image(made.data, [x])
    assert np.array_equal(outputs[0], images.conv_result(x)) and cycles > 0


def test_convolution_is_exact() -> None:
    random = np.random.default_rng(3)
    for name in ("tiny", "reference"):
        for seed in (1, 2):
            x = random.integers(-128, 128, (1, 2, 3, images.CHANNELS)).astype(np.int8)
            outputs, _ = runtime.run_image(images.conv_image(load_target(name), seed), [x])
            assert np.array_equal(outputs[0], images.conv_result(x, seed))
