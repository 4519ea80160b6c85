"""QRegion -> Plan: fuse, lay out, decide what lives in SRAM and what is staged in blocks, place everything."""
from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import ScheduleError
from ..quantize.qregion import QRegion
from ..region.region import Port
from ..target import Target
from .alloc import Overflow, Request, allocate
from .batch import item_name, split_batch
from .geometry import block_input_rows, cut, first_cut, layouts
from .plan import Blocks, ElementStep, Place, Plan, Source, Stage, Step, StepPlan, Strips, result_shape, step_inputs
from .ports import Buffer, HostPort
from .steps import Steps, lifetimes, make_steps
from .strips import strips


@dataclass(frozen=True)
class _Draft:
    """One attempt: which root tensors are external, how every step is cut, and which steps have to do with one
    set of staging buffers, so that moving and computing cannot overlap."""

    steps: Steps
    external: frozenset[str]
    cuts: tuple[Blocks, ...]
    unpaired: frozenset[str] = frozenset()


def schedule(qregion: QRegion, target: Target) -> Plan:
    """Plan of `qregion` on `target`; raises ScheduleError naming the step when not even one row fits."""
    single, batch = split_batch(qregion)
    steps = make_steps(single)
    cuts = tuple(first_cut(step, steps.tensors[step.y], target) for step in steps.steps)
    draft = _Draft(steps, frozenset(), cuts)
    while True:
        tables = _Tables(single, draft, target)
        addresses = allocate(tables.requests(), target.sram_bytes, target.memory_alignment_bytes)
        if not isinstance(addresses, Overflow):
            return _finish(qregion, single, batch, tables, addresses)
        draft = _relax(tables, addresses)


