"""Inst <-> bytes, both directions, driven by the table."""
from __future__ import annotations

from ..errors import EncodeError
from .fields import OPERANDS, PRESENT, RESERVED, SIZES, WORD_BITS, WORD_BYTES, Value, from_bits, to_bits
from .inst import Inst
from .table import BY_MNEMONIC, BY_OPCODE

TABLE_BYTES = 256
ZERO = bytes(WORD_BYTES)
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
    return len(_head(inst)) + payload_length(inst)


def encode(inst: Inst) -> bytes:
    """Bytes of one instruction; raises EncodeError when the payload is not as long as the fields say."""
    length = payload_length(inst)
    if len(inst.payload) != length:
        raise EncodeError(f"{inst.mnemonic}: payload of {len(inst.payload)} bytes; "
                          f"its fields ask for {length}; repack the payload")
    return _head(inst) + inst.payload


def _head(inst: Inst) -> bytes:
    """Word 0, and those of the others that are not zero."""
    number = BY_MNEMONIC[inst.mnemonic].opcode
    for operand, value in zip(OPERANDS[inst.mnemonic], inst.values):
        number |= operand.write(to_bits(operand.field, value))
    slot, data = PRESENT[inst.mnemonic], number.to_bytes(SIZES[inst.mnemonic], "little")
    if slot is None:
        return data
    words = [data[at:at + WORD_BYTES] for at in range(WORD_BYTES, len(data), WORD_BYTES)]
    present = sum(1 << i for i, word in enumerate(words) if word != ZERO)
    first = (number & 0xFFFFFFFF) | present << slot.bit
    return b"".join([first.to_bytes(WORD_BYTES, "little"), *(word for word in words if word != ZERO)])


def encode_all(program: list[Inst] | tuple[Inst, ...]) -> bytes:
    """Bytes of a whole program; raises EncodeError."""
    return b"".join(map(encode, program))


def decode(code: bytes, offset: int = 0) -> tuple[Inst, int]:
    """The instruction at `offset` and its size in bytes, payload included.

    Raises EncodeError for an unknown opcode, a set reserved bit, a stored word of zero, a reserved enum value, a token
    of the own unit, or bytes that end too early; the message names the offset.
    """
    if offset >= len(code):
        raise EncodeError(f"offset {offset}: the program ended ({len(code)} bytes) without halt")
    row = BY_OPCODE.get(code[offset])
    if row is None:
        raise EncodeError(f"offset {offset}: opcode 0x{code[offset]:02x} is no instruction of this version")
    number, size = _words(row.mnemonic, code, offset)
    if number & RESERVED[row.mnemonic]:
        raise EncodeError(f"offset {offset}: {row.mnemonic} has reserved bits set; they must be zero")
    try:
        inst = Inst(row.mnemonic, _values(row.mnemonic, number))
    except EncodeError as error:
        raise EncodeError(f"offset {offset}: {error.args[0].split(': ', 1)[1]}") from None
    length = payload_length(inst)
    if offset + size + length > len(code):
        raise EncodeError(f"offset {offset}: {row.mnemonic} has {length} payload bytes, "
                          f"{len(code) - offset - size} are left")
    if length:
        inst = Inst(row.mnemonic, inst.values, bytes(code[offset + size:offset + size + length]))
    return inst, size + length


def _words(mnemonic: str, code: bytes, offset: int) -> tuple[int, int]:
    """The instruction with all of its words, as one number, and the bytes that are stored of it."""
    slot, first = PRESENT[mnemonic], int.from_bytes(code[offset:offset + WORD_BYTES], "little")
    present = first >> slot.bit & ((1 << slot.field.bits) - 1) if slot is not None else 0
    size = WORD_BYTES * (1 + bin(present).count("1"))
    if offset + size > len(code):
        raise EncodeError(f"offset {offset}: {mnemonic} needs {size} bytes, {len(code) - offset} are left")
    number, at = first, offset + WORD_BYTES
    for index in range(1, SIZES[mnemonic] // WORD_BYTES):
        if present >> (index - 1) & 1:
            word = int.from_bytes(code[at:at + WORD_BYTES], "little")
            if not word:
                raise EncodeError(f"offset {offset}: word {index} of {mnemonic} is stored and 0; leave it out")
            number |= word << WORD_BITS * index
            at += WORD_BYTES
    return number, size


def _values(mnemonic: str, number: int) -> tuple[Value, ...]:
    return tuple(from_bits(mnemonic, operand.field, operand.read(number)) for operand in OPERANDS[mnemonic])


def decode_all(code: bytes) -> list[tuple[int, Inst]]:
    """All instructions of `code` with their byte offsets, in order of the bytes; raises EncodeError."""
    program = []
    offset = 0
    while offset < len(code):
        inst, size = decode(code, offset)
        program.append((offset, inst))
        offset += size
    return program
