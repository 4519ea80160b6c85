"""Array unit: convolution tiles and depthwise windows into accumulators."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..isa.lane_layout import Work, conv_work, dwc_work
from ..schedule.window import split_window
from .builder import Access
from .context import Context, Operand


@dataclass(frozen=True)
class Area:
    """Output positions of one item: `height` x `width` from block row `y` and column `x` on."""

    y: int
    x: int
    height: int
    width: int

    @property
    def positions(self) -> int:
        return self.height * self.width


@dataclass(frozen=True)
class Taps:
    """Kernel geometry: strides and dilations as (y, x), and the input position of tap (0, 0) of output (0, 0)."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    origin: tuple[int, int]


def runs_of(shape: tuple[int, ...], dilation_x: int, channels: int) -> tuple[int, int]:
    """(runs along x, bytes of a run) of weights (columns, KH, KW, depth) on a tensor of `channels` channels.

    The (kw, c) bytes of a kernel row are one contiguous run when all channels are read and dilation is 1.
    """
    merged = dilation_x == 1 and shape[3] == channels
    return (1, shape[2] * shape[3]) if merged else (shape[2], shape[3])


def tile_work(weight: np.ndarray, dilation_x: int, channels: int, rows: int) -> Work:
    """Weights of a conv: int8 (columns, KH, KW, depth) in the order of the array's reduction."""
    runs_x, run_bytes = runs_of(weight.shape, dilation_x, channels)
    tile = weight.transpose(1, 2, 3, 0).reshape(weight.shape[1], runs_x, run_bytes, weight.shape[0])
    return conv_work(tile, rows)


def convolve(ctx: Context, ifm: Operand, taps: Taps, area: Area, shape: tuple[int, ...], work: Work, channel: int,
             acc_base: int) -> int:
    """conv of one group of output channels; weights of `shape` (columns, KH, KW, channels read from `channel` on).

    Returns the number of the conv instruction.
    """
    runs_x, run_bytes = runs_of(shape, taps.dilation[1], ifm.position_bytes)
    ctx.configure("ageo", width=area.width, height=area.height, x_step=taps.stride[1] * ifm.position_bytes,
                  y_step=taps.stride[0] * ifm.row_bytes, run_bytes=run_bytes, runs_x=runs_x, runs_y=shape[1],
                  run_x_stride=taps.dilation[1] * ifm.position_bytes if runs_x > 1 else 0,
                  run_y_stride=taps.dilation[0] * ifm.row_bytes)
    address = ifm.at(area.y * taps.stride[0] + taps.origin[0], area.x * taps.stride[1] + taps.origin[1], channel)
    acc = Access("acc", acc_base, acc_base + area.positions)
    return ctx.builder.add("conv", "array", (ifm.access,), (acc,), ifm_address=address, ifm_reg=ifm.register,
                           columns=shape[0], acc_base=acc_base, work=work)


@dataclass(frozen=True)
class Window:
    """Channels of a depthwise: weights int8 (KH, KW, columns), first channel, first accumulator entry."""

    weight: np.ndarray
    channel: int
    acc_base: int


def depthwise(ctx: Context, ifm: Operand, taps: Taps, area: Area, groups: Sequence[Window]) -> tuple[list[int], bool]:
    """dwc passes of channel groups with one kernel size; every part of the window for all of them, before the next.

    Returns the number of the last dwc of each, and whether accumulator entries run down columns first (x and y
    exchanged).
    """
    kernel = (groups[0].weight.shape[0], groups[0].weight.shape[1])
    split = split_window(kernel, taps.stride, taps.dilation, (area.height, area.width), ctx.target)
    row_taps, column_taps = (split.columns, split.rows) if split.swapped else (split.rows, split.columns)
    origins = [(y, x) for y in range(0, kernel[0], row_taps) for x in range(0, kernel[1], column_taps)]
    numbers: list[int] = []
    for origin in origins:
        numbers = [_pass(ctx, ifm, taps, area, group, origin, (row_taps, column_taps), split.swapped)
                   for group in groups]
    return numbers, split.swapped


def _pass(ctx: Context, ifm: Operand, taps: Taps, area: Area, group: Window, origin: tuple[int, int],
          cut: tuple[int, int], swapped: bool) -> int:
    """One dwc: the taps of the window from `origin` on, at most `cut` of them."""
    part = group.weight[origin[0]:origin[0] + cut[0], origin[1]:origin[1] + cut[1]]
    _depthwise_geometry(ctx, ifm, taps, area, part.shape[:2], swapped)
    address = ifm.at(area.y * taps.stride[0] + taps.origin[0] + origin[0] * taps.dilation[0],
                     area.x * taps.stride[1] + taps.origin[1] + origin[1] * taps.dilation[1], group.channel)
    acc = Access("acc", group.acc_base, group.acc_base + area.positions)
    return ctx.builder.add("dwc", "array", (ifm.access,), (acc,), ifm_address=address, ifm_reg=ifm.register,
                           columns=part.shape[2], acc_base=group.acc_base, accumulate=int(origin != (0, 0)),
                           work=dwc_work(part.transpose(1, 0, 2) if swapped else part))


def _depthwise_geometry(ctx: Context, ifm: Operand, taps: Taps, area: Area, kernel: tuple[int, ...],
                        swapped: bool) -> None:
    """ageo for one pass; with `swapped` the instruction's x axis is the tensor's y axis."""
    axis_y = (area.height, taps.stride[0] * ifm.row_bytes, kernel[0], taps.dilation[0] * ifm.row_bytes)
    axis_x = (area.width, taps.stride[1] * ifm.position_bytes, kernel[1], taps.dilation[1] * ifm.position_bytes)
    fast, slow = (axis_y, axis_x) if swapped else (axis_x, axis_y)
    ctx.configure("ageo", width=fast[0], height=slow[0], x_step=fast[1], y_step=slow[1], run_bytes=1,
                  runs_x=fast[2], runs_y=slow[2], run_x_stride=fast[3], run_y_stride=slow[3])
