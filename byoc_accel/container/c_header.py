"""C headers from the tables: wia_format.h and wia_regs.h. C99 and C++, freestanding."""
from __future__ import annotations

from ..emit.program import BUFFER_KINDS
from ..generated import c_enum, c_header
from . import layout, registers


def format_header(first_line: str) -> str:
    """Text of wia_format.h."""
    magic = ", ".join(f"0x{byte:02x}u" for byte in layout.MAGIC)
    limits = "\n".join(f"#define WIA_{name} {getattr(layout, name)}u" for name in (
        "FORMAT_VERSION", "IMAGE_ALIGNMENT_BYTES", "SECTION_ALIGNMENT_BYTES", "MAX_BUFFERS", "MAX_PORTS",
        "MAX_LAYERS", "MAX_RANK", "MAX_STRING_BYTES", "MAX_IMAGE_BYTES"))
    sections = [(f"WIA_SECTION_{s.name}", i) for i, s in enumerate(layout.SECTIONS)]
    intro = ("The image format: see docs/FORMAT.md. WIA_AT_* are byte offsets in a record, "
             "WIA_SIZE_* its bytes.")
    return c_header("WIA_FORMAT_H", first_line, intro, [
        f"{limits}\n#define WIA_MAGIC {{{magic}}}\n#define WIA_SIZE_MAGIC {len(layout.MAGIC)}u",
        "/* Index of each section in the section table. */\n"
        + c_enum(sections + [("WIA_SECTION_COUNT", len(layout.SECTIONS))]),
        c_enum([(f"WIA_DTYPE_{name}", i) for i, name in enumerate(layout.DTYPES)]),
        c_enum([(f"WIA_BUFFER_{name}", i) for i, name in enumerate(BUFFER_KINDS)]),
        *(_record(record) for record in layout.RECORDS),
        _section_table(),
    ])


def registers_header(first_line: str) -> str:
    """Text of wia_regs.h."""
    parts = [f"#define WIA_DEVICE_ID 0x{registers.DEVICE_ID:08x}u\n"
             f"#define WIA_REGISTER_WINDOW_BYTES 0x{registers.WINDOW_BYTES:x}u"]
    for register in registers.REGISTERS:
        words = f", {register.count} words" if register.count > 1 else ""
        lines = [f"#define WIA_REG_{register.name} 0x{register.offset:03x}u "
                 f"/* {register.access}{words}: {register.meaning} */"]
        lines += [f"#define WIA_{register.name}_{bit.name} 0x{1 << bit.bit:x}u /* {bit.meaning} */"
                  for bit in register.bits]
        parts.append("\n".join(lines))
    return c_header("WIA_REGS_H", first_line, "Register map of a device: byte offsets of 32-bit words.", parts)


def _record(record: layout.Record) -> str:
    name = record.name.upper()
    lines = [f"/* {record.meaning} */", f"#define WIA_SIZE_{name} {record.bytes}u"]
    for field in record.fields:
        if field.name != "_":
            count = f"[{field.count}]" if field.count > 1 else ""
            lines.append(f"#define WIA_AT_{name}_{field.name.upper()} {field.offset}u "
                         f"/* {field.type}{count}: {field.meaning} */")
        else:
            lines.append(f"#define WIA_AT_{name}_RESERVED {field.offset}u /* {field.bytes} zero bytes */")
    return "\n".join(lines)


def _section_table() -> str:
    rows = " \\\n".join(f"    X({s.kind}u, {layout.record_bytes(s)}u, {s.alignment_bytes}u)"
                        for s in layout.SECTIONS)
    return ("/* X(kind, record bytes, alignment in bytes) of every section in file order. */\n"
            f"#define WIA_SECTION_LIST(X) \\\n{rows}")
