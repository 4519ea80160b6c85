"""Quantized Region -> QRegion, exactly as TVM lowers the QNN ops, or (rounding "double") as TFLite's kernels compute.

docs/numerics.md has the formulas.
"""
from __future__ import annotations

import numpy as np

from ..region.interpret import conv_ratios, integer_clip, scale_ratio, unary_table
from ..region.region import Add, Concat, Conv2d, ConvTranspose2d, Node, Pad, Pool, Region, Tensor, Unary
from . import fixedpoint
from .adds import add_at_common_scale
from .fold import fold_activations, fold_pads
from .moves import lower_concat, lower_move
from .pools import lower_pool
from .qregion import IDENTITY, QAdd, QConv, QConvTranspose, QLut, QNode, QPad, QRegion, QTensor


def lower_int8(region: Region) -> QRegion:
    """The QRegion that gives every byte of the quantized `region`."""
    region = fold_pads(fold_activations(region))
    tensors = region.by_name()
    nodes = tuple(_lower(f"{region.name}: {node.name!r}", node, tensors) for node in region.nodes)
    return QRegion(region.name, tuple(QTensor(t.name, t.shape, t.scale, t.zero_point) for t in region.tensors),
                   nodes, region.inputs, region.outputs)


def _lower(where: str, node: Node, tensors: dict[str, Tensor]) -> QNode:
    if isinstance(node, Conv2d):
        return _conv(where, node, tensors[node.x], tensors[node.y])
    if isinstance(node, ConvTranspose2d):
        return _conv_transpose(where, node, tensors[node.x], tensors[node.y])
    if isinstance(node, Add):
        return _add(where, node, tensors)
    if isinstance(node, Concat):
        return lower_concat(where, node, {name: (t.scale, t.zero_point) for name, t in tensors.items()})
    x, y = tensors[node.x], tensors[node.y]
    if isinstance(node, Pool):
        return lower_pool(where, node, x.shape, (x.scale, x.zero_point), (y.scale, y.zero_point))
    if isinstance(node, Unary):
        return QLut(node.name, node.x, node.y, unary_table(where, node, x, y))
    if isinstance(node, Pad):
        return QPad(node.name, node.x, node.y, node.padding, int(node.value))
    return lower_move(where, node)


def _conv(where: str, node: Conv2d, x: Tensor, y: Tensor) -> QConv:
    multiplier, shift = fixedpoint.from_real_channels(conv_ratios(node, x, y), where)
    return QConv(node.name, node.x, node.y, node.weight, _bias(node), multiplier, shift, node.stride, node.padding,
                 node.dilation, node.groups, node.rounding, integer_clip(node.clip))


def _conv_transpose(where: str, node: ConvTranspose2d, x: Tensor, y: Tensor) -> QConvTranspose:
    multiplier, shift = fixedpoint.from_real_channels(conv_ratios(node, x, y), where)
    return QConvTranspose(node.name, node.x, node.y, node.weight, _bias(node), multiplier, shift, node.stride,
                          node.padding, node.rounding, integer_clip(node.clip))


def _bias(node: Conv2d | ConvTranspose2d) -> np.ndarray:
    return np.zeros(len(node.weight), np.int32) if node.bias is None else node.bias


def _add(where: str, node: Add, tensors: dict[str, Tensor]) -> QAdd:
    """qnn.add: each operand is rounded to y's scale, the int32 sum is only clipped."""
    y = tensors[node.y]
    if node.rounding == "double":
        return add_at_common_scale(where, node, tensors[node.x1].scale, tensors[node.x2].scale, y.scale,
                                   integer_clip(node.clip))
    one, two = (fixedpoint.from_real(scale_ratio(tensors[x].scale, y.scale), where) for x in (node.x1, node.x2))
    return QAdd(node.name, node.x1, node.x2, node.y, one, two, IDENTITY, 0, node.rounding, integer_clip(node.clip))
