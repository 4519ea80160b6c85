"""Whether a shared library is whole: loading a truncated one ends the process with a bus error."""
from __future__ import annotations

import struct
from pathlib import Path

from ...errors import HostError

_HEADER = struct.Struct("<4s2B10x2HI3QI6H")  # Elf64_Ehdr: magic, class, byte order, ...
_SEGMENT = struct.Struct("<2I6Q")  # Elf64_Phdr: type, flags, offset, addresses, bytes in the file, ...
_CLASS_64, _LITTLE_ENDIAN = 2, 1


def check_library(path: Path) -> None:
    """Raise HostError unless `path` is a 64-bit little-endian ELF file that holds all that its headers name."""
    with path.open("rb") as file:
        size_bytes = file.seek(0, 2)
        file.seek(0)
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or head[:6] != b"\x7fELF" + bytes((_CLASS_64, _LITTLE_ENDIAN)):
            raise HostError(f"{path}: no shared library for this machine; give one made by byoc-accel compile")
        (*_, segments_at, sections_at, _flags, _head_bytes, segment_bytes, segments, section_bytes, sections,
         _names) = _HEADER.unpack(head)
        needed = [segments_at + segment_bytes * segments, sections_at + section_bytes * sections]
        file.seek(segments_at)
        table = file.read(_SEGMENT.size * segments)
    if segment_bytes == _SEGMENT.size and len(table) == _SEGMENT.size * segments:
        needed += [offset + in_file for _, _, offset, _, _, in_file, _, _ in _SEGMENT.iter_unpack(table)]
    if max(needed) > size_bytes:
        raise HostError(f"{path}: is cut off, it has {size_bytes:,} B of {max(needed):,}; copy or compile it again")
