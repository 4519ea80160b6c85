"""What every emitter needs: the builder, the target, the places, and the state already set in the units."""
from __future__ import annotations

from dataclasses import dataclass

from ..quantize.qregion import QTensor
from ..schedule.plan import Place, Plan, Stage, StepPlan
from ..target import Target
from .builder import Access, Builder


@dataclass(frozen=True)
class Operand:
    """A tensor block as an instruction sees it in SRAM.

    Position (y, x), counted from the block's first row, starts at base + y * pitch_bytes + x * channels, plus the
    address register `register`; `access` is every byte that the step may touch.
    """

    base: int
    pitch_bytes: int
    channels: int
    register: int
    access: Access

    def at(self, y: int, x: int, channel: int = 0) -> int:
        """SRAM address (before the register is added)."""
        return self.base + y * self.pitch_bytes + x * self.channels + channel


@dataclass(frozen=True)
class Block:
    """Which set of staging buffers a block uses: it starts `offset_bytes` behind the first, which is what address
    register `stage_register` holds if that is not 0."""

    offset_bytes: int = 0
    stage_register: int = 0


class Context:
    """Builder plus lookups. `configure` drops state instructions that would change nothing."""

    def __init__(self, plan: Plan, target: Target):
        self.plan, self.target = plan, target
        self.builder = Builder()
        self.places: dict[str, Place] = dict(plan.places)
        self.tensors: dict[str, QTensor] = {t.name: t for t in plan.tensors}
        self._state: dict[str, tuple] = {}
        self._item = 0

    def configure(self, mnemonic: str, payload: bytes = b"", **fields: int | str) -> None:
        """Add a state-setting instruction unless the unit already holds exactly this state."""
        state = (payload, tuple(sorted(fields.items())))
        if self._state.get(mnemonic) != state:
            self._state[mnemonic] = state
            self.builder.state(mnemonic, payload, **fields)

    def forget(self) -> None:
        """State is unknown from here on: a loop may arrive from its end as well as from before."""
        self._state.clear()

    def begin_iteration(self) -> None:
        """Every iteration of a loop sets its own state and starts with the first accumulator bank."""
        self.forget()
        self._item = 0

    def next_bank(self) -> int:
        """First accumulator entry of the bank that the next item works in; banks take turns."""
        bank = self._item % self.target.accumulator_banks
        self._item += 1
        return bank * self.target.accumulator_entries_per_bank

    def sram(self, start: int, size_bytes: int) -> Access:
        return Access("sram", start, start + size_bytes)

    def place_access(self, name: str) -> Access:
        """All bytes of a stored tensor, in SRAM or in its external buffer."""
        place = self.places[name]
        memory: str | int = "sram" if place.buffer is None else place.buffer
        return Access(memory, place.address, place.address + place.layout.bytes)

    def operand(self, plan: StepPlan, name: str, row: int, stage_row: int, block: Block, register: int,
                padded: bool) -> Operand:
        """Operand for a block that starts at tensor row `row`.

        For a staged tensor the staging buffer starts with tensor row `stage_row`, and holds whole padded rows when
        `padded`; `register` is the one in use for tensors in SRAM.
        """
        place, stage = self.places[name], plan.stage(name)
        layout = place.layout
        if stage is None:
            return Operand(place.address + layout.offset(row, 0), layout.pitch_bytes, layout.channels, register,
                           self.place_access(name))
        pitch = layout.pitch_bytes if padded else layout.width * layout.channels
        left = layout.border[1] * layout.channels if padded else 0
        base, access = self.stage_access(stage, block)
        return Operand(base + (row - stage_row) * pitch + left, pitch, layout.channels, block.stage_register, access)

    def stage_access(self, stage: Stage, block: Block) -> tuple[int, Access]:
        """Address of a block's staging buffer without the block's register, and the bytes it really is."""
        start = stage.address + block.offset_bytes
        return stage.address + (0 if block.stage_register else block.offset_bytes), self.sram(start, stage.bytes)