class _Tables:
    """Everything that follows from a draft: layouts, lifetimes, stages and their sizes."""

    def __init__(self, single: QRegion, draft: _Draft, target: Target):
        self.draft, self.target = draft, target
        self.steps = draft.steps
        self.inputs = {p.tensor for p in single.inputs}
        self.outputs = [p.tensor for p in single.outputs]
        self.layouts = layouts(self.steps.steps, self.steps.tensors)
        self.strips = {index: found for index in range(len(self.steps.steps)) if (found := self._strips(index))}
        for index, found in self.strips.items():
            name = self.steps.steps[index].x
            if not self.is_external(name):
                self.layouts[name] = replace(self.layouts[name], strips=found)
        self.lifetimes = lifetimes(self.steps, set(self.outputs))

    def _strips(self, index: int) -> Strips | None:
        """Strips of the first operand of step `index`, which only a load can make."""
        step = self.steps.steps[index]
        readers = sum(step.x in step_inputs(other) for other in self.steps.steps)
        aliased = step.x in self.steps.aliases or step.x in self.steps.aliases.values()
        if not self.is_external(step.x) and (step.x not in self.inputs or readers > 1 or aliased):
            return None
        return strips(step, self.layouts[step.x], self.steps.tensors[step.y], self.draft.cuts[index],
                      self.is_external(step.x), self.target)

    def is_external(self, tensor: str) -> bool:
        return self.steps.root(tensor) in self.draft.external

    def stage_bytes(self, index: int) -> dict[str, int]:
        """Size of the staging buffer of every external operand of step `index`."""
        step, blocks = self.steps.steps[index], self.draft.cuts[index]
        sizes: dict[str, int] = {}
        if self.is_external(step.x):
            layout = self.layouts[step.x]
            rows = min(block_input_rows(step, blocks.rows), layout.rows)
            staged = replace(layout, height=rows, border=(0, layout.border[1], 0, layout.border[3]),
                             strips=self.strips.get(index))
            sizes[step.x] = staged.bytes
        _, width, channels = result_shape(step, self.steps.tensors[step.y])
        for name in (*step_inputs(step)[1:], step.y):
            if self.is_external(name) and name not in sizes:
                sizes[name] = blocks.rows * width * channels
        return sizes

    def stage_set(self, index: int) -> tuple[dict[str, int], int, int]:
        """Offsets of the stages of step `index` in one set, the bytes of a set, and how many sets there are."""
        offsets, end = {}, 0
        alignment = self.target.memory_alignment_bytes
        for name, size in self.stage_bytes(index).items():
            offsets[name] = end
            end += -(-size // alignment) * alignment
        paired = self.draft.cuts[index].count > 1 and self.steps.steps[index].name not in self.draft.unpaired
        return offsets, end, 1 + paired

    def border_row_bytes(self) -> int:
        """SRAM bytes needed to write one value into the borders or the whole of external tensors."""
        cleared = {self.steps.root(s.y) for s in self.steps.steps if _clears(s)}
        return max((self.layouts[n].pitch_bytes for n in self.draft.external
                    if n in cleared or not (self.layouts[n].is_tight or n in self.inputs)), default=0)

    def requests(self) -> list[Request]:
        """Every SRAM range that the draft needs, with its lifetime."""
        last = len(self.steps.steps)
        out = [Request(name, self.layouts[name].bytes, *span) for name, span in self.lifetimes.items()
               if name not in self.draft.external]
        for index in range(last):
            _, size, sets = self.stage_set(index)
            if size:
                out.append(Request(_stage_name(index), size * sets, index, index))
        if self.border_row_bytes():
            out.append(Request(_BORDER_ROW, self.border_row_bytes(), 0, last))
        return out


_BORDER_ROW = "@border_row"


def _stage_name(index: int) -> str:
    return f"@stage{index}"


def _clears(step: Step) -> bool:
    part = getattr(step, "part", None)
    return part is not None and part.clear is not None


def _relax(tables: _Tables, overflow: Overflow) -> _Draft:
    """Make the step where SRAM overflows smaller: spill its largest resident tensor, or halve its blocks."""
    draft, index = tables.draft, min(overflow.step, len(tables.draft.cuts) - 1)
    step, blocks = tables.steps.steps[index], draft.cuts[index]
    resident = sorted(((tables.layouts[n].bytes, n) for n, (first, last) in tables.lifetimes.items()
                       if first <= overflow.step <= last and n not in draft.external), reverse=True)
    _, set_bytes, sets = tables.stage_set(index)
    staged = set_bytes * sets
    if blocks.rows > 1 and staged and (not resident or staged >= resident[0][0]):
        height = result_shape(step, tables.steps.tensors[step.y])[0]
        smaller = cut(height, blocks.rows // 2, blocks.columns)
        cuts = draft.cuts[:index] + (smaller,) + draft.cuts[index + 1:]
        return replace(draft, cuts=cuts)
    if not resident and staged and sets > 1:
        return replace(draft, unpaired=draft.unpaired | {step.name})
    if not resident:
        raise ScheduleError(f"step {step.name!r}: one row per block needs {overflow.demand_bytes} B of SRAM, the "
                            f"target has {tables.target.sram_bytes} B; use a larger target or leave it to the host")
    return _spill(tables, resident[0][1])


def _spill(tables: _Tables, name: str) -> _Draft:
    """Move one root tensor to external memory; a padded input first gets a bordered copy there."""
    draft = tables.draft
    if name not in tables.inputs or tables.layouts[name].is_tight:
        return replace(draft, external=draft.external | {name})
    copy = f"{name}@bordered"
    steps = tables.steps
    tensors = {**steps.tensors, copy: replace(steps.tensors[name], name=copy)}
    first = ElementStep(f"{name}@border", name, copy)
    rest = [_reads_copy(step, name, copy) for step in steps.steps]
    height = tensors[name].shape[1]
    blocks = cut(height, height, tensors[name].shape[2])
    return replace(draft, steps=Steps((first, *rest), steps.aliases, tensors),
                   external=draft.external | {name, copy}, cuts=(blocks, *draft.cuts))


def _reads_copy(step: Step, name: str, copy: str) -> Step:
    changes = {}
    if step.x == name:
        changes["x"] = copy
    if getattr(step, "residual", None) == name:
        changes["residual"] = copy
    return replace(step, **changes)


def _finish(qregion: QRegion, single: QRegion, batch: int, tables: _Tables, addresses: dict[str, int]) -> Plan:
    sources = dict(_items(qregion, qregion.inputs, 0, batch))
    sinks = _items(qregion, qregion.outputs, len(qregion.inputs), batch)
    places, scratch_bytes = _places(tables, addresses, sources, sinks, len(qregion.inputs) + len(qregion.outputs))
    sizes = {t.name: t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3] for t in qregion.tensors}
    buffers = [Buffer(p.tensor, "input", sizes[p.tensor]) for p in qregion.inputs]
    buffers += [Buffer(p.tensor, "output", sizes[p.tensor]) for p in qregion.outputs]
    if scratch_bytes:
        buffers.append(Buffer("scratch", "scratch", scratch_bytes))
    return Plan(qregion.name, tuple(tables.steps.tensors.values()), _step_plans(tables, addresses, places, sinks),
                tuple(sorted(places.items())), tuple(sorted(sources.items())),
                tuple(sinks), tuple(buffers), _host_ports(qregion), addresses.get(_BORDER_ROW, 0),
                tables.border_row_bytes())


def _items(qregion: QRegion, ports: tuple[Port, ...], first_buffer: int, batch: int) -> list[tuple[str, Source]]:
    """Where each batch item of each port lies in its external buffer; a tensor may occur more than once."""
    tensors = qregion.by_name()
    out = []
    for index, port in enumerate(ports):
        _, height, width, channels = tensors[port.tensor].shape
        for item in range(batch):
            name = port.tensor if batch == 1 else item_name(port.tensor, item)
            out.append((name, Source(first_buffer + index, item * height * width * channels)))
    return out


def _places(tables: _Tables, addresses: dict[str, int], sources: dict[str, Source],
            sinks: list[tuple[str, Source]], scratch_buffer: int) -> tuple[dict[str, Place], int]:
    """Place of every tensor (aliases with their own layout), and the bytes of the scratch buffer."""
    roots: dict[str, Place] = {}
    scratch: list[Request] = []
    read = {tables.steps.root(n) for step in tables.steps.steps for n in step_inputs(step)}
    for name in tables.lifetimes:
        layout = tables.layouts[name]
        if name not in tables.draft.external:
            roots[name] = Place(layout, addresses[name])
        elif name in sources:
            roots[name] = Place(layout, sources[name].offset, sources[name].buffer)
        elif name not in read and any(sink == name for sink, _ in sinks):
            source = next(s for sink, s in sinks if sink == name)
            roots[name] = Place(layout, source.offset, source.buffer)
        else:
            scratch.append(Request(name, layout.bytes, *tables.lifetimes[name]))
    target = tables.target
    found = allocate(scratch, target.memory_max_external_bytes, target.memory_alignment_bytes)
    if isinstance(found, Overflow):
        raise ScheduleError(f"scratch memory: {found.demand_bytes} B are alive at once, the target allows "
                            f"{target.memory_max_external_bytes} B; split the network")
    roots.update({r.name: Place(tables.layouts[r.name], found[r.name], scratch_buffer) for r in scratch})
    places = {n: replace(roots[tables.steps.root(n)], layout=tables.layouts[n] if n in tables.steps.aliases
                         else tables.layouts[tables.steps.root(n)])
              for n in tables.steps.tensors if tables.steps.root(n) in roots}
    return places, max((found[r.name] + r.bytes for r in scratch), default=0)


def _step_plans(tables: _Tables, addresses: dict[str, int], places: dict[str, Place],
                sinks: list[tuple[str, Source]]) -> tuple[StepPlan, ...]:
    root = tables.steps.root
    loaded: set[str] = set()
    plans = []
    for index, step in enumerate(tables.steps.steps):
        sizes = tables.stage_bytes(index)
        offsets, set_bytes, sets = tables.stage_set(index)
        stages = tuple(Stage(n, addresses[_stage_name(index)] + offset, sizes[n],
                             tables.strips.get(index) if n == step.x else None) for n, offset in offsets.items())
        upcoming = tables.steps.steps[index:index + 2]  # loads are issued one step ahead
        loads = dict.fromkeys(root(n) for s in upcoming for n in step_inputs(s))
        loads = tuple(n for n in loads if n in tables.inputs and n not in loaded and places[n].in_sram)
        loaded.update(loads)
        fills = tuple(n for n in (*loads, root(step.y)) if not places[n].layout.is_tight)
        place = places[root(step.y)]
        stores = tuple((name, s) for name, s in sinks if root(name) == root(step.y)
                       and (place.buffer, place.address) != (s.buffer, s.offset))
        spacing = set_bytes if sets > 1 else 0
        plans.append(StepPlan(step, tables.draft.cuts[index], stages, spacing, loads, fills, stores))
    return tuple(plans)


def _host_ports(qregion: QRegion) -> tuple[HostPort, ...]:
    tensors = qregion.by_name()
    return tuple(HostPort(port, tensors[port.tensor].shape, tensors[port.tensor].scale,
                          tensors[port.tensor].zero_point, buffer)
                 for buffer, port in enumerate((*qregion.inputs, *qregion.outputs)))
