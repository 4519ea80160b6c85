"""THE image format table: data only. Packer, parser, listing, C header and docs/FORMAT.md come from it.

An image is one header, one section table and six sections, all little-endian. Offsets inside a record are
assigned in table order and must be naturally aligned, so a C reader can be checked field by field. This
module imports nothing from the package.
"""
from __future__ import annotations

from dataclasses import dataclass

#: Version of this format; independent of the ISA version and of the package version.
FORMAT_VERSION = 1

#: First bytes: a non-text byte, the name, and line ends that a text-mode transfer would damage.
MAGIC = b"\x89WIA\r\n\x1a\n"

#: Alignment of an image in memory or flash, and of the program inside it, in bytes (a cache line).
IMAGE_ALIGNMENT_BYTES = 64

#: Alignment of every other section, in bytes (the widest field).
SECTION_ALIGNMENT_BYTES = 8

#: Limits of format 1.
MAX_BUFFERS = 256  # the instruction's binding field has 8 bits
MAX_PORTS = 64
MAX_LAYERS = 65536
MAX_RANK = 8
MAX_STRING_BYTES = 1 << 20
MAX_IMAGE_BYTES = (1 << 31) - 1

#: Hardware numbers of the target section, in the order of ``target.FIELDS``.
TARGET_NUMBERS = 24

#: Host data types; the index is the number in the image.
DTYPES: tuple[str, ...] = ("float32", "int8")

#: Bytes of each field type.
TYPE_BYTES: dict[str, int] = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "f64": 8}


@dataclass(frozen=True)
class FormatField:
    """`count` values of `type` at byte `offset` of the record, present since format version `since`."""

    name: str
    offset: int
    type: str
    count: int
    meaning: str
    since: int = 1

    @property
    def bytes(self) -> int:
        return TYPE_BYTES[self.type] * self.count


@dataclass(frozen=True)
class Record:
    """A fixed-size structure. Fields called ``_`` are reserved and zero."""

    name: str
    meaning: str
    fields: tuple[FormatField, ...]
    bytes: int


@dataclass(frozen=True)
class Section:
    """`record` names the structure that repeats in it, or a plain byte type."""

    kind: int
    name: str
    record: str
    alignment_bytes: int
    meaning: str
    since: int = 1


def _record(name: str, meaning: str, *rows: tuple[str, str, int, str]) -> Record:
    """Lay rows (name, type, count, meaning) out from offset 0; a misaligned row is an error in the table."""
    fields: list[FormatField] = []
    offset = 0
    for field_name, kind, count, text in rows:
        if offset % TYPE_BYTES[kind]:
            raise ImportError(f"format table: {name}.{field_name} is misaligned at {offset}")
        fields.append(FormatField(field_name, offset, kind, count, text))
        offset += TYPE_BYTES[kind] * count
    return Record(name, meaning, tuple(fields), offset)


HEADER = _record(
    "header", "At byte 0 of the image.",
    ("magic", "u8", 8, "89 57 49 41 0D 0A 1A 0A"),
    ("format_version", "u16", 1, "version of this format; a reader refuses every number it does not know"),
    ("isa_version", "u16", 1, "version of the instruction set of the program"),
    ("header_bytes", "u32", 1, "bytes of this header; the section table follows it"),
    ("total_bytes", "u32", 1, "bytes of the whole image"),
    ("crc32", "u32", 1, "CRC-32 (IEEE 802.3) of all image bytes but these four"),
    ("section_count", "u32", 1, "records of the section table"),
    ("name", "u32", 1, "string: name of the region"),
    ("target_digest", "u8", 16, "first 16 bytes of SHA-256 over the target section's numbers"),
    ("_", "u8", 16, "reserved, zero"),
)

SECTION_RECORD = _record(
    "section", "One record of the section table.",
    ("kind", "u32", 1, "number of the section"),
    ("offset", "u32", 1, "bytes from the start of the image"),
    ("bytes", "u32", 1, "bytes of the section, without padding"),
    ("record_bytes", "u32", 1, "bytes of one record; bytes is a multiple of it"),
)

TARGET_RECORD = _record(
    "target", "The accelerator that the program was compiled for.",
    ("numbers", "u32", TARGET_NUMBERS, "hardware numbers, see Target numbers"),
    ("name", "u32", 1, "string: name of the target, for people only"),
)

BUFFER_RECORD = _record(
    "buffer", "External memory that load and store address by its index (the binding field).",
    ("name", "u32", 1, "string: name of the tensor"),
    ("kind", "u32", 1, "0 input, 1 output, 2 scratch"),
    ("bytes", "u32", 1, "size; for inputs and outputs N * H * W * C"),
    ("_", "u32", 1, "reserved, zero"),
)

PORT_RECORD = _record(
    "port", "A region input or output as the host sees it: inputs first, then outputs, in argument order.",
    ("name", "u32", 1, "string: name of the tensor"),
    ("buffer", "u32", 1, "index of its buffer"),
    ("host_dtype", "u16", 1, "0 float32, 1 int8"),
    ("host_rank", "u16", 1, "axes of the host tensor"),
    ("perm", "u8", 4, "host array = device array.transpose(perm).reshape(host_shape)"),
    ("scale", "f64", 1, "float32 hosts: x = (q - zero_point) * scale, computed in float32"),
    ("zero_point", "i32", 1, "int8 value of the real number 0"),
    ("device_shape", "u32", 4, "N, H, W, C of the device tensor"),
    ("host_shape", "u32", MAX_RANK, "the first host_rank axes, the rest zero"),
    ("_", "u32", 1, "reserved, zero"),
)

LAYER_RECORD = _record(
    "layer", "Source map: the program bytes [start, end) of one layer; the spans tile the program.",
    ("name", "u32", 1, "string: name of the layer in the model"),
    ("kind", "u32", 1, "string: its kind"),
    ("start", "u32", 1, "first program byte"),
    ("end", "u32", 1, "program byte after the last"),
    ("macs", "u64", 1, "multiply-accumulates of the model's layer per run"),
    ("weight_bytes", "u64", 1, "bytes of conv, dwc and wtab in the span, payloads and fields"),
)

#: In file order; an image holds each section exactly once.
SECTIONS: tuple[Section, ...] = (
    Section(1, "target", "target", SECTION_ALIGNMENT_BYTES, "one record: the accelerator's numbers"),
    Section(2, "buffers", "buffer", SECTION_ALIGNMENT_BYTES, "external buffers, index = the binding field"),
    Section(3, "ports", "port", SECTION_ALIGNMENT_BYTES, "host side of the inputs and outputs"),
    Section(4, "layers", "layer", SECTION_ALIGNMENT_BYTES, "source map of the program"),
    Section(5, "strings", "u8", SECTION_ALIGNMENT_BYTES,
            "UTF-8 strings, each ended by a zero byte; a string field is an offset into this section"),
    Section(6, "program", "u32", IMAGE_ALIGNMENT_BYTES, "instruction stream with the weights inline"),
)

RECORDS: tuple[Record, ...] = (HEADER, SECTION_RECORD, TARGET_RECORD, BUFFER_RECORD, PORT_RECORD,
                               LAYER_RECORD)
RECORD_BY_NAME: dict[str, Record] = {record.name: record for record in RECORDS}

#: Bytes in front of the first section.
TABLE_BYTES = HEADER.bytes + len(SECTIONS) * SECTION_RECORD.bytes


def record_bytes(section: Section) -> int:
    """Bytes of one record of `section`."""
    if section.record in TYPE_BYTES:
        return TYPE_BYTES[section.record]
    return RECORD_BY_NAME[section.record].bytes
