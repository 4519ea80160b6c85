"""Cycles of a plan, tile by tile, from its fields and the bytes of its layers: the cost model as a whole.

It knows no instruction and no weight, only what docs/ISA.md, "Timing", says of passes, posts, moves and the fetch of so
many bytes; tests/schedule/test_timeline.py compares it with the simulator, layer by layer.
"""
from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from ..target import Target
from .chain import read_layout
from .chain_cost import ChainCost
from .cost import Operands, column_chunks, post_cycles, step_cycles, tiles
from .geometry import border_pieces, input_spans, is_depthwise, strip_loads, uses_accumulators
from .plan import Blocks, ChainStep, ConvStep, Layout, Place, Plan, PoolStep, Step, StepPlan, result_shape
from .window import split_window

#: Usual sizes: words of zero are not stored.
LOAD_BYTES, FILL_BYTES, STORE_BYTES, ARRAY_BYTES, POST_BYTES = 16, 16, 16, 12, 8
AHEAD_BYTES = 4  # two words that every lane of the decoder takes ahead when a program begins


@dataclass
class _Fetch:
    """The program as a stream: when its bytes are there, and when they were taken, which makes room in the FIFO."""

    target: Target
    position: float = 0.0
    available: float = 0.0
    taken: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])  # position, time

    def take(self, count: float, begin: float) -> float:
        """Time at which a consumer that turns to the next `count` bytes at `begin` has them."""
        latency = self.target.fetch_latency_cycles + 1
        self.position += count
        room = self.position - self.target.fetch_fifo_bytes
        self.available = max(self.available or latency, self._time(room) + latency) + count / (
            self.target.fetch_bytes_per_cycle)
        time = max(begin, self.available)
        self.taken.append((self.position, time))
        return time

    def _time(self, position: float) -> float:
        """Time at which the bytes up to `position` had been taken."""
        if position <= 0:
            return -1e9
        index = min(bisect_left(self.taken, (position, 0.0)), len(self.taken) - 1)
        (p0, t0), (p1, t1) = self.taken[index - 1], self.taken[index]
        return t1 if p1 == p0 else t0 + (t1 - t0) * (position - p0) / (p1 - p0)


@dataclass
class _Clock:
    """Times at which the units are free, and at which results are there."""

    target: Target
    fetch: _Fetch
    dispatch: float = 0.0
    shadow: float = 0.0
    dma_in: float = 0.0
    array: float = 0.0
    post: float = 0.0
    visible: float = 0.0
    dma_out: float = 0.0
    end: float = 0.0
    posts: list[float] = field(default_factory=list)  # ends of the posts, of which a bank waits for the last but one
    par: float = 0.0
    started: bool = False  # the decoder has taken words ahead

    def advance(self, time: float) -> None:
        """Every unit is free and every result is there at `time`."""
        self.visible = self.array = self.dma_in = self.post = self.dispatch = self.shadow = time
        self.fetch.take(0.0, time)
        self.fetch.available = time


def plan_cycles(plan: Plan, sizes: list[tuple[int, int]], target: Target) -> list[float]:
    """Time by which each step is done; `sizes` are (program bytes, weight bytes) of each."""
    places, tensors = dict(plan.places), {t.name: t for t in plan.tensors}
    clock = _Clock(target, _Fetch(target))
    out = []
    for index, (step, (size, weights)) in enumerate(zip(plan.steps, sizes)):
        operands = _operands(step, places, tensors)
        if step.stages or step.inner:
            _staged(clock, step, operands, places, size)
        else:
            last = index == len(plan.steps) - 1
            _resident(clock, step, operands, places, size, weights, last)
        clock.end = max(clock.end, clock.visible)
        out.append(clock.end + 1)
    return out


