"""Program and Target -> image bytes. There is exactly one image of a program."""
from __future__ import annotations

import struct
import zlib

from ..emit.program import BUFFER_KINDS, Buffer, HostPort, Layer, Program
from ..errors import ImageError
from ..isa.table import ISA_VERSION
from ..target import FIELDS, Target
from . import layout
from .records import encode_record
from .strings import StringTable

_CRC = next(f for f in layout.HEADER.fields if f.name == "crc32")


def checksum(data: bytes) -> int:
    """CRC-32 of all image bytes but the checksum's own four."""
    return zlib.crc32(data[_CRC.offset + _CRC.bytes:], zlib.crc32(data[:_CRC.offset]))


def with_checksum(data: bytes) -> bytes:
    """`data` with its checksum field set to what its other bytes give."""
    return data[:_CRC.offset] + struct.pack("<I", checksum(data)) + data[_CRC.offset + _CRC.bytes:]


def align(value: int, alignment_bytes: int) -> int:
    """`value` rounded up to a multiple of `alignment_bytes`."""
    return -(-value // alignment_bytes) * alignment_bytes


def build(program: Program, target: Target) -> bytes:
    """Image bytes of a program that `checks.verify_program` accepts: every byte follows from the arguments."""
    strings = StringTable()
    name = strings.offset(program.name)
    try:
        contents = {
            "target": encode_record(layout.TARGET_RECORD,
                                    {"numbers": target.numbers(), "name": strings.offset(target.name)}),
            "buffers": b"".join(_buffer(b, strings) for b in program.buffers),
            "ports": b"".join(_port(p, strings) for p in program.ports),
            "layers": b"".join(_layer(x, strings) for x in program.layers),
            "program": program.code,
        }
    except struct.error as error:
        raise ImageError(f"{program.name}: a number does not fit its field ({error}); "
                         "docs/FORMAT.md lists the ranges") from error
    contents["strings"] = strings.data()
    return _assemble(contents, name, program.target_digest)


def _assemble(contents: dict[str, bytes], name: int, target_digest: bytes) -> bytes:
    table: list[bytes] = []
    body = bytearray()
    for section in layout.SECTIONS:
        offset = align(layout.TABLE_BYTES + len(body), section.alignment_bytes)
        body += bytes(offset - layout.TABLE_BYTES - len(body)) + contents[section.name]
        table.append(encode_record(layout.SECTION_RECORD, {
            "kind": section.kind, "offset": offset, "bytes": len(contents[section.name]),
            "record_bytes": layout.record_bytes(section)}))
    total = layout.TABLE_BYTES + len(body)
    if total > layout.MAX_IMAGE_BYTES:
        raise ImageError(f"image of {total} bytes, the format holds {layout.MAX_IMAGE_BYTES}; "
                         "split the region")
    header = encode_record(layout.HEADER, {
        "magic": layout.MAGIC, "format_version": layout.FORMAT_VERSION, "isa_version": ISA_VERSION,
        "header_bytes": layout.HEADER.bytes, "total_bytes": total, "crc32": 0,
        "section_count": len(layout.SECTIONS), "name": name, "target_digest": target_digest})
    return with_checksum(header + b"".join(table) + bytes(body))


def _buffer(buffer: Buffer, strings: StringTable) -> bytes:
    return encode_record(layout.BUFFER_RECORD, {
        "name": strings.offset(buffer.name), "kind": BUFFER_KINDS.index(buffer.kind), "bytes": buffer.bytes})


def _port(host: HostPort, strings: StringTable) -> bytes:
    port = host.port
    rank = len(port.host_shape)
    return encode_record(layout.PORT_RECORD, {
        "name": strings.offset(port.tensor), "buffer": host.buffer,
        "host_dtype": layout.DTYPES.index(port.host_dtype), "host_rank": rank,
        "perm": struct.pack("4B", *port.perm), "scale": host.scale, "zero_point": host.zero_point,
        "device_shape": tuple(host.device_shape),
        "host_shape": tuple(port.host_shape) + (0,) * (layout.MAX_RANK - rank)})


def _layer(layer: Layer, strings: StringTable) -> bytes:
    return encode_record(layout.LAYER_RECORD, {
        "name": strings.offset(layer.name), "kind": strings.offset(layer.kind), "start": layer.start,
        "end": layer.end, "macs": layer.macs, "weight_bytes": layer.weight_bytes})


if len(FIELDS) != layout.TARGET_NUMBERS:
    raise ImportError("container.layout.TARGET_NUMBERS and target.FIELDS disagree")
