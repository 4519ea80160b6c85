"""Everything that follows from which tensors stay outside: layouts, lifetimes, the cut of every step, SRAM requests."""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..quantize.qregion import QRegion
from ..target import Target
from .alloc import Request
from .chain import inner_layouts, read_layout
from .chain_cost import BYTES_PER_CYCLE, ChainCost
from .cost import Operands, channel_cuts, input_cycles, step_cycles
from .geometry import block_input_rows, cut, first_cut, layouts
from .plan import Blocks, ChainStep, Layout, Step, Strips, result_shape, step_inputs
from .ramp import first_layer
from .steps import Steps, lifetimes
from .strips import possible, strips

BORDER_ROW = "@border_row"


@dataclass(frozen=True)
class Draft:
    """One attempt: which root tensors are external, SRAM bytes that a step leaves unused, by name, because they lie
    in pieces, and whether tensors of equal layout keep one place, whose border is written once."""

    steps: Steps
    external: frozenset[str]
    unused: dict[str, int] = field(default_factory=dict)
    share: bool = True


@dataclass(frozen=True)
class Cut:
    """How a step is cut: blocks, and the sizes of its staging buffers with their offsets in one set of them.

    inner: sizes of the buffers inside a chain, with their offsets behind all sets. bytes: of all of this. cycles:
    estimate of the whole step. excess_bytes: what the smallest cut needs beyond the SRAM, 0 if it fits. copied_bytes:
    of program, because the stripes of a chain hold weights again.
    """

    blocks: Blocks
    paired: bool
    strips: Strips | None
    sizes: dict[str, int]
    offsets: dict[str, int]
    set_bytes: int
    bytes: int
    cycles: int
    excess_bytes: int = 0
    inner: tuple[tuple[str, int, int], ...] = ()
    copied_bytes: int = 0


def stage_name(index: int) -> str:
    """Name of a step's staging buffer in SRAM, which no tensor has."""
    return f"@stage{index}"


