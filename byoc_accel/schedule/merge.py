"""Which convolutions become chains: those whose tensors do not fit the SRAM, where it saves cycles."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from .chain import can_pool
from .plan import ChainStep, ConvStep, ElementStep, PoolStep, Step, step_inputs
from .relax import bordered_copy, spill
from .steps import Steps
from .tables import Draft, Tables

#: Weights that a program may hold once more: one part in so many.
COPIED_SHARE = 32


@dataclass(frozen=True)
class Merge:
    """Step `index` and the next one as a chain, which is worth it below `limit` cycles; it saves `gain` of them more
    or less, for `copied_bytes`, if the tensors `outside` are."""

    gain: int
    limit: int
    index: int
    chain: ChainStep
    outside: frozenset[str]
    copied_bytes: int = 0


def merges(tables: Tables, unwanted: set[tuple[str, bool]]) -> list[Merge]:
    """Chains that would save cycles, none of which has a step in common with another; `unwanted` are keys of chains
    that did not."""
    found = []
    for index in pairs(tables):
        chain = chain_of(tables.steps, index)
        if chain.key not in unwanted:
            chosen, outside = tables.chain_cut(chain, index)
            limit = tables.step_cycles(index) + tables.step_cycles(index + 1) - sum(map(tables.leave_cycles, outside))
            if chosen.cycles < limit and not chosen.excess_bytes:
                copied = chosen.copied_bytes - sum(cut.copied_bytes for cut in tables.cuts[index:index + 2])
                found.append(Merge(limit - chosen.cycles, limit, index, chain, outside, copied))
    left = _weight_bytes(tables) // COPIED_SHARE - sum(cut.copied_bytes for cut in tables.cuts)
    out: list[Merge] = []
    for merge in sorted(found, key=lambda m: (-m.gain, m.index)):
        if merge.copied_bytes <= left and all(abs(merge.index - other.index) > 1 for other in out):
            out.append(merge)
            left -= merge.copied_bytes
    return out


def _weight_bytes(tables: Tables) -> int:
    members = [m for step in tables.steps.steps for m in (step.members if isinstance(step, ChainStep) else (step,))]
    return sum(member.conv.weight.size for member in members if isinstance(member, ConvStep))


def merged(tables: Tables, chosen: list[Merge], wanted: frozenset[str]) -> Tables:
    """Tables with these chains, which have nothing outside but `wanted`, what chains want, and copies of inputs."""
    by_index = {merge.index: merge.chain for merge in chosen}
    steps: list[Step] = []
    for index, step in enumerate(tables.steps.steps):
        if index - 1 not in by_index:
            steps.append(by_index.get(index, step))
    alive = {tables.steps.root(name) for step in steps for name in (*step_inputs(step), step.y)}
    copied = {n for n in tables.inputs & tables.draft.external if bordered_copy(n) in tables.steps.tensors}
    outside = (copied | {bordered_copy(n) for n in copied}) & alive
    wanted = wanted.union(*(merge.outside for merge in chosen)) - outside
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
    out = []
    for index, (first, second) in enumerate(zip(steps.steps, steps.steps[1:])):
        link = _is_link(first) and first.residual is None and getattr(first, "pool", None) is None or _is_copy(
            first, tables, uses)
        alone = second.x == first.y and uses[first.y] == 1 and first.y not in kept
        follows = _is_link(second) or not isinstance(first, ElementStep) and _is_pool(second, steps)
        if link and alone and follows and (always or tables.cuts[index].bytes or tables.cuts[index + 1].bytes):
            out.append(index)
    return out


def _is_link(step: Step) -> bool:
    return isinstance(step, ChainStep) or (isinstance(step, ConvStep) and step.part is None)


def _is_pool(step: Step, steps: Steps) -> bool:
    """Whether a chain may end with this step."""
    return isinstance(step, PoolStep) and can_pool(step.pool, steps.tensors[step.x], steps.tensors[step.y])


def _is_copy(step: Step, tables: Tables, uses: Counter[str]) -> bool:
    """Whether the step gives a network's input a border, for one reader."""
    return (isinstance(step, ElementStep) and step.x in tables.inputs and step.y == bordered_copy(step.x)
            and tables.is_external(step.x) and uses[step.x] == 1)


def chain_of(steps: Steps, index: int) -> ChainStep:
    """Step `index` and the next one."""
    first, second = steps.steps[index:index + 2]
    if isinstance(first, ElementStep):
        return _direct(steps, first, second if isinstance(second, ChainStep) else ChainStep((second,), ()))
    pool = second if isinstance(second, PoolStep) else second.pool if isinstance(second, ChainStep) else None
    convs = (first,) if isinstance(second, PoolStep) else (first, second)
    members = [m for step in convs for m in (step.members if isinstance(step, ChainStep) else (step,))]
    direct = first.direct if isinstance(first, ChainStep) else None
    inner = members if pool else members[:-1]
    return ChainStep(tuple(members), tuple(steps.tensors[m.y] for m in inner), direct, pool)


def _direct(steps: Steps, copy: ElementStep, chain: ChainStep) -> ChainStep:
    """The chain on the input instead of its copy."""
    head, *rest = chain.members
    conv = replace(head.conv, x=copy.x)
    return replace(chain, members=(replace(head, x=copy.x, conv=conv), *rest), direct=steps.tensors[copy.x])


def worse(after: Tables, chosen: list[Merge]) -> set[tuple[str, bool]]:
    """Keys of the chains that are not worth it in `after`."""
    cycles = {step.name: after.step_cycles(index) for index, step in enumerate(after.steps.steps)}
    return {m.chain.key for m in chosen if cycles[m.chain.name] >= m.limit}
