"""The program as a stream of bytes through the FIFO of the fetch unit: docs/ISA.md, "Fetch", item by item."""
from __future__ import annotations

from collections import deque

from ..target import Target


class Fetch:
    """When bytes of the program are there. Items are what a consumer takes in one or more cycles in a row; their sizes
    may be estimates, so they need not be whole."""

    def __init__(self, target: Target):
        self._width, self._latency = target.fetch_bytes_per_cycle, target.fetch_latency_cycles + 1
        self._slots = target.fetch_fifo_bytes // target.fetch_bytes_per_cycle
        self.restart(0)

    def restart(self, at: int) -> None:
        """The FIFO is empty, the first word is asked for in cycle `at`."""
        self._position = 0.0
        self._words = 0  # that have been asked for
        self._available = at + self._latency - 1  # the last of them
        self._taken: deque[tuple[int, int, int, int]] = deque()  # words [first, end), slots of the first and last free

    def shift(self, cycles: int) -> None:
        """Everything so far was so many cycles later."""
        self._available += cycles
        self._taken = deque((first, end, a + cycles, b + cycles) for first, end, a, b in self._taken)

    def take(self, count: float, begin: int, cycles: int = 1) -> int:
        """Cycle in which the last of `count` bytes is taken by a consumer that turns to them in cycle `begin`, and
        takes a part of them in each of `cycles` cycles at least."""
        most = self._slots // 2 * self._width
        while count > most:  # an item may be larger than the FIFO
            part = max(1, int(cycles * most / count))
            taken = self._take(most, begin, part)
            begin, count, cycles = (taken + 1 if cycles > part else begin), count - most, max(1, cycles - part)
        return self._take(count, begin, cycles)

    def _take(self, count: float, begin: int, cycles: int) -> int:
        first = int(self._position // self._width)
        held = self._words * self._width - self._position  # bytes of words that have been asked for
        self._position += count
        words = int(-(-self._position // self._width))
        taken = begin + cycles - 1
        if held:
            taken = max(taken, self._available + cycles - 1)
        if words > self._words:
            before = int(held * cycles / count)  # cycles in which no other word is needed
            taken = max(taken, self._available + cycles - before)
            self._available = max(self._available + words - self._words, self._freed(words))
            taken = max(taken, self._available)
            self._words = words
        end = int(self._position // self._width)
        if end > first:
            self._taken.append((first, end, max(begin, self._available - (end - 1 - first)), taken))
        return taken

    def _freed(self, words: int) -> int:
        """Earliest time at which word `words` - 1 is there, for the slots that it and those before it wait for."""
        low, high = self._words - self._slots, words - self._slots
        while self._taken and self._taken[0][1] <= low:
            self._taken.popleft()
        latest = float(-1 << 60)
        for first, end, begin, taken in self._taken:
            if first >= high:
                break
            slope = (taken - begin) / max(1, end - 1 - first)
            for word in (max(first, low), min(end, high) - 1):
                latest = max(latest, begin + slope * (word - first) - word)
        return int(latest) + high - 1 + self._latency
