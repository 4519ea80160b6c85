"""Codec lanes: encoder. Every weight column of every row parity is a bit stream of its own (a lane).

The words of all lanes follow one another in the order in which a decoder that takes rows_per_cycle rows a cycle asks
for them, so one in-order stream feeds all lanes without an index. Lanes go on from instruction to instruction; a
stretch is what is encoded between two points where they start anew. isa/lane_decode.py is the meaning, word for word.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from ..errors import EncodeError
from .lane_layout import LaneShape, Layout, Work, lay_out
from .lane_stream import control_words, lane_words
from .lane_table import EXTRA_BITS, LONGEST_RUN, REST, RUN_CLASSES, VALUE_CLASS, Table, code_lengths

TABLE_COST_BITS = 8 * 20  # a wtab instruction
LAYERS_PER_TABLE = 256  # so that the search is linear in the layers; a table more costs 20 bytes


@dataclass(frozen=True)
class _Runs:
    """Zero runs of one parity: flat index of the first zero in (columns, rows), class and extra bits of each symbol."""

    start: np.ndarray
    classes: np.ndarray
    extra: np.ndarray


@dataclass(frozen=True)
class Batch:
    """Works under one table, analysed: `values` uint8 (columns, rows) of each parity, zero runs, class counts.

    off: lanes without symbols, bool (columns, rows) of each parity, None for none. by_value: int64 (256,), how often
    symbols stand for each byte value.
    """

    layout: Layout
    values: tuple[np.ndarray, ...]
    off: tuple[np.ndarray | None, ...]
    by_value: np.ndarray
    runs: tuple[_Runs, ...]
    counts: np.ndarray

    def bits(self, lengths: Sequence[int]) -> int:
        """Bits of all symbols, control lane included, under a code of these lengths."""
        return int(self.counts @ (np.array(lengths) + EXTRA_BITS)) + int(self.layout.control_size.sum())


def analyse(works: Sequence[Work], shape: LaneShape, centre: int, masks: bool) -> Batch:
    """Find rows, zero runs and class counts of works that share a table with this centre."""
    layout = lay_out(works, shape, masks)
    values, offs, by_value = [], [], np.zeros(256, np.int64)
    for rows, work in zip(layout.rows, layout.row_work):
        values.append(np.ascontiguousarray(layout.values[rows].T))
        offs.append(None if layout.on.all() else ~layout.on[work].T)
        by_value += _histogram(values[-1])
        if offs[-1] is not None:
            by_value -= np.bincount(values[-1][offs[-1]], minlength=256)
    return _centred(layout, tuple(values), tuple(offs), by_value, centre)


def _centred(layout: Layout, values: tuple[np.ndarray, ...], offs: tuple[np.ndarray | None, ...],
             by_value: np.ndarray, centre: int) -> Batch:
    """The batch with the zero runs and class counts of values counted from `centre`."""
    runs = tuple(_find_runs(v == (centre & 255), off, work) for v, off, work in zip(values, offs, layout.row_work))
    counts = np.bincount(VALUE_CLASS[1:], np.roll(by_value, -centre)[1:], len(EXTRA_BITS)).astype(np.int64)
    for found in runs:
        counts += np.bincount(found.classes, minlength=len(counts))
    return Batch(layout, values, offs, by_value, runs, counts)


def _histogram(values: np.ndarray) -> np.ndarray:
    """int64 (256,): how often each byte occurs in contiguous uint8 `values`; large ones are counted by pairs."""
    flat = values.reshape(-1)
    if len(flat) < 1 << 16:
        return np.bincount(flat, minlength=256)
    pairs = np.bincount(flat[:len(flat) & ~1].view(np.uint16), minlength=1 << 16).reshape(256, 256)
    return pairs.sum(axis=0) + pairs.sum(axis=1) + np.bincount(flat[len(flat) & ~1:], minlength=256)


def _find_runs(zero: np.ndarray, off: np.ndarray | None, work: np.ndarray) -> _Runs:
    """Runs of `zero` (columns, rows) along rows, cut where the work changes; `off` marks lanes without symbols."""
    if off is not None:
        zero = zero & ~off
    edge = np.ones(len(work) + 1, bool)
    edge[1:-1] = work[1:] != work[:-1]
    begins, ends = zero.copy(), zero.copy()
    begins[:, 1:] &= ~zero[:, :-1] | edge[1:-1]
    ends[:, :-1] &= ~zero[:, 1:] | edge[1:-1]
    start, end = np.flatnonzero(begins), np.flatnonzero(ends)
    length = end - start + 1
    rest = (length > 1) & edge[1:][end % max(len(work), 1)]
    pieces = np.where(rest, 1, -(-length // LONGEST_RUN))
    first = np.cumsum(pieces) - pieces
    skipped = (np.arange(int(pieces.sum())) - np.repeat(first, pieces)) * LONGEST_RUN
    piece = np.minimum(np.repeat(length, pieces) - skipped, LONGEST_RUN)
    classes = np.searchsorted(1 << np.arange(RUN_CLASSES), piece, side="right") - 1
    is_rest = np.repeat(rest, pieces)
    return _Runs(np.repeat(start, pieces) + skipped, np.where(is_rest, REST, classes),
                 np.where(is_rest, 0, piece - (1 << classes)))


def choose_table(works: Sequence[Work], shape: LaneShape) -> tuple[Table, Batch]:
    """Table with the fewest bits for `works`, and their analysis. Masks are used when a whole tile is zero."""
    plain = analyse(works, shape, 0, False)
    signed = np.arange(256, dtype=np.uint8).view(np.int8)
    mean = int(np.rint((plain.by_value @ signed.astype(np.int64)) / max(int(plain.by_value.sum()), 1)))
    candidates = [plain]
    if any(work.has_zero_lines for work in works):
        candidates.append(analyse(works, shape, 0, True))
    tables = [Table(code_lengths(batch.counts), 0, batch.layout.masks) for batch in candidates]
    bits = [batch.bits(table.lengths) for batch, table in zip(candidates, tables)]
    best = int(np.argmin(bits))
    if candidates[-1].layout.empty_tiles:
        best = len(candidates) - 1
    elif mean:
        batch = _centred(plain.layout, plain.values, plain.off, plain.by_value, mean)
        table = Table(code_lengths(batch.counts), mean, False)
        if batch.bits(table.lengths) < bits[best]:
            return table, batch
    return tables[best], candidates[best]


class Planned(NamedTuple):
    """A table, the number of layers that it serves, and their analysis under it if it is a single one."""

    table: Table
    layers: int
    batch: Batch | None


def plan_tables(layers: Sequence[Sequence[Work]], shape: LaneShape) -> list[Planned]:
    """Tables for the layers of a stretch in order, one `wtab` each.

    Up to LAYERS_PER_TABLE consecutive layers share a table where that saves more than a wtab costs.
    """
    kinds, batches = [], []
    for works in layers:
        table, batch = choose_table(works, shape)
        kinds.append((table.centre, table.masks))
        batches.append(batch)
    counts = [batch.counts for batch in batches]
    best, cut, alike = np.zeros(len(layers) + 1), [0], 0
    before = np.concatenate([np.zeros((1, len(EXTRA_BITS)), np.int64), np.cumsum(counts, axis=0)])
    for stop in range(1, len(layers) + 1):
        if kinds[stop - 1] != kinds[alike]:
            alike = stop - 1
        start = max(alike, stop - LAYERS_PER_TABLE)
        costs = best[start:stop] + _entropy_bits(before[stop] - before[start:stop]) + TABLE_COST_BITS
        cut.append(start + int(np.argmin(costs)))
        best[stop] = costs.min()
    tables: list[Planned] = []
    stop = len(layers)
    while stop:
        start = cut[stop]
        tables.insert(0, Planned(Table(code_lengths(sum(counts[start:stop])), *kinds[start]), stop - start,
                                 batches[start] if stop - start == 1 else None))
        stop = start
    return tables


def _entropy_bits(counts: np.ndarray) -> np.ndarray:
    """Bits of the symbols counted in each row of `counts` under an ideal code of their own."""
    totals = counts.sum(axis=1, keepdims=True)
    return (counts * (np.log2(np.maximum(totals, 1)) - np.log2(np.maximum(counts, 1)))).sum(axis=1)


@dataclass(frozen=True)
class Encoded:
    """Payload of one work, and the words that the decoder asks for in each of its steps (see `Layout`)."""

    payload: bytes
    words: np.ndarray


def encode(parts: Sequence[tuple[Table, Sequence[Work]]], shape: LaneShape) -> list[list[bytes]]:
    """Payloads of one stretch: for each part (the works that follow a wtab) those of its works, in program order.

    The first wtab of the stretch starts the lanes anew. Raises EncodeError for weights that a table cannot express.
    """
    return [[work.payload for work in part] for part in encode_steps(parts, shape)]


def encode_steps(parts: Sequence[tuple[Table, Sequence[Work]]], shape: LaneShape,
                 batches: Sequence[Batch | None] = ()) -> list[list[Encoded]]:
    """`encode` with the words of every step. batches: analyses of the parts, where they are known."""
    control, lanes = [], [[] for _ in range(shape.rows_per_cycle)]
    step, ends = 0, []
    for (table, works), known in zip_longest(parts, batches[:len(parts)]):
        batch = known or analyse(works, shape, table.centre, table.masks)
        layout = batch.layout
        control.append((step + layout.control_step, layout.control_symbol, layout.control_size))
        for lane, (symbols, sizes), steps in zip(lanes, _symbols(batch, table), layout.row_step):
            lane.append((step + steps, symbols, sizes))
        ends.append(step + layout.work_end)
        step += layout.steps
    joined = [[np.concatenate(x, axis=-1) if len(x) > 1 else x[0] for x in zip(*each)] for each in (control, *lanes)]
    asked, words = map(np.concatenate, zip(control_words(*joined[0]), *(lane_words(*each) for each in joined[1:])))
    order = np.argsort(asked.astype(np.uint16) if step <= 1 << 16 else asked, kind="stable")  # by radix if it can
    return _cut(words[order], np.bincount(asked, minlength=step), ends)


def _symbols(batch: Batch, table: Table) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Symbols uint16 (columns, rows) of each parity and their bits uint8, 0 where there is none."""
    value_symbol, value_size = table.value_symbols()
    missing = np.roll((value_size == 0) & (batch.by_value > 0), -table.centre)[1:]
    if missing.any():
        value = np.uint8((np.flatnonzero(missing)[0] + 1 + table.centre) & 255).view(np.int8)
        raise EncodeError(f"lanes: weight {value} has no code word in the table; make one from these weights")
    for values, off, runs in zip(batch.values, batch.off, batch.runs):
        symbols, sizes = value_symbol[values], value_size[values]
        if off is not None:
            sizes[off] = 0
        symbols.ravel()[runs.start], sizes.ravel()[runs.start] = table.class_symbols(runs.classes, runs.extra)
        yield symbols, sizes


def _cut(stream: np.ndarray, words: np.ndarray, ends: Sequence[np.ndarray]) -> list[list[Encoded]]:
    """Works that end before these steps; `words` are asked for in each step.

    A payload ends with the first even word; one that its instruction does not need stays in the decoder for the next
    one. Zero words at the end of the stretch are left out.
    """
    used = np.flatnonzero(stream)
    length = -(-(int(used[-1]) + 1 if used.size else 0) // 2) * 2
    data = np.zeros(length, "<u2")
    data[: min(length, len(stream))] = stream[:length]
    encoded: list[list[Encoded]] = []
    step = asked = start = 0
    for part in ends:
        encoded.append([])
        for end in part.tolist():
            asked += int(words[step:end].sum())
            stop = min(-(-asked // 2) * 2, length)
            encoded[-1].append(Encoded(data[start:stop].tobytes(), words[step:end]))
            step, start = end, stop
    return encoded
