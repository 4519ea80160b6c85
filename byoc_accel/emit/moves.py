"""Data movement: loads, stores and borders, as instructions."""
from __future__ import annotations

from ..schedule.geometry import border_pieces, strip_loads
from ..schedule.plan import ConvStep, Layout, Place, Source, Stage, StepPlan, result_shape
from .builder import Access
from .context import Block, Context


def load_input(ctx: Context, name: str, first: int, last: int) -> None:
    """Copy rows [first, last) of an input tensor from its buffer into its SRAM place, inside its border."""
    place, source = ctx.places[name], dict(ctx.plan.sources)[name]
    if place.layout.strips is not None:
        _load_input_strips(ctx, place, source, (first, last))
        return
    _transfer(ctx, "load", source.buffer, source.offset, tight(place.layout), place, first, last - first)


def _load_input_strips(ctx: Context, place: Place, source: Source, rows: tuple[int, int]) -> None:
    """Load rows of an input as strips: those that lie in the tensor together, and narrower ones at its edges."""
    layout = place.layout
    row = layout.width * layout.channels
    outside = Access(source.buffer, source.offset, source.offset + layout.height * row)
    inside = Access("sram", place.address, place.address + layout.bytes, rows)
    for size, (first, *more) in strip_loads(layout):
        step = (more[0][0] - first[0], more[0][1] - first[1]) if more else (0, 0)
        ctx.builder.add("load", "dma_in", (outside,), (inside,), binding=source.buffer,
                        external_offset=source.offset + rows[0] * row + first[0],
                        sram_address=place.address + layout.offset(rows[0], 0) + first[1], row_bytes=size,
                        rows=rows[1] - rows[0], planes=1 + len(more), external_row_stride=row,
                        sram_row_stride=layout.pitch_bytes, external_plane_stride=step[0], sram_plane_stride=step[1])


