"""Where each field of an instruction lies, which values it takes, and how a value becomes bits.

Fields are packed in table order from bit 0 of the first little-endian 32-bit word; none crosses a word and
the words are filled exactly (checked when this module is imported).
"""
from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Union

from ..errors import EncodeError
from .table import BY_MNEMONIC, INSTRUCTIONS, UNITS, Field, Instruction

WORD_BITS = 32
WORD_BYTES = 4

#: Kinds of fields whose values are all the integers between `limits`.
NUMBERS = ("unsigned", "signed", "minus_one")

#: Logical value of a field: a number, a choice of an enum, or the unit names of a token mask.
Value = Union[int, str, tuple[str, ...]]


@dataclass(frozen=True)
class Slot:
    """One field with its place: `bit` counts from bit 0 of the instruction's first byte."""

    field: Field
    bit: int

    @cached_property
    def mask(self) -> int:
        """As many ones as the field has bits."""
        return (1 << self.field.bits) - 1

    @property
    def word(self) -> int:
        return self.bit // WORD_BITS

    @property
    def shift(self) -> int:
        """Bit position inside the word."""
        return self.bit % WORD_BITS


@dataclass(frozen=True)
class Operand:
    """A value of an instruction: its field as if it were in one piece, and the slots of its parts."""

    field: Field
    parts: tuple[Slot, ...]

    def read(self, number: int) -> int:
        """Stored bits of the value in an instruction with all of its words."""
        bits = 0
        for slot in self.parts:
            bits |= (number >> slot.bit & slot.mask) << slot.field.low
        return bits

    def write(self, bits: int) -> int:
        """The instruction's words with these stored bits, others zero."""
        number = 0
        for slot in self.parts:
            number |= (bits >> slot.field.low & slot.mask) << slot.bit
        return number


def place(instruction: Instruction) -> tuple[Slot, ...]:
    """Slots of all fields, reserved ones too; raises EncodeError if they do not fill 32-bit words exactly."""
    slots = []
    bit = 0
    for field in instruction.fields:
        if field.bits < 1 or bit % WORD_BITS + field.bits > WORD_BITS:
            raise EncodeError(f"table row {instruction.mnemonic}: field {field.name} at bit {bit} has "
                              f"{field.bits} bits and crosses a {WORD_BITS}-bit word; insert reserved bits")
        slots.append(Slot(field, bit))
        bit += field.bits
    if bit == 0 or bit % WORD_BITS:
        raise EncodeError(f"table row {instruction.mnemonic}: {bit} bits; words have {WORD_BITS}, "
                          "add reserved bits")
    return tuple(slots)


#: All slots of each instruction, reserved ones too.
LAYOUT: dict[str, tuple[Slot, ...]] = {i.mnemonic: place(i) for i in INSTRUCTIONS}



def _operands(slots: tuple[Slot, ...]) -> tuple[Operand, ...]:
    parts: dict[str, list[Slot]] = {}
    for slot in slots:
        if slot.field.kind not in ("reserved", "present") and slot.field.name != "opcode":
            parts.setdefault(slot.field.name, []).append(slot)
    return tuple(Operand(replace(p[0].field, bits=sum(s.field.bits for s in p), low=0), tuple(p))
                 for p in parts.values())


#: The values of the programmer: all but opcode, reserved and present.
OPERANDS: dict[str, tuple[Operand, ...]] = {name: _operands(slots) for name, slots in LAYOUT.items()}

