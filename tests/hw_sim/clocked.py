"""A second, clocked model of the machine's timing, for tests only.

The simulator computes times with maxima in program order. This model instead has the parts of the hardware (FIFO,
input registers, queues, token counters, shadow buffers) and steps them cycle by cycle, so it shows that the rules of
docs/ISA.md "Timing" can be built, and that both readings of them agree. Every part is a generator: a `yield` is
one clock cycle. Within a cycle units move first, then the dispatcher, then the fetch unit.
"""
from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from byoc_accel.isa.encode import decode
from byoc_accel.isa.inst import Inst
from byoc_accel.isa.lane_decode import LaneDecoder
from byoc_accel.isa.lane_layout import LaneShape, conv_tiles, dwc_tiles
from byoc_accel.isa.lane_table import unpack_table
from byoc_accel.isa.table import UNITS
from byoc_accel.target import Target


@dataclass
class Work:
    """An instruction in the queue of its unit."""

    inst: Inst
    dispatched: int
    geometry: Inst | None = None  # of the array or the post unit
    ready: int | None = 0  # cycle from which parameters are complete, or it is known that no tile comes; None: not yet
    passes: deque[int] = field(default_factory=deque)  # cycle from which each decoded tile may be used
    tiles: int = 0
    given: int | None = None  # cycle in which tokens are given for the last pass
    closed: int | None = 0  # cycle from which it is known to be the last one