def load_strips(ctx: Context, step: ConvStep, stage: Stage, first: int, rows: int, block: Block,
                register: int) -> None:
    """Fill a staging buffer of strips with `rows` padded rows from tensor row `first` on."""
    place, strips = ctx.places[step.x], stage.strips
    assert strips is not None and place.buffer is not None
    layout = place.layout
    pitch = strips.columns * layout.channels
    address, access = ctx.stage_access(stage, block)
    ctx.builder.add("load", "dma_in", (ctx.place_access(step.x),), (access,), binding=place.buffer,
                    external_offset=place.address + layout.offset(first, -step.conv.padding[1]),
                    external_reg=register, sram_address=address, sram_reg=block.stage_register, row_bytes=pitch,
                    rows=strips.rows(rows), planes=strips.count, sram_row_stride=pitch,
                    external_row_stride=strips.row_step * layout.pitch_bytes,
                    external_plane_stride=strips.step * layout.channels,
                    sram_plane_stride=stage.bytes // strips.count)


def store_result(ctx: Context, name: str, sink: Source) -> None:
    """Copy a whole tensor from its SRAM place to an output buffer."""
    place = ctx.places[name]
    _transfer(ctx, "store", sink.buffer, sink.offset, tight(place.layout), place, 0, place.layout.height)


def load_stage(ctx: Context, plan: StepPlan, name: str, first: int, rows: int, block: Block, register: int,
               padded: bool) -> None:
    """Fill a staging buffer with `rows` rows from tensor row `first` on; whole padded rows when `padded`."""
    place, stage = ctx.places[name], plan.stage(name)
    assert stage is not None and place.buffer is not None
    layout = place.layout
    if padded:
        offset, size = layout.offset(first, -layout.border[1]), rows * layout.pitch_bytes
        shape = {"row_bytes": size}
    else:
        row = layout.width * layout.channels
        offset, size = layout.offset(first, 0), rows * row
        shape = _rows(rows, row, layout.pitch_bytes, row)
    address, access = ctx.stage_access(stage, block)
    ctx.builder.add("load", "dma_in", (ctx.place_access(name),), (access,), binding=place.buffer,
                    external_offset=place.address + offset, external_reg=register, sram_address=address,
                    sram_reg=block.stage_register, **shape)


def store_stage(ctx: Context, plan: StepPlan, place: Place, first: int, rows: int, block: Block,
                register: int) -> None:
    """Copy `rows` rows of the step's result from its (tight) staging buffer into external `place`, which holds the
    whole tensor, from row `first` of the result on."""
    step = plan.step
    stage, part = plan.stage(step.y), getattr(step, "part", None)
    assert stage is not None and place.buffer is not None
    _, width, channels = result_shape(step, ctx.tensors[step.y])
    access = Access(place.buffer, place.address, place.address + place.layout.bytes)
    address, source = ctx.stage_access(stage, block)
    ctx.builder.add("store", "dma_out", (source,), (access,), binding=place.buffer,
                    external_offset=place.start(part, first), external_reg=register, sram_address=address,
                    sram_reg=block.stage_register,
                    **_scatter(rows, width, channels, place.row_bytes(part), place.position_bytes(part)))


def load_channels(ctx: Context, plan: StepPlan, name: str, first: int, size: int, block: Block) -> None:
    """Fill a staging buffer with channels [first, first + size) of a whole tensor."""
    place, stage = ctx.places[name], plan.stage(name)
    assert stage is not None and place.buffer is not None
    address, access = ctx.stage_access(stage, block)
    ctx.builder.add("load", "dma_in", (ctx.place_access(name),), (access,), binding=place.buffer, sram_address=address,
                    external_offset=place.start(None, 0) + first, **_slice(place.layout, size))


def store_channels(ctx: Context, plan: StepPlan, place: Place, first: int, size: int, block: Block) -> None:
    """Copy a block of channels of the result from its staging buffer to channel `first` of external `place`."""
    stage = plan.stage(plan.step.y)
    assert stage is not None and place.buffer is not None
    address, source = ctx.stage_access(stage, block)
    access = Access(place.buffer, place.address, place.address + place.layout.bytes)
    ctx.builder.add("store", "dma_out", (source,), (access,), binding=place.buffer, sram_address=address,
                    external_offset=place.start(None, 0) + first, **_slice(place.layout, size))


def _slice(layout: Layout, size: int) -> dict[str, int]:
    """Fields of a transfer of `size` channels of every position, which lie alone in SRAM."""
    return {"row_bytes": size, "rows": layout.width, "planes": layout.height, "external_row_stride": layout.channels,
            "external_plane_stride": layout.pitch_bytes, "sram_row_stride": size,
            "sram_plane_stride": size * layout.width}


def _scatter(rows: int, width: int, channels: int, row_bytes: int, position_bytes: int) -> dict[str, int]:
    """Fields of a store from tight rows to rows whose positions lie `position_bytes` apart."""
    if position_bytes == channels:
        return _rows(rows, width * channels, row_bytes, width * channels)
    return {"row_bytes": channels, "rows": width, "external_row_stride": position_bytes, "sram_row_stride": channels,
            "planes": rows, "external_plane_stride": row_bytes, "sram_plane_stride": width * channels}


def clear(ctx: Context, name: str, value: int) -> None:
    """Write `value` into a whole tensor, without its border."""
    place = ctx.places[name]
    layout = place.layout
    row = layout.width * layout.channels
    if not place.in_sram:
        _store_value(ctx, place, value, layout.offset(0, 0), row, layout.height, layout.pitch_bytes)
        return
    whole = layout.is_tight
    ctx.builder.add("fill", "dma_in", (), (ctx.place_access(name),), value=value,
                    sram_address=place.start(None, 0), row_bytes=row * layout.height if whole else row,
                    rows=1 if whole else layout.height, sram_row_stride=0 if whole else layout.pitch_bytes)


def fill_border(ctx: Context, name: str) -> None:
    """Write a tensor's zero point into its border, wherever it lives."""
    place = ctx.places[name]
    for start, size, rows, stride in border_pieces(place.layout):
        if place.in_sram:
            address = place.address + start
            span = ctx.sram(address, (rows - 1) * stride + size)
            ctx.builder.add("fill", "dma_in", (), (span,), value=place.layout.value, sram_address=address,
                            row_bytes=size, rows=rows, sram_row_stride=stride if rows > 1 else 0)
        else:
            _store_value(ctx, place, place.layout.value, start, size, rows, stride)


def _store_value(ctx: Context, place: Place, value: int, start: int, size: int, rows: int, stride: int) -> None:
    """Write one value into rows of an external tensor, from a row of SRAM that holds it."""
    plan, builder = ctx.plan, ctx.builder
    width = min(size, plan.border_row_bytes)
    source = ctx.sram(plan.border_row_address, width)
    builder.add("fill", "dma_in", (), (source,), value=value, sram_address=plan.border_row_address,
                row_bytes=width)
    assert place.buffer is not None
    access = Access(place.buffer, place.address, place.address + place.layout.bytes)
    for first in range(0, size, width):
        builder.add("store", "dma_out", (source,), (access,), binding=place.buffer,
                    external_offset=place.address + start + first, sram_address=plan.border_row_address,
                    row_bytes=min(width, size - first), rows=rows, external_row_stride=stride if rows > 1 else 0)


def _transfer(ctx: Context, mnemonic: str, buffer: int, offset: int, outside: Layout, place: Place, first: int,
              rows: int) -> None:
    """Rows [first, first + rows) between a tight external tensor and its SRAM place."""
    inside = place.layout
    row = inside.width * inside.channels
    address = place.address + inside.offset(first, 0)
    external = Access(buffer, offset, offset + outside.bytes)
    sram = ctx.sram(address, (rows - 1) * inside.pitch_bytes + row)
    if rows < inside.height:
        sram = Access("sram", place.address, place.address + inside.bytes, (first, first + rows))
    reads, writes = ((external,), (sram,)) if mnemonic == "load" else ((sram,), (external,))
    ctx.builder.add(mnemonic, "dma_in" if mnemonic == "load" else "dma_out", reads, writes, binding=buffer,
                    external_offset=offset + first * row, sram_address=address,
                    **_rows(rows, row, row, inside.pitch_bytes))


def _rows(rows: int, row_bytes: int, external_stride: int, sram_stride: int) -> dict[str, int]:
    """Row fields of a transfer; rows that touch on both sides become one."""
    if rows == 1 or external_stride == sram_stride == row_bytes:
        return {"row_bytes": rows * row_bytes}
    return {"row_bytes": row_bytes, "rows": rows, "external_row_stride": external_stride,
            "sram_row_stride": sram_stride}


def tight(layout: Layout) -> Layout:
    """The same tensor without its border, as it lies in an input or output buffer."""
    return Layout(layout.height, layout.width, layout.channels)
