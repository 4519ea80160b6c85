"""Codec lanes: which rows, tiles and columns carry symbols, and in which step each row is decoded."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import EncodeError

MEMORY_TILES = 256  # row masks that the decoder remembers, by tile number modulo this
FEWEST_MASKED_COLUMNS = 4  # fewer zero columns are cheaper as one REST symbol per lane


@dataclass(frozen=True)
class LaneShape:
    """columns: of the array; rows_per_cycle: of the decoder, as many lanes per column."""

    columns: int
    rows_per_cycle: int

    @property
    def lanes(self) -> int:
        """Weight lanes; lane 1 + parity * columns + column. Lane 0 is the control lane."""
        return self.columns * self.rows_per_cycle


@dataclass(frozen=True)
class Work:
    """Weights of one conv or dwc: `values` int8 (rows, columns) in tile order, `tiles` the rows of each tile."""

    values: np.ndarray
    tiles: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.int8 or not self.values.size:
            raise EncodeError(f"lanes: weights are {self.values.dtype} of shape {self.values.shape}; "
                              "give int8 (rows, columns)")
        if sum(self.tiles) != len(self.values) or min(self.tiles) < 1:
            raise EncodeError(f"lanes: tiles of {sum(self.tiles)} rows; the weights have {len(self.values)}")

    @cached_property
    def used_rows(self) -> np.ndarray:
        """bool (rows,): rows that are not all zero."""
        return self.values.any(axis=1)

    @property
    def has_zero_lines(self) -> bool:
        """Whether masks would say anything: a row is zero, or as many columns as a column mask takes."""
        return not self.used_rows.all() or int((~self.values.any(axis=0)).sum()) >= FEWEST_MASKED_COLUMNS

    @cached_property
    def stored(self) -> tuple[int, int]:
        """Tiles that are not all zero, and their rows."""
        tiles = np.array(self.tiles)
        present = np.logical_or.reduceat(self.used_rows, np.cumsum(tiles) - tiles)
        return int(present.sum()), int(tiles[present].sum())


def conv_tiles(runs: int, run_bytes: int, rows: int) -> tuple[int, ...]:
    """Rows of each tile of a conv: every run in slices of `rows` lanes (array.rows)."""
    run = (rows,) * (run_bytes // rows) + (run_bytes % rows,) * (run_bytes % rows > 0)
    return run * runs


def dwc_tiles(taps: int) -> tuple[int, ...]:
    """Rows of each tile of a dwc: one tile with a row per tap."""
    return (taps,)


def conv_work(weights: np.ndarray, rows: int) -> Work:
    """Weights int8 (runs_y, runs_x, run_bytes, columns) of a conv in tiles of `rows` lanes (array.rows)."""
    runs_y, runs_x, run_bytes, columns = weights.shape
    return Work(np.ascontiguousarray(weights).reshape(-1, columns), conv_tiles(runs_y * runs_x, run_bytes, rows))


def dwc_work(weights: np.ndarray) -> Work:
    """Weights int8 (runs_y, runs_x, columns) of a dwc."""
    columns = weights.shape[-1]
    values = np.ascontiguousarray(weights).reshape(-1, columns)
    return Work(values, dwc_tiles(len(values)))


@dataclass(frozen=True)
class Layout:
    """Where the symbols of several works stand; a step is a top-up of lanes followed by one symbol of each.

    values: uint8 (all rows, shape.columns). on: bool (works, columns), columns with symbols.
    rows, row_work, row_step: for each parity, numbers of its rows and their work and step. control_*: symbols of the
    control lane. work_end: step after the last one of each work. empty_tiles: tiles without a live row.
    """

    masks: bool
    values: np.ndarray
    on: np.ndarray
    rows: tuple[np.ndarray, ...]
    row_work: tuple[np.ndarray, ...]
    row_step: tuple[np.ndarray, ...]
    control_step: np.ndarray
    control_symbol: np.ndarray
    control_size: np.ndarray
    work_end: np.ndarray
    empty_tiles: int

    @cached_property
    def steps(self) -> int:
        return int(self.work_end[-1])


def lay_out(works: Sequence[Work], shape: LaneShape, masks: bool) -> Layout:
    """Layout of `works` under one table. Without masks every row of every column carries symbols."""
    values, on = _stack(works, shape.columns)
    tile_rows = np.concatenate([work.tiles for work in works]).astype(np.int64)
    tile_work = np.repeat(np.arange(len(works)), [len(work.tiles) for work in works])
    row_tile = np.repeat(np.arange(len(tile_rows)), tile_rows)
    first_tile = np.diff(tile_work, prepend=-1) > 0
    live = np.ones(len(values), bool)
    header = (np.zeros(0, np.int64),) * 3
    if masks:
        live = values.any(axis=1)
        on, header = _mask_columns(values, on, tile_work[row_tile])
    live_rows = np.bincount(row_tile, live, len(tile_rows)).astype(np.int64)
    groups = -(-live_rows // shape.rows_per_cycle)
    tile_steps = groups + masks * (1 + first_tile)
    tile_end = np.cumsum(tile_steps)
    first_group = tile_end - groups
    ordinal = np.cumsum(live) - np.repeat(np.cumsum(live_rows) - live_rows, tile_rows) - 1
    step = first_group[row_tile] + ordinal // shape.rows_per_cycle
    rows = tuple(np.flatnonzero(live & (ordinal % shape.rows_per_cycle == parity))
                 for parity in range(shape.rows_per_cycle))
    control = _control(header, live, tile_rows, tile_work, first_group, first_tile) if masks else header
    return Layout(masks, values, on, rows, tuple(tile_work[row_tile[r]] for r in rows), tuple(step[r] for r in rows),
                  *control, tile_end[np.append(np.flatnonzero(first_tile)[1:], len(tile_rows)) - 1],
                  int((live_rows == 0).sum()))


def _stack(works: Sequence[Work], columns: int) -> tuple[np.ndarray, np.ndarray]:
    """All rows one under another, uint8, columns beyond those of a work zero and off."""
    values = np.zeros((sum(len(work.values) for work in works), columns), np.uint8)
    on = np.zeros((len(works), columns), bool)
    start = 0
    for index, work in enumerate(works):
        rows, used = work.values.shape
        if used > columns:
            raise EncodeError(f"lanes: weights of {used} columns; the array has {columns}")
        values[start:start + rows, :used] = work.values.view(np.uint8)
        on[index, :used] = True
        start += rows
    return values, on


def _mask_columns(values: np.ndarray, on: np.ndarray, row_work: np.ndarray) -> tuple[np.ndarray, tuple]:
    """Columns that stay on; control symbol and its bits per work: 0, or 1 and a bit per column, column 0 first."""
    starts = np.flatnonzero(np.diff(row_work, prepend=-1))
    live = np.logical_or.reduceat(values != 0, starts, axis=0)
    masked = (on & ~live).sum(axis=1) >= FEWEST_MASKED_COLUMNS
    count = on.sum(axis=1)
    weight = np.int64(1) << np.maximum(count[:, None] - 1 - np.arange(on.shape[1]), 0)
    symbol = (np.int64(1) << count) + ((live & on) * weight).sum(axis=1)
    return np.where(masked[:, None], on & live, on), (np.where(masked, symbol, 0), np.where(masked, 1 + count, 1))


def _control(header: tuple[np.ndarray, np.ndarray], live: np.ndarray, tile_rows: np.ndarray, tile_work: np.ndarray,
             first_group: np.ndarray, first_tile: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, symbols and sizes of the control lane: column masks and row masks in program order."""
    symbol, size = _row_masks(live, tile_rows, tile_work, first_tile)
    steps = np.concatenate([first_group[first_tile] - 2, first_group - 1])
    order = np.argsort(steps, kind="stable")
    return steps[order], np.concatenate([header[0], symbol])[order], np.concatenate([header[1], size])[order]