def first_step_cycles(step: Step, operands: Operands, blocks: Blocks, size: tuple[int, int], target: Target) -> float:
    """Cycles of a network's first step alone, until its results are there; `size` as in `plan_cycles`."""
    layout = replace(operands.x, strips=operands.strips)
    clock = _Clock(target, _Fetch(target))
    plan = StepPlan(step, blocks, (), 0, (step.x,), (step.x,) if layout.is_bordered else (), ())
    moves = LOAD_BYTES * max(1, len(blocks.heights)) + FILL_BYTES * len(border_pieces(layout))
    _resident(clock, plan, replace(operands, x=layout), {step.x: Place(layout, 0)}, size[0] + moves, size[1], False)
    return clock.visible


def _operands(step: StepPlan, places: dict[str, Place], tensors: dict) -> Operands:
    stage = step.stage(step.step.x)
    residual = getattr(step.step, "residual", None)
    layout = places[step.step.x].layout
    if isinstance(step.step, ChainStep):
        layout = read_layout(step.step, layout, tensors[step.step.y])
    return Operands(layout, tensors[step.step.y], layout.strips if stage is None else stage.strips, stage is not None,
                    residual is not None and step.stage(residual) is not None, step.stage(step.step.y) is not None,
                    not places[step.step.y].layout.is_tight)


def _staged(clock: _Clock, step: StepPlan, operands: Operands, places: dict[str, Place], size: int) -> None:
    """A step in blocks begins when everything before is done and its inputs in SRAM are there; then block after block,
    and stores."""
    arrived = [_load(clock, places[name].layout, places[name].layout.height) for name in step.loads]
    for name in step.fills:
        if places[name].in_sram:
            _fill(clock, places[name].layout)
    start = max(clock.visible, clock.end, clock.dma_in, clock.fetch.available, *arrived)
    paired = bool(step.stage_spacing_bytes)
    if isinstance(step.step, ChainStep):
        cost = ChainCost(step.step, operands.y, clock.target)
        clock.advance(start + cost.cycles(operands, step.blocks, paired, size))
    else:
        clock.advance(start + step_cycles(step.step, operands, step.blocks, paired, clock.target, size))
    if step.stage(step.step.y) is None:
        _stores(clock, step, places)


def _resident(clock: _Clock, step: StepPlan, operands: Operands, places: dict[str, Place], size: int, weights: int,
              last: bool) -> None:
    """A step on whole tensors: loads and borders, then block after block, then stores."""
    target, blocks = clock.target, step.blocks
    ready = {name: clock.visible for name in (step.step.x, getattr(step.step, "residual", None))}
    before = clock.fetch.position
    for name in step.loads:
        layout = places[name].layout
        if name in step.fills:
            _fill(clock, layout)
        if not (blocks.heights and name == step.step.x):
            ready[name] = _load(clock, layout, layout.height)
    borders = [places[name].layout for name in step.fills if name not in step.loads]
    heights = blocks.heights or (blocks.rows,) * blocks.count
    arrivals = _arrivals(clock, step.step, operands.x, blocks.heights, borders)
    lead = clock.fetch.position - before
    tail = STORE_BYTES * len(step.stores) + 4 * last
    copies = 1 if not blocks.heights and blocks.count > 1 and isinstance(step.step, ConvStep) else len(heights)
    for number, height in enumerate(heights):
        if arrivals:
            ready[step.step.x] = arrivals[number]
        block = replace(blocks, rows=height, count=1, heights=())
        _block(clock, step.step, operands, block, (size - lead - tail) / copies, weights / copies, ready)
        if copies < len(heights):
            clock.dispatch = max(clock.dispatch, clock.fetch.available) + target.fetch_latency_cycles
            clock.fetch.available = clock.dispatch
    clock.dispatch = clock.fetch.take(tail, clock.dispatch)
    _stores(clock, step, places)


