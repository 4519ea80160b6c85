"""Folded float Region and tensor scales -> QRegion."""
from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..region.region import Add, Concat, Conv2d, ConvTranspose2d, Node, Pad, Pool, Region, Unary
from . import fixedpoint
from .adds import add_at_common_scale
from .moves import lower_concat, lower_move
from .pools import lower_pool
from .qregion import QAdd, QConv, QConvTranspose, QLut, QNode, QPad, QRegion, QTensor
from .tables import lookup_table
from .weights import quantize_weights

ROUNDING = "upward"  # one addition in hardware; ties are rare with 31-bit multipliers

Parameters = dict[str, tuple[float, int]]  # (scale, zero point) by tensor name


def lower_float(region: Region, parameters: Parameters, power_of_two: bool) -> QRegion:
    """int8 form of the float `region` (batch norms folded); power_of_two also for the weight scales."""
    shapes = {t.name: t.shape for t in region.tensors}
    nodes = tuple(_lower(f"{region.name}: {node.name!r}", node, shapes, parameters, power_of_two)
                  for node in region.nodes)
    return QRegion(region.name, tuple(QTensor(t.name, t.shape, *parameters[t.name]) for t in region.tensors),
                   nodes, region.inputs, region.outputs)


def _lower(where: str, node: Node, shapes: dict[str, tuple[int, ...]], parameters: Parameters,
           power_of_two: bool) -> QNode:
    if isinstance(node, (Conv2d, ConvTranspose2d)):
        return _conv(where, node, parameters, power_of_two)
    if isinstance(node, Add):
        return _add(where, node, parameters)
    if isinstance(node, Concat):
        return lower_concat(where, replace(node, rounding=ROUNDING), parameters)
    x, y = parameters[node.x], parameters[node.y]
    if isinstance(node, Pool):
        return lower_pool(where, replace(node, rounding=ROUNDING), shapes[node.x], x, y)
    if isinstance(node, Unary):
        return QLut(node.name, node.x, node.y, lookup_table(where, node.function, node.args, x, y))
    if isinstance(node, Pad):
        return QPad(node.name, node.x, node.y, node.padding, _bound(node.value, *y))
    return lower_move(where, node)


def _conv(where: str, node: Conv2d | ConvTranspose2d, parameters: Parameters,
          power_of_two: bool) -> QConv | QConvTranspose:
    (x_scale, _), (y_scale, _) = parameters[node.x], parameters[node.y]
    bias = np.zeros(len(node.weight)) if node.bias is None else node.bias
    q = quantize_weights(where, node.weight, bias, x_scale, y_scale, power_of_two)
    multiplier, shift = fixedpoint.from_real_channels(x_scale * q.scale / y_scale, where)
    limits = clamp(node.clip, *parameters[node.y])
    if isinstance(node, ConvTranspose2d):
        return QConvTranspose(node.name, node.x, node.y, q.weight, q.bias, multiplier, shift, node.stride, node.padding,
                              ROUNDING, limits)
    return QConv(node.name, node.x, node.y, q.weight, q.bias, multiplier, shift, node.stride, node.padding,
                 node.dilation, node.groups, ROUNDING, limits)


def clamp(clip: tuple[float, float] | None, scale: float, zero_point: int) -> tuple[int, int]:
    """Real bounds as int8 bounds of a tensor: round(bound / scale) + zero point within -128..127."""
    if clip is None:
        return fixedpoint.INT8_MIN, fixedpoint.INT8_MAX
    low, high = (_bound(bound, scale, zero_point) for bound in clip)
    return low, high


def _bound(bound: float, scale: float, zero_point: int) -> int:
    if not math.isfinite(bound):
        return fixedpoint.INT8_MIN if bound < 0 else fixedpoint.INT8_MAX
    steps = fixedpoint.round_half_away(np.float64(min(max(bound / scale, -512.0), 512.0)))
    return int(np.clip(steps + zero_point, fixedpoint.INT8_MIN, fixedpoint.INT8_MAX))


def _add(where: str, node: Add, parameters: Parameters) -> QAdd:
    (s1, _), (s2, _), (y_scale, y_zero_point) = (parameters[name] for name in (node.x1, node.x2, node.y))
    return add_at_common_scale(where, replace(node, rounding=ROUNDING), s1, s2, y_scale,
                               clamp(node.clip, y_scale, y_zero_point))
