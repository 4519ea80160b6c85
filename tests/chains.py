"""Networks of a few convolutions of random geometry, and plans in which they are chains whether that pays or not."""
from __future__ import annotations

import numpy as np

from byoc_accel.quantize.qregion import QNode, QPool, QRegion, QTensor
from byoc_accel.schedule import merge
from byoc_accel.schedule.plan import ChainStep, Plan
from byoc_accel.schedule.schedule import finish, settle, start
from byoc_accel.target import Target
from tests import qregions as q


def random_net(rng: np.random.Generator, size: int, depth: int) -> QRegion:
    """1 to 4 convolutions, dense or depthwise, at most `size` x `size` positions and `depth` channels; the last one may
    have a residual, or a max pool behind it."""
    shape = (1, *(int(n) for n in rng.integers(8, size, 2)), int(rng.integers(1, depth)))
    tensors, nodes = [q.tensor("t0", shape, int(rng.integers(-9, 9)))], []
    for number in range(int(rng.integers(1, 5))):
        _, height, width, channels = shape
        kernel = int(rng.choice([1, 3, 3, 5])), int(rng.choice([1, 3, 5]))
        stride, dilation = (int(rng.choice([1, 1, 2])), int(rng.choice([1, 1, 2]))), (int(rng.choice([1, 1, 2])), 1)
        extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
        padding = tuple(int(rng.integers(0, e)) for e in (*extent, *extent))
        out = [(n + padding[i] + padding[i + 2] - e) // s + 1
               for i, (n, e, s) in enumerate(zip((height, width), extent, stride))]
        if min(out) < 1:
            break
        depthwise = channels > 1 and rng.random() < 0.4
        outputs = channels if depthwise else int(rng.integers(1, depth))
        nodes.append(q.conv(rng, f"c{number}", f"t{number}", f"t{number + 1}", (
            outputs, *kernel, 1 if depthwise else channels), stride=stride, padding=padding, dilation=dilation,
            groups=channels if depthwise else 1))
        shape = (1, out[0], out[1], outputs)
        tensors.append(q.tensor(f"t{number + 1}", shape, int(rng.integers(-9, 9))))
    if rng.random() < 0.4:
        return _pooled(rng, tensors, nodes)
    last = tensors[-1]
    same = [t.name for t in tensors[:-1] if t.shape == last.shape]
    if same:
        tensors.append(q.tensor("sum", last.shape, 4))
        nodes.append(q.add("add", last.name, same[0], "sum"))
    return q.region("net", tensors, nodes, ["t0"], [tensors[-1].name])


def _pooled(rng: np.random.Generator, tensors: list[QTensor], nodes: list[QNode]) -> QRegion:
    x = tensors[-1]
    stride, kernel = rng.integers(1, 4, 2), rng.integers(1, 4, 2)
    padding = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    out = [(n + padding[i] + padding[i + 2] - k) // s + 1
           for i, (n, k, s) in enumerate(zip(x.shape[1:3], kernel, stride))]
    if min(out) < 1:
        return q.region("net", tensors, nodes, ["t0"], [x.name])
    kernel, stride = (tuple(int(n) for n in pair) for pair in (kernel, stride))
    pool = QPool("pool", x.name, "pooled", "max", kernel, stride, tuple(padding), False, x.zero_point, x.zero_point,
                 (), "upward")
    pooled = q.tensor("pooled", (1, *out, x.shape[3]), x.zero_point)
    return q.region("net", [*tensors, pooled], [*nodes, pool], ["t0"], ["pooled"])


def chained(qregion: QRegion, target: Target, rng: np.random.Generator, outside: float = 0.4) -> Plan:
    """A plan with chains of up to four members, with this part of their operands outside."""
    single, batch, tables = start(qregion, target)
    for _ in range(3):
        pairs = merge.pairs(tables, always=True)
        if pairs:
            index = int(rng.choice(pairs))
            chain = merge.chain_of(tables.steps, index)
            moved = frozenset(name for name in (chain.x, chain.y) if rng.random() < outside)
            tables = merge.merged(tables, [merge.Merge(0, 0, index, chain, moved)], frozenset())
    return finish(qregion, single, batch, *settle(tables))


def one_chain(qregion: QRegion, target: Target, outside: tuple[str, ...] = ()) -> Plan:
    """A plan whose steps are one chain, with these tensors outside."""
    single, batch, tables = start(qregion, target)
    while pairs := merge.pairs(tables, always=True):
        chain = merge.chain_of(tables.steps, pairs[0])
        tables = merge.merged(tables, [merge.Merge(0, 0, pairs[0], chain, frozenset())], frozenset())
    inputs = [chain.x] if chain.x in outside and not tables.layouts[chain.x].is_tight else []
    last = merge.Merge(0, 0, -2, chain, frozenset(outside))
    tables = merge.merged(tables, [last], frozenset())
    for _ in inputs:  # the copy of a network's input with a border
        tables = merge.merged(tables, [merge.Merge(0, 0, 0, merge.chain_of(tables.steps, 0), frozenset())], frozenset())
    return finish(qregion, single, batch, *settle(tables))


def chains_of(plan: Plan) -> list[ChainStep]:
    return [p.step for p in plan.steps if isinstance(p.step, ChainStep)]