#: Bytes of each instruction without its payload when all of its words are stored.
SIZES: dict[str, int] = {i.mnemonic: sum(f.bits for f in i.fields) // 8 for i in INSTRUCTIONS}

#: Where the bits lie that say which words are stored; instructions of one word have none.
PRESENT: dict[str, Slot | None] = {
    name: next((s for s in slots if s.field.kind == "present"), None) for name, slots in LAYOUT.items()
}

#: Bits that must be zero, as one little-endian number of SIZES bytes.
RESERVED: dict[str, int] = {
    name: sum(((1 << s.field.bits) - 1) << s.bit for s in slots if s.field.kind == "reserved")
    for name, slots in LAYOUT.items()
}


def limits(field: Field) -> tuple[int, int]:
    """Smallest and largest logical number of a numeric field."""
    if field.kind == "signed":
        return -(1 << (field.bits - 1)), (1 << (field.bits - 1)) - 1
    if field.kind == "minus_one":
        return 1, 1 << field.bits
    return 0, ((1 << field.bits) - 1) * (WORD_BYTES if field.kind == "words" else 1)


def default(field: Field) -> Value:
    """Value of a field that is not given: 0, 1 for minus_one, the first choice, no unit."""
    if field.kind == "enum":
        return field.choices[0]
    if field.kind == "mask":
        return ()
    return 1 if field.kind == "minus_one" else 0


def check(mnemonic: str, field: Field, value: object) -> Value:
    """`value` in canonical form; raises EncodeError naming instruction, field, value and limit."""
    if field.kind == "enum":
        if value not in field.choices:
            choices = ", ".join(field.choices)
            raise EncodeError(f"{mnemonic}: {field.name} = {value!r}; choose one of {choices}")
        return value  # type: ignore[return-value]
    if field.kind == "mask":
        return _check_mask(mnemonic, field, value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise EncodeError(f"{mnemonic}: {field.name} = {value!r}; give an integer") from None
    low, high = limits(field)
    if not low <= number <= high:
        raise EncodeError(f"{mnemonic}: {field.name} = {number}; allowed are {low} to {high}; "
                          f"split the work or use an address register")
    if field.kind == "words" and number % WORD_BYTES:
        raise EncodeError(f"{mnemonic}: {field.name} = {number}; give a multiple of {WORD_BYTES}, zero-padded")
    return number


def _check_mask(mnemonic: str, field: Field, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (tuple, list, set, frozenset)):
        raise EncodeError(f"{mnemonic}: {field.name} = {value!r}; "
                          f"give a tuple of units of {', '.join(UNITS)}")
    own = BY_MNEMONIC[mnemonic].unit
    for unit in value:
        if unit not in UNITS:
            raise EncodeError(f"{mnemonic}: {field.name} names {unit!r}; the units are {', '.join(UNITS)}")
        if unit == own:
            raise EncodeError(f"{mnemonic}: {field.name} names its own unit {own}; "
                              "a unit works in order, drop it")
    return tuple(u for u in UNITS if u in value)


def to_bits(field: Field, value: Value) -> int:
    """Stored bits of a value that `check` accepted."""
    if field.kind == "enum":
        return field.choices.index(value)  # type: ignore[arg-type]
    if field.kind == "mask":
        return sum(1 << UNITS.index(u) for u in value)  # type: ignore[union-attr]
    if field.kind == "minus_one":
        return value - 1  # type: ignore[operator]
    if field.kind == "words":
        return value // WORD_BYTES  # type: ignore[operator]
    return value & ((1 << field.bits) - 1)  # type: ignore[operator]


def from_bits(mnemonic: str, field: Field, bits: int) -> Value:
    """Logical value of stored bits; raises EncodeError for a reserved enum value or an own-unit token."""
    if field.kind == "enum":
        if bits >= len(field.choices):
            raise EncodeError(f"{mnemonic}: {field.name} holds {bits}; known values are 0 to "
                              f"{len(field.choices) - 1}; the program needs a newer instruction set")
        return field.choices[bits]
    if field.kind == "mask":
        return _check_mask(mnemonic, field, tuple(u for i, u in enumerate(UNITS) if bits >> i & 1))
    if field.kind == "minus_one":
        return bits + 1
    if field.kind == "words":
        return bits * WORD_BYTES
    if field.kind == "signed" and bits >> (field.bits - 1):
        return bits - (1 << field.bits)
    return bits
