"""Every fault of the machine: the program that causes it, and the offset, mnemonic and code that name it."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel import sim
from byoc_accel.errors import RunError
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_weights
from byoc_accel.target import load_target
from tests.hw_sim import hostile

TINY = load_target("tiny")  # 8 KiB SRAM, 64 accumulator entries, 8 registers, loops 4 deep
HALT = inst("halt")
PAYLOAD = pack_weights(np.ones((1, 1, 4, 4), np.int8), 4)
PAR = inst("par", **parameters(np.zeros(2, np.int64), np.full(2, 5), np.full(2, 7)))


class Code(bytes):
    """Bytes of a program, and the offset of its last instruction."""

    last: int


LAST = "the last instruction"


def code(*program: Inst | bytes, cut: int = 0) -> Code:
    """The program, without its last `cut` bytes."""
    pieces = [p if isinstance(p, bytes) else encode(p) for p in program]
    whole = b"".join(pieces)
    result = Code(whole[:len(whole) - cut])
    result.last = len(whole) - len(pieces[-1])
    return result


def par(shift: int, multiplier: int) -> bytes:
    return encode(inst("par", **parameters(np.zeros(1, int), np.array([multiplier]), np.array([shift]))))


def raw(value: Inst, word: int, bits: int) -> bytes:
    """The instruction with extra bits set in one of its words."""
    words = np.frombuffer(encode(value), "<u4").copy()
    words[word] |= bits
    return words.tobytes()


def words(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


AGEO = inst("ageo", run_bytes=4)
WTAB = inst("wtab", fresh=1, payload=b"\x11" + bytes(15))  # two code words of one bit
CASES = {
    "empty program": (b"", 0, -9, "no instruction"),
    "unknown opcode": (b"\xff\0\0\0", 0, -8, "no instruction"),
    "reserved bits": (raw(HALT, 0, 1 << 31), 0, -8, "halt"),
    "own token": (raw(inst("sync_in"), 0, 1 << 8), 0, -8, "sync_in"),
    "reserved codec": (code(AGEO, raw(inst("conv", payload=PAYLOAD), 0, 2 << 18)), LAST, -8, "conv"),
    "stored word of zero": (words(0x04 | 1 << 8 | 1 << 31, 0), 0, -8, "setr"),
    "cut instruction": (code(inst("load", row_bytes=4))[:4], 0, -9, "load"),
    "cut payload": (code(AGEO, inst("conv", columns=4, payload=PAYLOAD), cut=4), LAST, -9, "conv"),
    "payload longer than the program": (code(AGEO, words(0x21 | 2 << 30, 0xfffffc00)), LAST, -9, "conv"),
    "no halt": (code(inst("sync_in")), 4, -9, "no instruction"),
    "mask missing": (code(AGEO, inst("conv", columns=4, payload=b"")), LAST, -8, "conv"),
    "mask names tile 1 of 1": (code(AGEO, inst("conv", columns=4, payload=b"\3\0\0\0" + bytes(32))), LAST, -8, "conv"),
    "tile bytes missing": (code(AGEO, inst("conv", columns=4, payload=b"\1\0\0\0" + bytes(12))), LAST, -8, "conv"),
    "padding": (code(inst("ageo", run_bytes=3), inst("conv", payload=b"\1\0\0\0\1\1\1\1")), LAST, -8, "conv"),
    "columns": (code(AGEO, inst("conv", columns=5, payload=b"\1\0\0\0" + bytes(20))), LAST, -8, "conv"),
    "lanes without a wtab": (code(AGEO, inst("conv", columns=4, codec="lanes")), LAST, -15, "conv"),
    "lanes behind a loop": (code(AGEO, WTAB, inst("loop", count=2), inst("conv", columns=4, codec="lanes")), LAST, -15,
                            "conv"),
    "lanes behind endl": (code(AGEO, inst("loop", count=1), WTAB, inst("endl"), inst("conv", codec="lanes")), LAST, -15,
                          "conv"),
    "wtab that goes on with nothing": (code(WTAB.replace(fresh=0)), 0, -15, "wtab"),
    "wtab with free codes": (code(inst("wtab", fresh=1, payload=b"\x01" + bytes(15))), 0, -8, "wtab"),
    "wtab with too many codes": (code(inst("wtab", fresh=1, payload=b"\x11\x01" + bytes(14))), 0, -8, "wtab"),
    "wtab with a long code": (code(inst("wtab", fresh=1, payload=b"\x1c" + bytes(15))), 0, -8, "wtab"),
    "setr r0": (code(inst("setr", reg=0)), 0, -8, "setr"),
    "addr r0": (code(inst("addr", reg=0)), 0, -8, "addr"),
    "register unset": (code(inst("fill", sram_reg=3)), 0, -15, "fill"),
    "flip r0": (code(inst("flip", reg=0)), 0, -8, "flip"),
    "flip below": (code(inst("setr", reg=1, value=5), inst("flip", reg=1, value=4)), 8, -8, "flip"),
    "addr unset": (code(inst("addr", reg=2)), 0, -15, "addr"),
    "shift 0": (code(par(0, 5)), 0, -8, "par"),
    "shift 63": (code(par(63, 5)), 0, -8, "par"),
    "left shift 24": (code(inst("addp", shift_a=1, shift_b=1, shift_out=1, left_shift=24)), 0, -8, "addp"),
    "more taps than rows": (code(inst("ageo", runs_x=5), inst("dwc", payload=bytes(4))), LAST, -8, "dwc"),
    "line buffer rows": (code(inst("ageo", runs_y=5, run_y_stride=1), inst("dwc", payload=bytes(4))), LAST, -8, "dwc"),
    "line buffer positions": (code(inst("ageo", width=17, runs_y=2, run_y_stride=1), inst("dwc", payload=bytes(4))),
                              LAST, -8, "dwc"),
    "step no multiple": (code(inst("ageo", width=2, runs_x=2, run_x_stride=2, x_step=3), inst("dwc", payload=bytes(4))),
                         LAST, -8, "dwc"),
    "fill one byte too far": (code(inst("fill", sram_address=8190, row_bytes=3)), 0, -10, "fill"),
    "fill plane too far": (code(inst("fill", planes=65536, sram_plane_stride=0xffffff)), 0, -10, "fill"),
    "register too far": (code(inst("setr", reg=1, value=0xffffffff), inst("fill", sram_reg=1)), 8, -10, "fill"),
    "conv too far": (code(inst("ageo", run_bytes=4, height=2, y_step=8189), inst("conv", columns=4, payload=PAYLOAD)),
                     LAST, -10, "conv"),
    "dwc too far": (code(inst("ageo", runs_x=2, run_x_stride=8192), inst("dwc", payload=bytes(4))), LAST, -10, "dwc"),
    "post output too far": (code(PAR, inst("pgeo"), inst("post", out_address=8192)), LAST, -10, "post"),
    "accumulators": (code(inst("ageo", width=64, run_bytes=4), inst("conv", columns=4, acc_base=1, payload=PAYLOAD)),
                     LAST, -10, "conv"),
    "post accumulators": (code(PAR, inst("pgeo", width=64), inst("post", acc_base=1)), LAST, -10, "post"),
    "no such binding": (code(inst("load", binding=3)), 0, -10, "load"),
    "unbound buffer": (code(inst("load", binding=2)), 0, -10, "load"),
    "load too far": (code(inst("load", external_offset=99, row_bytes=2)), 0, -10, "load"),
    "store too far": (code(inst("store", binding=1, rows=65536, external_row_stride=0xffffffff)), 0, -10, "store"),
    "store to an input": (code(inst("store", binding=0)), 0, -10, "store"),
    "no ageo": (code(inst("conv", columns=4, payload=PAYLOAD)), 0, -15, "conv"),
    "no pgeo": (code(PAR, inst("post")), LAST, -15, "post"),
    "no par": (code(inst("pgeo"), inst("post")), LAST, -15, "post"),
    "more columns than par": (code(PAR, inst("pgeo"), inst("post", columns=3)), LAST, -15, "post"),
    "no addp": (code(PAR, inst("pgeo"), inst("post", residual=1)), LAST, -15, "post"),
    "no lut": (code(PAR, inst("pgeo"), inst("post", table=1)), LAST, -15, "post"),
    "endl without loop": (code(inst("endl")), 0, -11, "endl"),
    "empty loop": (code(inst("loop", count=2), inst("endl")), 4, -11, "endl"),
    "five loops": (code(*[inst("loop", count=2)] * 5), 16, -11, "loop"),
    "halt inside a loop": (code(inst("loop", count=2), HALT), 4, -11, "halt"),
    "token missing": (code(inst("sync_in", wait=("post",))), 0, -12, "sync_in"),
    "token left": (code(inst("sync_in", signal=("post",)), HALT), 4, -12, "halt"),
    "256 tokens": (code(*[inst("sync_in", signal=("post",))] * 256, HALT), 4 * 255, -12, "sync_in"),
    "endless": (code(*[inst("loop", count=1 << 24)] * 4, inst("sync_in"), *[inst("endl")] * 4, HALT), None, -16, None),
    "long fill": (code(inst("fill", rows=65536, planes=65536, row_bytes=4)), 0, -16, "fill"),
}


@pytest.mark.parametrize("mode", sim.MODES)
@pytest.mark.parametrize("name", CASES)
def test_fault(name: str, mode: str) -> None:
    program, offset, error_code, mnemonic = CASES[name]
    buffers = [np.zeros(100, np.int8), np.zeros(100, np.int8), None]
    with pytest.raises(RunError) as caught:
        sim.simulate(program, TINY, buffers, writable=[False, True, True], mode=mode, work_limit_cycles=100_000)
    assert caught.value.code == error_code
    offset = program.last if offset is LAST else offset
    if offset is not None:
        assert f"program byte {offset:#x}, {mnemonic}: " in str(caught.value)
    assert not buffers[1].any()


def test_register_of_a_smaller_target() -> None:
    target = replace(TINY, fetch_address_registers=2)
    for program in (inst("setr", reg=2), inst("fill", sram_reg=2)):
        with pytest.raises(RunError, match="outside of what the target has"):
            sim.simulate(code(program), target, [], writable=[])


def test_hostile_programs_end_in_a_fault_or_at_halt() -> None:
    faults = set()
    for program in hostile.programs(1, 800):
        buffers = [np.zeros(700, np.int8), np.zeros(300, np.int8)]
        try:
            sim.simulate(program, TINY, buffers, writable=[False, True], work_limit_cycles=1 << 16)
        except RunError as error:
            faults.add(error.code)
    assert faults >= {-8, -9, -10, -11, -12, -15}


def test_bad_arguments() -> None:
    def refuse(match: str, **options: object) -> None:
        arguments = {"code": encode(HALT), "target": TINY, "buffers": [], "writable": [], **options}
        with pytest.raises(RunError, match=match):
            sim.simulate(**arguments)

    refuse("mode 'fast' is unknown", mode="fast")
    refuse("fill 'x' is unknown", fill="x")
    refuse("kernel 'x' is unknown", kernel="x")
    refuse("one flag per buffer", buffers=[None])
    refuse("int16", buffers=[np.zeros(2, np.int16)], writable=[False])
    refuse("contiguous int8", buffers=[np.zeros((4, 4), np.int8)[:, ::2]], writable=[False])
    frozen = np.zeros(4, np.int8)
    frozen.flags.writeable = False
    refuse("writeable False", buffers=[frozen], writable=[True])
    sim.simulate(encode(HALT), TINY, [frozen], writable=[False])
