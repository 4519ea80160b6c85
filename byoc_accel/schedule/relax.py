"""What to do where the SRAM does not hold a draft: move a tensor outside, or leave bytes unused."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import ScheduleError
from .plan import ChainStep, ElementStep, Step
from .steps import Steps
from .tables import Draft, Tables

NEVER = 1 << 40  # cycles of a step that does not fit, so that one more byte in excess counts


def relax(tables: Tables, index: int) -> Tables:
    """Tables of a draft that needs less SRAM during step `index`; raises ScheduleError when there is none."""
    draft, step, chosen = tables.draft, tables.steps.steps[index], tables.cuts[index]
    if draft.share:
        return tables.again(replace(draft, share=False))
    if chosen.bytes and not chosen.excess_bytes:  # enough bytes, but in pieces
        unused = draft.unused.get(step.name, 0) + max(tables.target.sram_bytes // 32, 1)
        return tables.again(replace(draft, unused={**draft.unused, step.name: unused}))
    residents = tables.residents(index)
    if not residents:
        worst = max(range(len(tables.cuts)), key=lambda i: tables.cuts[i].excess_bytes)
        name = tables.steps.steps[worst].name
        needed = tables.target.sram_bytes + tables.cuts[worst].excess_bytes - draft.unused.get(name, 0)
        raise ScheduleError(f"step {name!r}: one row per block needs {needed} B of SRAM, the target has "
                            f"{tables.target.sram_bytes} B; use a larger target or leave it to the host")
    if len(residents) == 1:
        return tables.again(spill(tables, residents[0]))
    first = min(tables.lifetimes[n][0] for n in residents)
    last = min(max(tables.lifetimes[n][1] for n in residents), len(tables.cuts) - 1)
    spilled = [tables.again(spill(tables, name)) for name in sorted(residents)]
    shift = [len(t.cuts) - len(tables.cuts) for t in spilled]  # a copy may have been put in front
    costs = [_cost(t, range(first, last + 1 + s)) for t, s in zip(spilled, shift)]
    return spilled[costs.index(min(costs))]


def _cost(tables: Tables, steps: Iterable[int]) -> int:
    return sum(tables.step_cycles(i) + (NEVER + tables.cuts[i].excess_bytes) * (tables.cuts[i].excess_bytes > 0)
               for i in steps)


def spill(tables: Tables, name: str) -> Draft:
    """Move one root tensor to external memory; a padded input first gets a bordered copy there."""
    draft = tables.draft
    if name not in tables.inputs or tables.layouts[name].is_tight:
        return replace(draft, external=draft.external | {name})
    copy, steps = bordered_copy(name), tables.steps
    tensors = {**steps.tensors, copy: replace(steps.tensors[name], name=copy)}
    first = ElementStep(f"{name}@border", name, copy)
    rest = [_reads_copy(step, name, copy) for step in steps.steps]
    return replace(draft, steps=Steps((first, *rest), steps.aliases, tensors), external=draft.external | {name, copy})


def bordered_copy(name: str) -> str:
    """Name of the copy with a border of a network's input."""
    return f"{name}@bordered"


def _reads_copy(step: Step, name: str, copy: str) -> Step:
    if isinstance(step, ChainStep):
        return replace(step, members=tuple(_reads_copy(member, name, copy) for member in step.members))
    changes = {}
    if step.x == name:
        changes["x"] = copy
    if getattr(step, "residual", None) == name:
        changes["residual"] = copy
    return replace(step, **changes)
