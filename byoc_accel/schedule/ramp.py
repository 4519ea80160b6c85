"""A network's first layer in blocks that are computed while the rows behind the next ones are still being loaded."""
from __future__ import annotations

from dataclasses import replace

from ..target import Target
from .cost import Operands, program_bytes
from .geometry import first_cut
from .plan import Blocks, ConvStep, Step, Strips, result_shape
from .timeline import first_step_cycles

MOST_BLOCKS = 8
#: Program bytes that one cycle less is worth: blocks that are written out hold their weights once more each.
BYTES_PER_CYCLE = 2


def first_layer(step: Step, operands: Operands, strips: Strips | None, target: Target) -> tuple[Strips | None, Blocks]:
    """Layout and blocks of a step whose input is loaded just before: those of least cycles.

    strips: the input as strips, if it may lie so.
    """
    whole = first_cut(step, operands.y, target)
    if not isinstance(step, ConvStep) or step.part is not None or step.residual is not None:
        return strips, whole
    best = None
    for lying in dict.fromkeys((None, strips)):
        lies = replace(operands, strips=lying)
        for heights in _choices(step, lies, whole, target):
            worth = _cycles(step, lies, whole, heights, target)
            if best is None or worth < best[0]:
                best = worth, lying, heights
    assert best is not None
    _, lying, heights = best
    return lying, replace(whole, rows=max(heights), count=len(heights), heights=heights) if heights else whole


def _choices(step: ConvStep, operands: Operands, whole: Blocks, target: Target) -> set[tuple[int, ...]]:
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


def _cycles(step: ConvStep, operands: Operands, whole: Blocks, heights: tuple[int, ...], target: Target) -> float:
    """Cycles until the last block is computed, and what its bytes are worth."""
    blocks = replace(whole, rows=max(heights), count=len(heights), heights=heights) if heights else whole
    copies = len(heights) or 1
    size = program_bytes(step, operands, replace(whole, rows=1, count=1), target)
    cycles = first_step_cycles(step, operands, blocks, (copies * size, copies * step.conv.weight.size), target)
    return cycles + (copies - 1) * size / BYTES_PER_CYCLE
