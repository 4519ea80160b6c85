"""Inst <-> bytes, both directions, driven by the table."""
from __future__ import annotations

from ..errors import EncodeError
from .fields import OPERANDS, RESERVED, SIZES, Value, from_bits, to_bits
from .inst import Inst
from .table import BY_MNEMONIC, BY_OPCODE

TABLE_BYTES = 256
CLASSES_BYTES = 16  # 32 code lengths of 4 bits


def parameter_widths(par: Inst) -> tuple[int, int, int]:
    """Stored bits of a bias, a multiplier and a shift."""
    return par.bias_bits, max(par.multiplier_bits - par.normal, 0), par.shift_bits  # type: ignore[return-value]


def parameter_bytes(par: Inst) -> int:
    """Payload of par: fields of `columns` biases, then of multipliers and shifts, zero-padded to whole words."""
    bias, multiplier, shift = parameter_widths(par)
    count = 1 if par.uniform else par.columns
    return -(-(par.columns * bias + count * (multiplier + shift)) // 32) * 4  # type: ignore[operator]


def payload_length(inst: Inst) -> int:
    """Bytes of inline data that must follow the fields of `inst`."""
    kind = BY_MNEMONIC[inst.mnemonic].payload
    if kind == "weights":
        return inst.payload_bytes  # type: ignore[return-value]
    if kind == "parameters":
        return parameter_bytes(inst)
    return {"table": TABLE_BYTES, "classes": CLASSES_BYTES}.get(kind, 0)


def encoded_size(inst: Inst) -> int:
    """Bytes of the instruction with its payload."""
    return SIZES[inst.mnemonic] + payload_length(inst)


def encode(inst: Inst) -> bytes:
    """Bytes of one instruction; raises EncodeError when the payload is not as long as the fields say."""
    length = payload_length(inst)
    if len(inst.payload) != length:
        raise EncodeError(f"{inst.mnemonic}: payload of {len(inst.payload)} bytes; "
                          f"its fields ask for {length}; repack the payload")
    if length % 4:
        raise EncodeError(f"{inst.mnemonic}: payload of {length} bytes; give a multiple of 4, zero-padded")
    number = BY_MNEMONIC[inst.mnemonic].opcode
    for slot, value in zip(OPERANDS[inst.mnemonic], inst.values):
        number |= to_bits(slot.field, value) << slot.bit
    return number.to_bytes(SIZES[inst.mnemonic], "little") + inst.payload


def encode_all(program: list[Inst] | tuple[Inst, ...]) -> bytes:
    """Bytes of a whole program; raises EncodeError."""
    return b"".join(map(encode, program))


def decode(code: bytes, offset: int = 0) -> tuple[Inst, int]:
    """The instruction at `offset` and its size in bytes, payload included.

    Raises EncodeError for an unknown opcode, a set reserved bit, a reserved enum value, a token of the own
    unit, or bytes that end too early; the message names the offset.
    """
    if offset >= len(code):
        raise EncodeError(f"offset {offset}: the program ended ({len(code)} bytes) without halt")
    row = BY_OPCODE.get(code[offset])
    if row is None:
        raise EncodeError(f"offset {offset}: opcode 0x{code[offset]:02x} is no instruction of this version")
    size = SIZES[row.mnemonic]
    if offset + size > len(code):
        raise EncodeError(f"offset {offset}: {row.mnemonic} needs {size} bytes, "
                          f"{len(code) - offset} are left")
    number = int.from_bytes(code[offset:offset + size], "little")
    if number & RESERVED[row.mnemonic]:
        raise EncodeError(f"offset {offset}: {row.mnemonic} has reserved bits set; they must be zero")
    try:
        inst = Inst(row.mnemonic, _values(row.mnemonic, number))
    except EncodeError as error:
        raise EncodeError(f"offset {offset}: {error.args[0].split(': ', 1)[1]}") from None
    length = payload_length(inst)
    if length % 4:
        raise EncodeError(f"offset {offset}: {row.mnemonic} has a payload of {length} bytes; "
                          "it must be a multiple of 4")
    if offset + size + length > len(code):
        raise EncodeError(f"offset {offset}: {row.mnemonic} has {length} payload bytes, "
                          f"{len(code) - offset - size} are left")
    if length:
        inst = Inst(row.mnemonic, inst.values, bytes(code[offset + size:offset + size + length]))
    return inst, size + length


def _values(mnemonic: str, number: int) -> tuple[Value, ...]:
    return tuple(
        from_bits(mnemonic, slot.field, number >> slot.bit & ((1 << slot.field.bits) - 1))
        for slot in OPERANDS[mnemonic]
    )


def decode_all(code: bytes) -> list[tuple[int, Inst]]:
    """All instructions of `code` with their byte offsets, in order of the bytes; raises EncodeError."""
    program = []
    offset = 0
    while offset < len(code):
        inst, size = decode(code, offset)
        program.append((offset, inst))
        offset += size
    return program
