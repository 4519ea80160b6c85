"""What a simulated run cost: frozen counters, and their text and JSON forms. Imports no compiled code."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

#: Units in the order of the simulator's counters.
UNIT_NAMES: tuple[str, ...] = ("dma_in", "array", "post", "dma_out", "dispatch", "decoder", "fetch")

#: Why a unit did not work in a cycle; docs/ISA.md, "Stalls".
REASONS: tuple[str, ...] = ("token:dma_in", "token:array", "token:post", "token:dma_out", "idle", "weights", "order",
                            "parameters", "fetch", "queue", "decoder", "fifo", "drain")

#: Byte counters: program, then the SRAM ports, then external memory.
STREAMS: tuple[str, ...] = ("fetched", "consumed", "array_read", "post_read", "post_write", "dma_write", "dma_read",
                            "external_read", "external_write")


@dataclass(frozen=True)
class UnitStats:
    """Cycles of one unit; busy and stalls add up to the cycles of the run."""

    name: str
    busy_cycles: int
    stalls: tuple[tuple[str, int], ...]

    def stall_cycles(self, reason: str) -> int:
        """Cycles stalled for `reason`, 0 if there were none."""
        return dict(self.stalls).get(reason, 0)


@dataclass(frozen=True)
class Counters:
    """Counts of a run or of one layer.

    cycles of a layer say how far its instructions moved the end of the run, so layers add up to the run. macs
    counts the multiplications of stored weight tiles, skipped_macs those that all-zero tiles saved, slots the
    multipliers of the array times the cycles of its passes.
    """

    cycles: int
    units: tuple[UnitStats, ...]
    bytes: tuple[tuple[str, int], ...]
    macs: int
    skipped_macs: int
    slots: int
    tiles: int
    zero_tiles: int
    instructions: int

    def unit(self, name: str) -> UnitStats:
        """Counters of the unit called `name`."""
        return self.units[UNIT_NAMES.index(name)]

    def stream_bytes(self, name: str) -> int:
        """Bytes of one of `STREAMS`."""
        return self.bytes[STREAMS.index(name)][1]


def read_counters(data: bytes) -> list[Counters]:
    """Of an array of wia_sim_counters_t (hw_sim/include/wia_sim.h), which are nothing but uint64."""
    values = 1 + len(UNIT_NAMES) * (1 + len(REASONS)) + len(STREAMS) + 6
    return [_counters(row) for row in np.frombuffer(data, np.uint64).reshape(-1, values).tolist()]


def _counters(values: list[int]) -> Counters:
    units, reasons, streams = len(UNIT_NAMES), len(REASONS), len(STREAMS)
    stalls = [values[at:at + reasons] for at in range(1 + units, 1 + units + units * reasons, reasons)]
    rest = values[1 + units + units * reasons:]
    return Counters(values[0], tuple(UnitStats(name, busy, tuple((r, n) for r, n in zip(REASONS, row) if n))
                                     for name, busy, row in zip(UNIT_NAMES, values[1:], stalls)),
                    tuple(zip(STREAMS, rest)), *rest[streams:])


@dataclass(frozen=True)
class LayerStats:
    """Counters of one source map entry."""

    name: str
    kind: str
    counters: Counters


@dataclass(frozen=True)
class SimResult:
    """One run. In mode "functional" all counters are 0."""

    mode: str
    kernel: str
    macs_per_cycle: int
    total: Counters
    layer_kinds: tuple[tuple[str, str], ...]  # name and kind of each
    layer_counters: bytes = field(repr=False)  # what `read_counters` reads
    trace: tuple[str, ...]
    trace_lost: int

    @cached_property
    def layers(self) -> tuple[LayerStats, ...]:
        """One for each source map entry, made when they are asked for: a run may be shorter than that takes."""
        counters = read_counters(self.layer_counters)
        return tuple(LayerStats(name, kind, c) for (name, kind), c in zip(self.layer_kinds, counters))

    @property
    def cycles(self) -> int:
        return self.total.cycles

    @property
    def utilisation(self) -> float:
        """Part of the array's multiplications in all cycles that were used, 0 .. 1."""
        return self.total.macs / (self.cycles * self.macs_per_cycle) if self.cycles else 0.0

    def to_json(self) -> str:
        """Deterministic JSON of all counters, without the trace."""
        data = {"mode": self.mode, "cycles": self.cycles, "utilisation": round(self.utilisation, 6),
                "total": _tree(self.total),
                "layers": [{"name": s.name, "kind": s.kind, **_tree(s.counters)} for s in self.layers]}
        return json.dumps(data, indent=1) + "\n"

    def to_text(self) -> str:
        """Deterministic tables: run, units with their stalls, bytes, layers."""
        total = self.total
        lines = [f"cycles {self.cycles}  macs {total.macs}  utilisation {100 * self.utilisation:.1f} %  "
                 f"tiles {total.tiles} (+{total.zero_tiles} zero)  instructions {total.instructions}"]
        lines += [_unit_line(u, self.cycles) for u in total.units]
        lines.append("bytes  " + "  ".join(f"{name} {count}" for name, count in total.bytes))
        if self.layers:
            width = max(len(s.name) for s in self.layers)
            lines.append(f"{'layer':{width}}  {'kind':8} {'cycles':>10} {'macs':>12} {'array':>10} {'fetched':>10}")
            lines += [f"{s.name:{width}}  {s.kind:8} {s.counters.cycles:10} {s.counters.macs:12} "
                      f"{s.counters.unit('array').busy_cycles:10} {s.counters.stream_bytes('fetched'):10}"
                      for s in self.layers]
        return "\n".join(lines) + "\n"


def _unit_line(unit: UnitStats, cycles: int) -> str:
    share = 100 * unit.busy_cycles / cycles if cycles else 0.0
    stalls = "  ".join(f"{reason} {count}" for reason, count in unit.stalls)
    return f"{unit.name:8}  busy {unit.busy_cycles:10} {share:5.1f} %  {stalls}".rstrip()


def _tree(counters: Counters) -> dict[str, object]:
    return {"cycles": counters.cycles, "macs": counters.macs, "skipped_macs": counters.skipped_macs,
            "slots": counters.slots, "tiles": counters.tiles, "zero_tiles": counters.zero_tiles,
            "instructions": counters.instructions, "bytes": dict(counters.bytes),
            "units": {u.name: {"busy": u.busy_cycles, "stalls": dict(u.stalls)} for u in counters.units}}
