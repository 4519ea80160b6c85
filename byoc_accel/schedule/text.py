"""Deterministic text of a Plan, for golden tests and for reading."""
from __future__ import annotations

from .plan import Place, Plan, StepPlan, Strips, step_inputs


def to_text(plan: Plan) -> str:
    """One line per buffer, tensor and step."""
    places = dict(plan.places)
    lines = [f"plan {plan.name}"]
    lines += [f"buffer {i} {b.kind} {b.name} {b.bytes} B" for i, b in enumerate(plan.buffers)]
    lines += [f"tensor {name} {_place(place)}" for name, place in plan.places]
    lines += [line for step in plan.steps for line in _step(step, places)]
    return "\n".join(lines) + "\n"


def _place(place: Place) -> str:
    layout = place.layout
    where = f"sram+{place.address}" if place.in_sram else f"buffer {place.buffer}+{place.address}"
    border = "" if layout.is_tight else (
        f" border {layout.border} " + ("unwritten" if layout.value is None else f"= {layout.value}"))
    shape = f"{layout.height}x{layout.width}x{layout.channels}"
    return f"{shape} at {where} {layout.bytes} B{border}{_strips(layout.strips)}"


def _strips(strips: Strips | None) -> str:
    return "" if strips is None else f" in {strips.count} strips of {strips.columns} columns, step {strips.step}"


def _step(plan: StepPlan, places: dict[str, Place]) -> list[str]:
    step, blocks = plan.step, plan.blocks
    heights = "+".join(map(str, blocks.heights)) or f"{blocks.count} x {blocks.rows}"
    if blocks.channels:
        heights = f"{blocks.count} x {blocks.channels} channels of {blocks.rows}"
    kind = type(step).__name__.removesuffix("Step").lower()
    extras = [f"+ {part}" for part, present in (("add", getattr(step, "add", None)),
                                                ("table", getattr(step, "table", None))) if present is not None]
    lines = [" ".join([f"step {step.name}: {kind}", *extras, f"({', '.join(step_inputs(step))}) -> {step.y}",
                       f"in {heights} rows x {blocks.columns} columns"])]
    twice = f", again {plan.stage_spacing_bytes} B further" if plan.stage_spacing_bytes else ""
    lines += [f"  stage {s.tensor} at sram+{s.address} {s.bytes} B{_strips(s.strips)}{twice}" for s in plan.stages]
    lines += [f"  inside {s.tensor} at sram+{s.address} {s.bytes} B" for s in plan.inner]
    lines += [f"  load {name}" for name in plan.loads] + [f"  border {name}" for name in plan.fills]
    lines += [f"  store {name} -> buffer {sink.buffer}+{sink.offset}" for name, sink in plan.stores]
    return lines
