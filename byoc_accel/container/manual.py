"""Text of docs/FORMAT.md: the hand-written format.md with the tables filled in where it names them."""
from __future__ import annotations

from pathlib import Path

from ..isa.table import ISA_VERSION
from ..target import FIELDS
from . import layout, registers

SOURCE = Path(__file__).with_name("format.md")


def manual(first_line: str) -> str:
    """The whole document; each ``<!-- table NAME -->`` line of format.md becomes a generated table."""
    parts = {f"record {record.name}": _record(record) for record in layout.RECORDS}
    parts |= {"versions": f"format version {layout.FORMAT_VERSION}, instruction set version {ISA_VERSION}",
              "sections": _sections(), "limits": _limits(), "target": _target(), "registers": _registers()}
    text = SOURCE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!-- table {name} -->", part)
    return f"<!-- {first_line} -->\n{text}"


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _record(record: layout.Record) -> str:
    rows: list[tuple[object, ...]] = []
    for f in record.fields:
        kind = f"{f.type}[{f.count}]" if f.count > 1 else f.type
        rows.append((f.offset, kind, "" if f.name == "_" else f"`{f.name}`", f.since, f.meaning))
    return f"{record.meaning} {record.bytes} bytes.\n\n" + _table(
        ("offset", "type", "field", "since", "meaning"), rows)


def _sections() -> str:
    return _table(("kind", "section", "record", "record bytes", "alignment", "since", "holds"),
                  [(s.kind, f"`{s.name}`", s.record, layout.record_bytes(s), s.alignment_bytes, s.since,
                    s.meaning) for s in layout.SECTIONS])


def _limits() -> str:
    return _table(("limit", "value"), [
        ("image", f"{layout.MAX_IMAGE_BYTES} bytes"), ("buffers", layout.MAX_BUFFERS),
        ("ports", layout.MAX_PORTS), ("layers", layout.MAX_LAYERS), ("host axes", layout.MAX_RANK),
        ("string section", f"{layout.MAX_STRING_BYTES} bytes"),
        ("alignment of the image and its program", f"{layout.IMAGE_ALIGNMENT_BYTES} bytes"),
        ("alignment of other sections", f"{layout.SECTION_ALIGNMENT_BYTES} bytes")])


def _target() -> str:
    return _table(("index", "number", "range", "unit", "meaning"),
                  [(i, f"{f.table}.{f.key}", f"{f.low}..{f.high}", f.unit, f.meaning)
                   for i, f in enumerate(FIELDS)])


def _registers() -> str:
    rows: list[tuple[object, ...]] = []
    for r in registers.REGISTERS:
        last = f" .. 0x{r.offset + 4 * (r.count - 1):03x}" if r.count > 1 else ""
        rows.append((f"0x{r.offset:03x}{last}", f"`{r.name}`", r.access, r.meaning))
        rows += [("", f"bit {b.bit} `{b.name}`", "", b.meaning) for b in r.bits]
    return _table(("offset", "register", "access", "meaning"), rows)
