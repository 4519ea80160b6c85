"""Convolutions in a chain: which rows of each member a block takes, and what lies between the members."""
from __future__ import annotations

from dataclasses import dataclass, replace

from ..quantize.qregion import QPool, QTensor
from ..target import Target
from .geometry import border, first_cut
from .plan import Blocks, ChainStep, ConvStep, Layout, Strips

Span = tuple[int, int]


@dataclass(frozen=True)
class Stripe:
    """Rows [first, first + rows) of a chain's result, `count` times one below the other as a hardware loop.

    The last one of a loop ends with the tensor and may overlap the one before.
    """

    first: int
    rows: int
    count: int = 1


def results(chain: ChainStep, y: QTensor) -> tuple[QTensor, ...]:
    """What each member computes."""
    return chain.inner if chain.pool else (*chain.inner, y)


def input_span(step: ConvStep, span: Span) -> Span:
    """Rows [start, end) of the input behind rows [start, end) of the result; borders have negative numbers."""
    conv = step.conv
    start = span[0] * conv.stride[0] - conv.padding[0]
    return start, start + (span[1] - span[0] - 1) * conv.stride[0] + (conv.weight.shape[1] - 1) * conv.dilation[0] + 1


def spans(chain: ChainStep, first: int, rows: int, heights: tuple[int, ...]) -> list[tuple[Span, Span]]:
    """Of each member the rows behind rows [first, first + rows) of the chain's result: those that the next member
    reads, border included, and those of them that exist. A pool reads rows above from the stripe before."""
    stride = chain.pool.pool.stride[0] if chain.pool else 1
    span, out = (first * stride, (first + rows) * stride), []
    for step, height in zip(reversed(chain.members), reversed(heights)):
        inside = max(0, span[0]), min(height, span[1])
        out.append((span, inside))
        span = input_span(step, inside)
    return out[::-1]


def input_rows(chain: ChainStep, span: Span) -> tuple[Span, Span]:
    """Rows of the chain's input behind rows [start, end) of the first member's result, border included, and those that
    are loaded: all of them, unless the border is not outside."""
    whole = input_span(chain.members[0], span)
    if chain.direct is None:
        return whole, whole
    return whole, (max(0, whole[0]), min(chain.direct.shape[1], whole[1]))


def read_layout(chain: ChainStep, layout: Layout, y: QTensor) -> Layout:
    """How the members see the input that lies outside as `layout`: with its border."""
    if chain.direct is None:
        return layout
    shape = results(chain, y)[0].shape[1:]
    return replace(layout, border=border(chain.members[0], chain.direct, shape))  # type: ignore[arg-type]


def stage_layout(layout: Layout, rows: int, strips: Strips | None) -> Layout:
    """How `rows` rows, border included, lie in a staging buffer that gets the columns of its border by itself."""
    return replace(layout, height=rows, border=(0, layout.border[1], 0, layout.border[3]), strips=strips)


def heights_of(chain: ChainStep, y: QTensor) -> tuple[int, ...]:
    """Height of each member's result."""
    return tuple(t.shape[1] for t in results(chain, y))


def stripes(chain: ChainStep, y: QTensor, blocks: Blocks) -> list[Stripe]:
    """The blocks in order; equal ones that reach over no edge are a loop."""
    height, rows = y.shape[1], blocks.rows
    if blocks.count == 1:
        return [Stripe(0, rows)]
    if chain.direct is None and not any(step.conv.padding[0] or border(step, x, z.shape[1:])[2] for step, x, z in zip(
            chain.members[1:], chain.inner, results(chain, y)[1:])):  # type: ignore[arg-type]
        return [Stripe(0, rows, blocks.count)]
    heights = heights_of(chain, y)
    out: list[Stripe] = []
    for first in range(0, height, rows):
        size = min(rows, height - first)
        plain = size == rows and _plain(chain, Stripe(first, size), heights)
        if plain and out and out[-1].rows == rows and _plain(chain, out[-1], heights):
            out[-1] = Stripe(out[-1].first, rows, out[-1].count + 1)
        else:
            out.append(Stripe(first, size))
    return out


def _plain(chain: ChainStep, stripe: Stripe, heights: tuple[int, ...]) -> bool:
    """Whether a stripe reaches over no edge."""
    found = spans(chain, stripe.first, stripe.rows, heights)
    return all(whole == inside for whole, inside in (*found, input_rows(chain, found[0][1])))


def inner_layouts(chain: ChainStep, y: QTensor, rows: int) -> list[Layout]:
    """How the rows of each inner tensor behind `rows` rows of the result lie, with the columns of their border."""
    heights = heights_of(chain, y)
    out = []
    unclipped = (1 << 30,) * len(heights)
    for x, result, step, (whole, _) in zip(chain.inner, results(chain, y)[1:], chain.members[1:],
                                           spans(chain, 1 << 20, rows, unclipped)):
        _, left, _, right = border(step, x, result.shape[1:])  # type: ignore[arg-type]
        out.append(Layout(whole[1] - whole[0], x.shape[2], x.shape[3], (0, left, 0, right), x.zero_point))
    if chain.pool:
        out.append(_pooled_layout(chain.pool.pool, chain.inner[-1], y, rows))
    return out


def _pooled_layout(pool: QPool, x: QTensor, y: QTensor, rows: int) -> Layout:
    """Rows of a pool's input behind `rows` rows of its result, those above included; its border loses every maximum."""
    _, _, width, channels = x.shape
    right = (y.shape[2] - 1) * pool.stride[1] - pool.padding[1] + pool.kernel[1] - width
    columns = (0, pool.padding[1], 0, max(0, right))
    return Layout(pool.padding[0] + rows * pool.stride[0], width, channels, columns, -128)


def can_pool(pool: QPool, x: QTensor, y: QTensor) -> bool:
    """Whether a chain may end with this pool: a window reaches over no row below its own `stride` rows."""
    return (pool.kind == "max" and pool.kernel[0] - pool.padding[0] <= pool.stride[0] >= pool.padding[0]
            and y.shape[1] * pool.stride[0] <= x.shape[1])


def areas(step: ConvStep, y: QTensor, rows: int, target: Target) -> tuple[list[int], int]:
    """Heights of the pieces of a block of `rows` rows that the accumulators hold, and the columns of a piece."""
    columns = first_cut(step, y, target).columns
    most = max(1, target.accumulator_entries_per_bank // columns)
    count = -(-rows // most)
    return [rows * (i + 1) // count - rows * i // count for i in range(count)], columns
