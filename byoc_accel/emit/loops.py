"""Blocks of a step as the body of a hardware loop."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ScheduleError
from ..schedule.plan import ChainStep, ConvStep, Place, StepPlan
from .context import Block, Context
from .moves import store_stage, tight

# Address registers of a blocked step. Register 0 always reads as zero.
IFM, RESIDUAL, OFM, SINK, STAGE = 1, 2, 3, 4, 7


@dataclass(frozen=True)
class Turn:
    """One block of a step: its staging buffers, and whether it is the body of a hardware loop."""

    block: Block
    looped: bool

    def register(self, number: int) -> int:
        """Address register `number` in a loop, none otherwise."""
        return number if self.looped else 0


def blocks_in_loop(ctx: Context, spacing: int, count: int, registers: tuple[dict[int, int], dict[int, int]],
                   moves: tuple[int, int], load: Callable[[Turn], None], compute: Callable[[Turn], None],
                   store: Callable[[Turn], None]) -> None:
    """`count` blocks in a loop; with two sets of staging buffers, `spacing` bytes apart, the next block is loaded while
    one is computed.

    registers: address registers and the bytes by which each moves per output row, those of loads and the others; a
    block moves them by moves[0] rows, up to moves[1].
    """
    loads, others = registers
    for register in (*loads, *others, *((STAGE,) if spacing else ())):
        ctx.builder.control("setr", reg=register, value=0)
    if spacing:
        load(Turn(Block(0, STAGE), looped=True))
        _advance(ctx, loads, moves)

    def body(iteration: int) -> None:
        ctx.begin_iteration()
        turn = Turn(Block(iteration % 2 * spacing, STAGE if spacing else 0), looped=True)
        if spacing and loads:
            ctx.builder.control("flip", reg=STAGE, value=spacing)
            load(Turn(Block((iteration + 1) % 2 * spacing, STAGE), looped=True))
            ctx.builder.control("flip", reg=STAGE, value=spacing)
        elif not spacing:
            load(turn)
        compute(turn)
        store(turn)
        _advance(ctx, {**loads, **others}, moves)
        if spacing:
            ctx.builder.control("flip", reg=STAGE, value=spacing)

    ctx.builder.loop(count, body)
    ctx.forget()


def block_registers(ctx: Context, plan: StepPlan, stride: int,
                    ofm_row_bytes: int) -> tuple[dict[int, int], dict[int, int]]:
    """Address registers of a step and the bytes by which each moves per row of its result: those of loads, and the
    others. A row of the result moves the input by `stride` rows, the result by `ofm_row_bytes`.

    Raises ScheduleError when there are more copies of a result than registers.
    """
    step = plan.step
    assert isinstance(step, (ConvStep, ChainStep))
    loads: dict[int, int] = {}
    others: dict[int, int] = {OFM: ofm_row_bytes}
    staged = plan.stage(step.x) is not None
    (loads if staged else others)[IFM] = stride * ctx.places[step.x].layout.pitch_bytes
    if step.residual is not None and not (step.residual == step.x and staged):
        side = others if plan.stage(step.residual) is None else loads
        side[RESIDUAL] = ctx.places[step.residual].layout.pitch_bytes
    if plan.stage(step.y) is not None:
        for index, (name, _) in enumerate(plan.stores):
            layout = ctx.places[name].layout
            others[SINK + index] = layout.width * layout.channels
        _check_sinks(step.name, len(plan.stores))
    return loads, others


def store_block(ctx: Context, plan: StepPlan, first: int, rows: int, turn: Turn) -> None:
    """Copy rows [first, first + rows) of a staged result to its external place and to the outputs."""
    step = plan.step
    assert isinstance(step, (ConvStep, ChainStep))
    if plan.stage(step.y) is None:
        return
    store_stage(ctx, plan, ctx.places[step.y], first, rows, turn.block, turn.register(OFM))
    for index, (name, sink) in enumerate(plan.stores):
        place = Place(tight(ctx.places[name].layout), sink.offset, sink.buffer)
        store_stage(ctx, plan, place, first, rows, turn.block, turn.register(SINK + index))


def _advance(ctx: Context, registers: dict[int, int], moves: tuple[int, int]) -> None:
    """Move address registers to the next block; the last block ends with the tensor and may overlap."""
    for register, row_bytes in registers.items():
        ctx.builder.control("addr", reg=register, increment=moves[0] * row_bytes, limit=moves[1] * row_bytes)


def _check_sinks(name: str, copies: int) -> None:
    """Raise ScheduleError when there are more copies of a result than registers."""
    if SINK + copies > STAGE:
        raise ScheduleError(f"step {name!r}: {copies} copies of its result are stored block by block, "
                            f"{STAGE - SINK} are possible; return it fewer times")
