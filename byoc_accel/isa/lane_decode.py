"""Codec lanes: what a stream means, as a plain loop over tiles, row groups and lanes.

Any bits decode. State between instructions: the table, the remembered row masks (both set by `wtab`), the bits every
lane holds, and at most one word that the last payload held beyond what was asked for. All of it ends at a loop or endl.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import EncodeError
from .lane_layout import MEMORY_TILES, LaneShape
from .lane_stream import CONTROL_WORDS_AHEAD, LANE_WORDS_AHEAD, WORD_BITS
from .lane_table import EXTRA_BITS, FIRST_VALUE, MAX_CODE_BITS, PEAK, REST, RUN_CLASSES, Table

_FOREVER = 1 << 62


@dataclass(frozen=True)
class Decoded:
    """values: int8 (rows, columns). present: bool (tiles,), False for tiles without a pass.

    words: for each tile the 16-bit words taken by its control symbol (with the column mask before the first tile) and
    then by each group of rows; the timing model needs nothing else. problem: why no encoder makes this payload, "" if
    one does.
    """

    values: np.ndarray
    present: np.ndarray
    words: tuple[tuple[int, ...], ...]
    problem: str = ""


class _Bits:
    """Buffer of one lane. `consumed` bits and `taken` words are counted since the lanes started."""

    def __init__(self, words_ahead: int):
        self.words_ahead = words_ahead
        self.consumed = self.taken = self.idle = 0
        self._value = self._held = 0

    def top_up(self, source: Iterator[int]) -> int:
        """Take the words that the lane asks for before its next symbol; returns how many."""
        missing = -(-self.consumed // WORD_BITS) + self.words_ahead - self.taken
        for _ in range(missing):
            self._value = self._value << WORD_BITS | next(source)
        self._held += WORD_BITS * missing
        self.taken += missing
        return missing

    def peek(self, bits: int) -> int:
        return self._value >> (self._held - bits)

    def read(self, bits: int) -> int:
        """The next bits, most significant first."""
        result = self.peek(bits)
        self._held -= bits
        self._value &= (1 << self._held) - 1
        self.consumed += bits
        return result


class _Source:
    """Words of the carried word and of one payload; zeros after them, which are legal at the end of a stretch only."""

    def __init__(self, words: list[int]):
        self._words = words
        self.used = 0

    def __iter__(self) -> _Source:
        return self

    def __next__(self) -> int:
        self.used += 1
        return self._words[self.used - 1] if self.used <= len(self._words) else 0

    @property
    def left(self) -> list[int]:
        return self._words[self.used:]

    @property
    def exhausted(self) -> bool:
        return self.used > len(self._words)


class LaneDecoder:
    """State of the weight decoder. Raises EncodeError only where a wtab is missing."""

    def __init__(self, shape: LaneShape):
        self.shape = shape
        self._open = False
        self._restart()

    def close(self) -> None:
        """loop and endl: the stretch ends, the next wtab must be fresh."""
        self._open = False

    def _restart(self) -> None:
        self._control = _Bits(CONTROL_WORDS_AHEAD)
        self._lanes = [_Bits(LANE_WORDS_AHEAD) for _ in range(self.shape.lanes)]
        self._carried: list[int] = []
        self._dry = False

    def load(self, table: Table, fresh: bool) -> None:
        """wtab: take a new table, forget row masks; `fresh` starts every lane anew."""
        if not (fresh or self._open):
            raise EncodeError("lanes: no stretch to go on with, a loop may begin or end here; give wtab fresh = 1")
        self._open = True
        self._table = table
        self._classes = _classes_by_window(table)
        self._remembered: dict[int, int] = {}
        if fresh:
            self._restart()

    @property
    def carried_words(self) -> int:
        """Words that are here already and that the next instruction takes first, 0 or 1."""
        return len(self._carried)

    def decode(self, payload: bytes, tiles: Sequence[int], columns: int) -> Decoded:
        """Weights of one conv or dwc with tiles of these rows; see `Decoded`."""
        if not self._open:
            raise EncodeError("lanes: no table, a loop may begin or end here; put a wtab with fresh = 1 before")
        source = _Source(self._carried + np.frombuffer(payload, "<u2").tolist())
        values = np.zeros((sum(tiles), columns), np.int8)
        present, words = np.ones(len(tiles), bool), []
        for lane in self._lanes:
            lane.idle = 0
        on, asked = self._column_mask(source, columns)
        start = 0
        for tile, rows in enumerate(tiles):
            live, more = self._row_mask(source, tile, rows)
            present[tile] = bool(live)
            groups = [live[i:i + self.shape.rows_per_cycle] for i in range(0, len(live), self.shape.rows_per_cycle)]
            words.append((asked + more, *(self._group(source, values, start, group, on) for group in groups)))
            asked, start = 0, start + rows
        return Decoded(values, present, tuple(words), self._finish(source, payload))

    def _finish(self, source: _Source, payload: bytes) -> str:
        """Keep one word that is left for the next instruction, drop more of them; returns what is wrong."""
        problem = ""
        if len(source.left) > 1:
            problem = (f"payload of {len(payload)} bytes; its weights leave {2 * len(source.left)} of them unused, "
                       "allowed is one word of 2")
        elif self._dry and payload:
            problem = "a payload follows one that ended early; only the last ones of a stretch may"
        self._dry |= source.exhausted
        self._carried = source.left if len(source.left) == 1 else []
        return problem

    def _column_mask(self, source: _Source, columns: int) -> tuple[list[int], int]:
        """Columns with symbols, and the words taken."""
        everything = list(range(columns))
        if not self._table.masks:
            return everything, 0
        asked = self._control.top_up(source)
        if not self._control.read(1):
            return everything, asked
        mask = self._control.read(columns)
        return [c for c in everything if mask >> (columns - 1 - c) & 1], asked

    def _row_mask(self, source: _Source, tile: int, rows: int) -> tuple[list[int], int]:
        """Rows of the tile with symbols, and the words taken. Masks are kept with row 0 in bit 31."""
        if not self._table.masks:
            return list(range(rows)), 0
        asked = self._control.top_up(source)
        mask = self._remembered.get(tile % MEMORY_TILES, 0xFFFFFFFF)
        if self._control.read(1):
            mask = self._control.read(rows) << (32 - rows) if self._control.read(1) else 0
        live = [row for row in range(rows) if mask >> (31 - row) & 1]
        self._remembered[tile % MEMORY_TILES] = sum(1 << (31 - row) for row in live)
        return live, asked

    def _group(self, source: _Source, values: np.ndarray, start: int, group: list[int], on: list[int]) -> int:
        """Decode the rows of one cycle, one per parity; returns the words taken."""
        work = [(self._lanes[parity * self.shape.columns + column], start + row, column)
                for parity, row in enumerate(group) for column in on]
        asked = sum(lane.top_up(source) for lane, _, _ in work if not lane.idle)
        for lane, row, column in work:
            value = self._symbol(lane) if not lane.idle else 0
            lane.idle -= lane.idle > 0
            values[row, column] = (value + self._table.centre + 128) % 256 - 128
        return asked

    def _symbol(self, lane: _Bits) -> int:
        """Next value; a zero run leaves its remaining zeros in `idle`, this one included."""
        index = self._classes[lane.peek(MAX_CODE_BITS)]
        lane.read(self._table.lengths[index])
        extra = lane.read(int(EXTRA_BITS[index]))
        if index < RUN_CLASSES:
            lane.idle = (1 << index) + extra
            return 0
        if index == REST:
            lane.idle = _FOREVER
            return 0
        magnitude = 126 if index == PEAK else _magnitude(index - FIRST_VALUE, extra >> 1)
        return ~magnitude if extra & 1 else magnitude + 1


def _magnitude(index: int, offset: int) -> int:
    if index < 8:
        return index
    return ((4 + (index & 3)) << ((index - 4) >> 2)) + offset


def _classes_by_window(table: Table) -> list[int]:
    """Class of the code word that the next MAX_CODE_BITS bits begin with."""
    classes = [0] * (1 << MAX_CODE_BITS)
    for index, (code, length) in enumerate(zip(table.codes().tolist(), table.lengths)):
        if length:
            first = code << (MAX_CODE_BITS - length)
            classes[first:first + (1 << (MAX_CODE_BITS - length))] = [index] * (1 << (MAX_CODE_BITS - length))
    return classes
