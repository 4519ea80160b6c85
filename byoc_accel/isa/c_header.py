"""C header of the instruction set, from its table: wia_isa.h. C99 and C++, freestanding."""
from __future__ import annotations

from collections.abc import Sequence

from ..errors import EncodeError
from ..generated import c_enum, c_header
from .encode import CLASSES_BYTES, TABLE_BYTES
from .fields import LAYOUT, OPERANDS, PRESENT, RESERVED, SIZES, WORD_BYTES, Operand, limits
from .table import CODECS, INSTRUCTIONS, ISA_VERSION, ROUNDINGS, UNITS, Instruction

PAYLOADS = ("", "weights", "parameters", "table", "classes")


def isa_header(first_line: str) -> str:
    """Text of wia_isa.h."""
    parts = [
        _isa_constants(),
        *(_struct(row) for row in INSTRUCTIONS),
        _READERS,
        _info(),
        _reserved(),
        _HEAD,
        _encoding_ok(),
        *(_decode(row) for row in INSTRUCTIONS),
        _PARAMETERS,
        _payload_bytes(),
    ]
    return c_header("WIA_ISA_H", first_line, _ISA_INTRO, parts, code=True)


_ISA_INTRO = """The instruction set: opcodes, sizes, and decoding of one instruction from bytes.
 *
 *   size_t bytes = wia_instruction_bytes(code, size, offset);    0: no valid instruction there
 *   const wia_info_t *info = wia_info_of(code[offset]);
 *   wia_conv_t conv;
 *   wia_decode_conv(&conv, code + offset);                       logical values: counts, signed numbers
 *   payload = wia_payload(code + offset);                        wia_payload_bytes(code + offset) bytes
 *
 * Meanings: docs/ISA.md. Bytes may lie at any alignment."""

_READERS = """/* A little-endian word. */
static inline uint32_t wia_word(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Bits [bit, bit + bits) of an instruction with all of its words; they lie in one of them. */
static inline uint32_t wia_bits(const uint32_t *words, unsigned bit, unsigned bits)
{
    return words[bit / 32u] >> bit % 32u & 0xffffffffu >> (32u - bits);
}

/* All `count` words of an instruction: words of zero behind the first are not stored, its bits from `present` on say
 * which ones are. Returns the words that are stored. */
static inline unsigned wia_expand(uint32_t *words, const uint8_t *bytes, unsigned count, unsigned present)
{
    unsigned stored = 1u, i;

    words[0] = wia_word(bytes);
    for (i = 1u; i < count; i++) {
        words[i] = 0u;
        if ((words[0] >> (present + i - 1u) & 1u) != 0u)
            words[i] = wia_word(bytes + 4u * stored++);
    }
    return stored;
}"""

_HEAD = """/* Bytes of a known instruction without its payload; reads its first word. */
static inline uint32_t wia_head_bytes(const uint8_t *bytes)
{
    const wia_info_t *info = wia_info_of(bytes[0]);
    uint32_t present = wia_word(bytes) >> info->present & ~(0xffffffffu << (info->bytes / 4u - 1u)), words = 1u;

    for (; present != 0u; present &= present - 1u)
        words++;
    return 4u * words;
}

/* The inline data of a known instruction. */
static inline const uint8_t *wia_payload(const uint8_t *bytes)
{
    return bytes + wia_head_bytes(bytes);
}"""

def _choices(kind: str, names: Sequence[str]) -> str:
    return c_enum((f"WIA_{kind}_{name}", number) for number, name in enumerate(names))


