"""Instruction list with automatic dependences: accesses in, tokens out.

Every instruction is added with the memory it reads and writes. The builder finds, for each other unit, the latest
earlier instruction that conflicts, and lets that one give a token which the new one takes. Because units work in
order and tokens between two units are taken in the order they are given, one token per pair and instruction is
enough, and a dependence on something older than the last token taken is already covered.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import ProgramError
from ..isa.inst import Inst, inst
from ..isa.lane_layout import Work
from ..isa.table import UNITS

_COPIES, _KEPT = 6, 3  # iterations added to find the steady state, and the one that is kept

SYNC = dict(zip(UNITS, ("sync_in", "sync_array", "sync_post", "sync_out")))


@dataclass(frozen=True)
class Access:
    """Bytes [start, end) of a memory: "sram", "acc" (entries), or an external buffer's index.

    rows: if not all of a tensor that fills these bytes, then these of its rows.
    """

    memory: str | int
    start: int
    end: int
    rows: tuple[int, int] | None = None

    def meets(self, other: Access) -> bool:
        if self.memory != other.memory or self.start >= other.end or other.start >= self.end:
            return False
        if self.rows is None or other.rows is None or (self.start, self.end) != (other.start, other.end):
            return True
        return self.rows[0] < other.rows[1] and other.rows[0] < self.rows[1]


@dataclass(frozen=True)
class Draft:
    """One instruction in its final place. The payload of a conv or dwc is still to be made from its `work`."""

    mnemonic: str
    fields: dict
    payload: bytes
    layer: int
    work: Work | None = None

    def instruction(self, payload: bytes, **fields: object) -> Inst:
        """The instruction with this payload, and more fields."""
        return inst(self.mnemonic, payload=payload, **self.fields, **fields)


@dataclass
class _Slot:
    """One instruction under construction; tokens are added while later ones arrive.

    givers: unit -> number of the instruction whose token is taken. A ghost only stands for another iteration.
    """

    mnemonic: str
    unit: str
    fields: dict
    payload: bytes
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    layer: int
    work: Work | None = None
    chain_to: int = -1
    wait: tuple[str, ...] = ()
    signal: tuple[str, ...] = ()
    givers: dict[str, int] = field(default_factory=dict)
    ghost: bool = False

    def conflicts(self, later: _Slot) -> bool:
        for own, others in ((self.writes, later.reads), (self.writes, later.writes), (self.reads, later.writes)):
            for a in own:
                for b in others:
                    if a.memory == b.memory and a.meets(b):
                        return True
        return False


class Builder:
    """Collects the instructions of a program; `layer` is the source-map entry of what is added next."""

    def __init__(self) -> None:
        self.layer = 0
        self._slots: list[_Slot] = []
        self._by_unit: dict[str, list[int]] = {unit: [] for unit in UNITS}
        self._synced: dict[tuple[str, str], int] = {(a, b): -1 for a in UNITS for b in UNITS if a != b}

    def control(self, mnemonic: str, **fields: object) -> None:
        """Add an instruction that the dispatcher executes itself."""
        self._slots.append(_control(mnemonic, self.layer, **fields))

    def state(self, mnemonic: str, payload: bytes = b"", **fields: object) -> None:
        """Add an instruction that only sets state of its unit: no memory, no tokens."""
        self._slots.append(_Slot(mnemonic, "", fields, payload, (), (), self.layer))

    def add(self, mnemonic: str, unit: str, reads: tuple[Access, ...] = (), writes: tuple[Access, ...] = (), *,
            work: Work | None = None, chain_from: int = -1, **fields: object) -> int:
        """Add an instruction that touches memory; returns its number.

        work: weights of a conv or dwc. chain_from: number of the conv or dwc whose accumulators this post instruction
        reads in lock-step.
        """
        slot = _Slot(mnemonic, unit, fields, b"", reads, writes, self.layer, work)
        for other in UNITS:
            if other != unit:
                self._order(slot, other, chain_from)
        number = self._append(slot)
        if chain_from >= 0 and slot.givers.get("array") == chain_from and self._slots[chain_from].chain_to == -1:
            self._slots[chain_from].chain_to = number
        return number

    def _order(self, slot: _Slot, other: str, chain_from: int) -> None:
        """Take a token from the latest conflicting instruction of unit `other`, if it is not covered yet."""
        covered = self._synced[other, slot.unit]
        for index in reversed(self._by_unit[other]):
            if index <= covered:
                return
            earlier = self._slots[index]
            if earlier.conflicts(slot):
                if index != chain_from and earlier.chain_to >= 0:  # its token comes before its end, that of a sync not
                    index = self._append(self._token_slot(other, (), ()))
                    earlier = self._slots[index]
                elif index != chain_from:
                    earlier.chain_to = -2  # somebody needs its end: no early token
                earlier.signal += (slot.unit,)
                slot.wait += (other,)
                slot.givers[other] = index
                self._synced[other, slot.unit] = index
                return

    def _append(self, slot: _Slot) -> int:
        self._slots.append(slot)
        self._by_unit[slot.unit].append(len(self._slots) - 1)
        return len(self._slots) - 1

    def barrier(self) -> None:
        """Wait until every unit is idle."""
        others = tuple(u for u in UNITS if u != "array")
        for unit in others:
            self._sync(unit, wait=(), signal=("array",))
        self._sync("array", wait=others, signal=others)
        for unit in others:
            self._sync(unit, wait=("array",), signal=())
        last = len(self._slots) - 1
        self._synced = {pair: last for pair in self._synced}

    def loop(self, count: int, body: Callable[[int], None]) -> None:
        """Hardware loop over `body(iteration)`, which adds the same instructions in every iteration.

        Iterations overlap: what one needs from an earlier one is found by adding several, of which one is kept, in
        the steady state. Tokens that are under way between iterations are given before the loop and taken after it.
        """
        self.barrier()
        here = len(self._slots)
        copies = []
        for iteration in range(_COPIES):
            start = len(self._slots)
            body(iteration)
            copies.append(range(start, len(self._slots)))
        kept = copies[_KEPT]
        self._check_steady(copies)
        carried = self._carried(kept)
        self._settle(copies, kept)
        before = [self._token_slot(a, (), (b,)) for (a, b), number in carried.items() for _ in range(number)]
        after = [self._token_slot(b, (a,), ()) for (a, b), number in carried.items() for _ in range(number)]
        self._slots[here:here] = [*before, _control("loop", self.layer, count=count)]
        self._slots += [_control("endl", self.layer), *after]
        self._drop_ghosts(here)
        self.barrier()

    def _check_steady(self, copies: list[range]) -> None:
        """The tokens of the kept iteration must be those of the next one too."""
        patterns = [[(self._slots[i].mnemonic, self._slots[i].wait) for i in copies[k]] for k in (_KEPT, _KEPT + 1)]
        if patterns[0] != patterns[1]:
            raise ProgramError("loop: iterations need different tokens; unroll the loop instead")

    def _carried(self, kept: range) -> Counter[tuple[str, str]]:
        """Tokens per pair that iterations before the kept one give and it or later ones take."""
        carried: Counter[tuple[str, str]] = Counter()
        for index in range(kept.start, len(self._slots)):
            slot = self._slots[index]
            carried.update((unit, slot.unit) for unit, giver in slot.givers.items() if giver < kept.start)
        return carried

    def _settle(self, copies: list[range], kept: range) -> None:
        """Mark every iteration but the kept one as ghosts; chains that leave the iteration are given up."""
        for copy in copies:
            for index in copy:
                self._slots[index].ghost = copy is not kept
                if copy is kept and self._slots[index].chain_to >= kept.stop:
                    self._slots[index].chain_to = -2

    def _token_slot(self, unit: str, wait: tuple[str, ...], signal: tuple[str, ...]) -> _Slot:
        return _Slot(SYNC[unit], unit, {}, b"", (), (), self.layer, wait=wait, signal=signal)

    def _drop_ghosts(self, here: int) -> None:
        """Keep what is none from number `here` on. A barrier follows, so no dependence on anything before is left."""
        self._slots[here:] = [slot for slot in self._slots[here:] if not slot.ghost]
        self._by_unit = {unit: [] for unit in UNITS}

    def _sync(self, unit: str, wait: tuple[str, ...], signal: tuple[str, ...]) -> None:
        self._append(self._token_slot(unit, wait, signal))

    def finish(self) -> tuple[Draft, ...]:
        """All instructions in program order."""
        return tuple(Draft(s.mnemonic, _fields(s), s.payload, s.layer, s.work) for s in self._slots)


def _control(mnemonic: str, layer: int, **fields: object) -> _Slot:
    return _Slot(mnemonic, "control", fields, b"", (), (), layer)


def _fields(slot: _Slot) -> dict:
    fields = dict(slot.fields)
    if slot.unit in UNITS:
        fields.update(wait=tuple(u for u in UNITS if u in slot.wait),
                      signal=tuple(u for u in UNITS if u in slot.signal))
    if slot.mnemonic in ("conv", "dwc"):
        fields["chain"] = int(slot.chain_to >= 0 and slot.signal == ("post",))
    return fields
