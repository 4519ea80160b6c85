"""Cycles of a plan before its weights are encoded: the cost model as a whole.

It takes the instructions of a plan (`emit.draft`) and the formulas of docs/ISA.md, "Timing". What only the encoder
knows, the bytes of each weight tile, are shares of those of a layer: given, or as codec raw has them.
tests/timing/test_timeline.py compares the result with the simulator, layer by layer.
"""
from __future__ import annotations

from collections.abc import Sequence

from ..emit.emit import draft
from ..schedule.plan import Plan
from ..target import Target
from .events import events_of
from .machine import Machine
from .stretches import LayerBytes, with_weights

__all__ = ["LayerBytes", "plan_cycles"]


def plan_cycles(plan: Plan, target: Target, sizes: Sequence[LayerBytes] | None = None) -> list[int]:
    """Time by which each step is done. Without `sizes` of the layers all weights are taken as codec raw."""
    drafts = draft(plan, target)
    done = Machine(target).run(with_weights(drafts, events_of(drafts, target), sizes, target))
    out, latest = [], 0
    for index in range(len(plan.steps)):
        latest = max(latest, done.get(index, 0))
        out.append(latest)
    return out
