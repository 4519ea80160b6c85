"""What every emitter needs: the builder, the target, the places, and the state already set in the units."""
from __future__ import annotations

from dataclasses import dataclass

from ..quantize.qregion import QTensor
from ..schedule.plan import Place, Plan, Stage, StepPlan, result_shape
from ..target import Target
from .builder import Access, Builder


@dataclass(frozen=True)
class Operand:
    """A tensor block as an instruction sees it in SRAM.

    Position (y, x), counted from the block's first row, starts at base + y * row_bytes + x * position_bytes, plus
    the address register `register`; `access` is every byte that the step may touch.
    """

    base: int
    row_bytes: int
    position_bytes: int
    register: int
    access: Access

    def at(self, y: int, x: int, channel: int = 0) -> int:
        """SRAM address (before the register is added)."""
        return self.base + y * self.row_bytes + x * self.position_bytes + channel


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
        state = (payload, fields)
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

    def source(self, plan: StepPlan, name: str, row: int, stage_row: int, block: Block, register: int) -> Operand:
        """First operand of a block, from tensor row `row` on.

        A staging buffer holds whole padded rows, or strips of them, from tensor row `stage_row` on; `register` is the
        one in use for tensors in SRAM. Positions of strips are those of the result.
        """
        place, stage = self.places[name], plan.stage(name)
        layout = place.layout
        if stage is None:
            return Operand(place.start(None, row), layout.pitch_bytes, layout.position_bytes, register,
                           self.place_access(name))
        base, access = self.stage_access(stage, block)
        if stage.strips is not None:
            pitch = stage.strips.columns * layout.channels
            rows = (row - stage_row) // stage.strips.row_step
            return Operand(base + rows * pitch, pitch, stage.bytes // stage.strips.count, block.stage_register, access)
        return Operand(base + (row - stage_row) * layout.pitch_bytes + layout.border[1] * layout.channels,
                       layout.pitch_bytes, layout.channels, block.stage_register, access)

    def result(self, plan: StepPlan, name: str, row: int, block: Block, register: int) -> Operand:
        """Result or residual of a block, counted from row 0 of what the step computes.

        Staging buffers are tight and hold rows from `row` on.
        """
        place, stage = self.places[name], plan.stage(name)
        part = getattr(plan.step, "part", None) if name == plan.step.y else None
        if stage is None:
            return Operand(place.start(part, 0), place.row_bytes(part), place.position_bytes(part), register,
                           self.place_access(name))
        _, width, channels = result_shape(plan.step, self.tensors[plan.step.y])
        base, access = self.stage_access(stage, block)
        return Operand(base - row * width * channels, width * channels, channels, block.stage_register, access)

    def channels(self, plan: StepPlan, name: str, first: int, block: Block) -> Operand:
        """Result or residual of a block of channels from `first` on, which a staging buffer holds alone."""
        stage, size = plan.stage(name), plan.blocks.channels
        if stage is None:
            return self.result(plan, name, 0, block, 0)
        _, width, _ = result_shape(plan.step, self.tensors[plan.step.y])
        base, access = self.stage_access(stage, block)
        return Operand(base - first, width * size, size, 0, access)

    def stage_access(self, stage: Stage, block: Block) -> tuple[int, Access]:
        """Address of a block's staging buffer without the block's register, and the bytes it really is."""
        start = stage.address + block.offset_bytes
        return stage.address + (0 if block.stage_register else block.offset_bytes), self.sram(start, stage.bytes)
