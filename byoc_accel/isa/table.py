"""THE instruction table: data only. Encoder, decoder, assembler, verifiers, simulator decode, the C header
and docs/ISA.md come from it.

Fields of an instruction are packed from bit 0 of its first 32-bit little-endian word upwards, in table
order; `isa/fields.py` assigns positions and checks that the words are filled exactly. Reserved bits are
written as explicit ``_`` fields and must be zero. Words of zeros behind the first one are not stored: the
``present`` field of word 0 says which are.
"""
from __future__ import annotations

from dataclasses import dataclass

ISA_VERSION = 4  # 1: codec raw only; 2: channel parameters of 9 bytes; 3: all words of an instruction stored

#: Units in token-bit order: bit u of a wait or signal mask names unit u. Each works in program order.
UNITS: tuple[str, ...] = ("dma_in", "array", "post", "dma_out")
CONTROL = "control"  # executed by the dispatcher itself

#: How `requantize` rounds; see docs/numerics.md for the formulas.
ROUNDINGS: tuple[str, ...] = ("upward", "nearest", "truncate", "double")

#: Immediate weight formats. Numbers are 2-bit field values; the rest is reserved.
CODECS: tuple[str, ...] = ("raw", "lanes")


@dataclass(frozen=True)
class Field:
    """`kind`: unsigned | signed | minus_one (stored value is value - 1) | words (value / 4) | enum | mask | reserved |
    present (bit i: word i + 1 is stored).

    Unsigned fields of one name are parts of one value; `low` is the bit of the value at which a part begins.
    """

    name: str
    bits: int
    kind: str = "unsigned"
    meaning: str = ""
    choices: tuple[str, ...] = ()
    low: int = 0


@dataclass(frozen=True)
class Instruction:
    """One row. `payload` is "" or the name of the inline data that follows the fields."""

    mnemonic: str
    opcode: int
    unit: str
    fields: tuple[Field, ...]
    meaning: str
    cycles: str
    payload: str = ""
    notes: str = ""


def _u(name: str, bits: int, meaning: str) -> Field:
    return Field(name, bits, "unsigned", meaning)


def _s(name: str, bits: int, meaning: str) -> Field:
    return Field(name, bits, "signed", meaning)


def _r(bits: int) -> Field:
    return Field("_", bits, "reserved", "reserved, zero")


def _p(words: int) -> Field:
    return Field("present", words, "present", "bit i: word i + 1 is stored")


def _flag(name: str, meaning: str) -> Field:
    return Field(name, 1, "unsigned", meaning)


_OP = Field("opcode", 8, "unsigned", "instruction number")
_WAIT = Field("wait", 4, "mask", "take one token from each named unit before starting")
_SIGNAL = Field("signal", 4, "mask", "give one token to each named unit")
_COLUMNS = Field("columns", 5, "minus_one", "channels in use, at most array.columns")
_ROUNDING = Field("rounding", 2, "enum", "how requantize rounds", ROUNDINGS)
_CODEC = Field("codec", 2, "enum", "immediate weight format", CODECS)
_ACC_HIGH = Field("acc_base", 6, "unsigned", "first accumulator entry", low=10)  # banks of 1024 have no other bits
_ACC_LOW = Field("acc_base", 10, "unsigned", "first accumulator entry")

_TRANSFER = (
    _OP, _WAIT, _SIGNAL, _r(7), _p(9),
    _u("binding", 8, "index of the external buffer"),
    Field("external_reg", 3, "unsigned", "address register added to external_offset"),
    Field("sram_reg", 3, "unsigned", "address register added to sram_address"), _r(2),
    Field("planes", 16, "minus_one", "outer repetitions"),
    _u("external_offset", 32, "bytes from the start of the buffer"),
    _u("sram_address", 24, "bytes"), _r(8),
    Field("row_bytes", 24, "minus_one", "contiguous bytes of one row"), _r(8),
    Field("rows", 16, "minus_one", "rows of one plane"), _r(16),
    _u("external_row_stride", 32, "bytes between rows in the external buffer"),
    _u("sram_row_stride", 24, "bytes between rows in the SRAM"), _r(8),
    _u("external_plane_stride", 32, "bytes between planes in the external buffer"),
    _u("sram_plane_stride", 24, "bytes between planes in the SRAM"), _r(8),
)

