"""Text of docs/ISA.md: the hand-written manual.md with the tables filled in where it names them."""
from __future__ import annotations

from pathlib import Path

from ..target import FIELDS as TARGET_FIELDS
from .fields import LAYOUT, OPERANDS, PRESENT, SIZES, WORD_BITS, WORD_BYTES, Operand, limits
from .table import CODECS, INSTRUCTIONS, ISA_VERSION, ROUNDINGS, UNITS, Instruction

ROWS = sorted(INSTRUCTIONS, key=lambda row: row.opcode)
SOURCE = Path(__file__).with_name("manual.md")
SEMANTICS = Path(__file__).with_name("semantics.py")
LANES = Path(__file__).with_name("lane_decode.py")


def manual(first_line: str) -> str:
    """The whole manual; each ``<!-- table NAME -->`` line of manual.md becomes a generated part."""
    parts = {
        "version": str(ISA_VERSION),
        "units": _numbered(UNITS),
        "roundings": _numbered(ROUNDINGS),
        "codecs": _numbered(CODECS),
        "summary": _summary(),
        "instructions": "\n\n".join(_entry(row) for row in ROWS),
        "semantics": _source(SEMANTICS, "def requantize("),
        "lanes": _source(LANES, "class _Bits:"),
        "target": _target(),
    }
    text = SOURCE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!-- table {name} -->", part)
    return f"<!-- {first_line} -->\n{text}"


def _numbered(names: tuple[str, ...]) -> str:
    return ", ".join(f"{i} = `{name}`" for i, name in enumerate(names))


def _summary() -> str:
    lines = ["| opcode | mnemonic | unit | bytes | payload | meaning |", "|---|---|---|---|---|---|"]
    for row in ROWS:
        lines.append(f"| 0x{row.opcode:02x} | [`{row.mnemonic}`](#{row.mnemonic}) | {row.unit} | "
                     f"{_bytes(row)} | {row.payload or '-'} | {_short(row)} |")
    return "\n".join(lines)


def _short(row: Instruction) -> str:
    """First clause of the meaning."""
    return row.meaning.split(". ")[0].split(": ")[0].rstrip(".")


def _target() -> str:
    lines = ["| number | range | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| {f.table}.{f.key} | {f.low}..{f.high} | {f.unit} | {f.meaning} |" for f in TARGET_FIELDS]
    return "\n".join(lines)


def _source(path: Path, start: str) -> str:
    """A module from the line that begins with `start` on, as it stands there."""
    source = path.read_text(encoding="utf-8")
    return f"```python\n{source[source.index(start):].rstrip()}\n```"


def _entry(row: Instruction) -> str:
    payload = f" + {row.payload}" if row.payload else ""
    lines = [f"### {row.mnemonic}", "", f"Opcode 0x{row.opcode:02x}, unit {row.unit}, "
             f"{_bytes(row)} bytes{payload}.", "", row.meaning, "", "```", diagram(row), "```", ""]
    if OPERANDS[row.mnemonic]:
        lines += ["| field | bits | values | meaning |", "|---|---|---|---|"]
        lines += [f"| {s.field.name} | {_place(s)} | {_values(s)} | {s.field.meaning} |"
                  for s in OPERANDS[row.mnemonic]]
        lines.append("")
    lines.append(f"Cycles: {row.cycles}.")
    if row.notes:
        lines += ["", f"Note: {row.notes}"]
    return "\n".join(lines)


def _bytes(row: Instruction) -> str:
    """Bytes without payload: some or all of the words behind the first may be left out."""
    size = SIZES[row.mnemonic]
    return str(size) if PRESENT[row.mnemonic] is None else f"{WORD_BYTES} to {size}"


def _range(first: int, bits: int) -> str:
    return str(first) if bits == 1 else f"{first + bits - 1}:{first}"


def _place(operand: Operand) -> str:
    places = [f"word {s.word} [{_range(s.shift, s.field.bits)}]" for s in reversed(operand.parts)]
    return ", ".join(places) + (", low bits first" if len(places) > 1 else "")


def _values(operand: Operand) -> str:
    field = operand.field
    if field.kind == "enum":
        return _numbered(field.choices)
    if field.kind == "mask":
        return "one bit per unit"
    low, high = limits(field)
    stored = {"minus_one": ", stored minus 1", "words": ", stored / 4"}.get(field.kind, "")
    return f"{low}..{high}{stored}"


def diagram(row: Instruction) -> str:
    """Words of the instruction as boxes, highest bit on the left."""
    parts = {slot for o in OPERANDS[row.mnemonic] if len(o.parts) > 1 for slot in o.parts}
    lines = []
    for word in range(SIZES[row.mnemonic] * 8 // WORD_BITS):
        numbers, names = "", ""
        for slot in reversed([s for s in LAYOUT[row.mnemonic] if s.word == word]):
            high, low = str(slot.shift + slot.field.bits - 1), str(slot.shift)
            label = "0" if slot.field.kind == "reserved" else slot.field.name
            if slot in parts:
                label += f"[{_range(slot.field.low, slot.field.bits)}]"
            width = max(len(label), len(high) + len(low) + 1 if high != low else len(low))
            numbers += f"  {high if high != low else '':<{width - len(low)}}{low}"
            names += f"| {label:<{width}}"
            numbers, names = numbers + " ", names + " "
        lines += [f"        {numbers}".rstrip(), f"word {word:<2} {names}|"]
    return "\n".join(lines)
