"""Convolution steps: blocks in a hardware loop, channel groups within a block, post processing of each."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..quantize.qregion import QConv
from ..schedule.geometry import block_input_rows, is_depthwise
from ..schedule.plan import ConvStep, Place, StepPlan
from .array import Area, Taps, convolve, depthwise, pack_tile
from .context import Context, Operand
from .moves import load_stage, store_stage
from .post import Channels, Grid, Tail, post, set_channels, set_grid, set_tail

# Address registers of a blocked step. Register 0 always reads as zero.
IFM, RESIDUAL, OFM, SINK = 1, 2, 3, 4


@dataclass(frozen=True)
class Group:
    """Output channels [first, last): channel parameters, and weights over input channels from `channel` on.

    `weight` is (columns, KH, KW, channels read); depthwise: (KH, KW, columns). `tile` is the packed conv payload.
    """

    first: int
    last: int
    channels: Channels
    weight: np.ndarray
    channel: int
    tile: bytes


def emit_conv(ctx: Context, plan: StepPlan) -> None:
    """All blocks of a convolution; weights of a blocked step are stored once, inside a hardware loop."""
    step = plan.step
    assert isinstance(step, ConvStep)
    groups = _groups(ctx, step)
    if plan.blocks.count == 1:
        _block(ctx, plan, groups, looped=False)
        return
    registers = _registers(ctx, plan, step)
    for register in registers:
        ctx.builder.control("setr", reg=register, value=0)
    last_row = ctx.tensors[step.y].shape[1] - plan.blocks.rows

    def body(iteration: int) -> None:
        ctx.begin_iteration()
        _block(ctx, plan, groups, looped=True)
        for register, row_bytes in registers.items():
            ctx.builder.control("addr", reg=register, increment=plan.blocks.rows * row_bytes,
                                limit=last_row * row_bytes)

    ctx.builder.loop(plan.blocks.count, body)
    ctx.forget()


def _registers(ctx: Context, plan: StepPlan, step: ConvStep) -> dict[int, int]:
    """Address registers in use and the bytes by which each moves per output row."""
    registers = {IFM: step.conv.stride[0] * ctx.places[step.x].layout.pitch_bytes}
    if step.residual is not None and not (step.residual == step.x and plan.stage(step.x)):
        registers[RESIDUAL] = ctx.places[step.residual].layout.pitch_bytes
    registers[OFM] = ctx.places[step.y].layout.pitch_bytes
    if plan.stage(step.y) is not None:
        for index, (name, _) in enumerate(plan.stores):
            layout = ctx.places[name].layout
            registers[SINK + index] = layout.width * layout.channels
    return registers


def _block(ctx: Context, plan: StepPlan, groups: list[Group], looped: bool) -> None:
    """Load stages, compute every column chunk and channel group, store stages."""
    step = plan.step
    assert isinstance(step, ConvStep)
    conv = step.conv
    register = (lambda r: r) if looped else (lambda r: 0)
    top = conv.padding[0]
    if plan.stage(step.x) is not None:
        layout = ctx.places[step.x].layout
        rows = min(block_input_rows(step, plan.blocks.rows), layout.rows)
        load_stage(ctx, plan, step.x, -top, rows, register(IFM), padded=True)
    if step.residual is not None and step.residual != step.x and plan.stage(step.residual) is not None:
        load_stage(ctx, plan, step.residual, 0, plan.blocks.rows, register(RESIDUAL), padded=False)
    ifm = ctx.operand(plan, step.x, 0, -top, register(IFM), padded=True)
    ofm = ctx.operand(plan, step.y, 0, 0, register(OFM), padded=False)
    tail = _tail(ctx, plan, step, register(RESIDUAL), ifm)
    width = ctx.tensors[step.y].shape[2]
    for x in range(0, width, plan.blocks.columns):
        area = Area(0, x, plan.blocks.rows, min(plan.blocks.columns, width - x))
        _channel_groups(ctx, step, groups, ifm, ofm, tail, area)
    if plan.stage(step.y) is not None:
        _store_block(ctx, plan, step, register)


def _store_block(ctx: Context, plan: StepPlan, step: ConvStep, register) -> None:
    store_stage(ctx, plan, step.y, ctx.places[step.y], 0, plan.blocks.rows, register(OFM))
    for index, (name, sink) in enumerate(plan.stores):
        layout = ctx.places[name].layout
        tight = type(layout)(layout.height, layout.width, layout.channels)
        store_stage(ctx, plan, step.y, Place(tight, sink.offset, sink.buffer), 0, plan.blocks.rows,
                    register(SINK + index))


def _tail(ctx: Context, plan: StepPlan, step: ConvStep, register: int, ifm: Operand) -> Tail:
    """Residual and table of the step; a residual that is the staged input itself is read from that stage."""
    residual, zero_point = None, 0
    out_zero_point = 0 if step.add is None else ctx.tensors[step.add.y].zero_point
    if step.residual is not None:
        shared = step.residual == step.x and plan.stage(step.x) is not None
        residual = ifm if shared else ctx.operand(plan, step.residual, 0, 0, register, padded=False)
        zero_point = ctx.tensors[step.residual].zero_point
    return Tail(step.add, step.add_first, ctx.tensors[step.conv.y].zero_point, residual, zero_point,
                out_zero_point, step.table)


def _channel_groups(ctx: Context, step: ConvStep, groups: list[Group], ifm: Operand, ofm: Operand, tail: Tail,
                    area: Area) -> None:
    """One item per group of array.columns output channels; items take turns in the accumulator banks."""
    conv = step.conv
    taps = Taps(conv.stride, conv.dilation, (-conv.padding[0], -conv.padding[1]))
    set_tail(ctx, tail)
    for group in groups:
        set_channels(ctx, group.channels)
        acc_base, swapped = ctx.next_bank(), False
        if is_depthwise(step):
            number, swapped = depthwise(ctx, ifm, taps, area, group.weight, group.first, acc_base)
        else:
            number = convolve(ctx, ifm, taps, area, group.weight.shape, group.tile, group.channel, acc_base)
        set_grid(ctx, _grid(area, ofm, tail.residual, swapped))
        residual = tail.residual.at(area.y, area.x, group.first) if tail.residual is not None else 0
        post(ctx, group.last - group.first, tail, (ofm.at(area.y, area.x, group.first), ofm.register), ofm.access,
             acc_base=acc_base, positions=area.positions, residual_address=residual, chain_from=number)


def _groups(ctx: Context, step: ConvStep) -> list[Group]:
    """Parameters and packed weights of every group of array.columns output channels."""
    conv, out = step.conv, []
    for first in range(0, conv.weight.shape[0], ctx.target.array_columns):
        last = min(first + ctx.target.array_columns, conv.weight.shape[0])
        channels = _channels(ctx, conv, first, last)
        if is_depthwise(step):
            weight, channel, tile = conv.weight[first:last, :, :, 0].transpose(1, 2, 0), first, b""
        else:
            weight, channel = _dense_weight(conv, first, last)
            depth = ctx.places[step.x].layout.channels
            tile = pack_tile(weight, conv.dilation[1], depth, ctx.target.array_rows)
        out.append(Group(first, last, channels, weight, channel, tile))
    return out


def _channels(ctx: Context, conv: QConv, first: int, last: int) -> Channels:
    """Channel parameters; the input's zero point is folded into the bias: sum (x - zp) w = sum x w - zp sum w."""
    zero_point = ctx.tensors[conv.x].zero_point
    sums = conv.weight[first:last].astype(np.int64).sum(axis=(1, 2, 3))
    bias = conv.bias[first:last].astype(np.int64) - zero_point * sums
    return Channels(bias, conv.multiplier[first:last], conv.shift[first:last], conv.rounding,
                    ctx.tensors[conv.y].zero_point, conv.clamp)


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
    out = (ofm.channels, ofm.pitch_bytes)
    other = (residual.channels, residual.pitch_bytes) if residual is not None else (0, 0)
    if swapped:
        return Grid(area.height, area.width, out[::-1], other[::-1])
    return Grid(area.width, area.height, out, other)
