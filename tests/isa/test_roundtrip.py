"""Inst <-> bytes <-> text: hand-made encodings, round trips of every instruction, and refusals."""
from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.errors import EncodeError
from byoc_accel.isa.asm import assemble, listing, parse, to_text
from byoc_accel.isa.encode import decode, decode_all, encode, encode_all, encoded_size
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.table import INSTRUCTIONS
from tests.strategies_isa import instructions

MNEMONICS = [row.mnemonic for row in INSTRUCTIONS]

# Worked out by hand from the diagrams in docs/ISA.md.
BY_HAND = [
    (inst("halt"), "01000000"),
    (inst("loop", count=3), "02020000"),
    (inst("loop", count=1 << 24), "02ffffff"),
    (inst("setr", reg=2, value=0x12345678), "04020080 78563412"),
    (inst("setr", reg=2), "04020000"),
    (inst("addr", reg=7, increment=1, limit=0xFFFFFFFF), "050700c0 01000000 ffffffff"),
    (inst("addr", reg=7, limit=0xFFFFFFFF), "05070080 ffffffff"),
    (inst("flip", reg=1, value=0x8000), "06010080 00800000"),
    (inst("fill", wait=("array",), signal=("post", "array"), value=-2, sram_address=0x030201, sram_reg=5,
          row_bytes=0x100, rows=2, planes=3, sram_row_stride=0x400, sram_plane_stride=0x80000),
     "1162fef8 01020305 ff000000 01000200 00040000 00000800"),
    (inst("conv", wait=("dma_in",), signal=("post",), chain=1, ifm_address=0x012345, ifm_reg=3, columns=16,
          acc_base=0x0D02, payload=bytes(range(8))),  # 3 << 10 | 0x102; 2 words << 10 | 0x102
     "214131c0 4523017b 02090000 0001020304050607"),
    (inst("dwc", accumulate=1, payload=bytes(4)), "22000280 00040000 00000000"),
    (inst("post", residual=1, acc_base=1024, columns=2, r_address=5), "34000a50 00000008 05000000"),
    (inst("par", rounding="double", uniform=1, columns=2, bias_bits=9, multiplier_bits=3, normal=1, shift_bits=2,
          zero_point=-1, clamp_low=-128, clamp_high=127, shift_base=40, payload=bytes(4)),
     "300f6894 ff807f28 00000000"),
    (inst("sync_out", wait=("dma_in", "array", "post")), "14070000"),
]


@pytest.mark.parametrize("instruction, code", BY_HAND, ids=lambda x: x.mnemonic if isinstance(x, Inst) else "")
def test_encodings_by_hand(instruction: Inst, code: str) -> None:
    assert encode(instruction).hex() == code.replace(" ", "")


@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_round_trips(mnemonic: str) -> None:
    @given(instructions(mnemonic), st.binary(max_size=5), st.binary(max_size=5))
    def check(instruction: Inst, before: bytes, after: bytes) -> None:
        code = encode(instruction)
        assert len(code) == encoded_size(instruction)
        assert decode(before + code + after, len(before)) == (instruction, len(code))
        assert parse(to_text(instruction)) == instruction
        assert instruction.replace() == instruction

    check()


@given(st.lists(instructions(), max_size=6))
def test_listings_assemble_to_the_same_bytes(program: list[Inst]) -> None:
    code = encode_all(program)
    assert [i for _, i in decode_all(code)] == program
    assert assemble(listing(code, full=True)) == code


