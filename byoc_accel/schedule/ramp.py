"""A network's first layer in blocks that are computed while the rows behind the next ones are still being loaded."""
from __future__ import annotations

from dataclasses import dataclass, replace

from ..target import Target
from .cost import Operands, array_cycles, input_cycles, post_cycles, program_bytes
from .geometry import border_pieces, first_cut, input_spans
from .plan import Blocks, ConvStep, Step, Strips, result_shape

MOST_BLOCKS = 8
#: Program bytes that one cycle less is worth: blocks that are written out hold their weights once more each.
BYTES_PER_CYCLE = 2


@dataclass(frozen=True)
class _Choice:
    """A layout of the input and heights of blocks; without any the whole input is loaded first."""

    operands: Operands
    heights: tuple[int, ...]

    def blocks(self, whole: Blocks) -> Blocks:
        return replace(whole, rows=max(self.heights), count=len(self.heights),
                       heights=self.heights) if self.heights else whole


def first_layer(step: Step, operands: Operands, strips: Strips | None, target: Target) -> tuple[Strips | None, Blocks]:
    """Layout and blocks of a step whose input is loaded just before: those of least cycles.

    strips: the input as strips, if it may lie so.
    """
    whole = first_cut(step, operands.y, target)
    if not isinstance(step, ConvStep) or step.part is not None or step.residual is not None:
        return strips, whole
    choices = [_Choice(replace(operands, strips=lying), heights) for lying in dict.fromkeys((None, strips))
               for heights in sorted(_heights(step, operands, whole, target))]
    size = program_bytes(step, operands, replace(whole, rows=1, count=1), target)
    best = min(choices, key=lambda choice: _cycles(step, choice, whole, size, target))
    return best.operands.strips, best.blocks(whole)


def _heights(step: ConvStep, operands: Operands, whole: Blocks, target: Target) -> set[tuple[int, ...]]:
    """Heights of blocks: none (the whole input is loaded first), equal ones, and such that double."""
    height = result_shape(step, operands.y)[0]
    most = max(1, target.accumulator_entries_per_bank // whole.columns)
    out: set[tuple[int, ...]] = {()}
    for count in range(2, min(MOST_BLOCKS, height) + 1):
        for growth in (1, 2):
            weights = [growth ** i for i in range(count)]
            ends = [height * sum(weights[:i + 1]) // sum(weights) for i in range(count)]
            heights = tuple(b - a for a, b in zip([0, *ends], ends))
            if 0 < min(heights) and max(heights) <= most:
                out.add(heights)
    return out


def _cycles(step: ConvStep, choice: _Choice, whole: Blocks, size: int, target: Target) -> float:
    """Cycles until the last block is computed, and what its bytes are worth, if a block begins when its rows and its
    program of `size` bytes are there, and the array and the post unit overlap."""
    operands, heights = choice.operands, choice.heights
    layout = replace(operands.x, strips=operands.strips)
    row_cycles = input_cycles(layout, target) / layout.height
    loaded = sum(rows * -(-row // target.sram_port_bytes) for _, row, rows, _ in border_pieces(layout))
    spans = input_spans(step, heights, layout.height) if heights else [(0, layout.height)] * whole.count
    end = 0.0
    for number, (rows, (_, last)) in enumerate(zip(heights or (whole.rows,) * whole.count, spans)):
        block = replace(whole, rows=rows, count=1)
        fetched = target.fetch_latency_cycles + (number + 1) * size / target.fetch_bytes_per_cycle
        arrived = loaded + last * row_cycles + target.dma_latency_cycles
        busy = max(array_cycles(step, operands, block, target), post_cycles(step, operands, block, target))
        end = max(end + busy, arrived + busy, fetched)
    return end + max(0, len(heights) - 1) * size / BYTES_PER_CYCLE
