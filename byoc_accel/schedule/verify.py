"""Invariants of a Plan: everything fits, nothing alive overlaps, every output row is computed."""
from __future__ import annotations

from collections import defaultdict

from ..errors import ScheduleError
from ..target import Target
from .geometry import uses_accumulators
from .plan import Place, Plan, StepPlan, result_shape, step_inputs


def verify(plan: Plan, target: Target) -> None:
    """Raise ScheduleError when `plan` cannot be right on `target`."""
    places = dict(plan.places)
    produced = {name for name, _ in plan.sources}
    for index, step in enumerate(plan.steps):
        for name in step_inputs(step.step):
            if _root(places[name]) not in {_root(places[n]) for n in produced}:
                raise ScheduleError(f"step {step.step.name!r}: reads {name!r} before it is produced")
        produced.add(step.step.y)
        _verify_blocks(step, plan, target)
        _verify_step_memory(index, plan, places, target)


def _root(place: Place) -> tuple[int | None, int]:
    return place.buffer, place.address


def _verify_blocks(step: StepPlan, plan: Plan, target: Target) -> None:
    height, width, _ = result_shape(step.step, next(t for t in plan.tensors if t.name == step.step.y))
    rows, count, columns = step.blocks.rows, step.blocks.count, step.blocks.columns
    if not (rows <= height <= rows * count and rows * (count - 1) < height and 1 <= columns <= width):
        raise ScheduleError(f"step {step.step.name!r}: {count} blocks of {rows} rows do not cover {height} rows")
    if uses_accumulators(step.step) and step.blocks.count > 1 and (
            min(columns, width) * rows > target.accumulator_entries_per_bank):
        raise ScheduleError(f"step {step.step.name!r}: a block of {rows} x {columns} positions exceeds the "
                            f"{target.accumulator_entries_per_bank} accumulator entries of a bank")


def _verify_step_memory(index: int, plan: Plan, places: dict[str, Place], target: Target) -> None:
    """Ranges in use during step `index`: its operands and stages, and all that later steps still read."""
    ranges: dict[tuple[int, int], str] = {}
    for name in _alive(index, plan, places):
        place = places[name]
        if place.in_sram:
            ranges[place.address, place.address + place.layout.bytes] = name
    for stage in plan.steps[index].stages:
        for start in {stage.address, stage.address + plan.steps[index].stage_spacing_bytes}:
            ranges[start, start + stage.bytes] = f"stage of {stage.tensor}"
    if plan.border_row_bytes:
        ranges[plan.border_row_address, plan.border_row_address + plan.border_row_bytes] = "border row"
    step = plan.steps[index].step.name
    end_before, name_before = 0, ""
    for (start, end), name in sorted(ranges.items()):
        if start < end_before:
            raise ScheduleError(f"step {step!r}: {name!r} and {name_before!r} overlap in SRAM at byte {start}")
        if end > target.sram_bytes:
            raise ScheduleError(f"step {step!r}: {name!r} ends at byte {end}, the SRAM has {target.sram_bytes} B")
        end_before, name_before = end, name


def _alive(index: int, plan: Plan, places: dict[str, Place]) -> set[str]:
    """One tensor name per storage that holds a value needed during step `index` or read by a later one."""
    events: dict[str, list[int]] = defaultdict(list)
    for number, step in enumerate(plan.steps):
        events[step.step.y].append(number)
        for name in step_inputs(step.step):
            events[name].append(number)
    alive: dict[tuple[int | None, int], str] = {}
    sources = {name for name, _ in plan.sources}
    for name, steps in events.items():
        first = min(steps) - 1 if name in sources else min(steps)  # loads are issued one step ahead
        if first <= index <= max(steps):
            alive.setdefault(_root(places[name]), name)
    return set(alive.values())
