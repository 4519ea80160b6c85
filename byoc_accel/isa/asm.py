"""Inst <-> text, both directions: ``conv wait=dma_in signal=post columns=16 ... payload=00ff...``.

Fields that hold their default are left out. Masks are unit names joined by commas, numbers may be written in
any Python base, `#` starts a comment, and a line may begin with its offset and a colon, as listings do.
"""
from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Protocol

from ..errors import EncodeError
from .encode import decode_all, encode
from .fields import OPERANDS, Value, default
from .inst import Inst, inst
from .table import BY_MNEMONIC


class Span(Protocol):
    """A layer of the source map: the bytes [start, end) of the program belong to it."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


def to_text(instruction: Inst, full: bool = True) -> str:
    """One line. `full` writes the payload as hex, which `parse` reads; otherwise its size and CRC-32."""
    words = [instruction.mnemonic]
    for slot, value in zip(OPERANDS[instruction.mnemonic], instruction.values):
        implied = len(instruction.payload) if slot.field.name == "payload_bytes" else default(slot.field)
        if value != implied:
            words.append(f"{slot.field.name}={','.join(value) if isinstance(value, tuple) else value}")
    if instruction.payload:
        words.append(f"payload={instruction.payload.hex()}" if full else
                     f"payload=<{len(instruction.payload)} bytes, crc {zlib.crc32(instruction.payload):08x}>")
    return " ".join(words)


def parse(line: str) -> Inst:
    """Inverse of `to_text(..., full=True)`; raises EncodeError naming the word that is wrong."""
    words = line.split("#", 1)[0].split()
    if words and words[0].endswith(":"):
        words = words[1:]
    if not words:
        raise EncodeError(f"{line.strip()!r} holds no instruction; write a mnemonic")
    mnemonic, *assignments = words
    if mnemonic not in BY_MNEMONIC:
        raise EncodeError(f"{mnemonic!r} is no instruction; known are {', '.join(BY_MNEMONIC)}")
    fields: dict[str, Value] = {}
    payload = b""
    for word in assignments:
        name, equals, text = word.partition("=")
        if not equals or name in fields:
            raise EncodeError(f"{mnemonic}: {word!r} is not a new field=value; write each field once")
        if name == "payload":
            payload = _parse_payload(mnemonic, text)
        else:
            fields[name] = _parse_value(mnemonic, name, text)
    return inst(mnemonic, payload=payload, **fields)


def assemble(text: str) -> bytes:
    """Code of a whole listing or hand-written program; raises EncodeError naming the line."""
    code = b""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.split("#", 1)[0].strip():
            continue
        try:
            code += encode(parse(line))
        except EncodeError as error:
            raise EncodeError(f"line {number}: {error.args[0].split(': ', 1)[1]}") from None
    return code


def listing(code: bytes, layers: Sequence[Span] = (), full: bool = False) -> str:
    """All instructions with byte offsets, indented by loop depth, under the names of their layers.

    With `full`, `assemble` reads it back. Raises EncodeError if the bytes do not decode.
    """
    heads = {layer.start: layer for layer in layers if layer.end > layer.start}
    width = len(str(len(code)))
    lines = []
    depth = 0
    for offset, instruction in decode_all(code):
        if offset in heads:
            lines.append(f"# {heads[offset].name}: bytes {offset} to {heads[offset].end}")
        depth -= instruction.mnemonic == "endl"
        lines.append(f"{offset:>{width}}: {'  ' * max(depth, 0)}{to_text(instruction, full)}")
        depth += instruction.mnemonic == "loop"
    return "\n".join(lines) + "\n"


def _parse_payload(mnemonic: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise EncodeError(f"{mnemonic}: payload={text[:20]} is not hex; give all of it") from None


def _parse_value(mnemonic: str, name: str, text: str) -> Value:
    kinds = {slot.field.name: slot.field.kind for slot in OPERANDS[mnemonic]}
    if kinds.get(name) == "mask":
        return tuple(text.split(",")) if text else ()
    if kinds.get(name, "enum") == "enum":
        return text  # an unknown name is reported by `inst`
    try:
        return int(text, 0)
    except ValueError:
        raise EncodeError(f"{mnemonic}: {name}={text} is no number") from None


