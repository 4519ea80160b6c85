"""The instruction table is checked before anything is derived from it."""
from __future__ import annotations

import pytest

from byoc_accel.errors import EncodeError
from byoc_accel.isa.fields import LAYOUT, OPERANDS, RESERVED, SIZES, place
from byoc_accel.isa.inst import Inst
from byoc_accel.isa.semantics import SEMANTICS
from byoc_accel.isa.table import CONTROL, INSTRUCTIONS, UNITS, Field, Instruction

KINDS = {"unsigned", "signed", "minus_one", "enum", "mask", "reserved"}
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
    assert len(set(names)) == len(names)
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
        assert {s.bit for slots in OPERANDS.values() for s in slots if s.field.name == name} == {bit}


def test_every_instruction_has_a_meaning() -> None:
    assert set(SEMANTICS) | {"halt", "loop", "endl"} == {row.mnemonic for row in INSTRUCTIONS}


def test_reserved_bits_by_hand() -> None:
    assert RESERVED["halt"] == 0xFFFFFF00
    assert RESERVED["loop"] == 0
    assert RESERVED["setr"] == 0xFFFFF800


@pytest.mark.parametrize("fields, message", [
    ((Field("opcode", 8), Field("x", 23)), "31 bits; words have 32"),
    ((Field("opcode", 8), Field("x", 32), Field("y", 24)), "field x at bit 8 has 32 bits and crosses"),
    ((Field("opcode", 8), Field("x", 0), Field("y", 24)), "field x"),
    ((), "0 bits"),
])
def test_bad_rows_are_refused(fields: tuple[Field, ...], message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        place(Instruction("bad", 0x7F, "post", fields, "", ""))