class Clocked:
    """`run` returns the total cycles; `log` holds (unit, mnemonic, start, end, visible) of all work."""

    def __init__(self, code: bytes, target: Target):
        self.code, self.target = code, target
        self.now, self.cycles = 0, None
        self.fifo: deque[list[int]] = deque()  # [cycle of arrival, bytes left]
        self.position, self.jump_to = 0, None
        self.fetched_bytes = 0
        self.queues: dict[str, deque[Work]] = {u: deque() for u in UNITS}
        self.at_work = dict.fromkeys(UNITS, False)
        self.visible = dict.fromkeys(UNITS, 0)
        self.tokens: dict[tuple[str, str], int] = defaultdict(int)
        self.calendar: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self.shadow_taken = self.set_taken = False
        self.geometry: dict[str, Inst] = {}
        self.decoder = LaneDecoder(LaneShape(target.array_columns, target.decoder_rows_per_cycle))
        self.log: list[tuple[str, str, int, int, int]] = []

    def run(self) -> int:
        parts = [self.unit(u) for u in UNITS] + [self.dispatcher(), self.fetch()]
        while self.cycles is None:
            for pair in self.calendar.pop(self.now, ()):
                self.tokens[pair] += 1
            for part in parts:
                next(part)
            self.now += 1
        return self.cycles

    # --- fetch ------------------------------------------------------------------------------------------

    def fetch(self) -> Iterator[None]:
        width = self.target.fetch_bytes_per_cycle
        while True:
            if self.position < len(self.code) and len(self.fifo) < self.target.fetch_fifo_bytes // width:
                self.fifo.append([self.now + self.target.fetch_latency_cycles + 1, width])
                self.fetched_bytes += min(width, len(self.code) - self.position)
                self.position += width
            if self.jump_to is not None:
                self.fifo.clear()
                self.position, self.jump_to = self.jump_to, None
            yield

    def take(self, count: int) -> Iterator[None]:
        """Collect `count` bytes in an input register; ends in the cycle that brings the last one."""
        while True:
            while count and self.fifo and self.fifo[0][0] <= self.now:
                step = min(count, self.fifo[0][1])
                count -= step
                self.fifo[0][1] -= step
                if not self.fifo[0][1]:
                    self.fifo.popleft()
            if not count:
                return
            yield

    # --- dispatcher -------------------------------------------------------------------------------------

    def dispatcher(self) -> Iterator[None]:
        counter, loops = 0, []
        while True:
            inst, size = decode(self.code, counter)
            counter += size
            yield from self.take(size - len(inst.payload))
            if inst.mnemonic == "halt":
                while any(self.queues.values()) or any(self.at_work.values()) or self.now < max(self.visible.values()):
                    yield
                self.cycles = self.now + 1
            elif inst.mnemonic == "loop":
                self.decoder.close()
                loops.append([counter, inst.count - 1])
            elif inst.mnemonic == "wtab":
                self.decoder.load(unpack_table(inst.payload, inst.centre, bool(inst.masks)), bool(inst.fresh))
                for _ in inst.payload:
                    yield
                    yield from self.take(1)
            elif inst.mnemonic == "endl":
                self.decoder.close()
                if loops[-1][1]:
                    loops[-1][1] -= 1
                    counter = self.jump_to = loops[-1][0]
                else:
                    loops.pop()
            elif inst.unit != "control":
                while len(self.queues[inst.unit]) == self.target.fetch_queue_depth:
                    yield
                yield from self.enqueue(inst)
                continue
            yield

    def enqueue(self, inst: Inst) -> Iterator[None]:
        work = Work(inst, self.now)
        if inst.mnemonic in ("ageo", "pgeo"):
            self.geometry[inst.mnemonic] = inst
        elif inst.mnemonic in ("conv", "dwc", "post"):
            work.geometry = self.geometry["pgeo" if inst.mnemonic == "post" else "ageo"]
        self.queues[inst.unit].append(work)
        if inst.mnemonic in ("conv", "dwc"):
            if inst.codec == "lanes":
                yield from self.stream_lanes(work)
                return
            tiles = self.tile_rows(inst, work.geometry)
            work.tiles = sum(present for present, _ in tiles)
            yield
            yield from self.stream_weights(work, tiles)
        elif inst.payload:
            work.ready = None
            yield
            yield from self.stream_parameters(work)
        else:
            yield

    def tile_rows(self, inst: Inst, geometry: Inst) -> list[tuple[bool, int]]:
        """(present, rows) of every tile."""
        if inst.mnemonic == "dwc":
            rows = [geometry.runs_x * geometry.runs_y]
        else:
            step = self.target.array_rows
            run = [min(step, geometry.run_bytes - at) for at in range(0, geometry.run_bytes, step)]
            rows = run * (geometry.runs_x * geometry.runs_y)
        mask = np.unpackbits(np.frombuffer(inst.payload, np.uint8), bitorder="little")
        return [(bool(mask[i]), n) for i, n in enumerate(rows)]

    def stream_weights(self, work: Work, tiles: list[tuple[bool, int]]) -> Iterator[None]:
        left = len(work.inst.payload)
        mask_bytes = -(-len(tiles) // 32) * 4
        yield from self.take(mask_bytes)
        yield
        left -= mask_bytes
        for number, rows in enumerate([rows for present, rows in tiles if present], 1):
            while self.shadow_taken:
                yield
            self.shadow_taken = True
            for row in range(0, rows, self.target.decoder_rows_per_cycle):
                last = row + self.target.decoder_rows_per_cycle >= rows
                taken = (rows - row if last else self.target.decoder_rows_per_cycle) * work.inst.columns
                if last and number == work.tiles:
                    taken = left  # with the padding
                left -= taken
                yield from self.take(taken)
                if last:
                    work.passes.append(self.now + 1 + self.target.decoder_latency_cycles)
                yield

    def stream_lanes(self, work: Work) -> Iterator[None]:
        """Tiles as the reference decoder takes words for them; two kinds of words: carried, and of the payload."""
        inst, g, t = work.inst, work.geometry, self.target
        tiles = dwc_tiles(g.runs_y * g.runs_x)
        if inst.mnemonic == "conv":
            tiles = conv_tiles(g.runs_y * g.runs_x, g.run_bytes, t.array_rows)
        carried, left = self.decoder.carried_words, len(inst.payload)
        decoded = self.decoder.decode(inst.payload, tiles, inst.columns)
        work.tiles = int(decoded.present.sum())
        work.ready = 0 if work.tiles else None
        work.closed = 0 if decoded.present[-1] else None
        yield
        for number, (present, (control, *groups)) in enumerate(zip(decoded.present, decoded.words), 1):
            while present and self.shadow_taken:
                yield
            self.shadow_taken |= bool(present)
            steps = [control + groups[0], *groups[1:]] if present else [control]
            for step, words in enumerate(steps, 1):
                while True:
                    part = min(words, t.decoder_lane_bytes_per_cycle // 2)
                    words -= part
                    held = min(part, carried)
                    taken = min(2 * (part - held), left)
                    last = not words and step == len(steps)
                    if last and number == len(tiles):
                        taken = left
                    carried, left = carried - held, left - taken
                    yield from self.take(taken)
                    if last and present:
                        work.passes.append(self.now + 1 + t.decoder_latency_cycles)
                    elif last and number == len(tiles):
                        self.close(work)
                    yield
                    if not words:
                        break

    def close(self, work: Work) -> None:
        """No tile follows, in the cycle in which the last one is decoded."""
        work.closed = self.now + 1 + self.target.decoder_latency_cycles
        if not work.tiles:
            work.ready, work.closed = work.closed, 0
        self.give(work)

    def give(self, work: Work) -> None:
        """Tokens, once the last pass has started and it is known that it is the last one."""
        if work.given is not None and work.closed is not None:
            for taker in work.inst.signal_units:
                self.calendar[max(work.given, work.closed)].append((work.inst.unit, taker))
            work.given = None

    def stream_parameters(self, work: Work) -> Iterator[None]:
        while self.set_taken:
            yield
        self.set_taken = True
        for at in range(0, len(work.inst.payload), self.target.post_parameter_bytes_per_cycle):
            left = len(work.inst.payload) - at
            yield from self.take(min(self.target.post_parameter_bytes_per_cycle, left))
            if left <= self.target.post_parameter_bytes_per_cycle:
                work.ready = self.now + 1
            yield

    # --- units ------------------------------------------------------------------------------------------

    def unit(self, name: str) -> Iterator[None]:
        queue = self.queues[name]
        while True:
            while not (queue and self.may_start(name, queue[0])):
                yield
            work = queue.popleft()
            for giver in work.inst.wait_units:
                self.tokens[giver, name] -= 1
            self.at_work[name] = True
            for number in range(max(work.tiles, 1)):
                while work.tiles and not (work.passes and work.passes[0] <= self.now):
                    yield
                if work.tiles:
                    work.passes.popleft()
                    self.shadow_taken = False
                if work.inst.mnemonic in ("par", "lut"):
                    self.set_taken = False
                busy = self.busy_cycles(work)
                self.start(name, work, busy, last=number == max(work.tiles, 1) - 1)
                for _ in range(busy - 1):
                    yield
                if number < work.tiles - 1:
                    yield
            self.at_work[name] = False
            yield

    def may_start(self, name: str, work: Work) -> bool:
        i = work.inst
        ordered = i.mnemonic == "fill" or i.mnemonic.startswith("sync") or (
            i.mnemonic == "post" and (i.source_sram or i.residual))
        return (work.dispatched < self.now and work.ready is not None and work.ready <= self.now
                and all(self.tokens[giver, name] for giver in i.wait_units)
                and not (ordered and self.visible[name] > self.now)
                and (not work.tiles or bool(work.passes) and work.passes[0] <= self.now))

    def start(self, name: str, work: Work, busy: int, last: bool) -> None:
        t, mnemonic = self.target, work.inst.mnemonic
        latency = {"conv": t.array_latency_cycles, "dwc": t.array_latency_cycles, "post": t.post_latency_cycles,
                   "load": t.dma_latency_cycles, "store": t.dma_latency_cycles}.get(mnemonic, 0)
        end = self.now + busy
        self.log.append((name, mnemonic, self.now, end, end + latency))
        self.visible[name] = max(self.visible[name], end + latency)
        if last:
            given = end + latency
            if mnemonic in ("conv", "dwc") and work.inst.chain:
                # The n-th last position is done n cycles before the end; a post takes the first one when given.
                given = max(self.now, end - work.geometry.width * work.geometry.height) + latency
            work.given = given
            self.give(work)

    def busy_cycles(self, work: Work) -> int:
        i, g, t = work.inst, work.geometry, self.target
        if i.mnemonic in ("load", "store"):
            return i.planes * i.rows * -(-i.row_bytes // t.dma_bytes_per_cycle)
        if i.mnemonic == "fill":
            return i.planes * i.rows * -(-i.row_bytes // t.sram_port_bytes)
        if i.mnemonic == "post":
            reads = (g.window_x * g.window_y if i.source_sram else 0) + (1 if i.residual else 0)
            return g.width * g.height * max(1, reads)
        if i.mnemonic not in ("conv", "dwc"):
            return 1
        if not work.tiles and i.accumulate:
            return 1
        if not work.tiles or i.mnemonic == "conv":
            return g.width * g.height
        rows = g.height if g.runs_y == 1 else min((g.height - 1) * (g.y_step // g.run_y_stride) + g.runs_y,
                                                  g.height * g.runs_y)
        columns = g.width if g.runs_x == 1 else min((g.width - 1) * (g.x_step // g.run_x_stride) + g.runs_x,
                                                    g.width * g.runs_x)
        return max(g.width * g.height, rows * columns)