_SYNC = (_OP, _WAIT, _SIGNAL, _r(16))

_TILE_WORK = (
    _OP, _WAIT, _SIGNAL,
    _flag("chain", "give tokens early: array.latency_cycles after the last pass has width * height cycles left "
                   "(a conv: after it starts)"),
    _flag("accumulate", "add to the accumulators instead of starting from zero"),
    _CODEC, _ACC_HIGH, _r(4), _p(2),
    _u("ifm_address", 24, "bytes; first reduction byte of position (0, 0)"),
    Field("ifm_reg", 3, "unsigned", "address register added to ifm_address"), _COLUMNS,
    _ACC_LOW, Field("payload_bytes", 22, "words", "bytes of the inline weights that follow"),
)

INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction("halt", 0x01, CONTROL, (_OP, _r(24)),
                "Stop when every unit is idle. The last instruction of a program.", "1, after all units are done"),
    Instruction("loop", 0x02, CONTROL, (_OP, Field("count", 24, "minus_one", "iterations")),
                "Run the instructions up to the matching endl `count` times.", "1"),
    Instruction("endl", 0x03, CONTROL, (_OP, _r(24)),
                "End of the innermost loop. Jumping back empties the fetch FIFO.",
                "1; a jump back restarts the fetch, whose first bytes arrive fetch.latency_cycles later"),
    Instruction("setr", 0x04, CONTROL,
                (_OP, _u("reg", 3, "address register 1..7"), _r(20), _p(1), _u("value", 32, "bytes")),
                "reg = value.", "1"),
    Instruction("addr", 0x05, CONTROL,
                (_OP, _u("reg", 3, "address register 1..7"), _r(19), _p(2), _u("increment", 32, "bytes"),
                 _u("limit", 32, "bytes")),
                "reg = min(reg + increment, limit): the last block of a loop may overlap the one before.", "1"),
    Instruction("flip", 0x06, CONTROL,
                (_OP, _u("reg", 3, "address register 1..7"), _r(20), _p(1), _u("value", 32, "bytes, at least reg")),
                "reg = value - reg: alternate between offset 0 and `value`, for double buffers in a loop.", "1"),
    Instruction("wtab", 0x07, CONTROL,
                (_OP, _flag("fresh", "start a stretch: the lanes of the decoder begin anew"),
                 _flag("masks", "the control lane carries column and row masks"), _r(6),
                 _s("centre", 8, "added to every decoded value, modulo 256"), _r(8)),
                "Set the table of codec lanes for the conv and dwc that follow: the lengths of its 32 code words.",
                "1, then 16 in which the payload streams", payload="classes",
                notes="loop and endl end a stretch: after them the first wtab must be fresh, as at the start of a "
                      "program."),
    Instruction("load", 0x10, "dma_in", _TRANSFER,
                "Copy planes x rows x row_bytes from an external buffer (input or scratch) into the SRAM.",
                "planes * rows * ceil(row_bytes / dma.bytes_per_cycle), visible dma.latency_cycles later"),
    Instruction("fill", 0x11, "dma_in",
                (_OP, _WAIT, _SIGNAL, _s("value", 8, "byte written"), _r(3), _p(5),
                 _u("sram_address", 24, "bytes"), Field("sram_reg", 3, "unsigned", "address register added"), _r(5),
                 Field("row_bytes", 24, "minus_one", "contiguous bytes of one row"), _r(8),
                 Field("rows", 16, "minus_one", "rows of one plane"),
                 Field("planes", 16, "minus_one", "outer repetitions"),
                 _u("sram_row_stride", 24, "bytes between rows"), _r(8),
                 _u("sram_plane_stride", 24, "bytes between planes"), _r(8)),
                "Write one value into planes x rows x row_bytes of the SRAM: physical zero-point borders.",
                "planes * rows * ceil(row_bytes / sram.port_bytes)",
                notes="Starts after every earlier dma_in instruction is visible."),
    Instruction("store", 0x12, "dma_out", _TRANSFER,
                "Copy planes x rows x row_bytes from the SRAM to an external buffer (output or scratch).",
                "planes * rows * ceil(row_bytes / dma.bytes_per_cycle), visible dma.latency_cycles later"),
    Instruction("ageo", 0x20, "array",
                (_OP, _r(17), _p(7), Field("width", 16, "minus_one", "positions along x"),
                 Field("height", 16, "minus_one", "positions along y"),
                 _u("x_step", 24, "bytes between positions along x"), _r(8),
                 _u("y_step", 24, "bytes between positions along y"), _r(8),
                 Field("run_bytes", 24, "minus_one", "contiguous reduction bytes of one run"), _r(8),
                 Field("runs_x", 8, "minus_one", "runs (conv) or taps (dwc) along x"),
                 Field("runs_y", 8, "minus_one", "runs (conv) or taps (dwc) along y"), _r(16),
                 _u("run_x_stride", 24, "bytes between runs along x"), _r(8),
                 _u("run_y_stride", 24, "bytes between runs along y"), _r(8)),
                "Set the array geometry used by the following conv and dwc.", "1"),
    Instruction("conv", 0x21, "array", _TILE_WORK,
                "For every weight tile, one pass over all height x width positions, x fastest: "
                "acc[acc_base + y * width + x][c] += sum over lanes of ifm byte * weight. Tiles cover, for each run "
                "(y outer, x inner), its run_bytes in slices of array.rows lanes.",
                "per non-zero tile max(width * height, decode of the next tile); see Timing",
                payload="weights",
                notes="Tiles that the payload leaves out are zero and have no pass. When accumulate is 0 and no tile "
                      "has a pass, one pass of width * height cycles writes zeros."),
    Instruction("dwc", 0x22, "array", _TILE_WORK,
                "Depthwise: acc[acc_base + y * width + x][c] += sum over taps of ifm[c + tap offset] * weight[tap][c]. "
                "One tile of runs_y * runs_x taps.",
                "max(width * height, rows_in * columns_in) with rows_in = min((height - 1) * sy + runs_y, "
                "height * runs_y), sy = y_step / run_y_stride, columns_in likewise",
                payload="weights",
                notes="runs_x * runs_y <= array.rows, runs_y - 1 <= line_buffer.rows, and when runs_y > 1 "
                      "columns_in <= line_buffer.positions. x_step is a multiple of run_x_stride if runs_x > 1, "
                      "y_step of run_y_stride if runs_y > 1."),
    Instruction("par", 0x30, "post",
                (_OP, _ROUNDING, _flag("uniform", "one multiplier and shift for all channels"), _COLUMNS,
                 Field("bias_bits", 5, "minus_one", "bits of a bias, two's complement"),
                 _u("multiplier_bits", 5, "bits of a multiplier, from bit 30 downwards; those below are 0"),
                 _flag("normal", "bit 30 of every multiplier is 1 and not stored"),
                 _u("shift_bits", 4, "bits of a shift"), _p(1), _s("zero_point", 8, "added after requantize"),
                 _s("clamp_low", 8, "lower clamp"), _s("clamp_high", 8, "upper clamp"),
                 _u("shift_base", 8, "added to every shift")),
                "Load channel parameters: int32 bias and multiplier, total right shift, and the first clamp.",
                "ceil(payload bytes / post.parameter_bytes_per_cycle)", payload="parameters"),
    Instruction("addp", 0x31, "post",
                (_OP, _ROUNDING, _r(1), _p(5), _s("zero_point_a", 8, "subtracted from the first operand"),
                 _s("zero_point_b", 8, "subtracted from the residual"),
                 _u("multiplier_a", 32, "of the first operand"), _u("multiplier_b", 32, "of the residual"),
                 _u("multiplier_out", 32, "of the sum"),
                 _u("shift_a", 8, "total right shift"), _u("shift_b", 8, "total right shift"),
                 _u("shift_out", 8, "total right shift"), _u("left_shift", 8, "of both operands before multiplying"),
                 _s("zero_point_out", 8, "added to the sum"), _s("clamp_low", 8, "lower clamp"),
                 _s("clamp_high", 8, "upper clamp"), _r(8)),
                "Load the parameters of the residual add.", "1"),
    Instruction("lut", 0x32, "post", (_OP, _r(24)),
                "Load the int8 lookup table: entry i is the result for value i - 128.",
                "ceil(256 / post.parameter_bytes_per_cycle)", payload="table"),
    Instruction("pgeo", 0x33, "post",
                (_OP, _r(14), _p(10), Field("width", 16, "minus_one", "positions along x"),
                 Field("height", 16, "minus_one", "positions along y"),
                 _u("a_x_step", 24, "source bytes between positions along x"), _r(8),
                 _u("a_y_step", 24, "source bytes between positions along y"), _r(8),
                 Field("window_x", 8, "minus_one", "maximum window along x"),
                 Field("window_y", 8, "minus_one", "maximum window along y"), _r(16),
                 _u("window_x_stride", 24, "bytes between window columns"), _r(8),
                 _u("window_y_stride", 24, "bytes between window rows"), _r(8),
                 _u("r_x_step", 24, "residual bytes between positions along x"), _r(8),
                 _u("r_y_step", 24, "residual bytes between positions along y"), _r(8),
                 _u("out_x_step", 24, "result bytes between positions along x"), _r(8),
                 _u("out_y_step", 24, "result bytes between positions along y"), _r(8)),
                "Set the geometry used by the following post instructions.", "1"),
    Instruction("post", 0x34, "post",
                (_OP, _WAIT, _SIGNAL, _flag("source_sram", "take int8 from SRAM (maximum of the window), not acc"),
                 _flag("residual", "add the residual operand"), _flag("table", "apply the lookup table last"),
                 _ACC_HIGH, _r(3), _p(4),
                 _u("out_address", 24, "bytes"), Field("out_reg", 3, "unsigned", "address register added"), _COLUMNS,
                 _u("a_address", 24, "bytes, used with source_sram"),
                 Field("a_reg", 3, "unsigned", "address register added"), _r(5),
                 _u("r_address", 24, "bytes, used with residual"),
                 Field("r_reg", 3, "unsigned", "address register added"), _r(5), _ACC_LOW, _r(22)),
                "For every position: v = source; v = clamp(requantize(v + bias) + zero_point); with residual "
                "v = clamp(requantize_out(requantize_a((v - zero_point_a) << left_shift) + requantize_b((r - "
                "zero_point_b) << left_shift)) + zero_point_out); with table v = table[v + 128]; write `columns` "
                "bytes.",
                "width * height * max(1, reads), reads = (window_x * window_y if source_sram) + (1 if residual); "
                "visible post.latency_cycles later",
                notes="An instruction that reads the SRAM starts after every earlier post instruction is visible."),
    Instruction("sync_in", 0x13, "dma_in", _SYNC, "Only take and give tokens, in the order of dma_in.", "1",
                notes="Starts after every earlier instruction of the unit is visible, as all sync instructions do."),
    Instruction("sync_out", 0x14, "dma_out", _SYNC, "Only take and give tokens, in the order of dma_out.", "1"),
    Instruction("sync_array", 0x23, "array", _SYNC, "Only take and give tokens, in the order of array.", "1"),
    Instruction("sync_post", 0x35, "post", _SYNC, "Only take and give tokens, in the order of post.", "1"),
)

BY_MNEMONIC: dict[str, Instruction] = {i.mnemonic: i for i in INSTRUCTIONS}
BY_OPCODE: dict[int, Instruction] = {i.opcode: i for i in INSTRUCTIONS}
