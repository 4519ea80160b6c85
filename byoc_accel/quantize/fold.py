"""Region -> Region folds: batch norm into weights and bias, relu and clip into the layer before."""
from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..region.region import Add, Conv2d, Node, Region, Unary, node_inputs
from ..region.verify import quantized


def fold(region: Region) -> Region:
    """All folds in order. Tensors that vanish are the ones before a folded activation."""
    return fold_activations(fold_batch_norm(region))


def fold_batch_norm(region: Region) -> Region:
    """Fold every batch norm: weight * factor and (bias - mean) * factor + beta, factor = gamma / sqrt(var + eps).

    Arithmetic and results are float64. `checks.require_finite_constants` has made sure that var + eps > 0.
    """
    nodes = tuple(_fold_norm(node) if isinstance(node, Conv2d) and node.batch_norm else node
                  for node in region.nodes)
    return replace(region, nodes=nodes)


def _fold_norm(node: Conv2d) -> Conv2d:
    norm = node.batch_norm
    with np.errstate(under="ignore"):
        factor = norm.gamma.astype(np.float64) / np.sqrt(norm.variance.astype(np.float64) + norm.epsilon)
        bias = np.zeros(len(factor)) if node.bias is None else node.bias.astype(np.float64)
        weight = node.weight.astype(np.float64) * factor[:, None, None, None]
        bias = (bias - norm.mean.astype(np.float64)) * factor + norm.beta.astype(np.float64)
    return replace(node, weight=weight, bias=bias, batch_norm=None)


def fold_activations(region: Region) -> Region:
    """Merge relu and clip into the conv2d or add before them, where nothing else reads what lies between.

    On int8 tensors only where scale and zero point are equal on both sides, so that no value changes.
    """
    readers = _reader_counts(region)
    producers: dict[str, int] = {}
    nodes: list[Node] = []
    for node in region.nodes:
        clip = _as_clip(region, node) if isinstance(node, Unary) else None
        at = producers.get(node.x) if clip is not None and readers[node.x] == 1 else None
        if at is None:
            nodes.append(node)
        else:
            nodes[at] = replace(nodes[at], y=node.y, clip=_compose(nodes[at].clip, clip))
        if isinstance(nodes[-1 if at is None else at], (Conv2d, Add)):
            producers[node.y] = len(nodes) - 1 if at is None else at
    kept = {port.tensor for port in region.inputs} | {node.y for node in nodes}
    return replace(region, nodes=tuple(nodes), tensors=tuple(t for t in region.tensors if t.name in kept))


def _reader_counts(region: Region) -> dict[str, int]:
    """How many nodes and outputs read each tensor."""
    counts = dict.fromkeys((t.name for t in region.tensors), 0)
    for name in [x for node in region.nodes for x in node_inputs(node)] + [p.tensor for p in region.outputs]:
        counts[name] += 1
    return counts


def _as_clip(region: Region, node: Unary) -> tuple[float, float] | None:
    """The bounds that `node` clips to, or None when it is no clip."""
    if node.function == "clip":
        return node.args[0], node.args[1]
    if node.function != "relu":
        return None
    if not quantized(region):
        return 0.0, math.inf
    x, y = region.tensor(node.x), region.tensor(node.y)
    if (x.scale, x.zero_point) != (y.scale, y.zero_point):
        return None
    return float(x.zero_point), 127.0


def _compose(first: tuple[float, float] | None, then: tuple[float, float]) -> tuple[float, float]:
    """Bounds of clip(clip(x, first), then)."""
    if first is None:
        return then
    return min(max(first[0], then[0]), then[1]), min(max(first[1], then[0]), then[1])
