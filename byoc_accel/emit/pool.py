"""Pooling and elementwise steps. They have no weights to repeat, so blocks are written out one after another."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import ScheduleError
from ..quantize.qregion import QPool
from ..schedule.geometry import row_parts
from ..schedule.plan import ElementStep, Place, PoolStep, StepPlan, step_inputs
from .array import Area, Taps, Window, depthwise
from .channels import Channels
from .context import Block, Context, Operand
from .moves import load_stage, store_stage, tight
from .post import Grid, Tail, identity, post, set_channels, set_grid, set_tail


@dataclass(frozen=True)
class Segment:
    """Output indices [start, stop) along one axis whose windows are clipped alike: taps [first, last), divisor."""

    start: int
    stop: int
    first: int
    last: int
    count: int


def segments(outputs: int, size: int, kernel: int, stride: int, before: int, after: int,
             include_pad: bool) -> list[Segment]:
    """Cut one axis so that within a segment the same taps fall inside the tensor."""
    found: list[Segment] = []
    for index in range(outputs):
        start = index * stride - before
        first, last = max(0, -start), min(kernel, size - start)
        count = min(kernel, size + after - start) if include_pad else last - first
        same = found and (found[-1].first, found[-1].last, found[-1].count) == (first, last, count)
        if same:
            found[-1] = Segment(found[-1].start, index + 1, first, last, count)
        else:
            found.append(Segment(index, index + 1, first, last, count))
    return found


def blocks(plan: StepPlan, height: int) -> Iterator[tuple[int, int]]:
    """(number, first row) of every block; the last one ends with the tensor and may overlap the one before."""
    for index in range(plan.blocks.count):
        yield index, min(index * plan.blocks.rows, height - plan.blocks.rows)


def emit_pool(ctx: Context, plan: StepPlan) -> None:
    """Every block of a pooling step, cut further where windows are clipped at an edge."""
    step = plan.step
    assert isinstance(step, PoolStep)
    pool = step.pool
    (_, height, width, _), (_, in_height, in_width, _) = ctx.tensors[step.y].shape, ctx.tensors[step.x].shape
    top, left, bottom, right = pool.padding
    axis_y = segments(height, in_height, pool.kernel[0], pool.stride[0], top, bottom, pool.count_include_pad)
    axis_x = segments(width, in_width, pool.kernel[1], pool.stride[1], left, right, pool.count_include_pad)
    rows = plan.blocks.rows

    def load(number: int, row: int) -> None:
        if plan.stage(step.x) is not None:
            first, last = _input_rows(pool, row, rows, in_height)
            load_stage(ctx, plan, step.x, first, max(last - first, 1), _block(plan, number), 0, padded=True)

    for number, row in _ahead(plan, height, load):
        block = _block(plan, number)
        ifm = ctx.source(plan, step.x, 0, _input_rows(pool, row, rows, in_height)[0], block, 0)
        ofm = ctx.result(plan, step.y, row, block, 0)
        for seg_y in axis_y:
            start, stop = max(seg_y.start, row), min(seg_y.stop, row + rows)
            if start < stop:
                for seg_x in axis_x:
                    part = Segment(start, stop, seg_y.first, seg_y.last, seg_y.count)
                    _pool_part(ctx, plan, pool, ifm, ofm, part, seg_x)
        _store_block(ctx, plan, step.y, row, block)


def _input_rows(pool: QPool, row: int, rows: int, height: int) -> tuple[int, int]:
    """Rows [first, last) of the input behind `rows` output rows from `row` on."""
    start = row * pool.stride[0] - pool.padding[0]
    return max(0, start), min(height, start + (rows - 1) * pool.stride[0] + pool.kernel[0])


def _block(plan: StepPlan, number: int) -> Block:
    return Block(number % 2 * plan.stage_spacing_bytes)


def _ahead(plan: StepPlan, height: int, load: Callable[[int, int], None]) -> Iterator[tuple[int, int]]:
    """Blocks in order, each loaded one block ahead where there are two sets of staging buffers."""
    todo = list(blocks(plan, height))
    paired = bool(plan.stage_spacing_bytes)
    if paired:
        load(*todo[0])
    for position, (number, row) in enumerate(todo):
        if not paired:
            load(number, row)
        elif position + 1 < len(todo):
            load(*todo[position + 1])
        yield number, row


def _pool_part(ctx: Context, plan: StepPlan, pool: QPool, ifm: Operand, ofm: Operand, seg_y: Segment,
               seg_x: Segment) -> None:
    """One rectangle of output positions with equal windows."""
    if seg_y.last <= seg_y.first or seg_x.last <= seg_x.first:
        raise ScheduleError(f"pool {pool.name!r}: a window lies in the padding entirely; reduce the padding")
    origin = (seg_y.first - pool.padding[0], seg_x.first - pool.padding[1])
    kernel = (seg_y.last - seg_y.first, seg_x.last - seg_x.first)
    taps = Taps(pool.stride, (1, 1), origin)
    if pool.kind == "max":
        area = Area(seg_y.start, seg_x.start, seg_y.stop - seg_y.start, seg_x.stop - seg_x.start)
        _maximum(ctx, ifm, ofm, taps, kernel, area)
        return
    columns = min(plan.blocks.columns, seg_x.stop - seg_x.start)
    rows = max(1, ctx.target.accumulator_entries_per_bank // columns)
    for y in range(seg_y.start, seg_y.stop, rows):
        for x in range(seg_x.start, seg_x.stop, columns):
            area = Area(y, x, min(rows, seg_y.stop - y), min(columns, seg_x.stop - x))
            _average(ctx, pool, ifm, ofm, taps, kernel, area, seg_y.count * seg_x.count)


def _maximum(ctx: Context, ifm: Operand, ofm: Operand, taps: Taps, kernel: tuple[int, int], area: Area) -> None:
    for first in range(0, ifm.position_bytes, ctx.target.array_columns):
        columns = min(ctx.target.array_columns, ifm.position_bytes - first)
        maximum(ctx, (ifm, ofm), taps, kernel, area, (first, columns))


def maximum(ctx: Context, operands: tuple[Operand, Operand], taps: Taps, kernel: tuple[int, int], area: Area,
            channels: tuple[int, int]) -> None:
    """Largest value of each window, from the first to the second operand; channels are (first, count)."""
    (ifm, ofm), stride, (first, columns) = operands, taps.stride, channels
    source = ifm.at(area.y * stride[0] + taps.origin[0], area.x * stride[1] + taps.origin[1], first)
    set_channels(ctx, identity(columns))
    set_grid(ctx, Grid(area.width, area.height, (ofm.position_bytes, ofm.row_bytes),
                       source=(stride[1] * ifm.position_bytes, stride[0] * ifm.row_bytes), window=kernel[::-1],
                       window_strides=(ifm.position_bytes, ifm.row_bytes)))
    post(ctx, columns, Tail(), (ofm.at(area.y, area.x, first), ofm.register), ofm.access,
         source=(source, ifm.register, ifm.access))


def _average(ctx: Context, pool: QPool, ifm: Operand, ofm: Operand, taps: Taps, kernel: tuple[int, int], area: Area,
             count: int) -> None:
    """Sum of the window by a depthwise with unit weights, then one multiplier for the divisor `count`."""
    requant = dict(pool.requants)[count]
    firsts = range(0, ifm.position_bytes, ctx.target.array_columns)
    # as many groups together as a bank holds: the geometry of a part of the window serves all of them
    together = max(1, ctx.target.accumulator_entries_per_bank // area.positions)
    for start in range(0, len(firsts), together):
        base = ctx.next_bank()
        windows = [Window(np.ones((*kernel, min(ctx.target.array_columns, ifm.position_bytes - first)), np.int8), first,
                          base + number * area.positions)
                   for number, first in enumerate(firsts[start:start + together])]
        numbers, swapped = depthwise(ctx, ifm, taps, area, windows)
        out = (ofm.position_bytes, ofm.row_bytes)
        for window, number in zip(windows, numbers):
            columns = window.weight.shape[2]
            bias = np.full(columns, -pool.x_zero_point * kernel[0] * kernel[1], np.int64)
            set_channels(ctx, Channels(bias, np.full(columns, requant.multiplier), np.full(columns, requant.shift),
                                       pool.rounding, pool.y_zero_point, (-128, 127)))
            set_grid(ctx, Grid(area.height, area.width, out[::-1]) if swapped else Grid(area.width, area.height, out))
            post(ctx, columns, Tail(), (ofm.at(area.y, area.x, window.channel), 0), ofm.access,
                 acc_base=window.acc_base, positions=area.positions, chain_from=number)


def emit_element(ctx: Context, plan: StepPlan) -> None:
    """Every block of a copy, add or table step."""
    step = plan.step
    assert isinstance(step, ElementStep)
    _, height, width, channels = ctx.tensors[step.x].shape
    rows = plan.blocks.rows

    def load(number: int, row: int) -> None:
        for name in dict.fromkeys(step_inputs(step)):
            if plan.stage(name) is not None:
                load_stage(ctx, plan, name, row, rows, _block(plan, number), 0, padded=name == step.x)

    for number, row in _ahead(plan, height, load):
        block = _block(plan, number)
        ifm = ctx.source(plan, step.x, 0, row, block, 0)
        ofm = ctx.result(plan, step.y, row, block, 0)
        residual = None
        if step.residual is not None:
            same = step.residual == step.x
            residual = ifm if same else ctx.result(plan, step.residual, row, block, 0)
        _element_block(ctx, step, ifm, ofm, residual, Area(row, 0, rows, width), channels)
        _store_block(ctx, plan, step.y, row, block)


def _element_block(ctx: Context, step: ElementStep, ifm: Operand, ofm: Operand, residual: Operand | None, area: Area,
                   channels: int) -> None:
    zero_point = ctx.tensors[step.residual].zero_point if step.residual is not None else 0
    out_zero_point = 0 if step.add is None else ctx.tensors[step.add.y].zero_point
    tail = Tail(step.add, True, ctx.tensors[step.x].zero_point, residual, zero_point, out_zero_point, step.table)
    operands = [o for o in (ifm, ofm, residual) if o is not None]
    step_bytes = [o.position_bytes for o in operands]
    parts = [(first, min(ctx.target.array_columns, channels - first), area.width)
             for first in range(0, channels, ctx.target.array_columns)]
    if set(step_bytes) == {channels}:  # rows are plain bytes: cut them without regard to positions
        step_bytes = [ctx.target.array_columns] * len(operands)
        parts = row_parts(area.width * channels, ctx.target.array_columns)
    set_tail(ctx, tail)
    for first, columns, width in parts:
        set_channels(ctx, _element_channels(ctx, step, columns))
        source, out, *other = [(size, o.row_bytes) for size, o in zip(step_bytes, operands)]
        set_grid(ctx, Grid(width, area.height, out, other[0] if other else (0, 0), source))
        post(ctx, columns, tail, (ofm.at(area.y, area.x, first), 0), ofm.access,
             source=(ifm.at(area.y, area.x, first), 0, ifm.access),
             residual_address=residual.at(area.y, area.x, first) if residual is not None else 0)


def _element_channels(ctx: Context, step: ElementStep, columns: int) -> Channels:
    """First stage of an element step: its requantize, or nothing."""
    if step.requant is None:
        return identity(columns)
    return Channels(np.full(columns, -ctx.tensors[step.x].zero_point), np.full(columns, step.requant.multiplier),
                    np.full(columns, step.requant.shift), step.rounding, ctx.tensors[step.y].zero_point, (-128, 127))


def _store_block(ctx: Context, plan: StepPlan, name: str, row: int, block: Block) -> None:
    """Copy a staged result block to its external place and to the outputs."""
    if plan.stage(name) is None:
        return
    store_stage(ctx, plan, ctx.places[name], row, plan.blocks.rows, block, 0)
    for sink_name, sink in plan.stores:
        place = Place(tight(ctx.places[sink_name].layout), sink.offset, sink.buffer)
        store_stage(ctx, plan, place, row, plan.blocks.rows, block, 0)