def _isa_constants() -> str:
    largest = max(SIZES.values())
    return "\n\n".join([
        f"#define WIA_ISA_VERSION {ISA_VERSION}u\n#define WIA_INSTRUCTION_COUNT {len(INSTRUCTIONS)}u\n"
        f"#define WIA_MAX_INSTRUCTION_BYTES {largest}u /* without payload */\n"
        f"#define WIA_UNIT_COUNT {len(UNITS)}u",
        "/* Units in token-bit order; WIA_UNIT_CONTROL is the dispatcher itself, which has no tokens. */\n"
        + _choices("UNIT", (*UNITS, "control")),
        c_enum((f"WIA_OP_{i.mnemonic}", f"0x{i.opcode:02x}") for i in INSTRUCTIONS),
        "/* Bytes of each instruction without its payload when all of its words are stored. */\n"
        + c_enum((f"WIA_BYTES_{i.mnemonic}", SIZES[i.mnemonic]) for i in INSTRUCTIONS),
        _choices("ROUNDING", ROUNDINGS),
        _choices("CODEC", CODECS),
        _choices("PAYLOAD", [p or "none" for p in PAYLOADS]),
    ])


def _ctype(operand: Operand) -> str:
    return "int32_t" if operand.field.kind == "signed" else "uint32_t"


def _struct(row: Instruction) -> str:
    slots = OPERANDS[row.mnemonic]
    members = "\n".join(f"    {_ctype(s)} {s.field.name}; /* {_describe(s)} */" for s in slots)
    members = members or "    uint32_t unused; /* no operands; C needs a member */"
    return f"typedef struct wia_{row.mnemonic} {{\n{members}\n}} wia_{row.mnemonic}_t;"


def _describe(operand: Operand) -> str:
    field = operand.field
    if field.kind == "enum":
        return f"{field.meaning}: 0..{len(field.choices) - 1}"
    if field.kind == "mask":
        return f"{field.meaning}; bit u is unit u"
    low, high = limits(field)
    return f"{field.meaning}: {low}..{high}"


def _info() -> str:
    rows = []
    for row in INSTRUCTIONS:
        tokens = any(s.field.kind == "mask" for s in LAYOUT[row.mnemonic])
        rows.append(f'{{"{row.mnemonic}", 0x{row.opcode:02x}u, WIA_UNIT_{row.unit.upper()}, '
                    f"{SIZES[row.mnemonic]}u, {_present(row)}u, WIA_PAYLOAD_{(row.payload or 'none').upper()}, "
                    f"{'true' if tokens else 'false'}}}")
    longest = max(len(row.mnemonic) for row in INSTRUCTIONS)
    return (f"typedef struct wia_info {{\n    char mnemonic[{longest + 1}]; /* not a pointer: no relocations */\n"
            "    uint8_t opcode;\n"
            "    uint8_t unit;    /* WIA_UNIT_* */\n    uint8_t bytes;   /* with all words, without payload */\n"
            "    uint8_t present; /* first bit of word 0 that says which of the others are stored */\n"
            "    uint8_t payload; /* WIA_PAYLOAD_* */\n    bool tokens;     /* has wait and signal */\n"
            "} wia_info_t;\n\n"
            "/* Table row of an opcode; NULL if it is no instruction. */\n"
            + _by_opcode("const wia_info_t *wia_info_of", "const wia_info_t table[]", rows, "&table"))


