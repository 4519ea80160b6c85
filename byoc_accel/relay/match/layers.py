"""A graph -> its supported layers: matches that may be offloaded, and a reason for every other node."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...support.candidate import ANCHORS, AddCandidate, Candidate, UnaryCandidate, Value
from ...support.ops import unsupported
from ...target import Target
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph
from ..patterns import BY_ANCHOR, CLUSTER, FUSED_ONLY, PATTERNS, Match, Matcher
from ..prepare.integer import refusal
from .elementwise import Cluster, find_clusters
from .extract import candidate as extract
from .extractor import ONLY_WITH_LAYER, Extractor
from .tables import find_tables

#: Ops of the anchors among the layers, but for sums of two tensors.
_LAYERS = frozenset(op for p in PATTERNS if p.name in ("conv", "conv_transpose", "dense", "pool") for op in p.anchors)


@dataclass(frozen=True)
class Layer:
    """A match that passed every constraint. `operands` are the node numbers of its data, in operand order."""

    match: Match
    candidate: Candidate
    operands: tuple[int, ...]

    @property
    def result(self) -> int:
        return self.match.result

    @property
    def is_scale(self) -> bool:
        """Whether it only scales and shifts channels."""
        return self.match.pattern.name == "scale"

    @property
    def is_anchor(self) -> bool:
        """Whether a region may consist of this layer alone. A lone float add or scale would only lose precision."""
        c = self.candidate
        if self.is_scale:
            return False
        return isinstance(c, ANCHORS) and (c.quantized if isinstance(c, AddCandidate) else True)


@dataclass(frozen=True)
class Layers:
    """Layers by the number of their last node, in topological order; `reasons` by node number for the host's ops."""

    graph: Graph
    found: tuple[Layer, ...]
    reasons: Mapping[int, str]


def find_layers(graph: Graph, evaluate: ConstantEvaluator, target: Target, refused: Mapping[int, str]) -> Layers:
    """Match every node once, in topological order. `refused` maps anchors that must stay on the host to reasons."""
    matcher, extractor = Matcher(graph, evaluate), Extractor(graph, evaluate)
    tables, clusters = find_tables(graph, evaluate), find_clusters(graph, evaluate)
    taken: set[int] = set()
    found: list[Layer] = []
    reasons: dict[int, str] = {}
    for node in graph.nodes:
        if node.index in taken or node.op in ("var", "constant"):
            continue
        if node.constant:
            reasons[node.index] = "all its operands are constants; it is computed at compile time"
            continue
        if node.index in refused:
            reasons[node.index] = refused[node.index]
            continue
        near = *tables.get(node.index, ()), *clusters.get(node.index, ())
        layer, reason = _cluster(extractor, near, taken, target), ""
        if layer is None:
            layer, reason = _first_supported(matcher, extractor, node.index, taken, target)
        if layer is None:
            reasons[node.index] = reason
        else:
            found.append(layer)
            taken.update(layer.match.nodes)
            for index in layer.match.nodes:
                reasons.pop(index, None)  # of a head, which comes before its anchor
    return Layers(graph, tuple(sorted(found, key=lambda f: f.result)), reasons)


def _cluster(extractor: Extractor, clusters: Sequence[Cluster], taken: set[int], target: Target) -> Layer | None:
    """The first of `clusters` whose nodes are free and whose function is supported."""
    for cluster in clusters:
        if not taken.isdisjoint(cluster.nodes):
            continue
        graph, nodes = extractor.graph, cluster.nodes
        match = Match(CLUSTER, nodes[0], None, tuple(("function", i) for i in nodes[1:]))
        candidate = UnaryCandidate(str(match.result), graph.nodes[match.result].op, graph.value(cluster.root),
                                   graph.value(match.result), cluster.function, cluster.args, cluster.table,
                                   cluster.y_scale)
        if unsupported(candidate, target) is None:
            return Layer(match, candidate, (cluster.root,))
    return None