def test_any_single_bit_decodes_to_itself_or_is_refused() -> None:
    """Flipping any header bit of any instruction gives another instruction with exactly those bits, or an error."""
    for instruction, _ in BY_HAND:
        code = encode(instruction)
        for bit in range(8 * (len(code) - len(instruction.payload))):
            flipped = bytearray(code + bytes(600))
            flipped[bit // 8] ^= 1 << bit % 8
            try:
                other, size = decode(bytes(flipped))
            except EncodeError:
                continue
            assert other != instruction
            assert encode(other) == flipped[:size]


def test_values_are_read_by_name_and_defaults_are_neutral() -> None:
    conv = inst("conv", wait=["post", "dma_in"], columns=5)
    assert (conv.columns, conv["columns"], conv.wait, conv.wait_units) == (5, 5, ("dma_in", "post"), ("dma_in", "post"))
    assert (conv.signal, conv.codec, conv.acc_base, conv.payload_bytes) == ((), "raw", 0, 0)
    assert inst("load").rows == 1
    assert inst("ageo").wait_units == ()
    assert conv.replace(payload=bytes(12)).payload_bytes == 12
    assert copy.deepcopy(conv) == pickle.loads(pickle.dumps(conv)) == conv
    assert hash(conv) == hash(inst("conv", wait=("dma_in", "post"), columns=5))
    with pytest.raises(AttributeError, match="conv has no field 'rows'; it has wait, signal"):
        _ = conv.rows
    with pytest.raises(EncodeError, match="no field 'rows'"):
        _ = conv["rows"]


@pytest.mark.parametrize("mnemonic, fields, message", [
    ("conv", {"columns": 33}, "conv: columns = 33; allowed are 1 to 32"),
    ("conv", {"columns": 0}, "conv: columns = 0; allowed are 1 to 32"),
    ("par", {"zero_point": 128}, "par: zero_point = 128; allowed are -128 to 127"),
    ("load", {"row_bytes": (1 << 24) + 1}, "load: row_bytes = 16777217; allowed are 1 to 16777216"),
    ("load", {"sram_address": -1}, "load: sram_address = -1; allowed are 0 to 16777215"),
    ("load", {"sram_address": 1.5}, "load: sram_address = 1.5; give an integer"),
    ("par", {"rounding": "up"}, "par: rounding = 'up'; choose one of upward, nearest, truncate, double"),
    ("post", {"wait": ("post",)}, "post: wait names its own unit post"),
    ("post", {"signal": ("dma",)}, "post: signal names 'dma'; the units are dma_in, array, post, dma_out"),
    ("post", {"wait": "array"}, "post: wait = 'array'; give a tuple"),
    ("post", {"colums": 1}, "post: no field 'colums'; it has wait"),
    ("halt", {"x": 1}, "halt: no field 'x'; it has none"),
    ("mul", {}, "'mul' is no instruction; known are halt"),
])
def test_bad_values_are_refused(mnemonic: str, fields: dict, message: str) -> None:
    with pytest.raises(EncodeError) as error:
        inst(mnemonic, **fields)
    assert str(error.value).startswith(f"isa: {message}")


@pytest.mark.parametrize("code, message", [
    ("", "offset 0: the program ended"),
    ("00000000", "offset 0: opcode 0x00 is no instruction"),
    ("ff", "opcode 0xff is no instruction"),
    ("010000", "halt needs 4 bytes, 3 are left"),
    ("01000001", "halt has reserved bits set"),
    ("04010080", "setr needs 8 bytes, 4 are left"),
    ("04010080 00000000", "word 1 of setr is stored and 0; leave it out"),
    ("22000800", "codec holds 2; known values are 0 to 1"),
    ("21020000", "wait names its own unit array"),
    ("21000080 00080000 00000000", "conv has 8 payload bytes, 4 are left"),
    ("32000000 00", "lut has 256 payload bytes, 1 are left"),
])
def test_bad_bytes_are_refused(code: str, message: str) -> None:
    with pytest.raises(EncodeError, match="isa: offset 0: ") as error:
        decode(bytes.fromhex(code))
    assert message in str(error.value)


def test_payload_length_is_checked() -> None:
    with pytest.raises(EncodeError, match="lut: payload of 3 bytes; its fields ask for 256"):
        encode(inst("lut", payload=bytes(3)))
    with pytest.raises(EncodeError, match="conv: payload_bytes = 6; give a multiple of 4"):
        inst("conv", payload=bytes(6))
    with pytest.raises(EncodeError, match="conv: payload_bytes = 16777216; allowed are 0 to 16777212; split the work"):
        inst("conv", payload_bytes=1 << 24)
    with pytest.raises(EncodeError, match="its fields ask for 8"):
        encode(inst("conv", payload=bytes(4), payload_bytes=8))


@pytest.mark.parametrize("line, message", [
    ("", "'' holds no instruction"),
    ("12:  # nothing", "holds no instruction"),
    ("frob x=1", "'frob' is no instruction"),
    ("conv columns", "conv: 'columns' is not a new field=value"),
    ("conv columns=1 columns=2", "conv: 'columns=2' is not a new field=value"),
    ("conv columns=x", "conv: columns=x is no number"),
    ("conv colums=1", "conv: no field 'colums'"),
    ("lut payload=<256", "lut: payload=<256 is not hex"),
])
def test_bad_text_is_refused(line: str, message: str) -> None:
    with pytest.raises(EncodeError) as error:
        parse(line)
    assert str(error.value).startswith(f"isa: {message}") or message in str(error.value)


def test_assemble_names_the_line() -> None:
    with pytest.raises(EncodeError, match="isa: line 3: setr: value = -1"):
        assemble("# comment\nloop count=2\n  setr reg=1 value=-1\n")


def test_text_is_readable() -> None:
    conv = inst("conv", wait=("dma_in",), signal=("dma_in", "post"), columns=16, ifm_address=64, payload=bytes(4))
    assert to_text(conv) == "conv wait=dma_in signal=dma_in,post ifm_address=64 columns=16 payload=00000000"
    assert to_text(conv, full=False).endswith("payload=<4 bytes, crc 2144df1c>")
    assert parse("  24: setr reg=0x3 value=0b11  # three") == inst("setr", reg=3, value=3)


def test_listing_shows_offsets_layers_and_loops() -> None:
    class Span:
        name, start, end = "first", 0, 12

    code = assemble("setr reg=1 value=5\nloop count=2\naddr reg=1 increment=1 limit=9\nendl\nhalt\n")
    assert listing(code, [Span()]) == ("# first: bytes 0 to 12\n"
                                       " 0: setr reg=1 value=5\n"
                                       " 8: loop count=2\n"
                                       "12:   addr reg=1 increment=1 limit=9\n"
                                       "24: endl\n"
                                       "28: halt\n")
