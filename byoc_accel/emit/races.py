"""Order between units: token queues, vector clocks, and the accesses that no token has ordered yet.

A clock holds, per unit, the number of the last instruction known to be complete (its effects visible), -1 for
none. Within a unit the order needs no proof (docs/ISA.md, Units and order). What an instruction knows at its
start comes from the instruction before it in its unit and from the tokens it takes; a token carries what its
giver knows at its end, or at its start if it is a chain token. The taker of a chain token ends after its giver,
so what follows it in its unit knows the giver to be complete.
"""
from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..isa.footprint import Footprint, overlap
from ..isa.inst import Inst
from ..isa.table import UNITS
from .limits import BrokenRule

Clock = tuple[int, ...]
TOKEN_LIMIT = 255
FEW = 12  # entries that are compared faster one by one
NUMBER = {unit: number for number, unit in enumerate(UNITS)}
ARRAY = UNITS.index("array")


class Token(NamedTuple):
    """What a token proves; `chain` is the number of its still running giver and `giver` that conv or dwc."""

    clock: Clock
    chain: int = -1
    giver: Inst | None = None
    positions: int = 0


class Event(NamedTuple):
    """One execution of an instruction: its number in its unit and what it knows at its start.

    `chain` is the number of the array instruction that it follows position by position, -1 if none.
    """

    unit: int
    number: int
    start: Clock
    chain: int


@dataclass
class _Log:
    """Accesses of one unit to one memory, of one direction, in the unit's order."""

    numbers: list[int] = field(default_factory=list)
    entries: list[tuple[int, Footprint, int]] = field(default_factory=list)  # start, shape, label
    bounds: np.ndarray = field(default_factory=lambda: np.zeros((16, 2), np.int64))

    @property
    def full(self) -> bool:
        return len(self.entries) == len(self.bounds)

    def forget(self, up_to: int) -> None:
        """Drop entries with numbers up to `up_to`; make room for as many again as are left."""
        first = bisect_right(self.numbers, up_to)
        del self.numbers[:first], self.entries[:first]
        left = self.bounds[first:]
        self.bounds = np.concatenate((left, np.zeros((max(16, len(left)), 2), np.int64)))

    def add(self, number: int, start: int, shape: Footprint, label: int) -> None:
        self.bounds[len(self.entries)] = start, start + shape.span
        self.numbers.append(number)
        self.entries.append((start, shape, label))

    def conflict(self, after: int, start: int, shape: Footprint) -> int | None:
        """Label of an entry with a number above `after` that shares a byte; None if there is none."""
        last = len(self.numbers)
        if not last or self.numbers[-1] <= after:
            return None
        first = bisect_right(self.numbers, after)
        end, near = start + shape.span, range(first, last)
        if last - first > FEW:
            bounds = self.bounds[first:last]
            near = (first + np.flatnonzero((bounds[:, 0] < end) & (bounds[:, 1] > start))).tolist()
        for index in near:
            other, other_shape, label = self.entries[index]
            if other < end and other + other_shape.span > start and overlap(other_shape, shape, start - other):
                return label
        return None


class Order:
    """Clocks, tokens and access logs of a program under verification."""

    def __init__(self, queue_depth: int):
        self.token_limit = TOKEN_LIMIT - queue_depth - 1  # a giver may be a full queue ahead of the taker
        self.known: list[Clock] = [(-1,) * len(UNITS) for _ in UNITS]
        self.tokens: dict[tuple[int, int], deque[Token]] = {}
        self.logs: dict[str | int, list[tuple[_Log, _Log]]] = {}  # by memory, then unit: reads, writes

    def begin(self, inst: Inst, positions: int) -> Event:
        """Take the tokens of `inst` (of `positions` = width * height); raises BrokenRule."""
        unit = NUMBER[inst.unit]
        clock, chain = self.known[unit], -1
        for name in inst.wait_units:
            queue = self.tokens.get((NUMBER[name], unit))
            if not queue:
                raise BrokenRule(f"waits for a token from {name}, but no earlier instruction gives one; add a signal")
            token = queue.popleft()
            clock = tuple(map(max, clock, token.clock))
            if token.chain >= 0:
                _check_chain(inst, positions, token)
                chain = token.chain
        return Event(unit, clock[unit] + 1, clock, chain)

    def end(self, inst: Inst, event: Event, positions: int) -> None:
        """Give the tokens of `inst`; raises BrokenRule."""
        clock = list(event.start)
        clock[event.unit] = event.number
        if event.chain > clock[ARRAY]:
            clock[ARRAY] = event.chain
        self.known[event.unit] = tuple(clock)
        if not inst.signal_units:
            return
        token = Token(self.known[event.unit])
        if inst.mnemonic in ("conv", "dwc") and inst.chain:
            token = Token(event.start, event.number, inst, positions)
        for name in inst.signal_units:
            queue = self.tokens.setdefault((event.unit, NUMBER[name]), deque())
            queue.append(token)
            if len(queue) > self.token_limit:
                raise BrokenRule(f"gives token {len(queue)} to {name} before one is taken; at most "
                                 f"{self.token_limit} may be open, take some")

    def access(self, event: Event, memory: str | int, start: int, shape: Footprint, write: bool,
               label: int) -> int | None:
        """Record an access; returns the label of an unordered conflicting one of another unit, or None."""
        logs = self.logs.get(memory)
        if logs is None:
            logs = self.logs[memory] = [(_Log(), _Log()) for _ in UNITS]
        for unit, (reads, writes) in enumerate(logs):
            if unit == event.unit:
                continue
            after = event.start[unit]
            if memory == "accumulators" and unit == ARRAY:
                after = max(after, event.chain)
            found = writes.conflict(after, start, shape)
            if found is None and write:
                found = reads.conflict(after, start, shape)
            if found is not None:
                return found
        log = logs[event.unit][write]
        if log.full:  # what every other unit knows to be done cannot race any more
            log.forget(min(clock[event.unit] for unit, clock in enumerate(self.known) if unit != event.unit))
        log.add(event.number, start, shape, label)
        return None

    def left_over(self) -> list[str]:
        """Texts of tokens that nobody took."""
        return [f"{len(queue)} from {UNITS[giver]} to {UNITS[taker]}"
                for (giver, taker), queue in sorted(self.tokens.items()) if queue]


def _check_chain(inst: Inst, positions: int, token: Token) -> None:
    giver = token.giver
    if inst.mnemonic != "post" or inst.source_sram or giver is None:
        raise BrokenRule("takes a chain token but does not read the accumulators; drop chain at the giver")
    if inst.acc_base != giver.acc_base or positions != token.positions:
        raise BrokenRule(f"takes a chain token for {token.positions} positions from entry {giver.acc_base} but reads "
                         f"{positions} from {inst.acc_base}; make them equal or drop chain")
