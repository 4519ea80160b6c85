"""QRegion -> Plan: fuse, lay out, decide what lives in SRAM and what is staged in blocks, place everything."""
from __future__ import annotations

from dataclasses import replace

from ..errors import ScheduleError
from ..quantize.qregion import QRegion
from ..region.region import Port
from ..target import Target
from .alloc import Overflow, Request, allocate
from .batch import item_name, split_batch
from .merge import merged, merges, worse
from .plan import Place, Plan, Source, Stage, StepPlan, step_inputs
from .ports import Buffer, HostPort
from .relax import relax
from .steps import make_steps
from .tables import BORDER_ROW, Draft, Tables, stage_name

#: Rounds in which chains grow.
CHAIN_ROUNDS = 8


def schedule(qregion: QRegion, target: Target) -> Plan:
    """Plan of `qregion` on `target`; raises ScheduleError naming the step when not even one row fits."""
    single, batch, tables = start(qregion, target)
    tables, addresses = settle(tables)
    unwanted: set[tuple[str, bool]] = set()
    wanted: frozenset[str] = frozenset()
    for _ in range(CHAIN_ROUNDS):
        chosen = merges(tables, unwanted)
        if not chosen:
            break
        chained = settle(merged(tables, chosen, wanted))
        lost = worse(chained[0], chosen)
        unwanted.update(lost)
        if chained[0].cycles() < tables.cycles():
            tables, addresses = chained
            wanted = wanted.union(*(merge.outside for merge in chosen))
        elif not lost:
            break
    return finish(qregion, single, batch, tables, addresses)


def start(qregion: QRegion, target: Target) -> tuple[QRegion, int, Tables]:
    """The region of one batch item, how many there are, and its tables with nothing decided."""
    single, batch = split_batch(qregion)
    return single, batch, Tables(single, Draft(make_steps(single), frozenset()), target)


def settle(tables: Tables) -> tuple[Tables, dict[str, int]]:
    """Tables that fit the SRAM, and the addresses of everything in it."""
    target = tables.target
    while True:
        crowded = tables.crowded_step()
        if crowded is None:
            addresses = allocate(tables.requests(), target.sram_bytes, target.memory_alignment_bytes)
            if not isinstance(addresses, Overflow):
                return tables, addresses
            crowded = min(addresses.step, len(tables.cuts) - 1)
        tables = relax(tables, crowded)


def finish(qregion: QRegion, single: QRegion, batch: int, tables: Tables, addresses: dict[str, int]) -> Plan:
    """The plan of tables that fit."""
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
                tuple(sinks), tuple(buffers), _host_ports(qregion), addresses.get(BORDER_ROW, 0),
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


def _places(tables: Tables, addresses: dict[str, int], sources: dict[str, Source],
            sinks: list[tuple[str, Source]], scratch_buffer: int) -> tuple[dict[str, Place], int]:
    """Place of every tensor (aliases with their own layout), and the bytes of the scratch buffer."""
    roots: dict[str, Place] = {}
    scratch: list[Request] = []
    read = {tables.steps.root(n) for step in tables.steps.steps for n in step_inputs(step)}
    for name in tables.lifetimes:
        layout = tables.layouts[name]
        if name not in tables.draft.external:
            roots[name] = Place(layout, addresses[tables.shared.get(name, name)])
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


def _step_plans(tables: Tables, addresses: dict[str, int], places: dict[str, Place],
                sinks: list[tuple[str, Source]]) -> tuple[StepPlan, ...]:
    root = tables.steps.root
    loaded: set[str] = set()
    filled: set[str] = set()
    plans = []
    for index, step in enumerate(tables.steps.steps):
        cut = tables.cuts[index]
        stages = tuple(Stage(n, addresses[stage_name(index)] + cut.offsets[n], size,
                             cut.strips if n == step.x else None) for n, size in cut.sizes.items())
        upcoming = tables.steps.steps[index:index + 2]  # loads are issued one step ahead
        loads = dict.fromkeys(root(n) for s in upcoming for n in step_inputs(s))
        loads = tuple(n for n in loads if n in tables.inputs and n not in loaded and places[n].in_sram)
        loaded.update(loads)
        ahead = [step, *tables.steps.steps[index + 1:index + 2 * tables.draft.share]]
        bordered = [n for n in (*loads, *(root(s.y) for s in ahead)) if places[n].layout.is_bordered]
        fills = tuple(n for n in bordered if tables.shared.get(n, n) not in filled)
        filled.update(tables.shared.get(n, n) for n in bordered)
        place = places[root(step.y)]
        stores = tuple((name, s) for name, s in sinks if root(name) == root(step.y)
                       and (place.buffer, place.address) != (s.buffer, s.offset))
        inner = tuple(Stage(n, addresses[stage_name(index)] + offset, size) for n, offset, size in cut.inner)
        spacing = cut.set_bytes if cut.paired else 0
        plans.append(StepPlan(step, cut.blocks, stages, spacing, loads, fills, stores, inner))
    return tuple(plans)


def _host_ports(qregion: QRegion) -> tuple[HostPort, ...]:
    tensors = qregion.by_name()
    return tuple(HostPort(port, tensors[port.tensor].shape, tensors[port.tensor].scale,
                          tensors[port.tensor].zero_point, buffer)
                 for buffer, port in enumerate((*qregion.inputs, *qregion.outputs)))
