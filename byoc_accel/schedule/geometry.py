"""Sizes that follow from a step and a cut: borders, rows of input per block, positions per accumulator bank."""
from __future__ import annotations

from ..quantize.qregion import QTensor
from ..target import Target
from .plan import Blocks, ChainStep, ConvStep, Layout, PoolStep, Step, result_shape


def is_depthwise(step: Step) -> bool:
    """True when the array's depthwise mode can run it: one input channel per output channel."""
    if not isinstance(step, ConvStep):
        return False
    weight = step.conv.weight
    return step.conv.groups == weight.shape[0] > 1 and weight.shape[3] == 1


def uses_accumulators(step: Step) -> bool:
    """True when results pass through the accumulators."""
    return isinstance(step, ConvStep) or (isinstance(step, PoolStep) and step.pool.kind == "avg")


def border(step: ConvStep, x: QTensor, result: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Border positions (top, left, bottom, right) that the convolution reads around its input."""
    conv = step.conv
    top, left = conv.padding[:2]
    if step.part is None and not any(conv.padding):
        return (0, 0, 0, 0)
    sizes = zip(x.shape[1:3], result[:2], conv.stride, conv.dilation, conv.weight.shape[1:3], (top, left))
    low = [max(0, (out - 1) * s + (k - 1) * d + 1 - before - size) for size, out, s, d, k, before in sizes]
    return (max(top, 0), max(left, 0), low[0], low[1])


def layouts(steps: tuple[Step, ...], tensors: dict[str, QTensor]) -> dict[str, Layout]:
    """SRAM layout of every tensor: its border is the largest that any convolution reading it needs."""
    borders: dict[str, tuple[int, ...]] = {}
    for step in steps:
        if isinstance(step, ChainStep) and step.direct is None:
            step = step.members[0]
        if isinstance(step, ConvStep):
            need = border(step, tensors[step.x], result_shape(step, tensors[step.y]))
            borders[step.x] = tuple(max(a, b) for a, b in zip(need, borders.get(step.x, (0, 0, 0, 0))))
    out = {}
    for name, tensor in tensors.items():
        _, height, width, channels = tensor.shape
        out[name] = Layout(height, width, channels, borders.get(name, (0, 0, 0, 0)), tensor.zero_point)  # type: ignore[arg-type]
    return out


def _edge_strips(layout: Layout) -> tuple[int, int]:
    """How many strips reach over the left edge of the tensor, and how many others over the right one."""
    strips, left = layout.strips, layout.border[1]
    assert strips is not None
    before = min(strips.count, -(-left // strips.step))
    return before, sum(i * strips.step - left + strips.columns > layout.width for i in range(before, strips.count))


def border_pieces(layout: Layout) -> list[tuple[int, int, int, int]]:
    """(start, row bytes, rows, stride) of the pieces of a border; right and left edges are one piece, top and bottom
    are rows of another, which may reach into the tensor: borders are written before it.

    Strips that reach over the left or right edge are a part of the border as a whole.
    """
    top, left, bottom, right = layout.border
    pitch, whole, strips = layout.pitch_bytes, layout.position_bytes, layout.strips
    if strips is None:
        channels = layout.channels
        pieces = [(0, top * pitch + left * channels, 1, 0),
                  (layout.offset(0, layout.width), (left + right) * channels, layout.height - 1, pitch),
                  (layout.offset(layout.height - 1, layout.width), right * channels + bottom * pitch, 1, 0)]
    else:
        before, after = _edge_strips(layout)
        if before + after >= strips.count:
            return [(0, layout.bytes, 1, 0)]
        last = (strips.count - after - 1) * whole
        end = (top + layout.height) * pitch
        pieces = [(0, before * whole + top * pitch, 1, 0),
                  (before * whole + end, (bottom + top) * pitch, strips.count - after - before - 1, whole),
                  (last + end, bottom * pitch + after * whole, 1, 0)]
    first, sides, last = pieces
    if first[1] and last[1]:
        size = max(first[1], last[1])
        first, last = (0, size, 2, layout.bytes - size), (0, 0, 0, 0)
    return [p for p in (first, sides, last) if p[1] and p[2]]


def window(step: Step) -> tuple[tuple[int, int], tuple[int, int]]:
    """((extent_y, extent_x), (stride_y, stride_x)) of the input positions behind one output position."""
    if isinstance(step, ConvStep):
        conv = step.conv
        extent = tuple((k - 1) * d + 1 for k, d in zip(conv.weight.shape[1:3], conv.dilation))
        return extent, conv.stride  # type: ignore[return-value]
    if isinstance(step, PoolStep):
        return step.pool.kernel, step.pool.stride
    return (1, 1), (1, 1)


def block_input_rows(step: Step, rows: int) -> int:
    """Rows of the first operand behind `rows` rows of output."""
    (extent, _), (stride, _) = window(step)
    return (rows - 1) * stride + extent


def strip_loads(layout: Layout) -> list[tuple[int, list[tuple[int, int]]]]:
    """(bytes, [(byte in a row of the tensor, byte from the first strip on), ...]) of strips that one load can make:
    of one width, and equally spaced in both memories."""
    strips = layout.strips
    assert strips is not None
    found: list[tuple[int, list[tuple[int, int]]]] = []
    for number in range(strips.count):
        start = number * strips.step - layout.border[1]
        first, last = max(0, start), min(layout.width, start + strips.columns)
        if first >= last:
            continue
        size, at = (last - first) * layout.channels, (
            first * layout.channels, number * layout.position_bytes + (first - start) * layout.channels)
        for other, run in found:
            if other == size and (len(run) == 1 or all(2 * b - a == c for a, b, c in zip(run[-2], run[-1], at))):
                run.append(at)
                break
        else:
            found.append((size, [at]))
    return found


def input_spans(step: Step, heights: tuple[int, ...], height: int) -> list[tuple[int, int]]:
    """Rows [start, end) of an input of `height` rows behind each block; the first ones may lie in its border.

    Each block has a row at least, and the last one all that are left: other steps may read them.
    """
    assert isinstance(step, ConvStep)
    spans, first = [], 0
    for rows in heights:
        start = first * step.conv.stride[0] - step.conv.padding[0]
        spans.append((start, max(1, min(height, start + block_input_rows(step, rows)))))
        first += rows
    return [*spans[:-1], (spans[-1][0], height)]


def first_cut(step: Step, y: QTensor, target: Target) -> Blocks:
    """The largest blocks that the accumulators hold, of nearly equal height."""
    height, width, _ = result_shape(step, y)
    if not uses_accumulators(step):
        return Blocks(height, 1, width)
    entries = target.accumulator_entries_per_bank
    columns = min(width, entries)
    if is_depthwise(step) or isinstance(step, PoolStep):
        columns = min(columns, _line_buffer_columns(step, target))
    return cut(height, max(1, entries // columns), columns)


def row_parts(row_bytes: int, columns: int) -> list[tuple[int, int, int]]:
    """(first byte, bytes, positions) of a row cut into positions of `columns` bytes, and what is left."""
    whole, rest = divmod(row_bytes, columns)
    return [p for p in ((0, columns, whole), (whole * columns, rest, 1)) if p[1] and p[2]]


def cut(height: int, most_rows: int, columns: int) -> Blocks:
    """Blocks of equal height, at most `most_rows`; the last one may overlap the one before."""
    rows = min(height, most_rows)
    count = -(-height // rows)
    return Blocks(-(-height // count), count, columns)


def _line_buffer_columns(step: Step, target: Target) -> int:
    """Output columns whose input row fits a line buffer; no limit where one-row windows are used anyway."""
    (_, extent), (_, stride) = window(step)
    fit = (target.line_buffer_positions - extent) // stride + 1
    return fit if fit > 0 else target.accumulator_entries_per_bank
