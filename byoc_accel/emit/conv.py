"""Convolution steps: blocks in a hardware loop, channel groups within a block, post processing of each."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..isa.lane_layout import Work
from ..quantize.qregion import QConv
from ..schedule.geometry import block_input_rows, input_spans, is_depthwise
from ..schedule.plan import ConvStep, Place, StepPlan, Strips, result_shape
from .array import Area, Taps, Window, convolve, depthwise, tile_work
from .channels import Channels, reach, simplify
from .context import Block, Context, Operand
from .loops import IFM, OFM, RESIDUAL, Turn, block_registers, blocks_in_loop, store_block
from .moves import load_channels, load_input, load_stage, load_strips, store_channels, tight
from .post import Grid, Tail, post, set_channels, set_grid, set_tail

GROUPS_AT_ONCE = 16  # whose parameters are looked for together; more leave the processor's cache


@dataclass(frozen=True)
class Group:
    """Output channels [first, last): channel parameters, and weights over input channels from `channel` on.

    `weight` is (columns, KH, KW, channels read); depthwise: (KH, KW, columns). `tile` holds them as a conv takes them.
    """

    first: int
    last: int
    channels: Channels
    weight: np.ndarray
    channel: int
    tile: Work | None


def emit_conv(ctx: Context, plan: StepPlan) -> None:
    """All blocks of a convolution; weights of a blocked step are stored once, inside a hardware loop."""
    step = plan.step
    assert isinstance(step, ConvStep)
    groups = groups_of(ctx, step, strips_of(ctx, plan, step.x))
    set_tail(ctx, tail_of(ctx, step, None))
    if plan.blocks.heights:
        _written_out(ctx, plan, step, groups)
        return
    if plan.blocks.channels:
        _by_channels(ctx, plan, step, groups)
        return
    if plan.blocks.count == 1:
        turn = Turn(Block(), looped=False)
        _load(ctx, plan, step, turn)
        _compute(ctx, plan, step, groups, turn)
        store_block(ctx, plan, 0, plan.blocks.rows, turn)
        return
    _loop(ctx, plan, step, groups)


def _written_out(ctx: Context, plan: StepPlan, step: ConvStep, groups: list[Group]) -> None:
    """Blocks one after another; the rows that each needs beyond the one before are loaded ahead of it."""
    spans = input_spans(step, plan.blocks.heights, ctx.places[step.x].layout.height)
    for (_, loaded), (_, end) in zip(spans, spans[1:]):
        if end > loaded:
            load_input(ctx, step.x, loaded, end)
    strips = strips_of(ctx, plan, step.x)
    whole = ctx.source(plan, step.x, 0, 0, Block(), 0)
    ofm = ctx.result(plan, step.y, 0, Block(), 0)
    width = result_shape(step, ctx.tensors[step.y])[1]
    first = 0
    for rows, span in zip(plan.blocks.heights, spans):
        ifm = replace(whole, access=replace(whole.access, rows=span))
        for x in range(0, width, plan.blocks.columns):
            area = Area(first, x, rows, min(plan.blocks.columns, width - x))
            channel_groups(ctx, step, groups, ifm, ofm, tail_of(ctx, step, None), area, strips)
        first += rows


def _by_channels(ctx: Context, plan: StepPlan, step: ConvStep, groups: list[Group]) -> None:
    """Blocks of some channels of the result one after another; the residual of the next one is loaded ahead."""
    size, spacing, count = plan.blocks.channels, plan.stage_spacing_bytes, plan.blocks.count
    height, width, _ = result_shape(step, ctx.tensors[step.y])
    staged = step.residual if step.residual is not None and plan.stage(step.residual) is not None else None

    def load(number: int) -> None:
        if staged is not None and number < count:
            load_channels(ctx, plan, staged, number * size, size, Block(number % 2 * spacing))

    ifm = ctx.source(plan, step.x, 0, 0, Block(), 0)
    if spacing:
        load(0)
    for number in range(count):
        load(number + bool(spacing))
        block, first = Block(number % 2 * spacing), number * size
        ofm = ctx.channels(plan, step.y, first, block)
        residual = None if step.residual is None else ctx.channels(plan, step.residual, first, block)
        chosen = [group for group in groups if first <= group.first < first + size]
        channel_groups(ctx, step, chosen, ifm, ofm, tail_of(ctx, step, residual), Area(0, 0, height, width),
                       strips_of(ctx, plan, step.x))
        if plan.stage(step.y) is not None:
            store_channels(ctx, plan, ctx.places[step.y], first, size, block)
            for name, sink in plan.stores:
                place = Place(tight(ctx.places[name].layout), sink.offset, sink.buffer)
                store_channels(ctx, plan, place, first, size, block)


def _loop(ctx: Context, plan: StepPlan, step: ConvStep, groups: list[Group]) -> None:
    """Blocks in a loop, the last of which ends with the tensor."""
    last_row = result_shape(step, ctx.tensors[step.y])[0] - plan.blocks.rows
    registers = block_registers(ctx, plan, step.conv.stride[0], ctx.places[step.y].row_bytes(step.part))
    blocks_in_loop(ctx, plan.stage_spacing_bytes, plan.blocks.count, registers,
                   (plan.blocks.rows, last_row), lambda turn: _load(ctx, plan, step, turn),
                   lambda turn: _compute(ctx, plan, step, groups, turn),
                   lambda turn: store_block(ctx, plan, 0, plan.blocks.rows, turn))


def strips_of(ctx: Context, plan: StepPlan, x: str) -> Strips | None:
    """How the input lies where the array reads it."""
    stage = plan.stage(x)
    return ctx.places[x].layout.strips if stage is None else stage.strips


def _load(ctx: Context, plan: StepPlan, step: ConvStep, turn: Turn) -> None:
    """Fill the staging buffers of a block."""
    stage = plan.stage(step.x)
    if stage is not None:
        layout = ctx.places[step.x].layout
        rows = min(block_input_rows(step, plan.blocks.rows), layout.rows)
        if stage.strips is not None:
            load_strips(ctx, step, stage, -step.conv.padding[0], rows, turn.block, turn.register(IFM))
        else:
            load_stage(ctx, plan, step.x, -step.conv.padding[0], rows, turn.block, turn.register(IFM), padded=True)
    if step.residual is not None and step.residual != step.x and plan.stage(step.residual) is not None:
        load_stage(ctx, plan, step.residual, 0, plan.blocks.rows, turn.block, turn.register(RESIDUAL), padded=False)


def _compute(ctx: Context, plan: StepPlan, step: ConvStep, groups: list[Group], turn: Turn) -> None:
    """Every column chunk and channel group of a block."""
    ifm = ctx.source(plan, step.x, 0, -step.conv.padding[0], turn.block, turn.register(IFM))
    ofm = ctx.result(plan, step.y, 0, turn.block, turn.register(OFM))
    residual = None
    if step.residual is not None:
        shared = step.residual == step.x and plan.stage(step.x) is not None  # read from the staged input itself
        residual = ifm if shared else ctx.result(plan, step.residual, 0, turn.block, turn.register(RESIDUAL))
    tail = tail_of(ctx, step, residual)
    _, width, _ = result_shape(step, ctx.tensors[step.y])
    for x in range(0, width, plan.blocks.columns):
        area = Area(0, x, plan.blocks.rows, min(plan.blocks.columns, width - x))
        channel_groups(ctx, step, groups, ifm, ofm, tail, area, strips_of(ctx, plan, step.x))


def tail_of(ctx: Context, step: ConvStep, residual: Operand | None) -> Tail:
    """Residual add and table of the step."""
    zero_point = 0 if step.residual is None else ctx.tensors[step.residual].zero_point
    out_zero_point = 0 if step.add is None else ctx.tensors[step.add.y].zero_point
    return Tail(step.add, step.add_first, ctx.tensors[step.conv.y].zero_point, residual, zero_point, out_zero_point,
                step.table)


def channel_groups(ctx: Context, step: ConvStep, groups: list[Group], ifm: Operand, ofm: Operand, tail: Tail,
                    area: Area, strips: Strips | None) -> None:
    """One item per group of array.columns output channels; items take turns in the accumulator banks."""
    conv = step.conv
    taps = Taps(conv.stride, conv.dilation, (-conv.padding[0], -conv.padding[1]))
    if strips is not None:  # one run per position, its strip begins where the kernel does
        taps = Taps((conv.stride[0] // strips.row_step, 1), (1, 1), (-conv.padding[0], 0))
    for group in groups:
        set_channels(ctx, group.channels)
        acc_base, swapped = ctx.next_bank(), False
        if is_depthwise(step):
            (number,), swapped = depthwise(ctx, ifm, taps, area, [Window(group.weight, group.first, acc_base)])
        else:
            number = convolve(ctx, ifm, taps, area, group.weight.shape, group.tile, group.channel, acc_base)
        set_grid(ctx, _grid(area, ofm, tail.residual, swapped))
        residual = tail.residual.at(area.y, area.x, group.first) if tail.residual is not None else 0
        post(ctx, group.last - group.first, tail, (ofm.at(area.y, area.x, group.first), ofm.register), ofm.access,
             acc_base=acc_base, positions=area.positions, residual_address=residual, chain_from=number)


def groups_of(ctx: Context, step: ConvStep, strips: Strips | None) -> list[Group]:
    """Parameters and weights of every group of array.columns output channels; over strips a kernel is one run."""
    conv, out, columns = step.conv, [], ctx.target.array_columns
    for index, channels in enumerate(_channels(ctx, conv)):
        first, last = index * columns, index * columns + len(channels.bias)
        if is_depthwise(step):
            weight, channel, tile = conv.weight[first:last, :, :, 0].transpose(1, 2, 0), first, None
        else:
            weight, channel = _dense_weight(conv, first, last)
            if strips is not None:
                weight = weight.reshape(len(weight), 1, 1, -1)
            depth = ctx.tensors[step.x].shape[3]
            tile = tile_work(weight, conv.dilation[1], depth, ctx.target.array_rows)
        out.append(Group(first, last, channels, weight, channel, tile))
    return out


def _channels(ctx: Context, conv: QConv) -> Iterator[Channels]:
    """Parameters of every group of array.columns output channels.

    The input's zero point is folded into the bias: sum (x - zp) w = sum x w - zp sum w.
    """
    zero_point = ctx.tensors[conv.x].zero_point
    step = GROUPS_AT_ONCE * ctx.target.array_columns
    for first in range(0, conv.weight.shape[0], step):
        some = slice(first, first + step)
        weight = conv.weight[some]
        bias = conv.bias[some].astype(np.int64) - zero_point * weight.sum(axis=(1, 2, 3), dtype=np.int64)
        bias = (bias + (1 << 31)) % (1 << 32) - (1 << 31)  # accumulators wrap, so the bias may too
        channels = Channels(bias, conv.multiplier[some], conv.shift[some], conv.rounding,
                            ctx.tensors[conv.y].zero_point, conv.clamp)
        yield from simplify(channels, *reach(weight), ctx.target.array_columns)


def _dense_weight(conv: QConv, first: int, last: int) -> tuple[np.ndarray, int]:
    """Weights of output channels [first, last) over the input channels their groups span, and the first of those.

    Channels of other groups within the span get zero weights.
    """
    weight = conv.weight[first:last]
    if conv.groups == 1:
        return weight, 0
    out_per_group, depth = conv.weight.shape[0] // conv.groups, conv.weight.shape[3]
    groups = np.arange(first, last) // out_per_group
    start, stop = int(groups[0]) * depth, (int(groups[-1]) + 1) * depth
    wide = np.zeros((*weight.shape[:3], stop - start), np.int8)
    for row, group in enumerate(groups):
        offset = int(group) * depth - start
        wide[row, :, :, offset:offset + depth] = weight[row]
    return wide, start


def _grid(area: Area, ofm: Operand, residual: Operand | None, swapped: bool) -> Grid:
    """Post geometry in the order in which the array fills accumulator entries."""
    out = (ofm.position_bytes, ofm.row_bytes)
    other = (residual.position_bytes, residual.row_bytes) if residual is not None else (0, 0)
    if swapped:
        return Grid(area.height, area.width, out[::-1], other[::-1])
    return Grid(area.width, area.height, out, other)
