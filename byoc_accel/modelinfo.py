"""What a library knows about the model it was made from: a JSON record found by its magic bytes.

Layout: 16 magic bytes, length of the rest in bytes and its CRC-32 (little-endian uint32 each), the JSON in UTF-8 as a
zlib stream (an eighth of its size). It is appended to the finished library, where the loader does not look; a stripped
library has lost it.
"""
from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import Any

# Written in two parts, so that a copy of this file is no model record.
MAGIC = b"\x7fWIA-MODEL" + b"-INFO\x1a"
_HEAD = struct.Struct("<II")


@dataclass(frozen=True)
class OpRow:
    """One op of the host's model: `region` is empty and `reason` says why when the op stays on the host."""

    name: str
    op: str
    macs: int
    region: str
    reason: str


@dataclass(frozen=True)
class ModelInfo:
    """`macs` counts the multiply-accumulates of one run of the whole model, `macs_offloaded` our share.

    regions: (symbol, name of its image) in execution order; regions of equal programs share an image.
    """

    model: str
    host: str
    macs: int
    macs_offloaded: int
    ops: tuple[OpRow, ...]
    regions: tuple[tuple[str, str], ...] = ()


def pack(info: ModelInfo) -> bytes:
    """The record of `info`; equal infos give equal bytes."""
    text = zlib.compress(json.dumps(asdict(info), sort_keys=True, separators=(",", ":")).encode(), 9)
    return MAGIC + _HEAD.pack(len(text), zlib.crc32(text)) + text


def unpack(blob: bytes) -> ModelInfo | None:
    """The last undamaged record of this version in a file's bytes, or None when there is none."""
    at = blob.rfind(MAGIC)
    while at >= 0:
        start = at + len(MAGIC) + _HEAD.size
        if start <= len(blob):
            length, crc = _HEAD.unpack_from(blob, at + len(MAGIC))
            text = blob[start : start + length]
            if len(text) == length and zlib.crc32(text) == crc:
                try:
                    return _from_json(json.loads(zlib.decompress(text)))
                except (KeyError, TypeError, ValueError, zlib.error):  # another version's
                    pass
        at = blob.rfind(MAGIC, 0, at)
    return None


def _from_json(data: dict[str, Any]) -> ModelInfo:
    regions = tuple((symbol, image) for symbol, image in data["regions"])
    return ModelInfo(**{**data, "ops": tuple(OpRow(**row) for row in data["ops"]), "regions": regions})
