"""The string section: UTF-8, each string once and ended by a zero byte, in order of first use."""
from __future__ import annotations

from ..errors import ImageError
from .layout import MAX_STRING_BYTES


class StringTable:
    """Collects strings while records are encoded."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._data = bytearray()

    def offset(self, text: str) -> int:
        """Byte offset of `text`; raises ImageError when it cannot be stored."""
        known = self._offsets.get(text)
        if known is not None:
            return known
        try:
            encoded = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ImageError(f"name {text!r} is no valid Unicode text; rename it") from error
        if b"\0" in encoded or len(self._data) + len(encoded) >= MAX_STRING_BYTES:
            raise ImageError(f"name {text[:40]!r}: holds a zero byte, or all names exceed {MAX_STRING_BYTES} "
                             "bytes; rename it")
        offset = len(self._data)
        self._offsets[text] = offset
        self._data += encoded + b"\0"
        return offset

    def data(self) -> bytes:
        """The section's bytes."""
        return bytes(self._data)


def read_string(section: bytes, offset: int) -> str:
    """The string at `offset`; ValueError when it lies outside, has no end or is no UTF-8."""
    end = section.find(b"\0", offset)
    if offset >= len(section) or end < 0:
        raise ValueError(f"string at {offset} lies outside of the {len(section)}-byte string section")
    return section[offset:end].decode("utf-8")
