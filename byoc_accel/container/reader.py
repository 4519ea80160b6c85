"""Image bytes -> header, sections, Target and Program. Every offset is checked before it is used."""
from __future__ import annotations

from typing import cast

from ..emit.program import BUFFER_KINDS, Buffer, HostPort, Layer, Program
from ..errors import TargetError
from ..isa.table import ISA_VERSION
from ..region.region import Port
from ..target import Target, from_numbers
from . import layout
from .faults import fault, layout_fault
from .records import Value, decode_record
from .strings import read_string
from .writer import align, checksum

Fields = dict[str, Value]
Sections = dict[str, tuple[int, int]]


def read_header(data: bytes) -> Fields:
    """Header fields of `data`, which must be exactly one image; checks length, magic, versions, checksum."""
    if len(data) < layout.HEADER.bytes:
        raise fault("WIA_E_TRUNCATED", "header", f"{len(data)} bytes, a header has {layout.HEADER.bytes}")
    header = decode_record(layout.HEADER, data, 0)
    if header["magic"] != layout.MAGIC:
        raise fault("WIA_E_MAGIC", "header", f"found {cast(bytes, header['magic']).hex()}")
    for key, known in (("format_version", layout.FORMAT_VERSION), ("isa_version", ISA_VERSION)):
        if header[key] != known:
            raise fault("WIA_E_VERSION", f"header {key}", f"found {header[key]}, this version knows {known}; "
                        "use the matching byoc_accel or recompile")
    total = cast(int, header["total_bytes"])
    if len(data) < total:
        raise fault("WIA_E_TRUNCATED", "header total_bytes", f"{total} bytes, only {len(data)} are there")
    if len(data) > total:
        raise layout_fault("header total_bytes", f"{total} bytes, but {len(data)} are there")
    if header["crc32"] != checksum(data):
        raise fault("WIA_E_CRC", "header crc32", f"found {header['crc32']:#010x}, the bytes give "
                    f"{checksum(data):#010x}; the file is damaged")
    if header["header_bytes"] != layout.HEADER.bytes or header["section_count"] != len(layout.SECTIONS):
        raise layout_fault("header", f"{header['header_bytes']} bytes, {header['section_count']} sections")
    return header


def read_sections(data: bytes) -> Sections:
    """Section name -> (offset, bytes); sections follow each other in table order, aligned, up to the end."""
    found: Sections = {}
    end = layout.TABLE_BYTES
    if len(data) < end:
        raise layout_fault("section table", f"{len(data)} bytes, {end} needed")
    for index, section in enumerate(layout.SECTIONS):
        at = layout.HEADER.bytes + index * layout.SECTION_RECORD.bytes
        record = decode_record(layout.SECTION_RECORD, data, at)
        offset, size = cast(int, record["offset"]), cast(int, record["bytes"])
        unit = layout.record_bytes(section)
        if (record["kind"], record["record_bytes"]) != (section.kind, unit):
            raise layout_fault(f"section {index}", f"kind {record['kind']} of {record['record_bytes']}-byte "
                               f"records, expected {section.name} of {unit}")
        if offset != align(end, section.alignment_bytes) or size % unit or offset + size > len(data):
            raise layout_fault(f"section {section.name}", f"bytes {offset} to {offset + size} of {len(data)}")
        found[section.name] = (offset, size)
        end = offset + size
    if end != len(data):
        raise layout_fault("section program", f"ends at {end}, the image at {len(data)}")
    return found


def read_target(data: bytes, header: Fields, sections: Sections) -> Target:
    """The target section as a Target; its digest must be the header's."""
    offset, size = sections["target"]
    if size != layout.TARGET_RECORD.bytes:
        raise layout_fault("section target", f"{size} bytes, expected one record")
    record = decode_record(layout.TARGET_RECORD, data, offset)
    name = _string(data, sections, record["name"], "target name")
    try:
        target = from_numbers(name, cast("tuple[int, ...]", record["numbers"]))
    except TargetError as error:
        raise layout_fault("section target", str(error)) from error
    if target.digest != header["target_digest"]:
        raise layout_fault("section target", f"its numbers give digest {target.digest.hex()}, the header has "
                           f"{cast(bytes, header['target_digest']).hex()}")
    return target


def read_program(data: bytes, header: Fields, sections: Sections) -> Program:
    """Program of the image; its records' relations are checked by `checks.verify_program`."""
    buffers = tuple(_buffer(data, sections, i, r)
                    for i, r in enumerate(_records(data, sections, "buffers", layout.MAX_BUFFERS)))
    ports = tuple(_port(data, sections, i, r)
                  for i, r in enumerate(_records(data, sections, "ports", layout.MAX_PORTS)))
    layers = tuple(_layer(data, sections, i, r)
                   for i, r in enumerate(_records(data, sections, "layers", layout.MAX_LAYERS)))
    offset, size = sections["program"]
    return Program(_string(data, sections, header["name"], "header name"), data[offset:offset + size],
                   buffers, ports, layers, cast(bytes, header["target_digest"]))


def _records(data: bytes, sections: Sections, name: str, limit: int) -> list[Fields]:
    record = layout.RECORD_BY_NAME[next(s.record for s in layout.SECTIONS if s.name == name)]
    offset, size = sections[name]
    if size // record.bytes > limit:
        raise layout_fault(f"section {name}", f"{size // record.bytes} records, at most {limit}")
    return [decode_record(record, data, at) for at in range(offset, offset + size, record.bytes)]


def _string(data: bytes, sections: Sections, offset: Value, where: str) -> str:
    start, size = sections["strings"]
    try:
        return read_string(data[start:start + size], cast(int, offset))
    except ValueError as error:
        raise layout_fault(where, str(error)) from error


def _choice(choices: tuple[str, ...], value: Value, where: str) -> str:
    if cast(int, value) >= len(choices):
        raise layout_fault(where, f"number {value}, known are 0 to {len(choices) - 1}")
    return choices[cast(int, value)]


def _buffer(data: bytes, sections: Sections, index: int, record: Fields) -> Buffer:
    where = f"buffer {index}"
    return Buffer(_string(data, sections, record["name"], where),
                  _choice(BUFFER_KINDS, record["kind"], where), cast(int, record["bytes"]))


def _port(data: bytes, sections: Sections, index: int, record: Fields) -> HostPort:
    where = f"port {index}"
    rank = cast(int, record["host_rank"])
    shape = cast("tuple[int, ...]", record["host_shape"])
    if rank > layout.MAX_RANK or any(shape[rank:]):
        raise layout_fault(where, f"rank {rank} with host shape {shape}")
    port = Port(_string(data, sections, record["name"], where), shape[:rank],
                _choice(layout.DTYPES, record["host_dtype"], where),
                cast("tuple[int, int, int, int]", tuple(cast(bytes, record["perm"]))))
    device_shape = cast("tuple[int, int, int, int]", record["device_shape"])
    return HostPort(port, device_shape, cast(float, record["scale"]), cast(int, record["zero_point"]),
                    cast(int, record["buffer"]))


def _layer(data: bytes, sections: Sections, index: int, record: Fields) -> Layer:
    where = f"layer {index}"
    return Layer(_string(data, sections, record["name"], where),
                 _string(data, sections, record["kind"], where), cast(int, record["start"]),
                 cast(int, record["end"]), cast(int, record["macs"]), cast(int, record["weight_bytes"]))
