"""Nodes that only move values, or requantize them on the way: concat, upsampling, reshape."""
from __future__ import annotations

from ..errors import QuantizeError
from ..region.interpret import scale_ratio
from ..region.region import Concat, Node, Reshape, Upsample
from . import fixedpoint
from .qregion import QConcat, QNode, QReshape, QUpsample, Requant


def lower_concat(where: str, node: Concat, parameters: dict[str, tuple[float, int]]) -> QConcat:
    """QConcat of `node`; parameters are (scale, zero point) by tensor name. Inputs that have y's are copied."""
    y_scale, y_zero_point = parameters[node.y]

    def requant(x: str) -> Requant | None:
        if parameters[x] == (y_scale, y_zero_point):
            return None
        return fixedpoint.from_real(scale_ratio(parameters[x][0], y_scale), f"{where}: input {x!r}")

    return QConcat(node.name, node.xs, node.y, node.axis, tuple(requant(x) for x in node.xs), node.rounding)


def lower_move(where: str, node: Node) -> QNode:
    """QNode of an upsampling or reshape."""
    if isinstance(node, Upsample):
        return QUpsample(node.name, node.x, node.y, node.factor)
    if isinstance(node, Reshape):
        return QReshape(node.name, node.x, node.y)
    raise QuantizeError(f"{where}: {type(node).__name__} is no node of a Region")
