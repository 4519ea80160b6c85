"""Cycles that a cut of a step takes, from the target's numbers: the scheduler's choices compare these.

A step works block by block; within a block array, post unit, moves and program fetch overlap, so the slowest of them
counts. Formulas of single instructions: docs/ISA.md, "Timing".
"""
from __future__ import annotations

from dataclasses import dataclass

from ..quantize.qregion import QTensor
from ..target import Target
from .geometry import block_input_rows, is_depthwise
from .plan import Blocks, ConvStep, Layout, PoolStep, Step, Strips, result_shape, step_inputs
from .window import split_window

#: Program bytes of one group of output channels besides weights: conv, post and par with its usual parameters.
GROUP_BYTES = 28
CHANNEL_BYTES = 6
#: Around a loop: barriers, token instructions, setr.
LOOP_CYCLES = 60
#: What a block that is written out is worth in cycles: it makes the program longer by a load, a store and more.
WRITTEN_OUT_CYCLES = 100


@dataclass(frozen=True)
class Operands:
    """Operands of a step: layout of the input, the result's tensor, and what is moved block by block."""

    x: Layout
    y: QTensor
    strips: Strips | None = None
    x_outside: bool = False
    residual_outside: bool = False
    y_outside: bool = False
    y_bordered: bool = False


def step_cycles(step: Step, operands: Operands, blocks: Blocks, paired: bool, target: Target,
                code_bytes: int = -1) -> int:
    """Cycles from the first load of the step to the end of its last store.

    paired: the next block is loaded, and the one before stored, while a block is computed. code_bytes: of the step,
    estimated if it is not given.
    """
    array = array_cycles(step, operands, blocks, target)
    post = post_cycles(step, operands, blocks, target)
    looped = blocks.count > 1 and isinstance(step, ConvStep) and not blocks.channels
    if code_bytes >= 0 and blocks.channels:
        code_bytes //= blocks.count
    fetch = (code_bytes if code_bytes >= 0 else program_bytes(step, operands, blocks, target)) // (
        target.fetch_bytes_per_cycle) + target.fetch_latency_cycles * looped
    load, store = load_cycles(step, operands, blocks, target), store_cycles(step, operands, blocks, target)
    compute = max(array, post, fetch)
    latency = target.dma_latency_cycles
    ends = (load + latency) * (load > 0) + (store + latency) * (store > 0)
    ends += target.array_latency_cycles + target.post_latency_cycles
    if blocks.count == 1:
        return compute + ends
    around = LOOP_CYCLES if isinstance(step, ConvStep) else WRITTEN_OUT_CYCLES * blocks.count
    if paired:
        return max(compute, load, store) * blocks.count + ends + around
    return (compute + ends) * blocks.count + around