class Tables:
    """What follows from a draft; what does not differ from those of `base` is taken from there."""

    def __init__(self, single: QRegion, draft: Draft, target: Target, base: Tables | None = None):
        self.single, self.draft, self.target = single, draft, target
        self.steps = draft.steps
        self.inputs = {p.tensor for p in single.inputs}
        self.outputs = [p.tensor for p in single.outputs]
        if base is not None and base.steps is not self.steps:
            base = None
        self._rows = layouts(self.steps.steps, self.steps.tensors) if base is None else base._rows
        self.lifetimes = lifetimes(self.steps, set(self.outputs)) if base is None else base.lifetimes
        self._in_strips = base._in_strips if base is not None else [s for s in self.steps.steps
                                                                    if self._may_lie_in_strips(s)]
        self._chain_costs: dict[tuple[str, bool], ChainCost] = {} if base is None else base._chain_costs
        self.layouts = dict(self._rows)
        self._first: Blocks | None = None
        for step in self._in_strips:
            if not self.is_external(step.x):
                found = strips(step, self._operands(step), self._first_cut(step), target)
                self.layouts[step.x] = replace(self.layouts[step.x], strips=found)
        self._ramp()
        if draft.share:
            self._align()
        self.shared = self._shared() if draft.share else {}
        self._room = self._room_bytes()
        self.cuts = self._choose(base)

    def again(self, draft: Draft) -> Tables:
        """The tables of another draft."""
        return Tables(self.single, draft, self.target, self)

    def _ramp(self) -> None:
        """Blocks of the first step, which wait for their part of the input only, and how that lies."""
        step = self.steps.steps[0]
        if isinstance(step, ChainStep) or step.x not in self.inputs:
            return
        if self.is_external(step.x) or self.is_external(step.y):
            return
        layout = self._rows[step.x]
        operands = replace(self._operands(step), x=layout, strips=None)
        lying = possible(step, operands) if step in self._in_strips else None
        if lying is None or replace(layout, strips=lying).bytes <= self.target.sram_bytes // 2:
            lying, self._first = first_layer(step, operands, lying, self.target)
            self.layouts[step.x] = replace(layout, strips=lying)

    def _align(self) -> None:
        """Give a result the pitch of the one before, if their shapes are equal: post keeps its geometry."""
        fixed = {*self.inputs, *self.outputs, *self.steps.aliases, *self.steps.aliases.values()}
        for before, step in zip(self.steps.steps, self.steps.steps[1:]):
            one, two = self.layouts[before.y], self.layouts[step.y]
            if two.is_tight and step.y not in fixed and (one.height, one.width, one.channels) == (
                    two.height, two.width, two.channels) and one.strips is None:
                self.layouts[step.y] = replace(one, value=None)

    def is_external(self, tensor: str) -> bool:
        return self.steps.root(tensor) in self.draft.external

    def crowded_step(self) -> int | None:
        """First step whose operands do not fit the SRAM."""
        return next((i for i, chosen in enumerate(self.cuts) if chosen.excess_bytes), None)

    def cycles(self) -> int:
        """Estimate for all steps."""
        return sum(map(self.step_cycles, range(len(self.cuts))))

    def step_cycles(self, index: int) -> int:
        """Estimate for a step, with the load of a network's input that it waits for."""
        step, chosen = self.steps.steps[index], self.cuts[index]
        if index or step.x not in self.inputs or self.is_external(step.x) or chosen.blocks.heights:
            return chosen.cycles
        return chosen.cycles + input_cycles(self.layouts[step.x], self.target)

    def residents(self, index: int) -> list[str]:
        """Root tensors that occupy SRAM during a step."""
        return [n for n, (first, last) in self.lifetimes.items() if first <= index <= last
                and n not in self.draft.external]

    def border_row_bytes(self) -> int:
        """SRAM bytes needed to write one value into the borders or the whole of external tensors."""
        cleared = {self.steps.root(s.y) for s in self.steps.steps if _clears(s)}
        return max((self.layouts[n].pitch_bytes for n in self.draft.external
                    if n in cleared or not (self.layouts[n].is_tight or n in self.inputs)), default=0)

    def requests(self) -> list[Request]:
        """Every SRAM range that the draft needs, with its lifetime."""
        last = len(self.steps.steps)
        out = [Request(name, self.layouts[name].bytes, *span) for name, span in self._spans().items()]
        for index, chosen in enumerate(self.cuts):
            if chosen.bytes:
                out.append(Request(stage_name(index), chosen.bytes, index, index))
        if self.border_row_bytes():
            out.append(Request(BORDER_ROW, self.border_row_bytes(), 0, last))
        return out

    def _shared(self) -> dict[str, str]:
        """Tensors with equal borders, by name the first one whose place each of them takes."""
        free: dict[Layout, list[tuple[int, str]]] = {}  # last step of a place, its first tensor
        out: dict[str, str] = {}
        for name, (first, last) in sorted(self.lifetimes.items(), key=lambda item: (item[1], item[0])):
            layout = self.layouts[name]
            if not layout.is_bordered or name in self.inputs or name in self.draft.external:
                continue
            places = free.setdefault(layout, [])
            found = next((place for place in places if place[0] < first), (last, name))
            places[:] = [place for place in places if place is not found] + [(last, found[1])]
            out[name] = found[1]
        return out

    def _spans(self) -> dict[str, tuple[int, int]]:
        """First and last step of every range of SRAM that holds whole tensors, by the first of them.

        Where everything fits, borders are written one step ahead.
        """
        spans: dict[str, tuple[int, int]] = {}
        for name, (first, last) in self.lifetimes.items():
            if name not in self.draft.external:
                leader = self.shared.get(name, name)
                if self.shared.get(name) == name:
                    first = max(first - 1, 0)
                old = spans.get(leader, (first, last))
                spans[leader] = (min(first, old[0]), max(last, old[1]))
        return spans

    def _room_bytes(self) -> list[int]:
        """SRAM bytes beside whole tensors, for the staging buffers of each step; negative where tensors do not fit."""
        alignment = self.target.memory_alignment_bytes
        change = [0] * (len(self.steps.steps) + 2)
        for name, (first, last) in self._spans().items():
            size = -(-self.layouts[name].bytes // alignment) * alignment
            change[first] += size
            change[last + 1] -= size
        total, out = self.border_row_bytes(), []
        for step, step_change in zip(self.steps.steps, change):
            total += step_change
            out.append(self.target.sram_bytes - total - self.draft.unused.get(step.name, 0))
        return out

    def _may_lie_in_strips(self, step: Step) -> bool:
        """A network's input with one reader: a load can make strips of it."""
        if step.x not in self.inputs or step.x in self.steps.aliases or step.x in self.steps.aliases.values():
            return False
        return sum(step.x in step_inputs(other) for other in self.steps.steps) == 1

    def _operands(self, step: Step) -> Operands:
        residual, layout = getattr(step, "residual", None), self.layouts[step.x]
        if isinstance(step, ChainStep):
            layout = read_layout(step, layout, self.steps.tensors[step.y])
        return Operands(layout, self.steps.tensors[step.y], self.layouts[step.x].strips,
                        self.is_external(step.x), residual is not None and self.is_external(residual),
                        self.is_external(step.y), not self.layouts[self.steps.root(step.y)].is_tight)

    def _first_cut(self, step: Step) -> Blocks:
        return first_cut(step, self.steps.tensors[step.y], self.target)

    def _choose(self, base: Tables | None) -> list[Cut]:
        """The cut of every step."""
        moved = frozenset() if base is None else self.draft.external ^ base.draft.external
        out = []
        for index, step in enumerate(self.steps.steps):
            names = (*step_inputs(step), step.y)
            if base is not None and base._room[index] == self._room[index] and not any(
                    self.steps.root(n) in moved for n in names):
                out.append(base.cuts[index])
            else:
                out.append(self._search(step, self._operands(step), self._room[index]))
        return out

    def _search(self, step: Step, operands: Operands, room: int) -> Cut:
        """The cut of least estimated cycles among those that fit."""
        if isinstance(step, ChainStep):
            return self._search_chain(step, operands, room)
        first = self._first_cut(step)
        if not (operands.x_outside or operands.residual_outside or operands.y_outside):
            if step is self.steps.steps[0] and self._first is not None:
                first = self._first
            return self._cut(step, operands, first, False, room)
        height = result_shape(step, operands.y)[0]
        choices = {cut(height, rows, first.columns) for rows in range(1, first.rows + 1)}
        choices |= channel_cuts(step, operands, first, self.target)
        cuts = [self._cut(step, operands, blocks, paired, room) for blocks in choices
                for paired in ((True, False) if blocks.count > 1 else (False,))]
        return min(cuts, key=lambda c: (c.excess_bytes, c.cycles, c.blocks.count, c.paired))

    def _cut(self, step: Step, operands: Operands, blocks: Blocks, paired: bool, room: int) -> Cut:
        """A cut into these blocks, with its cycles."""
        if operands.x_outside:
            operands = replace(operands, strips=strips(step, operands, blocks, self.target))
        sizes = self._stage_sizes(step, operands, blocks)
        offsets, end = self._stack(sizes, 0)
        total = end * (1 + paired)
        return Cut(blocks, paired, operands.strips, sizes, offsets, end, total,
                   step_cycles(step, operands, blocks, paired, self.target), max(0, total - room))

    def _search_chain(self, chain: ChainStep, operands: Operands, room: int) -> Cut:
        """The same for a chain, which is cut even where its operands are in SRAM."""
        _, height, width, _ = operands.y.shape
        outside = operands.x_outside or operands.residual_outside or operands.y_outside
        cuts = [self._chain_cut(chain, operands, blocks, paired, room)
                for blocks in {cut(height, rows, width) for rows in range(1, height + 1)}
                if chain.pool is None or blocks.rows * blocks.count == height
                for paired in ((True, False) if outside and blocks.count > 1 else (False,))]
        return min(cuts, key=lambda c: (c.excess_bytes, c.cycles, c.blocks.count, c.paired))

    def chain_cut(self, chain: ChainStep, index: int) -> tuple[Cut, frozenset[str]]:
        """The cut of a chain instead of steps `index` and `index` + 1, with its input and result where they are, or one
        of them or both outside, and which of them are moved there."""
        operands = self._operands(chain)
        middle = self.steps.steps[index].y
        room = min(self._room[index], self._room[index + 1])
        if not self.is_external(middle) and chain.direct is None:
            room += self.layouts[middle].bytes
        found = []
        for names in _subsets([n for n in (chain.x, chain.y) if not self.is_external(n)]):
            outside = replace(operands, x_outside=operands.x_outside or chain.x in names,
                              y_outside=operands.y_outside or chain.y in names)
            chosen = self._search_chain(chain, outside, room + sum(self.layouts[name].bytes for name in names))
            cost = chosen.cycles + sum(map(self.leave_cycles, names))
            found.append((chosen.excess_bytes > 0, cost, sorted(names), chosen))
        *_, names, chosen = min(found, key=lambda f: f[:3])
        return chosen, frozenset(self.steps.root(n) for n in names)

    def leave_cycles(self, name: str) -> int:
        """What it costs that a tensor leaves the SRAM: a part of a move, since others hide it as a rule, and the copy
        with a border of a network's input."""
        cycles = self._rows[name].bytes // self.target.dma_bytes_per_cycle
        return cycles if self.steps.root(name) in self.inputs and not self.layouts[name].is_tight else cycles // 4

    def _chain_cost(self, chain: ChainStep) -> ChainCost:
        if chain.key not in self._chain_costs:
            self._chain_costs[chain.key] = ChainCost(chain, self.steps.tensors[chain.y], self.target)
        return self._chain_costs[chain.key]

    def _chain_cut(self, chain: ChainStep, operands: Operands, blocks: Blocks, paired: bool, room: int) -> Cut:
        if operands.x_outside:
            operands = replace(operands, strips=self._chain_cost(chain).strips(operands, blocks))
        sizes = self._stage_sizes(chain, operands, blocks)
        offsets, end = self._stack(sizes, 0)
        inner = {t.name: layout.bytes
                 for t, layout in zip(chain.inner, inner_layouts(chain, operands.y, blocks.rows))}
        inner_offsets, total = self._stack(inner, end * (1 + paired))
        cost = self._chain_cost(chain)
        copied = cost.copied_bytes(operands, blocks)
        cycles = cost.cycles(operands, blocks, paired) + copied // BYTES_PER_CYCLE
        return Cut(blocks, paired, operands.strips, sizes, offsets, end, total, cycles, max(0, total - room),
                   tuple((name, inner_offsets[name], size) for name, size in inner.items()), copied)

    def _stack(self, sizes: dict[str, int], start: int) -> tuple[dict[str, int], int]:
        """Offsets of buffers that lie one behind another, and their end."""
        offsets, alignment = {}, self.target.memory_alignment_bytes
        for name, size in sizes.items():
            offsets[name] = start
            start += -(-size // alignment) * alignment
        return offsets, start

    def _stage_sizes(self, step: Step, operands: Operands, blocks: Blocks) -> dict[str, int]:
        """Size of the staging buffer of every external operand."""
        sizes: dict[str, int] = {}
        if operands.x_outside:
            layout = operands.x
            if isinstance(step, ChainStep):
                rows = self._chain_cost(step).stage_rows(operands, blocks.rows)
            else:
                rows = min(block_input_rows(step, blocks.rows), layout.rows)
            lying = operands.strips
            sizes[step.x] = (rows * layout.pitch_bytes if lying is None
                             else lying.count * lying.rows(rows) * lying.columns * layout.channels)
        _, width, channels = result_shape(step, operands.y)
        for name, outside in ((getattr(step, "residual", None), operands.residual_outside),
                              (step.y, operands.y_outside)):
            if outside and name not in sizes:
                sizes[name] = blocks.rows * width * (blocks.channels or channels)
        return sizes


def _subsets(names: list[str]) -> list[set[str]]:
    out: list[set[str]] = [set()]
    for name in dict.fromkeys(names):
        out += [{*chosen, name} for chosen in out]
    return out


def _clears(step: Step) -> bool:
    part = getattr(step, "part", None)
    return part is not None and part.clear is not None
