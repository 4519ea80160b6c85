"""Codec lanes: encoder. Every weight column of every row parity is a bit stream of its own (a lane).

The words of all lanes follow one another in the order in which a decoder that takes rows_per_cycle rows a cycle asks
for them, so one in-order stream feeds all lanes without an index. Lanes go on from instruction to instruction; a
stretch is what is encoded between two points where they start anew. isa/lane_decode.py is the meaning, word for word.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import EncodeError
from .lane_layout import LaneShape, Layout, Work, lay_out
from .lane_table import EXTRA_BITS, LONGEST_RUN, REST, RUN_CLASSES, VALUE_CLASS, Table, code_lengths

WORD_BITS = 16
LANE_WORDS_AHEAD = 2  # before a symbol a lane has asked for this many words beyond those it has begun
CONTROL_WORDS_AHEAD = 3  # the same for the control lane, whose symbols have up to 2 + array.rows bits
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
    """Works under one table, analysed: `values` uint8 (columns, rows) of each parity, zero runs, class counts."""

    layout: Layout
    values: tuple[np.ndarray, ...]
    runs: tuple[_Runs, ...]
    counts: np.ndarray

    def bits(self, lengths: Sequence[int]) -> int:
        """Bits of all symbols, control lane included, under a code of these lengths."""
        return int(self.counts @ (np.array(lengths) + EXTRA_BITS)) + int(self.layout.control_size.sum())


def analyse(works: Sequence[Work], shape: LaneShape, centre: int, masks: bool) -> Batch:
    """Find rows, zero runs and class counts of works that share a table with this centre."""
    layout = lay_out(works, shape, masks)
    values, runs, counts = [], [], np.zeros(len(EXTRA_BITS), np.int64)
    by_value = np.zeros(256, np.int64)
    for rows, work in zip(layout.rows, layout.row_work):
        lane_values = np.ascontiguousarray(layout.values[rows].T)
        off = None if layout.on.all() else ~layout.on[work].T
        by_value += np.bincount(lane_values.ravel(), minlength=256)
        if off is not None:
            by_value -= np.bincount(lane_values[off], minlength=256)
        found = _find_runs(lane_values == (centre & 255), off, work)
        counts += np.bincount(found.classes, minlength=len(counts))
        values.append(lane_values)
        runs.append(found)
    by_value = np.roll(by_value, -centre)
    counts += np.bincount(VALUE_CLASS[1:], by_value[1:], len(counts)).astype(np.int64)
    return Batch(layout, tuple(values), tuple(runs), counts)


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
    total = np.zeros(256, np.int64)
    for work in works:
        total += np.bincount(work.values.view(np.uint8).ravel(), minlength=256)
    signed = np.arange(256, dtype=np.uint8).view(np.int8)
    mean = int(np.rint((total @ signed.astype(np.int64)) / max(int(total.sum()), 1)))
    candidates = [analyse(works, shape, 0, False)]
    if total[0] >= shape.columns:
        candidates.append(analyse(works, shape, 0, True))
    tables = [Table(code_lengths(batch.counts), 0, batch.layout.masks) for batch in candidates]
    bits = [batch.bits(table.lengths) for batch, table in zip(candidates, tables)]
    best = int(np.argmin(bits))
    if candidates[-1].layout.empty_tiles:
        best = len(candidates) - 1
    elif mean:
        batch = analyse(works, shape, mean, False)
        table = Table(code_lengths(batch.counts), mean, False)
        if batch.bits(table.lengths) < bits[best]:
            return table, batch
    return tables[best], candidates[best]


def plan_tables(layers: Sequence[Sequence[Work]], shape: LaneShape) -> list[tuple[Table, int]]:
    """Tables for the layers of a stretch in order, each with the number of layers that it serves (one `wtab` each).

    Up to LAYERS_PER_TABLE consecutive layers share a table where that saves more than a wtab costs.
    """
    kinds, counts = [], []
    for works in layers:
        table, batch = choose_table(works, shape)
        kinds.append((table.centre, table.masks))
        counts.append(batch.counts)
    best, cut, alike = np.zeros(len(layers) + 1), [0], 0
    before = np.concatenate([np.zeros((1, len(EXTRA_BITS)), np.int64), np.cumsum(counts, axis=0)])
    for stop in range(1, len(layers) + 1):
        if kinds[stop - 1] != kinds[alike]:
            alike = stop - 1
        start = max(alike, stop - LAYERS_PER_TABLE)
        costs = best[start:stop] + _entropy_bits(before[stop] - before[start:stop]) + TABLE_COST_BITS
        cut.append(start + int(np.argmin(costs)))
        best[stop] = costs.min()
    tables: list[tuple[Table, int]] = []
    stop = len(layers)
    while stop:
        start = cut[stop]
        tables.insert(0, (Table(code_lengths(sum(counts[start:stop])), *kinds[start]), stop - start))
        stop = start
    return tables


def _entropy_bits(counts: np.ndarray) -> np.ndarray:
    """Bits of the symbols counted in each row of `counts` under an ideal code of their own."""
    totals = counts.sum(axis=1, keepdims=True)
    return (counts * (np.log2(np.maximum(totals, 1)) - np.log2(np.maximum(counts, 1)))).sum(axis=1)


class _Lane:
    """Symbols of one lane, collected part by part: the step in which each is decoded, its bits and its length."""

    def __init__(self, words_ahead: int):
        self.words_ahead = words_ahead
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, steps: np.ndarray, symbols: np.ndarray, sizes: np.ndarray) -> None:
        if len(steps):
            self._parts.append((steps, symbols, sizes))

    def words(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps in which the lane asks for its words, and the words; those beyond its bits are zero."""
        if not self._parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        steps, symbols, sizes = (np.concatenate(parts) for parts in zip(*self._parts))
        sizes = sizes.astype(np.int64)
        end = np.cumsum(sizes)
        begin = end - sizes
        asked = -(-begin // WORD_BITS) + self.words_ahead
        count = int(asked[-1])
        shifted = symbols.astype(np.uint64) << (64 - begin % WORD_BITS - sizes).astype(np.uint64)
        words = np.zeros(count + 3, np.int64)
        for place in range(self.words_ahead + 1 if self.words_ahead > 2 else 2):
            part = (shifted >> np.uint64(WORD_BITS * (3 - place)) & np.uint64(0xFFFF)).astype(np.int64)
            words[place:] += np.bincount(begin // WORD_BITS, part, len(words) - place).astype(np.int64)
        return np.repeat(steps, np.diff(asked, prepend=0)), words[:count]


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


def encode_steps(parts: Sequence[tuple[Table, Sequence[Work]]], shape: LaneShape) -> list[list[Encoded]]:
    """`encode` with the words of every step."""
    lanes = [_Lane(CONTROL_WORDS_AHEAD)] + [_Lane(LANE_WORDS_AHEAD) for _ in range(shape.lanes)]
    step, ends = 0, []
    for table, works in parts:
        batch = analyse(works, shape, table.centre, table.masks)
        _add_symbols(lanes, batch, table, step)
        ends.append(step + batch.layout.work_end)
        step += batch.layout.steps
    asked, words = (np.concatenate(x) for x in zip(*(lane.words() for lane in lanes)))
    stream = words[np.argsort(asked, kind="stable")]
    return _cut(stream, np.bincount(asked, minlength=step), ends)


def _add_symbols(lanes: list[_Lane], batch: Batch, table: Table, step: int) -> None:
    """Give every lane its symbols of one part, which begins with step number `step`."""
    layout = batch.layout
    lanes[0].add(step + layout.control_step, layout.control_symbol, layout.control_size)
    value_symbol, value_size = table.value_symbols()
    columns = layout.on.shape[1]
    lane = 1
    for values, runs, steps, work in zip(batch.values, batch.runs, layout.row_step, layout.row_work):
        symbols, sizes = value_symbol[values], value_size[values]
        if not layout.on.all():
            sizes *= layout.on[work].T
        _check_expressible(values, sizes, layout.on[work].T, table)
        symbols.ravel()[runs.start], sizes.ravel()[runs.start] = table.class_symbols(runs.classes, runs.extra)
        for column in range(columns):
            used = np.flatnonzero(sizes[column])
            lanes[lane].add(step + steps[used], symbols[column, used], sizes[column, used])
            lane += 1


def _check_expressible(values: np.ndarray, sizes: np.ndarray, on: np.ndarray, table: Table) -> None:
    wrong = (sizes == 0) & on & (values != (table.centre & 255))
    if wrong.any():
        value = int(values[wrong].view(np.int8)[0])
        raise EncodeError(f"lanes: weight {value} has no code word in the table; make one from these weights")


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
