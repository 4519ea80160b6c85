"""Region -> Region folds: batch norm into weights and bias, relu and clip into the layer before, pads into the one
behind."""
from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..region import geometry
from ..region.region import Add, Conv2d, ConvTranspose2d, Node, Pad, Pool, Region, Unary, node_inputs
from ..region.verify import quantized


def fold(region: Region) -> Region:
    """All folds in order. Tensors that vanish are the ones before a folded activation and behind a folded pad."""
    return fold_pads(fold_activations(fold_batch_norm(region)))


def fold_batch_norm(region: Region) -> Region:
    """Fold every batch norm: weight * factor and (bias - mean) * factor + beta, factor = gamma / sqrt(var + eps).

    Arithmetic and results are float64. `checks.require_finite_constants` has made sure that var + eps > 0.
    """
    nodes = tuple(_fold_norm(node) if isinstance(node, (Conv2d, ConvTranspose2d)) and node.batch_norm else node
                  for node in region.nodes)
    return replace(region, nodes=nodes)


def _fold_norm(node: Conv2d | ConvTranspose2d) -> Conv2d | ConvTranspose2d:
    norm = node.batch_norm
    with np.errstate(under="ignore"):
        factor = norm.gamma.astype(np.float64) / np.sqrt(norm.variance.astype(np.float64) + norm.epsilon)
        bias = np.zeros(len(factor)) if node.bias is None else node.bias.astype(np.float64)
        weight = node.weight.astype(np.float64) * factor[:, None, None, None]
        bias = (bias - norm.mean.astype(np.float64)) * factor + norm.beta.astype(np.float64)
    return replace(node, weight=weight, bias=bias, batch_norm=None)


def fold_activations(region: Region) -> Region:
    """Merge relu and clip into the convolution or add before them, where nothing else reads what lies between.

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
        if isinstance(nodes[-1 if at is None else at], (Conv2d, ConvTranspose2d, Add)):
            producers[node.y] = len(nodes) - 1 if at is None else at
    return _with_nodes(region, nodes)


def _with_nodes(region: Region, nodes: list[Node]) -> Region:
    """The region with other nodes, and without the tensors that nothing produces any more."""
    kept = {port.tensor for port in region.inputs} | {node.y for node in nodes}
    return replace(region, nodes=tuple(nodes), tensors=tuple(t for t in region.tensors if t.name in kept))


def fold_pads(region: Region) -> Region:
    """Merge a pad into the padding of its readers, where all of them can take it.

    A conv2d takes a pad of real 0 (the zero point); a max pool takes values that cannot be a maximum, because a clip
    in front gives nothing lower.
    """
    outputs = {port.tensor for port in region.outputs}
    producers = {node.y: node for node in region.nodes}
    readers: dict[str, list[Node]] = {}
    for node in region.nodes:
        for name in node_inputs(node):
            readers.setdefault(name, []).append(node)
    merged = {pad.y: pad for pad in region.nodes if isinstance(pad, Pad) and pad.y not in outputs
              and all(_takes(region, reader, pad, producers.get(pad.x)) for reader in readers.get(pad.y, []))}
    return _with_nodes(region, [_padded(node, merged[node.x]) if node_inputs(node)[0] in merged else node
                                for node in region.nodes if node.y not in merged])


def _takes(region: Region, reader: Node, pad: Pad, producer: Node | None) -> bool:
    x = region.tensor(pad.x)
    if isinstance(reader, Conv2d):
        return pad.value == (x.zero_point or 0)
    if not isinstance(reader, Pool) or reader.kind != "max":
        return False
    clip = getattr(producer, "clip", None)
    lowest = max(-128.0 if quantized(region) else -math.inf, -math.inf if clip is None else clip[0])
    padding = _padded(reader, pad).padding
    counts = geometry.pool_counts(x.shape[1], x.shape[2], reader.kernel, reader.stride, padding, False)
    return pad.value <= lowest and counts.min() > 0


def _padded(node: Conv2d | Pool, pad: Pad) -> Conv2d | Pool:
    return replace(node, x=pad.x, padding=tuple(a + b for a, b in zip(node.padding, pad.padding)))


def _reader_counts(region: Region) -> dict[str, int]:
    """How many nodes and outputs read each tensor."""
    counts = dict.fromkeys((t.name for t in region.tensors), 0)
    for name in [x for node in region.nodes for x in node_inputs(node)] + [p.tensor for p in region.outputs]:
        counts[name] += 1
    return counts


def _as_clip(region: Region, node: Unary) -> tuple[float, float] | None:
    """The bounds that `node` clips to, or None when it is no clip."""
    if node.table is not None:
        return None
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
