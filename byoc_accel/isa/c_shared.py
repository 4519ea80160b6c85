"""C headers of what every part shares: wia_errors.h and wia_target.h. C99 and C++, freestanding."""
from __future__ import annotations

from ..errors import C_ERRORS
from ..generated import c_header
from ..target import FIELDS


def errors_header(first_line: str) -> str:
    """Text of wia_errors.h."""
    codes = "\n".join(f"    {e.name} = {e.code}{',' if e is not C_ERRORS[-1] else ''} /* {e.text} */"
                      for e in C_ERRORS)
    rows = " \\\n".join(f'    X({e.name}, {e.code}, "{e.text}")' for e in C_ERRORS)
    intro = "Error codes: 0 is success, every failure has its own negative number."
    return c_header("WIA_ERRORS_H", first_line, intro, [
        f"enum {{\n{codes}\n}};",
        "/* X(name, code, text) for every error, e.g. to build a table of texts. */\n"
        f"#define WIA_ERROR_LIST(X) \\\n{rows}",
    ], code=True)


def target_header(first_line: str) -> str:
    """Text of wia_target.h."""
    members = "\n".join(f"    uint32_t {f.name}; /* {f.unit}: {f.meaning} */" for f in FIELDS)
    ranges = "\n".join(f"#define WIA_TARGET_{f.name.upper()}_{end} {value}u"
                       for f in FIELDS for end, value in (("MIN", f.low), ("MAX", f.high)))
    reads = "\n".join(f"    target->{f.name} = wia_target_word(bytes + {4 * i});"
                      for i, f in enumerate(FIELDS))
    names = ",\n".join(f'        "{f.table}.{f.key}"' for f in FIELDS)
    intro = ("The numbers of one accelerator, in the order in which an image's target section stores them\n"
             " * (little-endian 32-bit words).")
    return c_header("WIA_TARGET_H", first_line, intro, [
        f"#define WIA_TARGET_FIELDS {len(FIELDS)}u\n"
        f"#define WIA_TARGET_BYTES {4 * len(FIELDS)}u",
        ranges,
        f"typedef struct wia_target {{\n{members}\n}} wia_target_t;",
        _READ_WORD,
        "/* Read the numbers from WIA_TARGET_BYTES bytes; they still need wia_target_check. */\n"
        f"static inline void wia_target_read(wia_target_t *target, const uint8_t *bytes)\n{{\n{reads}\n}}",
        _target_check(),
        "/* TOML name of field 1 .. WIA_TARGET_FIELDS, \"?\" otherwise. */\n"
        "static inline const char *wia_target_field_name(unsigned field)\n{\n"
        f"    static const char *const names[] = {{\n{names}\n    }};\n"
        "    return field >= 1u && field <= WIA_TARGET_FIELDS ? names[field - 1u] : \"?\";\n}",
    ], code=True)


_READ_WORD = """static inline uint32_t wia_target_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}"""


def _target_check() -> str:
    tests = []
    for number, field in enumerate(FIELDS, 1):
        # A lower limit of 0 is no test: C compilers warn about it.
        low = f"target->{field.name} < {field.low}u || " if field.low else ""
        tests.append(f"    if ({low}target->{field.name} > {field.high}u)\n        return {number}u;")
    last = len(FIELDS) + 1
    return ("/* 0 if every number is in its range; the number (from 1) of the first field that is not;\n"
            " * WIA_TARGET_FIELDS + 1 if the SRAM port is narrower than the array. */\n"
            "static inline unsigned wia_target_check(const wia_target_t *target)\n{\n" + "\n".join(tests) +
            "\n    if (target->sram_port_bytes < target->array_rows\n"
            "        || target->sram_port_bytes < target->array_columns)\n"
            f"        return {last}u;\n    return 0u;\n}}")