def _reserved() -> str:
    """A table of its own: every file that asks for wia_info_of has a copy of that one."""
    words = max(SIZES.values()) // 4
    rows = ["{" + ", ".join(f"0x{RESERVED[row.mnemonic] >> 32 * w & 0xffffffff:x}u"
                            for w in range(SIZES[row.mnemonic] // 4)) + "}" for row in INSTRUCTIONS]
    return ("/* Bits of each word that must be zero; NULL if the opcode is no instruction. */\n"
            + _by_opcode("const uint32_t *wia_reserved_of", f"const uint32_t table[][{words}]", rows, "table"))


def _by_opcode(declaration: str, table: str, rows: list[str], element: str) -> str:
    """A function from an opcode to its row of a table."""
    cases = "\n".join(f"    case WIA_OP_{row.mnemonic.upper()}: return {element}[{i}];"
                      for i, row in enumerate(INSTRUCTIONS))
    return (f"static inline {declaration}(uint8_t opcode)\n{{\n    static {table} = {{\n"
            + ",\n".join(f"        {row}" for row in rows) + "\n    };\n"
            f"    switch (opcode) {{\n{cases}\n    default: return NULL;\n    }}\n}}")


def _present(row: Instruction) -> int:
    slot = PRESENT[row.mnemonic]
    return 0 if slot is None else slot.bit


def _bits(operand: Operand) -> str:
    """C expression of the stored bits."""
    parts = [f"wia_bits(words, {s.bit}u, {s.field.bits}u)" + (f" << {s.field.low}" if s.field.low else "")
             for s in operand.parts]
    return " | ".join(parts)


def _decode(row: Instruction) -> str:
    lines = []
    for slot in OPERANDS[row.mnemonic]:
        value = _bits(slot)
        if slot.field.kind == "minus_one":
            value += " + 1u"
        elif slot.field.kind == "words":
            value = f"{WORD_BYTES}u * {value}"
        elif slot.field.kind == "signed":
            sign = 1 << (slot.field.bits - 1)
            value = f"(int32_t)({value} ^ 0x{sign:x}u) - 0x{sign:x}"
        lines.append(f"    out->{slot.field.name} = {value};")
    head = f"static inline void wia_decode_{row.mnemonic}(wia_{row.mnemonic}_t *out, const uint8_t *bytes)\n{{\n"
    if not lines:
        return f"{head}    (void)bytes;\n    out->unused = 0u;\n}}"
    words = SIZES[row.mnemonic] // WORD_BYTES
    body = "\n".join(lines)
    return (f"{head}    uint32_t words[{words}];\n\n    (void)wia_expand(words, bytes, {words}u, {_present(row)}u);\n"
            f"{body}\n}}")


def _token_test() -> str:
    """C condition: the instruction names its own unit; wait and signal lie at the same bits in every row."""
    masks = {name: {s.bit for slots in LAYOUT.values() for s in slots if s.field.name == name}
             for name in ("wait", "signal")}
    if any(len(bits) != 1 for bits in masks.values()):
        raise EncodeError(f"table: wait and signal lie at several places {masks}; put them at the same bits")
    reads = " | ".join(f"wia_bits(words, {bits.pop()}u, {len(UNITS)}u)" for bits in masks.values())
    return f"({reads}) >> info->unit & 1u"


def _encoding_ok() -> str:
    cases = []
    for row in INSTRUCTIONS:
        tests = [f"{_bits(s)} < {len(s.field.choices)}u" for s in OPERANDS[row.mnemonic]
                 if s.field.kind == "enum" and len(s.field.choices) < 1 << s.field.bits]
        if tests:
            cases.append(f"    case WIA_OP_{row.mnemonic.upper()}:\n        return {' && '.join(tests)};\n")
    words = max(SIZES.values()) // WORD_BYTES
    return f"""/* Bytes are a legal encoding: opcode known, reserved bits zero, no stored word of zero behind
 * the first, choices known, no token to the own unit. Reads the instruction without payload. */
static inline bool wia_encoding_ok(const uint8_t *bytes)
{{
    const wia_info_t *info = wia_info_of(bytes[0]);
    const uint32_t *reserved = wia_reserved_of(bytes[0]);
    uint32_t words[{words}];
    unsigned count, stored, word;

    if (info == NULL || reserved == NULL)
        return false;
    count = info->bytes / 4u;
    stored = wia_expand(words, bytes, count, info->present);
    for (word = 0u; word < count; word++) {{
        if ((words[word] & reserved[word]) != 0u)
            return false;
        stored -= word == 0u || words[word] != 0u;
    }}
    if (stored != 0u)
        return false;
    if (info->tokens && ({_token_test()}) != 0u)
        return false;
    switch (bytes[0]) {{
{"".join(cases)}    default:
        return true;
    }}
}}"""


_PARAMETERS = """/* Parameters of one channel, as `par` holds them. */
typedef struct wia_channel {
    int32_t bias;
    uint32_t multiplier; /* below 2^31 */
    uint32_t shift;      /* 0..382; post takes 1..62 */
} wia_channel_t;

/* 0 to 32 bits from bit `at` of `bytes` on; reads no byte without one of them. */
static inline uint32_t wia_stream_bits(const uint8_t *bytes, uint32_t at, uint32_t bits)
{
    uint32_t last = bits != 0u ? (at + bits - 1u) / 8u + 1u : 0u, i;
    uint64_t value = 0u;

    for (i = at / 8u; i < last; i++)
        value |= (uint64_t)bytes[i] << 8u * (i - at / 8u);
    return bits != 0u ? (uint32_t)(value >> at % 8u) & 0xffffffffu >> (32u - bits) : 0u;
}

/* Stored bits of a multiplier. */
static inline uint32_t wia_par_multiplier_bits(const wia_par_t *par)
{
    return par->multiplier_bits > par->normal ? par->multiplier_bits - par->normal : 0u;
}

/* Bits of all parameters, without padding. */
static inline uint32_t wia_par_bits(const wia_par_t *par)
{
    uint32_t count = par->uniform != 0u ? 1u : par->columns;

    return par->columns * par->bias_bits + count * (wia_par_multiplier_bits(par) + par->shift_bits);
}

/* Parameters of channel 0 .. columns - 1 from the payload of `par`. */
static inline void wia_par_channel(wia_channel_t *out, const wia_par_t *par, const uint8_t *payload, uint32_t channel)
{
    uint32_t width = wia_par_multiplier_bits(par), from = par->uniform != 0u ? 0u : channel;
    uint32_t multipliers = par->columns * par->bias_bits, sign = 1u << (par->bias_bits - 1u);
    uint32_t shifts = multipliers + (par->uniform != 0u ? 1u : par->columns) * width;
    uint32_t bias = wia_stream_bits(payload, channel * par->bias_bits, par->bias_bits);

    out->bias = (int32_t)((int64_t)(bias ^ sign) - (int64_t)sign);
    out->multiplier = par->normal << 30 |
                      wia_stream_bits(payload, multipliers + from * width, width) << (31u - par->multiplier_bits);
    out->shift = par->shift_base + wia_stream_bits(payload, shifts + from * par->shift_bits, par->shift_bits);
}

/* The bits between the parameters and the next whole word are zero. */
static inline bool wia_par_padding_ok(const wia_par_t *par, const uint8_t *payload)
{
    uint32_t bits = wia_par_bits(par);

    return wia_stream_bits(payload, bits, (32u - bits % 32u) % 32u) == 0u;
}"""


def _payload_bytes() -> str:
    return f"""/* Bytes of inline data after the fields, 0 if there is none. */
static inline uint32_t wia_payload_bytes(const uint8_t *bytes)
{{
    switch (bytes[0]) {{
    case WIA_OP_CONV: {{
        wia_conv_t conv;
        wia_decode_conv(&conv, bytes);
        return conv.payload_bytes;
    }}
    case WIA_OP_DWC: {{
        wia_dwc_t dwc;
        wia_decode_dwc(&dwc, bytes);
        return dwc.payload_bytes;
    }}
    case WIA_OP_PAR: {{
        wia_par_t par;
        wia_decode_par(&par, bytes);
        return (wia_par_bits(&par) + 31u) / 32u * 4u;
    }}
    case WIA_OP_LUT:
        return {TABLE_BYTES}u;
    case WIA_OP_WTAB:
        return {CLASSES_BYTES}u;
    default:
        return 0u;
    }}
}}

/* Bytes of the instruction at `offset`, payload included; 0 if the `size` bytes of `code` hold no whole and
 * legal instruction there. */
static inline size_t wia_instruction_bytes(const uint8_t *code, size_t size, size_t offset)
{{
    const wia_info_t *info;
    size_t left;

    if (offset >= size)
        return 0u;
    left = size - offset;
    info = wia_info_of(code[offset]);
    if (info == NULL || left < 4u || wia_head_bytes(code + offset) > left || !wia_encoding_ok(code + offset))
        return 0u;
    left -= wia_head_bytes(code + offset);
    if (wia_payload_bytes(code + offset) > left)
        return 0u;
    return wia_head_bytes(code + offset) + (size_t)wia_payload_bytes(code + offset);
}}"""
