"""Weight tiles as the decoder sees them: rows, steps and shares of a layer's bytes, from the weights' values."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from ..isa.fields import WORD_BYTES
from ..isa.lane_layout import Work
from ..target import Target
from .events import Event, Tile

LANE_WORD_BYTES = 2
AHEAD_WORDS = 2  # of every lane, before its first symbol
MASK_TILES = 32  # in a word of the mask of codec raw


@dataclass(frozen=True)
class Weights:
    """Tiles of one conv or dwc: `rows`, those that are not all zero (`live`), and `bits` in codec lanes.

    bits: of the weights in live rows by how often each value occurs in the layer (Shannon), but one for each lane, and
    of the control lane. uniform: all weights are equal, a run in each lane.
    """

    columns: int
    rows: tuple[int, ...]
    live: tuple[int, ...]
    bits: tuple[float, ...]
    uniform: bool

    @property
    def mask_bytes(self) -> int:
        return -(-len(self.rows) // MASK_TILES) * WORD_BYTES

    @property
    def raw_tile_bytes(self) -> list[int]:
        """Bytes of the tiles of codec raw, padding with the last one."""
        sizes = [rows * self.columns for rows, live in zip(self.rows, self.live) if live]
        return [*sizes[:-1], sizes[-1] - sum(sizes) % -WORD_BYTES] if sizes else []


def layer_weights(works: Sequence[Work], target: Target) -> list[Weights]:
    """What the decoder sees of all conv and dwc of a layer."""
    counts = sum(np.bincount(work.values.reshape(-1).view(np.uint8), minlength=256) for work in works)
    bits = -np.log2(np.maximum(counts, 1) / max(1, counts.sum())).astype(np.float32)
    masks = not all(work.values.any(axis=1).all() for work in works)
    known: dict[int, Weights] = {}
    for work in works:
        if id(work) not in known:
            known[id(work)] = _weights(work, bits, masks, target)
    return [known[id(work)] for work in works]


def _weights(work: Work, bits: np.ndarray, masks: bool, target: Target) -> Weights:
    columns, starts, rows = work.values.shape[1], np.cumsum((0, *work.tiles[:-1])), np.array(work.tiles)
    any_in_row = work.values.any(axis=1)
    live = np.add.reduceat(any_in_row, starts, dtype=np.int64)
    size = np.add.reduceat(bits[work.values.view(np.uint8)].sum(axis=1) * any_in_row, starts)
    size = np.maximum(size, columns * np.minimum(live, target.decoder_rows_per_cycle))
    if masks:  # control lane: "0" for what is remembered, all rows at first, "10", or "11" and a bit for each row
        size += np.where(live == rows, 1, np.where(live == 0, 2, 2 + rows))
    return Weights(columns, work.tiles, tuple(live.tolist()), tuple(size.tolist()),
                   bool((work.values == work.values[0, 0]).all()))


def raw_tiles(weights: Weights, event: Event, target: Target) -> tuple[Tile, ...]:
    """Tiles of a conv or dwc of codec raw."""
    stored = [-(-rows // target.decoder_rows_per_cycle) for rows, live in zip(weights.rows, weights.live) if live]
    out = tuple((event.cycles, steps, size) for steps, size in zip(stored, weights.raw_tile_bytes))
    return out or ((event.bare_cycles, 0, 0.0),)


class LaneTiles:
    """Tiles of codec lanes, instruction after instruction of a layer.

    scale: bytes of a bit. primed: columns whose lanes hold words already; others take some ahead. left: bytes of the
    payloads that are left; the last tiles of a stretch find theirs taken ahead.
    """

    def __init__(self, target: Target, scale: float, primed: int, left: float):
        self._target, self._scale, self._primed, self.left = target, scale, primed, left
        self._late = 0.0  # part of a cycle by which the decoder is behind whole ones

    def tiles(self, weights: Weights, event: Event, last: bool) -> tuple[Tile, ...]:
        """Tiles of the next conv or dwc; the last one takes all bytes that are left."""
        out = [self._tile(live, weights.columns, bits, event.cycles) for live, bits in zip(weights.live, weights.bits)]
        if last:
            cycles, steps, size = out[-1]
            out[-1] = (cycles, steps, size + self.left)
        return tuple(out) if any(weights.live) else (*out, (event.bare_cycles, 0, 0.0))

    def _tile(self, live: int, columns: int, bits: float, cycles: int) -> Tile:
        target, own = self._target, bits * self._scale
        if not live:
            size = min(self.left, own)
            self.left -= size
            return 0, 1, size
        ahead = AHEAD_WORDS * LANE_WORD_BYTES * target.decoder_rows_per_cycle * max(0, columns - self._primed)
        self._primed = max(self._primed, columns)
        size = min(self.left, own + ahead)
        self.left -= size
        words = target.decoder_lane_bytes_per_cycle // LANE_WORD_BYTES
        steps = -(-live // target.decoder_rows_per_cycle)
        chance = min(100, round(100 * own / (live * columns * LANE_WORD_BYTES)))
        self._late += steps * step_cycles(columns * min(target.decoder_rows_per_cycle, live), chance, words)
        steps = max(steps, int(self._late))
        self._late = max(0.0, self._late - steps)
        return cycles, steps + (-(-ahead // (words * LANE_WORD_BYTES)) - 1 if ahead else 0), size


@lru_cache(maxsize=4096)
def step_cycles(lanes: int, word_percent: int, words: int) -> float:
    """Expected cycles of a step in which each of so many lanes asks for a word with this chance and so many words
    enter in a cycle: docs/ISA.md, "Codec lanes", max(1, ceil(d / p)) for a binomial d."""
    chance = word_percent / 100
    return sum(comb(lanes, d) * chance ** d * (1 - chance) ** (lanes - d) * max(1, -(-d // words))
               for d in range(lanes + 1))
