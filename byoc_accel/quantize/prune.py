"""QRegion -> QRegion without the channels that cannot change an output byte.

Trained networks hold channels that are constant (all weights zero: the result is that of the bias) and channels
that nobody reads (every reader's weights are zero). The first are folded into their readers' biases, the second
are removed with their weights, multiply-accumulates and bytes.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from . import fixedpoint
from .qregion import QConv, QNode, QRegion, QTensor, qnode_inputs
from .verify import accumulator_bounds

INT32_MAX = (1 << 31) - 1


def prune(qregion: QRegion) -> QRegion:
    """Fold and remove until nothing is left to do. Output tensors keep every byte; others may lose channels."""
    while True:
        folded = _fold_constants(qregion)
        smaller = _remove_unread(folded)
        if smaller is folded:
            return folded
        qregion = smaller


def is_depthwise(node: QNode) -> bool:
    """A convolution with one input channel per output channel."""
    return isinstance(node, QConv) and node.groups == node.weight.shape[0] > 1 and node.weight.shape[3] == 1


def is_plain(node: QNode) -> bool:
    """A convolution in which every output channel reads every input channel."""
    return isinstance(node, QConv) and node.groups == 1


def _fold_constants(qregion: QRegion) -> QRegion:
    """Move what constant channels add to each convolution into its bias, and set those weights to zero."""
    tensors = qregion.by_name()
    constants: dict[str, dict[int, int]] = {}
    nodes = []
    for node in qregion.nodes:
        if isinstance(node, QConv) and (is_plain(node) or is_depthwise(node)):
            node = _without_constants(node, constants.get(node.x, {}), tensors)
            constants[node.y] = _constants(node, tensors[node.y])
        nodes.append(node)
    return replace(qregion, nodes=tuple(nodes))


def _constants(node: QConv, y: QTensor) -> dict[int, int]:
    """Channel -> its value at every position, for channels whose weights are all zero."""
    zero = np.flatnonzero(~node.weight.any(axis=(1, 2, 3)))
    scaled = fixedpoint.requantize(node.bias[zero].astype(np.int64), node.multiplier[zero], node.shift[zero],
                                   node.rounding)
    return dict(zip(zero.tolist(), np.clip(scaled + y.zero_point, *node.clamp).tolist()))


def _without_constants(node: QConv, constants: dict[int, int], tensors: dict[str, QTensor]) -> QConv:
    """`node` with constant input channels folded, where padding does not differ from the constant."""
    zero_point = tensors[node.x].zero_point
    weight, bias = node.weight.copy(), node.bias.astype(np.int64)
    for channel, value in constants.items():
        if value != zero_point and any(node.padding):
            continue
        taps = weight[channel] if is_depthwise(node) else weight[..., channel]
        moved = (value - zero_point) * taps.astype(np.int64).sum(axis=(1, 2) if taps.ndim == 3 else None)
        if is_depthwise(node):
            bias[channel] += moved.sum()
        else:
            bias += moved
        taps[...] = 0
    if not (weight != node.weight).any() or (np.abs(bias) > INT32_MAX).any():
        return node
    folded = replace(node, weight=weight, bias=bias.astype(np.int32))
    low, high = accumulator_bounds(folded, zero_point)
    return folded if (low >= -INT32_MAX).all() and (high <= INT32_MAX).all() else node


def _remove_unread(qregion: QRegion) -> QRegion:
    """Remove the channels of one group of tensors that nobody reads; the same object when there are none."""
    readers: dict[str, list[QNode]] = {}
    for node in qregion.nodes:
        for name in qnode_inputs(node):
            readers.setdefault(name, []).append(node)
    outputs = {port.tensor for port in qregion.outputs}
    tensors = qregion.by_name()
    for node in qregion.nodes:
        if is_plain(node):
            group = _group(node.y, readers)
            keep = _read(group, readers, outputs, tensors[node.y].shape[3])
            if not keep.all():
                return _keep(qregion, node.name, group, keep)
    return qregion


def _group(root: str, readers: dict[str, list[QNode]]) -> list[str]:
    """`root` and the tensors whose channels correspond to it through depthwise convolutions."""
    group = [root]
    for name in group:
        group += [n.y for n in readers.get(name, []) if is_depthwise(n)]
    return group


def _read(group: list[str], readers: dict[str, list[QNode]], outputs: set[str], channels: int) -> np.ndarray:
    """Channels (bool) of the group that anything reads; at least one stays."""
    read = np.zeros(channels, bool)
    for name in group:
        for node in readers.get(name, []):
            if is_plain(node):
                read |= node.weight.any(axis=(0, 1, 2))  # type: ignore[union-attr]
            elif not is_depthwise(node):
                read[:] = True
        if name in outputs or name not in readers:
            read[:] = True
    if not read.any():
        read[0] = True
    return read


def _keep(qregion: QRegion, producer: str, group: list[str], keep: np.ndarray) -> QRegion:
    """The region with only the channels `keep` of the tensors in `group`."""
    members = set(group)
    tensors = tuple(replace(t, shape=(*t.shape[:3], int(keep.sum()))) if t.name in members else t
                    for t in qregion.tensors)
    nodes = []
    for node in qregion.nodes:
        if isinstance(node, QConv) and node.x in members and is_plain(node):
            node = replace(node, weight=np.ascontiguousarray(node.weight[..., keep]))
        if isinstance(node, QConv) and (node.name == producer or (node.x in members and is_depthwise(node))):
            node = _rows(node, keep)
        nodes.append(node)
    return replace(qregion, tensors=tensors, nodes=tuple(nodes))


def _rows(node: QConv, keep: np.ndarray) -> QConv:
    """Only the output channels `keep`. A depthwise convolution stays one: groups follows the channel count."""
    groups = int(keep.sum()) if is_depthwise(node) else 1
    return replace(node, weight=np.ascontiguousarray(node.weight[keep]), bias=node.bias[keep],
                   multiplier=node.multiplier[keep], shift=node.shift[keep], groups=groups)
