"""Encode and decode the fixed-size records of `layout`, by field name."""
from __future__ import annotations

import struct
from typing import Mapping, Union

from .layout import FormatField, Record

Value = Union[int, float, bytes, "tuple[int, ...]", "tuple[float, ...]"]

_CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "f64": "d"}


def _codes(field: FormatField) -> str:
    if field.type == "u8" and field.count > 1:
        return f"{field.count}s"
    return f"{field.count}{_CODES[field.type]}" if field.count > 1 else _CODES[field.type]


def encode_record(record: Record, values: Mapping[str, Value]) -> bytes:
    """Bytes of one record; `values` has every field that is not reserved. struct.error if out of range."""
    parts: list[bytes] = []
    for field in record.fields:
        if field.name == "_":
            parts.append(bytes(field.bytes))
            continue
        value = values[field.name]
        items = value if isinstance(value, tuple) else (value,)
        parts.append(struct.pack("<" + _codes(field), *items))
    return b"".join(parts)


def decode_record(record: Record, data: bytes, offset: int) -> dict[str, Value]:
    """Field values of the record at `offset`; reserved fields come back under ``_`` as their joined bytes."""
    values: dict[str, Value] = {}
    reserved = b""
    for field in record.fields:
        at = offset + field.offset
        if field.name == "_":
            reserved += data[at:at + field.bytes]
            continue
        items = struct.unpack_from("<" + _codes(field), data, at)
        values[field.name] = items if field.count > 1 and field.type != "u8" else items[0]
    values["_"] = reserved
    return values
