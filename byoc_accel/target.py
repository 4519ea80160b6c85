"""Target: every hardware number of one accelerator, frozen, validated, with a digest.

A target is read from TOML (``byoc_accel/targets/*.toml`` or a user's file). `FIELDS` is the one table of
keys, ranges and C names; the image's target section, the simulator's description struct and the error
messages come from it. Nothing else in the project knows a hardware number.
"""
from __future__ import annotations

import difflib
import hashlib
import struct
from dataclasses import dataclass, fields
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from .errors import TargetError

TARGET_DIR = Path(__file__).parent / "targets"


@dataclass(frozen=True)
class TargetField:
    """One hardware number: TOML `table.key`, allowed range (inclusive) and unit."""

    table: str
    key: str
    low: int
    high: int
    unit: str
    meaning: str

    @property
    def name(self) -> str:
        """Attribute name in `Target` and field name in the C description struct."""
        return f"{self.table}_{self.key}"


FIELDS: tuple[TargetField, ...] = (
    TargetField("array", "rows", 1, 32, "lanes", "reduction lanes of the MAC array"),
    TargetField("array", "columns", 1, 32, "channels", "output channels of the MAC array"),
    TargetField("array", "latency_cycles", 1, 64, "cycles", "from SRAM read to a visible accumulator"),
    TargetField("decoder", "rows_per_cycle", 1, 32, "rows", "weight rows decoded per cycle"),
    TargetField("decoder", "latency_cycles", 0, 64, "cycles", "weight decoder pipeline depth"),
    TargetField("decoder", "lane_bytes_per_cycle", 2, 256, "bytes", "codec lanes: whole 16-bit words taken per cycle"),
    TargetField("sram", "bytes", 1024, 1 << 23, "bytes", "activation memory"),
    TargetField("sram", "port_bytes", 1, 64, "bytes", "contiguous bytes per port and cycle"),
    TargetField("line_buffer", "rows", 0, 15, "rows", "earlier kernel rows kept for the depthwise window"),
    TargetField("line_buffer", "positions", 1, 4096, "positions", "longest input row the line buffers hold"),
    TargetField("accumulator", "banks", 1, 8, "banks", "accumulator banks"),
    TargetField("accumulator", "entries_per_bank", 4, 65536, "entries", "entries of one bank"),
    TargetField("post", "latency_cycles", 1, 64, "cycles", "post unit pipeline depth"),
    TargetField("post", "parameter_bytes_per_cycle", 1, 64, "bytes", "parameter load width"),
    TargetField("fetch", "bytes_per_cycle", 1, 64, "bytes", "program fetch width"),
    TargetField("fetch", "latency_cycles", 0, 4096, "cycles", "program fetch latency"),
    TargetField("fetch", "fifo_bytes", 64, 1 << 16, "bytes", "program bytes fetched ahead"),
    TargetField("fetch", "queue_depth", 1, 64, "instructions", "instructions waiting per unit"),
    TargetField("fetch", "loop_depth", 1, 8, "loops", "nested hardware loops"),
    TargetField("fetch", "address_registers", 2, 8, "registers", "address registers, register 0 reads as 0"),
    TargetField("dma", "bytes_per_cycle", 1, 64, "bytes", "data DMA width, each direction"),
    TargetField("dma", "latency_cycles", 0, 4096, "cycles", "data DMA latency"),
    TargetField("memory", "alignment_bytes", 1, 256, "bytes", "alignment of buffers in external memory"),
    TargetField("memory", "max_external_bytes", 4096, (1 << 31) - 1, "bytes", "largest buffer in external memory"),
)