def channel_cuts(step: Step, operands: Operands, whole: Blocks, target: Target) -> set[Blocks]:
    """Cuts of a convolution by channels of its result: possible where the accumulators hold all rows and the input is
    in SRAM. No weight is fetched twice, and no row is loaded or computed twice."""
    if not isinstance(step, ConvStep) or step.part is not None or operands.x_outside or whole.count > 1:
        return set()
    height, width, channels = result_shape(step, operands.y)
    if whole.columns < width:
        return set()
    return {Blocks(height, channels // size, width, channels=size)
            for size in range(target.array_columns, channels, target.array_columns) if channels % size == 0}


def _block_channels(step: Step, operands: Operands, blocks: Blocks) -> int:
    """Channels of one block of the result."""
    return blocks.channels or result_shape(step, operands.y)[2]


def column_chunks(width: int, columns: int) -> list[int]:
    """Widths of the column chunks of a block."""
    return [min(columns, width - x) for x in range(0, width, columns)]


def pieces(total: int, most: int) -> list[tuple[int, int]]:
    """(size, how many) of the pieces of at most `most` that `total` is cut into: full ones, then the rest."""
    full, rest = divmod(total, most)
    return [(size, count) for size, count in ((most, full), (rest, 1)) if size and count]


def runs_of(step: ConvStep, operands: Operands, target: Target) -> tuple[int, int]:
    """Contiguous runs that one group of output channels reads, and the bytes of each."""
    out, kernel_y, kernel_x, depth = step.conv.weight.shape
    if operands.strips is not None:
        return 1, kernel_y * kernel_x * depth
    if step.conv.groups == 1 and step.conv.dilation[1] == 1:
        return kernel_y, kernel_x * depth
    spanned = min(step.conv.groups, -(-target.array_columns * step.conv.groups // out))
    return kernel_y * kernel_x, depth * spanned


def tiles(step: ConvStep, operands: Operands, target: Target) -> list[int]:
    """Rows of every weight tile of one group of output channels, in order."""
    runs, run = runs_of(step, operands, target)
    return runs * [rows for rows, count in pieces(run, target.array_rows) for _ in range(count)]


def array_cycles(step: Step, operands: Operands, blocks: Blocks, target: Target) -> int:
    """Passes of one block; a pass takes at least as long as the decoder takes for the next tile."""
    width, channels = result_shape(step, operands.y)[1], _block_channels(step, operands, blocks)
    groups = -(-channels // target.array_columns)
    if isinstance(step, ConvStep) and not is_depthwise(step):
        runs, run = runs_of(step, operands, target)
        decode = [(-(-rows // target.decoder_rows_per_cycle) + target.decoder_latency_cycles, runs * count)
                  for rows, count in pieces(run, target.array_rows)]
        return groups * sum(max(blocks.rows * chunk, cycles) * times * count
                            for chunk, times in pieces(width, blocks.columns) for cycles, count in decode)
    if isinstance(step, ConvStep):
        kernel, stride, dilation = step.conv.weight.shape[1:3], step.conv.stride, step.conv.dilation
    elif isinstance(step, PoolStep) and step.pool.kind == "avg":
        kernel, stride, dilation = step.pool.kernel, step.pool.stride, (1, 1)
    else:
        return 0
    return groups * sum(split_window(kernel, stride, dilation, (blocks.rows, chunk), target).cycles  # type: ignore[arg-type]
                        for chunk in column_chunks(width, blocks.columns))


def post_cycles(step: Step, operands: Operands, blocks: Blocks, target: Target) -> int:
    """Reads of the post unit in one block."""
    width, channels = result_shape(step, operands.y)[1], _block_channels(step, operands, blocks)
    reads = 1
    if isinstance(step, PoolStep) and step.pool.kind == "max":
        reads = step.pool.kernel[0] * step.pool.kernel[1]
    elif not isinstance(step, (ConvStep, PoolStep)):
        reads = len(step_inputs(step))
        if step.part is None:
            return blocks.rows * -(-width * channels // target.array_columns) * reads
    return blocks.rows * width * -(-channels // target.array_columns) * reads


def program_bytes(step: Step, operands: Operands, blocks: Blocks, target: Target) -> int:
    """Bytes of one block, weights as they are in the model."""
    _, width, every = result_shape(step, operands.y)
    channels = _block_channels(step, operands, blocks)
    groups = -(-channels // target.array_columns) * -(-width // blocks.columns)
    weights = step.conv.weight.size * channels // every if isinstance(step, ConvStep) else 0
    return weights + groups * (GROUP_BYTES + CHANNEL_BYTES * min(channels, target.array_columns))


def load_cycles(step: Step, operands: Operands, blocks: Blocks, target: Target) -> int:
    """Cycles of dma_in for one block."""
    width_bytes = target.dma_bytes_per_cycle
    cycles = 0
    if operands.x_outside:
        rows = min(block_input_rows(step, blocks.rows), operands.x.rows)
        strips = operands.strips
        if strips is not None:
            cycles = strips.count * strips.rows(rows) * -(-strips.columns * operands.x.channels // width_bytes)
        else:
            cycles = -(-rows * operands.x.pitch_bytes // width_bytes)
    if operands.residual_outside:
        cycles += result_moves(step, operands, blocks, target)
    return cycles


def input_cycles(layout: Layout, target: Target) -> int:
    """Cycles of dma_in for a network's input as a whole."""
    width_bytes = target.dma_bytes_per_cycle
    if layout.strips is not None:
        return layout.strips.count * layout.height * -(-layout.strips.columns * layout.channels // width_bytes)
    row = layout.width * layout.channels
    if layout.border[1] or layout.border[3]:
        return layout.height * -(-row // width_bytes)
    return -(-layout.height * row // width_bytes)


def store_cycles(step: Step, operands: Operands, blocks: Blocks, target: Target) -> int:
    """Cycles of dma_out for one block."""
    return result_moves(step, operands, blocks, target) if operands.y_outside else 0


def result_moves(step: Step, operands: Operands, blocks: Blocks, target: Target) -> int:
    """Cycles of a move of one block of the result, row by row where it has a border outside."""
    _, width, channels = result_shape(step, operands.y)
    if blocks.channels:
        return blocks.rows * width * -(-blocks.channels // target.dma_bytes_per_cycle)
    if not operands.y_bordered:
        return -(-blocks.rows * width * channels // target.dma_bytes_per_cycle)
    return blocks.rows * -(-width * channels // target.dma_bytes_per_cycle)
