"""Instructions as the units see them: how long each works, what it waits for and gives, and what is fetched for it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..emit.builder import Draft
from ..emit.limits import window_inputs
from ..isa.encode import encoded_size, payload_length
from ..isa.fields import WORD_BYTES
from ..isa.table import CONTROL
from ..target import Target

#: Cycles of a pass (0: no row is live, there is none), steps of the decoder (0: no tile), bytes of the tile.
Tile = tuple[int, int, float]


@dataclass(frozen=True)
class Event:
    """One instruction.

    unit: "" for what the dispatcher does. header and payload: bytes in the program. cycles: how long its unit works.
    ordered: it waits until everything before in its unit is visible. count: iterations of a loop.

    Of conv and dwc: least_header, without the word of the payload; cycles of a pass, bare_cycles of one without a tile;
    lead_cycles by which tokens of a chain come early at most; mask: bytes before the first tile in codec raw.
    """

    mnemonic: str
    unit: str
    layer: int
    header: int
    payload: int = 0
    cycles: int = 1
    latency: int = 0
    wait: tuple[str, ...] = ()
    signal: tuple[str, ...] = ()
    ordered: bool = False
    count: int = 0
    least_header: int = 0
    bare_cycles: int = 1
    lead_cycles: int = 0
    mask: int = 0
    tiles: tuple[Tile, ...] = ()


class _Reader:
    """Makes events of instructions in program order: what they do depends on the geometry set before. Busy cycles and
    latencies: docs/ISA.md, "Start of work"."""

    def __init__(self, target: Target):
        self._target = target
        self._geometry: dict[str, Any] = {}

    def event(self, draft: Draft) -> Event:
        """The event of `draft`, of conv and dwc without tiles."""
        if draft.work is not None:
            return self._pass(draft)
        name, target = draft.mnemonic, self._target
        inst: Any = draft.instruction(draft.payload)
        if name in ("ageo", "pgeo"):
            self._geometry[name] = inst
        payload = payload_length(inst)
        event = Event(name, "" if inst.unit == CONTROL else inst.unit, draft.layer, encoded_size(inst) - payload,
                      payload, wait=inst.wait_units, signal=inst.signal_units)
        if name in ("load", "store"):
            return replace(event, cycles=_move_cycles(inst, target.dma_bytes_per_cycle),
                           latency=target.dma_latency_cycles)
        if name == "fill":
            return replace(event, cycles=_move_cycles(inst, target.sram_port_bytes), ordered=True)
        if name == "post":
            return self._post(event, inst)
        return replace(event, ordered=name.startswith("sync"), count=inst.count if name == "loop" else 0)

    def _post(self, event: Event, inst: Any) -> Event:
        grid = self._geometry["pgeo"]
        reads = (grid.window_x * grid.window_y if inst.source_sram else 0) + inst.residual
        return replace(event, cycles=grid.width * grid.height * max(1, reads), ordered=reads > 0,
                       latency=self._target.post_latency_cycles)

    def _pass(self, draft: Draft) -> Event:
        """conv or dwc; its header is that of some payload."""
        inst: Any = draft.instruction(b"", payload_bytes=WORD_BYTES)
        area = self._geometry["ageo"]
        cycles = positions = area.width * area.height
        if inst.mnemonic == "dwc":
            rows = window_inputs(area.height, area.runs_y, area.y_step, area.run_y_stride)
            cycles = max(cycles, rows * window_inputs(area.width, area.runs_x, area.x_step, area.run_x_stride))
        return Event(inst.mnemonic, inst.unit, draft.layer, encoded_size(inst) - WORD_BYTES, 0, cycles,
                     self._target.array_latency_cycles, inst.wait_units, inst.signal_units,
                     least_header=encoded_size(inst.replace(payload_bytes=0)),
                     bare_cycles=1 if inst.accumulate else positions, lead_cycles=positions if inst.chain else 0)


def _move_cycles(inst: Any, width_bytes: int) -> int:
    return inst.planes * inst.rows * -(-inst.row_bytes // width_bytes)


def events_of(drafts: Iterable[Draft], target: Target) -> list[Event]:
    """Events of a whole program; conv and dwc have no tiles yet."""
    reader = _Reader(target)
    return [reader.event(draft) for draft in drafts]