def _first_supported(matcher: Matcher, extractor: Extractor, anchor: int, taken: set[int],
                     target: Target) -> tuple[Layer | None, str]:
    """The first match at `anchor` that no constraint refuses, else the first reason."""
    reason = ""
    for match in matcher.candidates(anchor, taken):
        candidate = extract(extractor, match)
        why = unsupported(candidate, target) or _fake_quantized(extractor.graph, match, candidate)
        if why is None:
            return Layer(match, candidate, _operands(extractor.graph, match)), ""
        reason = reason or why
    return None, reason or _no_pattern(extractor, anchor)


def _fake_quantized(graph: Graph, match: Match, candidate: Candidate) -> str | None:
    """Float layers between dequantize and quantize stand for integer ones, also with elementwise ops between;
    quantizing them again changes results."""
    if not isinstance(candidate, ANCHORS) or not (
            _leads(_operands(graph, match), "qnn.dequantize", graph, lambda i: graph.nodes[i].inputs)
            and _leads(graph.uses[match.result], "qnn.quantize", graph, lambda i: graph.uses[i])):
        return None
    return f"it stands between dequantize and quantize, so that it is no float layer: {refusal(graph, match.anchor)}"


def _leads(start: Iterable[int], goal: str, graph: Graph, following: Callable[[int], Iterable[int]]) -> bool:
    """Whether one of the nodes from `start` on, past everything that is no layer with a sum, is a `goal`."""
    seen: set[int] = set()
    stack = list(start)
    while stack:
        index = stack.pop()
        node = graph.nodes[index]
        if node.op == goal and not node.constant:
            return True
        if index not in seen and not node.constant and not node.op.startswith("qnn.") and node.op not in _LAYERS:
            seen.add(index)
            stack.extend(following(index))
    return False


def _no_pattern(extractor: Extractor, index: int) -> str:
    op = extractor.graph.nodes[index].op
    if op.startswith("@"):
        return "it calls another function"
    if op in FUSED_ONLY:
        return ONLY_WITH_LAYER
    return f"{op} fits no pattern here" if op in BY_ANCHOR else f"the accelerator has no {op}"


def _operands(graph: Graph, match: Match) -> tuple[int, ...]:
    inside = set(match.nodes)
    order = dict.fromkeys(i for n in match.nodes for i in graph.nodes[n].inputs
                          if i not in inside and not graph.nodes[i].constant)
    return tuple(order)


def node_macs(graph: Graph, index: int) -> int:
    """Multiply-accumulates of one node; 0 for ops without a weight and for unknown shapes."""
    node = graph.nodes[index]
    last = node.op.split(".")[-1]
    if node.constant or len(node.inputs) < 2:
        return 0
    y, w = graph.value(index), graph.value(node.inputs[1])
    if None in y.shape or None in w.shape or not (last.startswith("conv") or last in _MATRIX_OPS):
        return 0
    if last.startswith("conv"):
        return _conv_macs(graph, index, y, w, last.endswith("transpose"))
    attrs = graph.attrs(index)
    transposed = bool(attrs.transpose_b) if last in ("matmul", "batch_matmul") else True
    return _product(y.shape) * w.shape[-1 if transposed else -2]


_MATRIX_OPS = ("dense", "matmul", "batch_matmul", "contrib_dense_pack")


def _conv_macs(graph: Graph, index: int, y: Value, w: Value, transposed: bool) -> int:
    """Every weight meets every position of the result (of the operand, for a transposed convolution)."""
    attrs = graph.attrs(index)
    layout = str(attrs.data_layout)
    shape = graph.value(graph.nodes[index].inputs[0]).shape if transposed else y.shape
    if None in shape or len(layout) != len(shape):
        return 0
    return _product(w.shape) * _product(d for d, axis in zip(shape, layout) if axis != "C")


def _product(numbers: object) -> int:
    result = 1
    for n in numbers:
        result *= int(n)
    return result


