"""When instructions happen: docs/ISA.md, "Timing", with the bytes of the weights as estimates."""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..isa.table import UNITS
from ..target import Target
from .events import Event
from .fetch import Fetch


@dataclass
class _Unit:
    """When its work ends and is visible, when the last instructions left its queue, tokens that it was given."""

    starts: deque[int]
    end: int = 0
    visible: int = 0
    tokens: dict[str, deque[int]] = field(default_factory=lambda: {unit: deque() for unit in UNITS})


@dataclass
class _Loop:
    """A loop under way: its first event, iterations left, when this one began, and how units stood behind the last."""

    first: int
    left: int
    begin: int
    stand: tuple[int, ...] = ()


class Machine:
    """The machine as far as times depend on it. Names of times are those of docs/ISA.md."""

    def __init__(self, target: Target):
        self._target = target
        self._fetch = Fetch(target)
        self._free = 0  # dispatcher
        self._shadow = 0  # shadow buffer of the decoder
        self._set = 0  # shadow set of the parameter loader
        self._latest = 0
        self._units = {unit: _Unit(deque(maxlen=target.fetch_queue_depth)) for unit in UNITS}

    def run(self, events: Sequence[Event]) -> dict[int, int]:
        """Time by which everything up to the end of each layer is done, by the layer's number."""
        out: dict[int, int] = {}
        loops: list[_Loop] = []
        at = 0
        while at < len(events):
            event = events[at]
            at += 1
            if event.mnemonic == "endl":
                at = self._endl(event, loops, at)
            elif event.mnemonic == "loop":
                self._dispatch(event)
                loops.append(_Loop(at, event.count - 1, self._free))
            elif event.mnemonic == "halt":
                self._latest = max(self._latest, self._dispatch(event)) + 1
            elif event.tiles:
                self._passes(event)
            elif event.unit:
                self._work(event)
            else:
                self._dispatch(event)
                if event.payload:  # wtab: a byte a cycle
                    self._free = self._fetch.take(event.payload, self._free, event.payload) + 1
            if event.mnemonic != "halt":
                self._latest = max(self._latest, self._free)
            out[event.layer] = self._latest
        return out

    def _endl(self, event: Event, loops: list[_Loop], at: int) -> int:
        """Where to go on. When units stand as they did behind the iteration before, the others are like this one."""
        loop = loops[-1]
        self._dispatch(event)
        stand = self._stand()
        if loop.left and stand == loop.stand:
            self._shift(loop.left * (self._free - loop.begin))
            loop.left = 0
        if not loop.left:
            loops.pop()
            return at
        loop.left, loop.begin, loop.stand = loop.left - 1, self._free, stand
        self._fetch.restart(self._free)
        return loop.first

    def _stand(self) -> tuple[int, ...]:
        """What is still to come behind the dispatcher's time."""
        times = [self._shadow, self._set]
        for unit in self._units.values():
            times += (unit.end, unit.visible, *unit.starts)
            for tokens in unit.tokens.values():
                times += tokens
        return tuple(max(-1, time - self._free) for time in times)

    def _shift(self, cycles: int) -> None:
        """Everything so far was so many cycles later."""
        self._free, self._shadow, self._set = self._free + cycles, self._shadow + cycles, self._set + cycles
        self._latest += cycles
        self._fetch.shift(cycles)
        for unit in self._units.values():
            unit.end, unit.visible = unit.end + cycles, unit.visible + cycles
            for times in (unit.starts, *unit.tokens.values()):
                for index in range(len(times)):
                    times[index] += cycles

    def _dispatch(self, event: Event) -> int:
        at = self._fetch.take(event.header, self._free)
        if event.unit:
            starts = self._units[event.unit].starts
            if len(starts) == starts.maxlen:
                at = max(at, starts[0])
        self._free = at + 1
        return at

    def _tokens(self, event: Event) -> int:
        """Time at which the tokens are there that an instruction takes."""
        tokens = self._units[event.unit].tokens
        return max((tokens[giver].popleft() for giver in event.wait), default=0)

    def _give(self, event: Event, at: int) -> None:
        for taker in event.signal:
            self._units[taker].tokens[event.unit].append(at)

    def _work(self, event: Event) -> None:
        unit = self._units[event.unit]
        begin = self._dispatch(event) + 1
        if event.payload:
            cycles = -(-event.payload // self._target.post_parameter_bytes_per_cycle)
            self._free = self._fetch.take(event.payload, max(self._free, self._set), cycles) + 1
            begin = max(begin, self._free)
        start = max(begin, unit.end, self._tokens(event), unit.visible if event.ordered else 0)
        if event.payload:
            self._set = start
        unit.starts.append(start)
        unit.end = start + event.cycles
        visible = unit.end + event.latency
        unit.visible = max(unit.visible, visible)
        self._give(event, visible)
        self._latest = max(self._latest, visible)

    def _passes(self, event: Event) -> None:
        """conv or dwc, tile by tile."""
        target, unit, take = self._target, self._units[event.unit], self._fetch.take
        begin = max(self._dispatch(event) + 1, self._tokens(event))
        if event.mask:
            self._free = take(event.mask, self._free) + 1
        known, last, started = 0, 1, False
        for cycles, steps, size in event.tiles:
            ready = 0
            if steps:
                self._free = take(size, max(self._free, self._shadow) if cycles else self._free, steps) + 1
                ready = known = self._free + target.decoder_latency_cycles
            elif not event.mask:  # codec lanes: now it is known that there is no tile
                ready = self._free + target.decoder_latency_cycles
            if cycles:
                start = max(unit.end, begin, ready)
                unit.end, last, known = start + cycles, cycles, 0
                if steps:
                    self._shadow = start
                if not started:
                    unit.starts.append(start)
                    started = True
        visible = unit.end + event.latency
        unit.visible = max(unit.visible, visible)
        self._give(event, max(visible - min(last, event.lead_cycles), known))
        self._latest = max(self._latest, visible, self._free)