@dataclass(frozen=True)
class Target:
    """All numbers of one accelerator; attribute `table_key` holds TOML ``[table] key``."""

    name: str
    array_rows: int
    array_columns: int
    array_latency_cycles: int
    decoder_rows_per_cycle: int
    decoder_latency_cycles: int
    decoder_lane_bytes_per_cycle: int
    sram_bytes: int
    sram_port_bytes: int
    line_buffer_rows: int
    line_buffer_positions: int
    accumulator_banks: int
    accumulator_entries_per_bank: int
    post_latency_cycles: int
    post_parameter_bytes_per_cycle: int
    fetch_bytes_per_cycle: int
    fetch_latency_cycles: int
    fetch_fifo_bytes: int
    fetch_queue_depth: int
    fetch_loop_depth: int
    fetch_address_registers: int
    dma_bytes_per_cycle: int
    dma_latency_cycles: int
    memory_alignment_bytes: int
    memory_max_external_bytes: int

    def __post_init__(self) -> None:
        for field in FIELDS:
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TargetError(f"{self.name}: {field.table}.{field.key} is {value!r}; give an integer")
            if not field.low <= value <= field.high:
                raise TargetError(f"{self.name}: {field.table}.{field.key} = {value} {field.unit}; "
                                  f"allowed are {field.low} to {field.high}")
        if self.sram_port_bytes < max(self.array_rows, self.array_columns):
            raise TargetError(f"{self.name}: sram.port_bytes = {self.sram_port_bytes} is narrower than the array "
                              f"({self.array_rows} rows x {self.array_columns} columns); widen the port")

    @property
    def accumulator_entries(self) -> int:
        """Entries of all banks; the address space of accumulators."""
        return self.accumulator_banks * self.accumulator_entries_per_bank

    @property
    def macs_per_cycle(self) -> int:
        return self.array_rows * self.array_columns

    def numbers(self) -> tuple[int, ...]:
        """The numbers in `FIELDS` order, as they stand in an image's target section."""
        return tuple(getattr(self, field.name) for field in FIELDS)

    @property
    def digest(self) -> bytes:
        """First 16 bytes of SHA-256 over the little-endian numbers (the name does not count)."""
        numbers = self.numbers()
        return hashlib.sha256(struct.pack(f"<{len(numbers)}I", *numbers)).digest()[:16]

    @property
    def lanes(self) -> int:
        """Channels that post unit and depthwise mode treat in one cycle."""
        return self.array_columns


def from_mapping(data: dict, where: str) -> Target:
    """Build a Target from parsed TOML; raises TargetError naming `where`, and the missing, unknown or wrong key."""
    known = {(f.table, f.key) for f in FIELDS}
    for table, content in data.items():
        if table == "name":
            continue
        if not isinstance(content, dict):
            raise TargetError(f"{where}: key {table!r} is not a table of the target format; remove it")
        for key in content:
            if (table, key) not in known:
                near = difflib.get_close_matches(key, [k for t, k in known if t == table], 1)
                raise TargetError(f"{where}: unknown key {table}.{key}; "
                                  + (f"did you mean {table}.{near[0]}?" if near else "remove it"))
    values: dict[str, int] = {}
    for field in FIELDS:
        if field.key not in data.get(field.table, {}):
            raise TargetError(f"{where}: {field.table}.{field.key} is missing; give {field.meaning} in {field.unit}")
        values[field.name] = data[field.table][field.key]
    name = data.get("name", Path(where).stem)
    if not isinstance(name, str) or not name or not name.isprintable():
        raise TargetError(f"{where}: name is {name!r}; give printable text")
    try:
        return Target(name=name, **values)
    except TargetError as error:
        raise TargetError(f"{where}: {str(error).removeprefix(f'{TargetError.stage}: ')}") from None


def from_numbers(name: str, numbers: tuple[int, ...]) -> Target:
    """Inverse of `Target.numbers`; raises TargetError on a wrong count or range."""
    if len(numbers) != len(FIELDS):
        raise TargetError(f"{name}: {len(numbers)} numbers, this version has {len(FIELDS)}; recompile the image")
    return Target(name, **{f.name: v for f, v in zip(FIELDS, numbers)})


def load_target(spec: str | Path | Target) -> Target:
    """`spec` is a Target, the name of a shipped target (``"reference"``), or a TOML file. Raises TargetError."""
    if isinstance(spec, Target):
        return spec
    if not isinstance(spec, (str, Path)):
        raise TargetError(f"{spec!r} is a {type(spec).__name__}; give a Target, its name or a .toml file")
    path = Path(spec)
    shipped = TARGET_DIR / f"{spec}.toml"
    if path.suffix != ".toml" and shipped.is_file():
        path = shipped
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in TARGET_DIR.glob("*.toml")))
        raise TargetError(f"{spec}: no such target; use one of {names} or a .toml file")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TargetError(f"{path}: not valid TOML ({error}); fix the file") from error
    return from_mapping(data, str(path))


if {f.name for f in FIELDS} != {f.name for f in fields(Target)} - {"name"}:
    raise ImportError("target.FIELDS and Target disagree")
