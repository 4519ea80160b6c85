"""The instruction table is checked before anything is derived from it."""
from __future__ import annotations

import pytest

from byoc_accel.errors import EncodeError
from byoc_accel.isa.fields import LAYOUT, OPERANDS, PRESENT, RESERVED, SIZES, place
from byoc_accel.isa.inst import Inst
from byoc_accel.isa.semantics import SEMANTICS
from byoc_accel.isa.table import CONTROL, INSTRUCTIONS, UNITS, Field, Instruction

KINDS = {"unsigned", "signed", "minus_one", "words", "enum", "mask", "reserved", "present"}
OPCODE_BUDGET = 64  # a quarter of the opcode space; the rest is for denser weight formats and other data types
SIZE_BUDGET_BYTES = 48


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row.mnemonic)
def test_every_bit_is_assigned_once(row: Instruction) -> None:
    bits = [bit for slot in LAYOUT[row.mnemonic] for bit in range(slot.bit, slot.bit + slot.field.bits)]
    assert bits == list(range(8 * SIZES[row.mnemonic]))
    assert SIZES[row.mnemonic] % 4 == 0 and SIZES[row.mnemonic] <= SIZE_BUDGET_BYTES
    words = {(slot.bit // 32, (slot.bit + slot.field.bits - 1) // 32) for slot in LAYOUT[row.mnemonic]}
    assert all(first == last for first, last in words), "a field crosses a word"


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row.mnemonic)
def test_rows_are_well_formed(row: Instruction) -> None:
    assert (row.fields[0].name, row.fields[0].bits) == ("opcode", 8)
    assert row.unit in (*UNITS, CONTROL)
    assert row.payload in ("", "weights", "parameters", "table", "classes")
    assert row.meaning and row.cycles
    names = [f.name for f in row.fields if f.kind != "reserved"]
    assert all(names.count(o.field.name) == len(o.parts) for o in OPERANDS[row.mnemonic])
    for field in row.fields:
        assert field.kind in KINDS
        assert (field.kind == "reserved") == (field.name == "_")
        assert bool(field.choices) == (field.kind == "enum")
        assert len(field.choices) <= 1 << field.bits
        assert field.kind != "mask" or field.bits == len(UNITS)
        assert field.name == "_" or not hasattr(Inst, field.name), "an attribute of Inst hides the field"
    tokens = {"wait", "signal"} & set(names)
    assert tokens in (set(), {"wait", "signal"})
    assert not tokens or row.unit != CONTROL


def test_opcodes_do_not_overlap() -> None:
    assert len({row.opcode for row in INSTRUCTIONS}) == len(INSTRUCTIONS) <= OPCODE_BUDGET
    assert len({row.mnemonic for row in INSTRUCTIONS}) == len(INSTRUCTIONS)
    assert all(0 < row.opcode < 256 for row in INSTRUCTIONS), "0 stays free: erased memory is no instruction"


def test_tokens_lie_at_the_same_bits_everywhere() -> None:
    for name, bit in (("wait", 8), ("signal", 12)):
        assert {s.bit for slots in LAYOUT.values() for s in slots if s.field.name == name} == {bit}


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row.mnemonic)
def test_words_behind_the_first_have_a_bit_that_says_they_are_stored(row: Instruction) -> None:
    slot, words = PRESENT[row.mnemonic], SIZES[row.mnemonic] // 4
    assert (slot is None) == (words == 1)
    assert slot is None or (slot.word, slot.field.bits) == (0, words - 1)


def test_parts_make_a_value() -> None:
    """Every bit of a value lies in one part; only unsigned and whole-word values come in parts."""
    for operands in OPERANDS.values():
        for operand in operands:
            bits = [bit for p in operand.parts for bit in range(p.field.low, p.field.low + p.field.bits)]
            assert sorted(bits) == list(range(operand.field.bits))
            assert len(operand.parts) == 1 or operand.field.kind in ("unsigned", "words")
    acc_base = next(o for o in OPERANDS["conv"] if o.field.name == "acc_base")
    assert acc_base.read(acc_base.write(0xABCD)) == 0xABCD and acc_base.read(acc_base.write(1024) | 1 << 19) == 1024


def test_every_instruction_has_a_meaning() -> None:
    assert set(SEMANTICS) | {"halt", "loop", "endl"} == {row.mnemonic for row in INSTRUCTIONS}


def test_reserved_bits_by_hand() -> None:
    assert RESERVED["halt"] == 0xFFFFFF00
    assert RESERVED["loop"] == 0
    assert RESERVED["setr"] == 0x7FFFF800


@pytest.mark.parametrize("fields, message", [
    ((Field("opcode", 8), Field("x", 23)), "31 bits; words have 32"),
    ((Field("opcode", 8), Field("x", 32), Field("y", 24)), "field x at bit 8 has 32 bits and crosses"),
    ((Field("opcode", 8), Field("x", 0), Field("y", 24)), "field x"),
    ((), "0 bits"),
])
def test_bad_rows_are_refused(fields: tuple[Field, ...], message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        place(Instruction("bad", 0x7F, "post", fields, "", ""))
