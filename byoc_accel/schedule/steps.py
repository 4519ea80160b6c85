"""QRegion -> steps: fuse what one pass through array and post unit can do, and resolve reshapes to aliases."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..errors import ScheduleError
from ..quantize.qregion import (
    QAdd,
    QConcat,
    QConv,
    QConvTranspose,
    QLut,
    QPad,
    QPool,
    QRegion,
    QReshape,
    QTensor,
    QUpsample,
    qnode_inputs,
)
from .expand import expand
from .geometry import border
from .plan import ConvStep, ElementStep, PoolStep, Step, result_shape, step_inputs


@dataclass(frozen=True)
class Steps:
    """`steps` in execution order; `aliases` maps a tensor to the one whose bytes it shares; `tensors` by name."""

    steps: tuple[Step, ...]
    aliases: dict[str, str]
    tensors: dict[str, QTensor]

    def root(self, name: str) -> str:
        """The tensor that owns the storage of `name`."""
        while name in self.aliases:
            name = self.aliases[name]
        return name


def make_steps(qregion: QRegion) -> Steps:
    """Group nodes into steps. The order of anchors stays; an add joins the later of its two producers."""
    uses = Counter(name for node in qregion.nodes for name in qnode_inputs(node))
    uses.update(port.tensor for port in qregion.outputs)
    consumer = {name: node for node in qregion.nodes for name in qnode_inputs(node) if uses[name] == 1}
    ready: set[str] = {port.tensor for port in qregion.inputs}
    fused: set[str] = set()
    steps: list[Step] = []
    aliases: dict[str, str] = {}
    tensors = qregion.by_name()
    for node in qregion.nodes:
        if node.name in fused:
            ready.add(node.y)
            continue
        if isinstance(node, QReshape):
            aliases[node.y] = node.x
        elif isinstance(node, (QConcat, QPad, QUpsample, QConvTranspose)):
            steps += expand(node, tensors)
        else:
            step = _step(node, consumer, ready, fused)
            steps.append(step)
            ready.add(step.y)
        ready.add(node.y)
    plain = Steps(tuple(steps), aliases, tensors)
    return _copy_through(_untangle(plain), [p.tensor for p in qregion.inputs], [p.tensor for p in qregion.outputs])


def _step(node: QConv | QAdd | QPool | QLut, consumer: dict, ready: set[str], fused: set[str]) -> Step:
    if isinstance(node, QPool):
        return PoolStep(node.name, node, node.x, node.y)
    if isinstance(node, QConv):
        step: Step = ConvStep(node.name, node, node.x, node.y)
        follower = consumer.get(node.y)
        if isinstance(follower, QAdd):
            other = follower.x2 if follower.x1 == node.y else follower.x1
            if other in ready:
                fused.add(follower.name)
                step = replace(step, y=follower.y, add=follower, residual=other, add_first=follower.x1 == node.y)
    elif isinstance(node, QAdd):
        step = ElementStep(node.name, node.x1, node.y, add=node, residual=node.x2)
    else:
        return ElementStep(node.name, node.x, node.y, table=node)
    follower = consumer.get(step.y)
    if isinstance(follower, QLut):
        fused.add(follower.name)
        step = replace(step, y=follower.y, table=follower)
    return step


def _padded(step: Step, tensors: dict[str, QTensor]) -> bool:
    """True when the step reads a physical border around its input."""
    return isinstance(step, ConvStep) and any(border(step, tensors[step.x], result_shape(step, tensors[step.y])))


def _untangle(steps: Steps) -> Steps:
    """Insert copies so that no tensor with aliases needs a border: aliased bytes must be contiguous."""
    padded = {s.x for s in steps.steps if _padded(s, steps.tensors)}
    group = set(steps.aliases) | set(steps.aliases.values())
    out: list[Step] = []
    tensors = dict(steps.tensors)
    copies: dict[str, str] = {}
    for step in steps.steps:
        if step.x in group & padded and _padded(step, steps.tensors):
            if step.x not in copies:
                copies[step.x] = f"{step.x}@bordered"
                tensors[copies[step.x]] = replace(tensors[step.x], name=copies[step.x])
                out.append(ElementStep(f"{step.name}@border", step.x, copies[step.x]))
            step = replace(step, x=copies[step.x])
        out.append(step)
    return Steps(tuple(out), steps.aliases, tensors)


def _copy_through(steps: Steps, inputs: list[str], outputs: list[str]) -> Steps:
    """Insert a copy for every output that is only an input under another shape."""
    out, tensors, aliases = list(steps.steps), dict(steps.tensors), dict(steps.aliases)
    for name in dict.fromkeys(outputs):
        if name in inputs:
            raise ScheduleError(f"tensor {name!r}: a region input is also its output; leave it to the host")
        if steps.root(name) in inputs:
            view = f"{name}@view"
            tensors[view] = replace(tensors[name], name=view)
            aliases[view] = aliases.pop(name)
            aliases = {y: view if x == name else x for y, x in aliases.items()}
            out.insert(0, ElementStep(f"{name}@copy", view, name))
    return Steps(tuple(out), aliases, tensors)


def lifetimes(steps: Steps, outputs: set[str]) -> dict[str, tuple[int, int]]:
    """First and last step index at which the storage of each root tensor is occupied (both inclusive).

    Inputs are occupied from the step before their first use, so that their load overlaps with work; outputs until
    the step after their production, for the same reason.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, step in enumerate(steps.steps):
        for name in step_inputs(step):
            root = steps.root(name)
            first.setdefault(root, max(index - 1, 0))
            last[root] = index
        root = steps.root(step.y)
        first.setdefault(root, index)
        last[root] = max(last.get(root, index), index)
    count = len(steps.steps)
    for name in outputs:
        root = steps.root(name)
        first.setdefault(root, 0)
        last[root] = min(last.get(root, 0) + 1, max(count - 1, 0))
    return {name: (first[name], last[name]) for name in first}
