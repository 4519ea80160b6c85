"""Chains: blocks of several convolutions in turn, what lies between them in buffers of a block."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..quantize.qregion import QTensor
from ..schedule.chain import (
    Span,
    Stripe,
    areas,
    heights_of,
    inner_layouts,
    input_rows,
    read_layout,
    results,
    spans,
    stage_layout,
    stripes,
)
from ..schedule.geometry import border_pieces, strip_loads
from ..schedule.plan import ChainStep, ConvStep, Layout, Stage, StepPlan, Strips
from .array import Area, Taps
from .builder import Access
from .context import Block, Context, Operand
from .conv import Group, channel_groups, groups_of, strips_of, tail_of
from .loops import IFM, OFM, RESIDUAL, Turn, block_registers, blocks_in_loop, store_block
from .moves import load_stage, load_strips
from .pool import maximum
from .post import set_tail


class _Chain:
    """A chain under emission: its plan, its weights, and the layout of what is inside."""

    def __init__(self, ctx: Context, plan: StepPlan, step: ChainStep):
        self.ctx, self.plan, self.step = ctx, plan, step
        self.y = ctx.tensors[step.y]
        self.heights = heights_of(step, self.y)
        self.layouts = inner_layouts(step, self.y, plan.blocks.rows)
        x = ctx.places[step.x].layout
        self.x = read_layout(step, x, self.y)
        self.strips: list[Strips | None] = [strips_of(ctx, plan, step.x), *(None for _ in step.inner)]
        self.groups: list[list[Group]] = [groups_of(ctx, m, s) for m, s in zip(step.members, self.strips)]

    def spans(self, stripe: Stripe) -> list[tuple[Span, Span]]:
        return spans(self.step, stripe.first, stripe.rows, self.heights)

    def input_rows(self, stripe: Stripe) -> tuple[Span, Span]:
        """Rows of the chain's input behind a stripe, those of its border have negative numbers, and loaded ones."""
        return input_rows(self.step, self.spans(stripe)[0][1])

    def stage_of_input(self) -> tuple[Stage, Layout]:
        """The staging buffer of an input without a border outside, and how its rows lie there."""
        stage = self.plan.stage(self.step.x)
        assert stage is not None
        bare = stage_layout(self.x, 1, stage.strips)
        return stage, replace(bare, height=stage.bytes // bare.bytes)


def emit_chain(ctx: Context, plan: StepPlan) -> None:
    """All stripes of a chain; equal ones are the body of a hardware loop, the others are written out."""
    step = plan.step
    assert isinstance(step, ChainStep)
    chain = _Chain(ctx, plan, step)
    for stage, layout in zip(plan.inner, chain.layouts):
        _fill_columns(ctx, stage, layout, 0)
    if step.pool and step.pool.pool.padding[0]:
        _fill_rows(ctx, chain.layouts[-1], plan.inner[-1].address, step.pool.pool.padding[0],
                   ctx.sram(plan.inner[-1].address, plan.inner[-1].bytes))
    if step.direct is not None:
        for offset in sorted({0, plan.stage_spacing_bytes}):
            _fill_columns(ctx, *chain.stage_of_input(), offset)
    for stripe in stripes(step, chain.y, plan.blocks):
        if stripe.count == 1:
            turn = Turn(Block(), looped=False)
            _load(chain, stripe, turn)
            _compute(chain, stripe, turn)
            store_block(ctx, plan, stripe.first, stripe.rows, turn)
        else:
            limit = min(stripe.rows * (stripe.count - 1), chain.y.shape[1] - stripe.rows - stripe.first)
            blocks_in_loop(ctx, plan.stage_spacing_bytes, stripe.count, _registers(chain), (stripe.rows, limit),
                           lambda turn, s=stripe: _load(chain, s, turn),
                           lambda turn, s=stripe: _compute(chain, s, turn),
                           lambda turn, s=stripe: store_block(ctx, plan, s.first, s.rows, turn))


def _registers(chain: _Chain) -> tuple[dict[int, int], dict[int, int]]:
    """Address registers of a loop over stripes; a row of the result is several of the input."""
    ctx, step = chain.ctx, chain.step
    stride = step.pool.pool.stride[0] if step.pool else 1
    for member in step.members:
        stride *= member.conv.stride[0]
    return block_registers(ctx, chain.plan, stride, ctx.places[step.y].layout.pitch_bytes)


def _load(chain: _Chain, stripe: Stripe, turn: Turn) -> None:
    """Fill the staging buffers of a stripe."""
    ctx, plan, step = chain.ctx, chain.plan, chain.step
    stage = plan.stage(step.x)
    if step.direct is not None:
        _load_direct(chain, stripe, turn)
    elif stage is not None:
        (first, end), _ = chain.input_rows(stripe)
        if stage.strips is not None:
            load_strips(ctx, step.members[0], stage, first, end - first, turn.block, turn.register(IFM))
        else:
            load_stage(ctx, plan, step.x, first, end - first, turn.block, turn.register(IFM), padded=True)
    if step.residual is not None and step.residual != step.x and plan.stage(step.residual) is not None:
        load_stage(ctx, plan, step.residual, stripe.first, stripe.rows, turn.block, turn.register(RESIDUAL),
                   padded=False)


def _load_direct(chain: _Chain, stripe: Stripe, turn: Turn) -> None:
    """Load the rows behind a stripe into a staging buffer with a border; rows of the border are written."""
    ctx, (stage, layout) = chain.ctx, chain.stage_of_input()
    place, row = ctx.places[chain.step.x], layout.width * layout.channels
    assert place.buffer is not None and chain.step.direct is not None
    whole, (first, end) = chain.input_rows(stripe)
    address, access = ctx.stage_access(stage, turn.block)
    for above, below in ((whole[0], first), (end, whole[1])):
        if below > above:
            _fill_rows(ctx, layout, address + (above - whole[0]) * layout.pitch_bytes, below - above, access)
    pieces = [(row, [(0, layout.offset(0, 0))])] if layout.strips is None else strip_loads(layout)
    for size, ((source, target), *more) in pieces:
        step = (more[0][0] - source, more[0][1] - target) if more else (0, 0)
        ctx.builder.add("load", "dma_in", (ctx.place_access(chain.step.x),), (access,), binding=place.buffer,
                        external_offset=place.address + first * row + source, external_reg=turn.register(IFM),
                        sram_address=address + (first - whole[0]) * layout.pitch_bytes + target,
                        sram_reg=turn.block.stage_register, row_bytes=size, rows=end - first, planes=1 + len(more),
                        external_row_stride=row, sram_row_stride=layout.pitch_bytes, external_plane_stride=step[0],
                        sram_plane_stride=step[1])


def _fill_rows(ctx: Context, layout: Layout, address: int, rows: int, access: Access) -> None:
    """Write rows of the border into a buffer, in each of its strips."""
    planes = 1 if layout.strips is None else layout.strips.count
    ctx.builder.add("fill", "dma_in", (), (access,), value=layout.value, sram_address=address,
                    row_bytes=rows * layout.pitch_bytes, rows=planes,
                    sram_row_stride=layout.position_bytes if planes > 1 else 0)


def _fill_columns(ctx: Context, stage: Stage, layout: Layout, offset: int) -> None:
    """Write the columns of a buffer's border, which nothing else writes."""
    for start, size, rows, stride in border_pieces(layout):
        ctx.builder.add("fill", "dma_in", (), (ctx.sram(stage.address + offset, stage.bytes),), value=layout.value,
                        sram_address=stage.address + offset + start, row_bytes=size, rows=rows,
                        sram_row_stride=stride if rows > 1 else 0)


def _compute(chain: _Chain, stripe: Stripe, turn: Turn) -> None:
    """Every member's rows of a stripe, in order."""
    ctx, plan, step = chain.ctx, chain.plan, chain.step
    (first, _), _ = chain.input_rows(stripe)
    if step.direct is not None:
        stage, layout = chain.stage_of_input()
        base, access = ctx.stage_access(stage, turn.block)
        ifm = Operand(base + layout.offset(-first, 0), layout.pitch_bytes, layout.position_bytes,
                      turn.block.stage_register, access)
    else:
        ifm = ctx.source(plan, step.x, 0, first, turn.block, turn.register(IFM))
    residual = None
    if step.residual is not None:
        shared = step.residual == step.x and plan.stage(step.x) is not None  # read from the staged input itself
        residual = ifm if shared else ctx.result(plan, step.residual, stripe.first, turn.block,
                                                 turn.register(RESIDUAL))
    last = len(step.members) - 1
    for number, (member, (_, (start, end))) in enumerate(zip(step.members, chain.spans(stripe))):
        result = ctx.result(plan, step.y, stripe.first, turn.block, turn.register(OFM)) if number == last else None
        if number == last and step.pool:
            _pooled(chain, stripe, ifm, result)
            continue
        ofm = result or _inner(chain, number, stripe)
        _member(ctx, member, chain, number, (start, end), (ifm, ofm, residual if number == last else None))
        ifm = ofm


def _inner(chain: _Chain, number: int, stripe: Stripe) -> Operand:
    """The buffer of an inner tensor, in rows of the whole tensor; rows of its border are written first."""
    stage, layout = chain.plan.inner[number], chain.layouts[number]
    whole, inside = chain.spans(stripe)[number]
    for first, end in ((whole[0], inside[0]), (inside[1], whole[1])):
        if end > first:
            _fill_rows(chain.ctx, layout, stage.address + (first - whole[0]) * layout.pitch_bytes, end - first,
                       chain.ctx.sram(stage.address, stage.bytes))
    return Operand(stage.address + layout.offset(-whole[0], 0), layout.pitch_bytes, layout.channels, 0,
                   chain.ctx.sram(stage.address, stage.bytes))


def _member(ctx: Context, step: ConvStep, chain: _Chain, number: int, rows: Span,
            operands: tuple[Operand, Operand, Operand | None]) -> None:
    """Rows [first, end) of one member's result, in pieces that the accumulators hold."""
    ifm, ofm, residual = operands
    y = results(chain.step, chain.y)[number]
    tail = tail_of(ctx, step, residual)
    set_tail(ctx, tail)
    for area in _areas(ctx, step, y, rows):
        channel_groups(ctx, step, chain.groups[number], ifm, ofm, tail, area, chain.strips[number])


def _areas(ctx: Context, step: ConvStep, y: QTensor, rows: Span) -> Iterator[Area]:
    """Pieces of rows [first, end) of a result that the accumulators hold."""
    pieces, columns = areas(step, y, rows[1] - rows[0], ctx.target)
    row = rows[0]
    for height in pieces:
        for x in range(0, y.shape[2], columns):
            yield Area(row, x, height, min(columns, y.shape[2] - x))
        row += height


def _pooled(chain: _Chain, stripe: Stripe, ifm: Operand, ofm: Operand) -> None:
    """The last convolution and the pool behind it, some channels at a time: while the post unit pools them, the array
    is at the next ones. The rows above the next stripe's windows are kept."""
    ctx, step, pooling = chain.ctx, chain.step.members[-1], chain.step.pool
    assert pooling is not None
    pool, number = pooling.pool, len(chain.step.members) - 1
    stage, layout = chain.plan.inner[number], chain.layouts[number]
    _, (start, end) = chain.spans(stripe)[number]
    above = pool.padding[0]
    inner = Operand(stage.address + layout.offset(above - start, 0), layout.pitch_bytes, layout.channels, 0,
                    ctx.sram(stage.address, stage.bytes))
    tail = tail_of(ctx, step, None)
    set_tail(ctx, tail)
    taps = Taps(pool.stride, (1, 1), (-pool.padding[0], -pool.padding[1]))
    whole = Area(stripe.first, 0, stripe.rows, chain.y.shape[2])
    for group in chain.groups[number]:
        for area in _areas(ctx, step, chain.step.inner[-1], (start, end)):
            channel_groups(ctx, step, [group], ifm, inner, tail, area, chain.strips[number])
        channels = group.first, group.last - group.first
        maximum(ctx, (inner, ofm), taps, pool.kernel, whole, channels)
        if above:
            kept = Area(0, -layout.border[1], above, layout.pitch_bytes // layout.channels)
            last = replace(inner, base=inner.at(end - above, 0))
            maximum(ctx, (last, replace(inner, base=inner.at(start - above, 0))), Taps((1, 1), (1, 1), (0, 0)), (1, 1),
                    kept, channels)
