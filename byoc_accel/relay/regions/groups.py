"""Layers -> regions: sets of connected layers that no path leaves and enters again.

Every node gets a level that never falls along an edge and rises where the edge joins accelerator and host, or two
regions that were cut apart. Layers of one level that are connected form a region: a path that leaves it reaches a
higher level and cannot come back. One pass over the edges, whatever the number of paths.
"""
from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import tvm
from tvm import relay

from ...support.candidate import (
    BoundaryCandidate,
    ConcatCandidate,
    PadCandidate,
    PreluCandidate,
    UnaryCandidate,
    UpsampleCandidate,
    ViewCandidate,
)
from ..ir.graph import Graph
from ..match.layers import Layer, Layers

MAX_FUSIBLE_PATTERN = 3  # elementwise, broadcast, injective, reduction (tvm::relay::OpPatternKind)
NO_ANCHOR = "no convolution, dense or pooling layer beside it; alone it is better left to the host"
FUSED = "TVM fuses it with the host's float op beside it; alone it would round differently"
PASSIVE = (ViewCandidate, UnaryCandidate, PreluCandidate, BoundaryCandidate, ConcatCandidate, PadCandidate,
           UpsampleCandidate)
LONELY = "it stands between the region's edge and the host, with nothing to compute before it"


@dataclass(frozen=True)
class Group:
    """Layers of one region in topological order; inputs and outputs are node numbers in argument order."""

    layers: tuple[Layer, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def group_layers(layers: Layers, cuts: Set[tuple[int, int]]) -> tuple[tuple[Group, ...], Mapping[int, str]]:
    """Regions in topological order, and a reason for every layer (by its result) that was given back to the host.

    cuts: pairs (value, result of the layer that reads it) whose layers must not share a region.
    """
    found = {layer.result: layer for layer in layers.found}
    dropped: dict[int, str] = {}
    while True:
        groups = _components(layers.graph, found, cuts)
        offloaded = {i for layer in found.values() for i in layer.match.nodes}
        weak = {f.result: reason for g in groups for f, reason in _weak(layers.graph, g, offloaded)}
        if not weak:
            return groups, dropped
        dropped.update(weak)
        found = {result: layer for result, layer in found.items() if result not in weak}


def _components(graph: Graph, found: Mapping[int, Layer], cuts: Set[tuple[int, int]]) -> tuple[Group, ...]:
    level = [0] * len(graph.nodes)
    parent = {result: result for result in found}
    inner = {i for layer in found.values() for i in layer.match.nodes if i != layer.result}
    for node in graph.nodes:
        index = node.index
        if index in inner or node.constant:
            continue
        layer = found.get(index)
        operands = layer.operands if layer else node.inputs
        joined = {u for u in operands if layer and u in found and (u, index) not in cuts
                  and not _crosses(found[u], layer)}
        level[index] = max((level[u] + (u not in joined and (layer is not None or u in found)) for u in operands),
                           default=int(layer is not None))
        for u in joined:
            if level[u] == level[index]:
                parent[_root(parent, u)] = _root(parent, index)
    members: dict[int, list[Layer]] = {}
    for result, layer in found.items():
        members.setdefault(_root(parent, result), []).append(layer)
    groups = [_group(graph, sorted(m, key=lambda f: f.result)) for m in members.values()]
    return tuple(sorted(groups, key=lambda g: (level[g.layers[0].result], g.layers[0].result)))


def _crosses(producer: Layer, reader: Layer) -> bool:
    """Whether the value between the two is a float one at the edge of an int8 region."""
    return any(isinstance(c, BoundaryCandidate) and c.enters == enters
               for c, enters in ((producer.candidate, False), (reader.candidate, True)))


def _root(parent: dict[int, int], index: int) -> int:
    while parent[index] != index:
        parent[index] = parent[parent[index]]
        index = parent[index]
    return index


def _group(graph: Graph, layers: list[Layer]) -> Group:
    inside = {i for layer in layers for i in layer.match.nodes}
    results = {layer.result for layer in layers}
    inputs = dict.fromkeys(u for layer in layers for u in layer.operands if u not in results)
    outputs = [r for r in sorted(results) if r == graph.result or any(u not in inside for u in graph.uses[r])]
    return Group(tuple(layers), tuple(inputs), tuple(outputs))


def _weak(graph: Graph, group: Group, offloaded: Set[int]) -> list[tuple[Layer, str]]:
    """Layers of `group` that are better left to the host."""
    if not any(layer.is_anchor for layer in group.layers):
        return [(layer, NO_ANCHOR) for layer in group.layers]
    results, outputs = {layer.result for layer in group.layers}, set(group.outputs)
    weak: list[tuple[Layer, str]] = []
    for layer in group.layers:
        if isinstance(layer.candidate, BoundaryCandidate) and _fused(graph, layer, offloaded):
            weak.append((layer, FUSED))
            continue
        if not layer.is_scale and not (isinstance(layer.candidate, PASSIVE) and layer.result in outputs):
            continue
        reads_input = results.isdisjoint(layer.operands)
        repeats_output = isinstance(layer.candidate, ViewCandidate) and layer.operands[0] in outputs and all(
            u not in {i for f in group.layers for i in f.match.nodes} for u in graph.uses[layer.result])
        if reads_input or repeats_output:
            weak.append((layer, LONELY))
    return weak


def _fused(graph: Graph, layer: Layer, offloaded: Set[int]) -> bool:
    """Whether TVM compiles a quantize or dequantize into one loop with a host op, and simplifies the float arithmetic
    of both together."""
    beside = layer.operands if layer.candidate.enters else graph.uses[layer.result]
    return any(_fusible(graph, i) for i in beside if i not in offloaded)


def _fusible(graph: Graph, index: int) -> bool:
    expr = graph.nodes[index].expr
    if not isinstance(expr, relay.Call) or not isinstance(expr.op, tvm.ir.Op):
        return False
    pattern = expr.op.get_attr("TOpPattern")
    return pattern is not None and int(pattern) <= MAX_FUSIBLE_PATTERN