def _row_masks(live: np.ndarray, tile_rows: np.ndarray, tile_work: np.ndarray,
               first_tile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Control symbol and its size per tile: 0 as remembered, 10 no row, 11 and a bit per row, row 0 first.

    Remembered is the mask of the last tile with the same number in its instruction, modulo MEMORY_TILES, since the
    wtab; all rows if there was none. Masks are kept with row 0 in bit 31.
    """
    start = np.cumsum(tile_rows) - tile_rows
    position = np.arange(len(live)) - np.repeat(start, tile_rows)
    tile = np.repeat(np.arange(len(tile_rows)), tile_rows)
    mask = np.bincount(tile, live * np.exp2(31 - position), len(tile_rows)).astype(np.int64)
    full = np.int64(0xFFFFFFFF)
    slot = (np.arange(len(tile_rows)) - np.flatnonzero(first_tile)[tile_work]) % MEMORY_TILES
    order = np.argsort(slot, kind="stable")
    before = np.full(len(tile_rows), full)
    same_slot = np.diff(slot[order], prepend=-1) == 0
    before[order[1:]] = np.where(same_slot[1:], mask[order[:-1]], full)
    same = mask == (before & (full << (32 - tile_rows) & full))
    explicit = (np.int64(3) << tile_rows) + (mask >> (32 - tile_rows))
    symbol = np.where(same, 0, np.where(mask == 0, 2, explicit))
    return symbol, np.where(same, 1, np.where(mask == 0, 2, 2 + tile_rows))
