"""Invariants of a Plan: everything fits, nothing alive overlaps, every output row is computed."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Optional

from ..errors import ScheduleError
from ..quantize.qregion import QTensor
from ..target import Target
from .chain import can_pool, inner_layouts, stripes
from .geometry import uses_accumulators
from .plan import ChainStep, Layout, Place, Plan, StepPlan, result_shape, step_inputs


def verify(plan: Plan, target: Target) -> None:
    """Raise ScheduleError when `plan` cannot be right on `target`."""
    places = dict(plan.places)
    shapes = {t.name: t for t in plan.tensors}
    produced = {_root(places[name]) for name, _ in plan.sources}
    borders: dict[_Range, Layout] = {}
    for step, alive in zip(plan.steps, _alive(plan, places)):
        for name in step_inputs(step.step):
            if _root(places[name]) not in produced:
                raise ScheduleError(f"step {step.step.name!r}: reads {name!r} before it is produced")
        produced.add(_root(places[step.step.y]))
        _verify_blocks(step, shapes[step.step.y], target)
        if isinstance(step.step, ChainStep):
            _verify_chain(step, step.step, shapes[step.step.y])
        _verify_border(step, places, borders)
        _verify_step_memory(step, [(name, places[name]) for name in alive], plan, target)


#: Buffer (None: SRAM), first byte, end.
_Range = tuple[Optional[int], int, int]


def _root(place: Place) -> tuple[int | None, int]:
    return place.buffer, place.address


def _verify_border(step: StepPlan, places: dict[str, Place], borders: dict[_Range, Layout]) -> None:
    """Borders that the step reads are written; `borders` has the layout of each range whose border is."""
    for name in dict.fromkeys((*step.loads, *step.fills, step.step.y)):
        place = places[name]
        key = _range(place)
        for other in [o for o in borders if o[0] == key[0] and o[1] < key[2] and key[1] < o[2]]:
            if other != key or borders[other] != place.layout:
                del borders[other]
        if name in step.fills:
            borders[key] = place.layout
    for name in step_inputs(step.step):
        place = places[name]
        if place.layout.is_bordered and borders.get(_range(place)) != place.layout:
            raise ScheduleError(f"step {step.step.name!r}: the border of {name!r} is not written, or overwritten; "
                                "fill it before")


def _range(place: Place) -> _Range:
    return place.buffer, place.address, place.address + place.layout.bytes


def _verify_blocks(step: StepPlan, y: QTensor, target: Target) -> None:
    height, width, _ = result_shape(step.step, y)
    rows, count, columns = step.blocks.rows, step.blocks.count, step.blocks.columns
    if step.blocks.heights:
        rows = max(step.blocks.heights)
        if sum(step.blocks.heights) != height or len(step.blocks.heights) != count:
            raise ScheduleError(f"step {step.step.name!r}: blocks of {step.blocks.heights} rows do not cover {height}")
    elif step.blocks.channels:
        channels = result_shape(step.step, y)[2]
        if rows != height or step.blocks.channels * count != channels:
            raise ScheduleError(f"step {step.step.name!r}: {count} blocks of {step.blocks.channels} channels do not "
                                f"cover {channels} channels of {height} rows")
    elif not (rows <= height <= rows * count and rows * (count - 1) < height and 1 <= columns <= width):
        raise ScheduleError(f"step {step.step.name!r}: {count} blocks of {rows} rows do not cover {height} rows")
    if uses_accumulators(step.step) and step.blocks.count > 1 and (
            min(columns, width) * rows > target.accumulator_entries_per_bank):
        raise ScheduleError(f"step {step.step.name!r}: a block of {rows} x {columns} positions exceeds the "
                            f"{target.accumulator_entries_per_bank} accumulator entries of a bank")


def _verify_chain(plan: StepPlan, chain: ChainStep, y: QTensor) -> None:
    """Each member reads what the one before writes, and the buffers between them hold the rows behind a block."""
    where = f"step {chain.name!r}"
    for before, after, x in zip(chain.members, chain.members[1:], chain.inner):
        if not before.y == after.x == x.name or before.residual is not None:
            raise ScheduleError(f"{where}: {after.name!r} does not read the result of {before.name!r} alone; split the "
                                "chain")
    if chain.pool:
        height = plan.blocks.rows * plan.blocks.count
        if not chain.pool.x == chain.members[-1].y == chain.inner[-1].name or height != y.shape[1] or not can_pool(
                chain.pool.pool, chain.inner[-1], y):
            raise ScheduleError(f"{where}: {plan.blocks.count} blocks of {plan.blocks.rows} rows cannot end with pool "
                                f"{chain.pool.name!r}, whose result has {y.shape[1]} rows; split the chain")
    needs = {x.name: layout.bytes for x, layout in zip(chain.inner, inner_layouts(chain, y, plan.blocks.rows))}
    for stage in plan.inner:
        if stage.bytes < needs.pop(stage.tensor, 0):
            raise ScheduleError(f"{where}: the buffer of {stage.tensor!r} has {stage.bytes} B, less than the rows "
                                f"behind {plan.blocks.rows} rows of the result")
    if needs:
        raise ScheduleError(f"{where}: {', '.join(needs)} have no buffer inside the chain")
    rows = 0
    for stripe in stripes(chain, y, plan.blocks):
        if stripe.first > rows:
            raise ScheduleError(f"{where}: rows {rows} to {stripe.first} of the result are never computed")
        rows = min(stripe.first + stripe.rows * stripe.count, y.shape[1])
    if rows != y.shape[1]:
        raise ScheduleError(f"{where}: {rows} of {y.shape[1]} rows of the result are computed")


def _verify_step_memory(step: StepPlan, alive: Sequence[tuple[str, Place]], plan: Plan, target: Target) -> None:
    """Ranges in use during `step`: its operands and stages, and all that later steps still read."""
    ranges: dict[tuple[int, int], str] = {}
    for name, place in alive:
        if place.in_sram:
            ranges[place.address, place.address + place.layout.bytes] = name
    for stage in step.inner:
        ranges[stage.address, stage.address + stage.bytes] = f"rows of {stage.tensor}"
    for stage in step.stages:
        for start in {stage.address, stage.address + step.stage_spacing_bytes}:
            ranges[start, start + stage.bytes] = f"stage of {stage.tensor}"
    if plan.border_row_bytes:
        ranges[plan.border_row_address, plan.border_row_address + plan.border_row_bytes] = "border row"
    where, end_before, name_before = f"step {step.step.name!r}", 0, ""
    for (start, end), name in sorted(ranges.items()):
        if start < end_before:
            raise ScheduleError(f"{where}: {name!r} and {name_before!r} overlap in SRAM at byte {start}")
        if end > target.sram_bytes:
            raise ScheduleError(f"{where}: {name!r} ends at byte {end}, the SRAM has {target.sram_bytes} B")
        end_before, name_before = end, name


def _alive(plan: Plan, places: dict[str, Place]) -> Iterator[list[str]]:
    """For every step, one tensor name per storage that holds a value needed during it or read by a later one."""
    spans: dict[str, tuple[int, int]] = {}
    sources = {name for name, _ in plan.sources}
    for number, step in enumerate(plan.steps):
        for name in (*step.fills, step.step.y, *step_inputs(step.step)):
            first = spans[name][0] if name in spans else number - (name in sources)  # loads start one step ahead
            spans[name] = first, number
    begins: dict[int, list[str]] = defaultdict(list)
    for name, (first, _) in spans.items():
        begins[max(first, 0)].append(name)
    alive: list[str] = []
    for number in range(len(plan.steps)):
        alive = [name for name in (*alive, *begins[number]) if number <= spans[name][1]]
        yield list({_root(places[name]): name for name in reversed(alive)}.values())