def _stores(clock: _Clock, step: StepPlan, places: dict[str, Place]) -> None:
    """Copies of a whole result to output buffers."""
    target = clock.target
    for name, _ in step.stores:
        layout = places[name].layout
        row = layout.width * layout.channels
        clock.dma_out = max(clock.dma_out, clock.visible, clock.dispatch)
        clock.dma_out += (-(-layout.height * row // target.dma_bytes_per_cycle) if layout.is_tight
                          else layout.height * -(-row // target.dma_bytes_per_cycle))
        clock.end = max(clock.end, clock.dma_out + target.dma_latency_cycles)


def _fill(clock: _Clock, layout: Layout) -> None:
    """Write a border."""
    for _, size, rows, _ in border_pieces(layout):
        clock.dispatch = clock.fetch.take(FILL_BYTES, clock.dispatch)
        clock.dma_in = max(clock.dma_in, clock.dispatch) + rows * -(-size // clock.target.sram_port_bytes)


def _load(clock: _Clock, layout: Layout, rows: int) -> float:
    """Load rows of an input; returns when they are there."""
    loads = 1 if layout.strips is None else len(strip_loads(layout))
    clock.dispatch = clock.fetch.take(LOAD_BYTES * loads, clock.dispatch)
    clock.dma_in = max(clock.dma_in, clock.dispatch) + load_rows(layout, rows, clock.target)
    return clock.dma_in + clock.target.dma_latency_cycles


def _arrivals(clock: _Clock, step: Step, x: Layout, heights: tuple[int, ...], borders: list[Layout]) -> list[float]:
    """When the rows of the input behind each block are there; borders of results are written behind the first ones."""
    out: list[float] = []
    loaded = 0
    spans = input_spans(step, heights, x.height) if heights else []
    for _, end in spans[:1]:
        out.append(_load(clock, x, end))
        loaded = end
    for layout in borders:
        _fill(clock, layout)
    for _, end in spans[1:]:
        out.append(_load(clock, x, end - loaded) if end > loaded else out[-1])
        loaded = max(end, loaded)
    return out


def _block(clock: _Clock, step: Step, operands: Operands, block: Blocks, size: float, weights: float,
           ready: dict) -> None:
    """Groups of output channels of one block."""
    target = clock.target
    _, width, channels = result_shape(step, operands.y)
    groups = -(-channels // target.array_columns)
    chunks = column_chunks(width, block.columns)
    count = groups * len(chunks)
    if not uses_accumulators(step):
        clock.dispatch = clock.fetch.take(size, clock.dispatch)
        clock.post = max(clock.post, clock.dispatch, *ready.values()) + post_cycles(step, operands, block, target)
        clock.visible = clock.post + target.post_latency_cycles
        return
    weights = max(0.0, weights - ARRAY_BYTES * count * _instructions(step, operands, block, chunks, target))
    header = max(0.0, (size - weights) / count - POST_BYTES)
    if not clock.started and isinstance(step, ConvStep) and weights < step.conv.weight.size:  # lanes: raw takes more
        ahead = min(AHEAD_BYTES * target.array_columns * target.decoder_rows_per_cycle, weights / 2)
        clock.fetch.take(ahead, clock.dispatch)
        clock.started, weights = True, weights - ahead
    for chunk in chunks:
        every = _tiles(step, operands, block.rows, chunk, target)
        if isinstance(step, PoolStep):  # a part of the window for all groups, then the next; posts behind the last one
            every = tuple(p for p in every for _ in range(groups))
            code = header * groups + POST_BYTES * (groups - 1)
            _group(clock, every, block.rows * chunk, code, weights / len(chunks) / sum(n for _, n in every),
                   ready, step)
            continue
        stored = [_stored(step, operands, every, group, target) for group in range(groups)]
        columns = [min(target.array_columns, channels - group * target.array_columns) for group in range(groups)]
        total = sum(lanes * c for passes, c in zip(stored, columns) for _, lanes in passes) or 1
        for passes, c in zip(stored, columns):
            _group(clock, passes, block.rows * chunk, header, weights / len(chunks) / total * c, ready, step)


def _instructions(step: Step, operands: Operands, block: Blocks, chunks: list[int], target: Target) -> int:
    """Instructions of the array for a group."""
    return len(_tiles(step, operands, block.rows, chunks[0], target)) if _by_pass(step) else 1


def _by_pass(step: Step) -> bool:
    """Whether every pass is an instruction, as it is with dwc."""
    return isinstance(step, PoolStep) or is_depthwise(step)


def _tiles(step: Step, operands: Operands, rows: int, width: int, target: Target) -> tuple[tuple[int, int], ...]:
    """(cycles, rows of the tile) of every pass of a group."""
    if isinstance(step, ConvStep) and not is_depthwise(step):
        return tuple((rows * width, lanes) for lanes in tiles(step, operands, target))
    if isinstance(step, PoolStep):
        return split_window(step.pool.kernel, step.pool.stride, (1, 1), (rows, width), target).passes
    conv = step.conv  # type: ignore[union-attr]
    return split_window(conv.weight.shape[1:3], conv.stride, conv.dilation, (rows, width), target).passes


def _stored(step: Step, operands: Operands, passes: tuple[tuple[int, int], ...], group: int,
            target: Target) -> tuple[tuple[int, int], ...]:
    """The passes of tiles that are not all zero; if there are none, one pass that writes zeros."""
    if not isinstance(step, ConvStep) or is_depthwise(step) or step.conv.groups > 1:
        return passes
    first = group * target.array_columns
    live = step.conv.weight[first:first + target.array_columns].any(axis=0)
    runs = 1 if operands.strips is not None else live.shape[0] * (live.shape[1] if step.conv.dilation[1] > 1 else 1)
    present = [bool(run[start:start + target.array_rows].any()) for run in live.reshape(runs, -1)
               for start in range(0, live.size // runs, target.array_rows)]
    return tuple(p for p, stored in zip(passes, present) if stored) or ((passes[0][0], 0),)


def _group(clock: _Clock, passes: tuple[tuple[int, int], ...], positions: int, header: float, weights: float,
           ready: dict, step: Step) -> None:
    """par, conv (or the dwc of all passes), post; `weights` are bytes of a row of a tile."""
    target = clock.target
    each = ARRAY_BYTES if _by_pass(step) else 0.0
    parameters = max(0.0, header - each * len(passes))
    begin = max(clock.dispatch, clock.par)
    streamed = begin + 2 + parameters // target.post_parameter_bytes_per_cycle
    clock.dispatch = max(clock.fetch.take(parameters, begin), streamed)
    bank = clock.posts[-target.accumulator_banks] if len(clock.posts) >= target.accumulator_banks else 0.0
    begin = max(ready[step.x], bank)
    start = cycles = 0.0
    for cycles, lanes in passes:
        decode = -(-lanes // target.decoder_rows_per_cycle)
        if each:
            clock.dispatch = clock.fetch.take(each, clock.dispatch + 1)
        decoded = clock.fetch.take(weights * lanes, max(clock.dispatch, clock.shadow) + decode - 1) + 1
        start = max(clock.array, begin, decoded + target.decoder_latency_cycles)
        clock.array = start + cycles
        clock.shadow, clock.dispatch = start, decoded
    clock.dispatch = clock.fetch.take(POST_BYTES, clock.dispatch)
    clock.par = clock.post  # the next parameters come when this group's have been taken
    follow = clock.array + target.array_latency_cycles - min(cycles, positions)
    clock.post = max(clock.post + 1, follow, clock.dispatch, max(ready.values())) + positions
    clock.visible = clock.post + target.post_latency_cycles
    clock.posts.append(clock.visible)


def load_rows(layout: Layout, rows: int, target: Target) -> int:
    """Cycles of loading `rows` rows of a network's input."""
    if layout.strips is not None:
        return layout.strips.count * rows * -(-layout.strips.columns * layout.channels // target.dma_bytes_per_cycle)
    row = layout.width * layout.channels
    if layout.border[1] or layout.border[3]:
        return rows * -(-row // target.dma_bytes_per_cycle)
    return -(-rows * row // target.dma_bytes_per_cycle)
