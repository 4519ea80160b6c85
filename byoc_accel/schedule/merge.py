"""Which convolutions become chains: those whose tensors do not fit the SRAM, where it saves cycles."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from .plan import ChainStep, ConvStep, Step, step_inputs
from .relax import bordered_copy, spill
from .steps import Steps
from .tables import Draft, Tables


@dataclass(frozen=True)
class Merge:
    """Step `index` and the next one as a chain, which is worth it below `limit` cycles; it saves `gain` of them more
    or less if the tensors `outside` are."""

    gain: int
    limit: int
    index: int
    chain: ChainStep
    outside: frozenset[str]


def merges(tables: Tables, unwanted: set[str]) -> list[Merge]:
    """Chains that would save cycles, none of which has a step in common with another; `unwanted` are names of chains
    that did not."""
    found = []
    for index in pairs(tables):
        chain = chain_of(tables.steps, index)
        if chain.name not in unwanted:
            before = tables.step_cycles(index) + tables.step_cycles(index + 1)
            cycles, outside = tables.chain_cycles(chain, index)
            limit = before - sum(map(tables.leave_cycles, outside))
            if cycles < limit:
                found.append(Merge(limit - cycles, limit, index, chain, outside))
    out: list[Merge] = []
    for merge in sorted(found, key=lambda m: (-m.gain, m.index)):
        if all(abs(merge.index - other.index) > 1 for other in out):
            out.append(merge)
    return out


def merged(tables: Tables, chosen: list[Merge], wanted: frozenset[str]) -> Tables:
    """Tables with these chains, which have nothing outside but `wanted`, what chains want, and copies of inputs."""
    by_index = {merge.index: merge.chain for merge in chosen}
    steps: list[Step] = []
    for index, step in enumerate(tables.steps.steps):
        if index - 1 not in by_index:
            steps.append(by_index.get(index, step))
    copied = {n for n in tables.inputs & tables.draft.external if bordered_copy(n) in tables.steps.tensors}
    outside = copied | {bordered_copy(n) for n in copied}
    wanted = wanted.union(*(merge.outside for merge in chosen)) - outside
    alive = {tables.steps.root(name) for step in steps for name in (*step_inputs(step), step.y)}
    draft = Draft(replace(tables.steps, steps=tuple(steps)), frozenset(outside | wanted & alive - tables.inputs))
    out = Tables(tables.single, draft, tables.target)
    for name in sorted(wanted & tables.inputs):
        out = out.again(spill(out, name))
    return out


def pairs(tables: Tables, always: bool = False) -> list[int]:
    """Steps that may be merged with the next one; those of which nothing is outside only if `always`."""
    steps = tables.steps
    uses = Counter(name for step in steps.steps for name in step_inputs(step))
    kept = {*tables.outputs, *steps.aliases, *steps.aliases.values()}
    return [index for index, (first, second) in enumerate(zip(steps.steps, steps.steps[1:]))
            if _is_link(first) and _is_link(second) and first.residual is None and second.x == first.y
            and uses[first.y] == 1 and first.y not in kept
            and (always or tables.cuts[index].bytes or tables.cuts[index + 1].bytes)]


def _is_link(step: Step) -> bool:
    return isinstance(step, ChainStep) or (isinstance(step, ConvStep) and step.part is None)


def chain_of(steps: Steps, index: int) -> ChainStep:
    """Step `index` and the next one."""
    first, second = steps.steps[index:index + 2]
    members = [m for step in (first, second) for m in (step.members if isinstance(step, ChainStep) else (step,))]
    return ChainStep(tuple(members), tuple(steps.tensors[m.y] for m in members[:-1]))


def worse(after: Tables, chosen: list[Merge]) -> set[str]:
    """Names of the chains that are not worth it in `after`."""
    cycles = {step.name: after.step_cycles(index) for index, step in enumerate(after.steps.steps)}
    return {m.chain.name for m in chosen if cycles[m.chain.name] >= m.limit}
