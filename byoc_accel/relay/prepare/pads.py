"""Padding with the lowest value before a maximum, as importers write it for "same" padding: padding of the pool.

As values of a tensor such numbers (-3.4e38) would take the whole int8 range.
"""
from __future__ import annotations

import numpy as np
from tvm import relay

from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, Node, build_graph
from ..ir.rewrite import like, rewrite

LOWEST_FLOAT = -1e30


def fold_pads(function: relay.Function) -> relay.Function:
    """The typed `function` with nn.pad before nn.max_pool2d as padding of the pool, where that is the same."""
    graph, evaluate = build_graph(function), ConstantEvaluator()

    def change(node: Node, inputs: list[relay.Expr]) -> relay.Expr | None:
        pads = _pads(graph, evaluate, node) if node.op == "nn.max_pool2d" and not node.constant else None
        if pads is None:
            return None
        attrs = node.expr.attrs
        old = [int(p) for p in attrs.padding]
        return like(node, relay.nn.max_pool2d(
            inputs[0].args[0], attrs.pool_size, attrs.strides, attrs.dilation, [a + b for a, b in zip(old, pads)],
            attrs.layout, attrs.out_layout, attrs.ceil_mode))

    return rewrite(function, graph, change)


def _pads(graph: Graph, evaluate: ConstantEvaluator, node: Node) -> list[int] | None:
    """(top, left, bottom, right) of the pad that the pool reads; None unless it pads with the lowest value."""
    pad, layout = graph.nodes[node.inputs[0]], str(node.expr.attrs.layout)
    if pad.op != "nn.pad" or pad.constant or graph.single_use(pad.index) is None or len(layout) != 4:
        return None
    attrs, value = pad.expr.attrs, evaluate(graph.nodes[pad.inputs[1]].expr) if graph.nodes[
        pad.inputs[1]].constant else None
    dtype = graph.value(pad.index).dtype
    lowest = LOWEST_FLOAT if dtype == "float32" else np.iinfo(dtype).min if dtype in ("int8", "uint8") else None
    if value is None or lowest is None or str(attrs.pad_mode) != "constant" or not float(value) <= lowest:
        return None
    widths = {axis: [int(w) for w in pair] for axis, pair in zip(layout, attrs.pad_width)}
    if any(widths[axis] != [0, 0] for axis in "NC") or len(node.expr.attrs.padding) != 4:
        return None
    return [widths["H"][0], widths["W"][0], widths["H"][1], widths["W"][1]]
