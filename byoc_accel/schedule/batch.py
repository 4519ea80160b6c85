"""Batch handling: QRegion with N > 1 -> QRegion whose tensors all have N = 1."""
from __future__ import annotations

from dataclasses import replace

from ..errors import ScheduleError
from ..quantize.qregion import QAdd, QConcat, QConv, QLut, QNode, QRegion, QReshape, QTensor


def item_name(tensor: str, item: int) -> str:
    """Name of batch item `item` of a tensor."""
    return f"{tensor}#{item}"


def split_batch(qregion: QRegion) -> tuple[QRegion, int]:
    """The region with N = 1 and the number of items that its ports hold one after another.

    Networks of dense layers only become one item whose batch lies along the width, so that a weight tile serves
    the whole batch. Others are repeated per item. Raises ScheduleError when tensors disagree about N.
    """
    batch = qregion.tensors[0].shape[0] if qregion.tensors else 1
    for tensor in qregion.tensors:
        if tensor.shape[0] != batch:
            raise ScheduleError(f"tensor {tensor.name!r}: batch {tensor.shape[0]} beside batch {batch}; "
                                "leave the op that changes the batch to the host")
    if batch == 1:
        return qregion, 1
    if all(_is_dense(node) for node in qregion.nodes) and all(t.shape[1:3] == (1, 1) for t in qregion.tensors):
        tensors = tuple(replace(t, shape=(1, 1, batch, t.shape[3])) for t in qregion.tensors)
        return replace(qregion, tensors=tensors), 1
    return _repeat(qregion, batch), batch


def _is_dense(node: QNode) -> bool:
    if isinstance(node, QConv):
        return node.weight.shape[1:3] == (1, 1) and not any(node.padding) and node.stride == (1, 1)
    return isinstance(node, (QAdd, QLut))


def _repeat(qregion: QRegion, batch: int) -> QRegion:
    tensors: list[QTensor] = []
    nodes: list[QNode] = []
    for item in range(batch):
        tensors += [replace(t, name=item_name(t.name, item), shape=(1, *t.shape[1:])) for t in qregion.tensors]
        nodes += [_rename(node, item) for node in qregion.nodes]
    ports = [tuple(replace(p, tensor=item_name(p.tensor, i)) for i in range(batch) for p in side)
             for side in (qregion.inputs, qregion.outputs)]
    return replace(qregion, tensors=tuple(tensors), nodes=tuple(nodes), inputs=ports[0], outputs=ports[1])


def _rename(node: QNode, item: int) -> QNode:
    name = f"{node.name}#{item}"
    y = item_name(node.y, item)
    if isinstance(node, QAdd):
        return replace(node, name=name, x1=item_name(node.x1, item), x2=item_name(node.x2, item), y=y)
    if isinstance(node, QConcat):
        return replace(node, name=name, xs=tuple(item_name(x, item) for x in node.xs), y=y)
    if isinstance(node, QReshape):
        return QReshape(name, item_name(node.x, item), y)
    return replace(node, name=name, x=item_name(node.x, item), y=y)
