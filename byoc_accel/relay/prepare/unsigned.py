"""uint8 values of quantized graphs as int8 values: q becomes q - 128 and every zero point z becomes z - 128.

Real values are scale * (q - zero_point), so nothing else changes, and no result byte does: where a value leaves the
ops that are known here (outputs, inputs, other ops), 128 is added or subtracted on the host.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relay

from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, Node, build_graph
from ..ir.rewrite import call, like, with_body

SHIFT = 128
_LAYERS = ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul", "qnn.add", "qnn.concatenate")
_TABLES = ("qnn.sigmoid", "qnn.tanh", "qnn.hardswish", "qnn.erf", "qnn.exp", "qnn.log", "qnn.sqrt", "qnn.rsqrt",
           "qnn.abs")  # TVM computes them for every stored value
#: op -> (operand, its zero point) pairs
_OPERANDS = {"qnn.dequantize": ((0, 2),), "qnn.requantize": ((0, 2),), "qnn.conv2d": ((0, 2), (1, 3)),
             "qnn.conv2d_transpose": ((0, 2), (1, 3)), "qnn.dense": ((0, 2), (1, 3)),
             "qnn.batch_matmul": ((0, 2), (1, 3)), "qnn.add": ((0, 3), (1, 5)), "qnn.subtract": ((0, 3), (1, 5)),
             "qnn.mul": ((0, 3), (1, 5)), **dict.fromkeys(_TABLES, ((0, 2),))}
#: op -> zero point of its result
_RESULT = {"qnn.quantize": 2, "qnn.requantize": 4, "qnn.add": 7, "qnn.subtract": 7, "qnn.mul": 7,
           **dict.fromkeys(_TABLES, 4)}
_MOVES = ("reshape", "squeeze", "expand_dims", "transpose", "strided_slice", "nn.batch_flatten", "layout_transform",
          "nn.max_pool2d", "nn.max_pool1d", "nn.global_max_pool2d", "nn.depth_to_space", "copy")


def to_signed(function: relay.Function) -> relay.Function:
    """The typed `function` with int8 for uint8 between quantized layers; itself when there is no such layer."""
    graph = build_graph(function)
    if not any(_has_unsigned_layer(graph, node) for node in graph.nodes):
        return function
    walk = _Walk(graph)
    return with_body(function, walk.plain(graph.result))


def _has_unsigned_layer(graph: Graph, node: Node) -> bool:
    if node.op not in _LAYERS or node.constant:
        return False
    return "uint8" in {graph.value(node.index).dtype, *(graph.value(i).dtype for i in node.inputs[:2])}


class _Walk:
    """Every node as it was (`plain`), and uint8 nodes minus 128 (`signed`); each form is made when it is asked for."""

    def __init__(self, graph: Graph):
        self.graph, self.evaluate = graph, ConstantEvaluator()
        self._plain: dict[int, relay.Expr] = {}
        self._signed: dict[int, relay.Expr] = {}
        for node in graph.nodes:
            if node.constant or node.op == "var":
                self._plain[node.index] = node.expr
                continue
            rule = _rule(graph, node)
            if rule is None:
                self._plain[node.index] = _call_like(node, [self.plain(i) for i in node.inputs])
            elif self.is_unsigned(node.index):
                self._signed[node.index] = rule(self, node)
            else:
                self._plain[node.index] = rule(self, node)

    def is_unsigned(self, index: int) -> bool:
        return self.graph.value(index).dtype == "uint8"

    def plain(self, index: int) -> relay.Expr:
        """Node `index` as the graph has it."""
        if index not in self._plain:
            wide = relay.cast(self._signed[index], "int16")
            self._plain[index] = relay.cast(relay.add(wide, relay.const(SHIFT, "int16")), "uint8")
        return self._plain[index]

    def signed(self, index: int) -> relay.Expr:
        """Node `index` minus 128 if it is uint8, else as it is."""
        if not self.is_unsigned(index):
            return self.plain(index)
        if index not in self._signed:
            self._signed[index] = self._shifted(index)
        return self._signed[index]

    def _shifted(self, index: int) -> relay.Expr:
        node = self.graph.nodes[index]
        value = self.evaluate(node.expr) if node.constant else None
        if value is not None:
            return relay.const((value.astype(np.int16) - SHIFT).astype(np.int8), "int8")
        return _minus(self.plain(index))

    def zero_point(self, index: int) -> relay.Expr:
        """Zero point `index` of a uint8 value, for the int8 one."""
        node = self.graph.nodes[index]
        value = self.evaluate(node.expr) if node.constant else None
        if value is None:
            return relay.subtract(self.plain(index), relay.const(SHIFT, "int32"))
        return relay.const(value.astype(np.int32) - SHIFT, "int32")


def _minus(expr: relay.Expr) -> relay.Expr:
    return relay.cast(relay.subtract(relay.cast(expr, "int16"), relay.const(SHIFT, "int16")), "int8")


def _call_like(node: Node, inputs: list[relay.Expr]) -> relay.Expr:
    """`node` on other operands, whatever its kind."""
    if isinstance(node.expr, relay.Call):
        return call(node, inputs)
    if isinstance(node.expr, relay.Tuple):
        return relay.Tuple(inputs, node.expr.span)
    return relay.TupleGetItem(inputs[0], node.expr.index, node.expr.span) if inputs else node.expr


_Rule = Callable[[_Walk, Node], relay.Expr]


def _rule(graph: Graph, node: Node) -> _Rule | None:
    """How `node` becomes int8; None for a node that stays."""
    unsigned = graph.value(node.index).dtype == "uint8"
    if node.op in ("qnn.concatenate", "nn.pad", "clip", "maximum", "minimum", *_MOVES):
        if not unsigned:
            return None
        return _MOVING.get(node.op, _move)
    if node.op in _OPERANDS or node.op in _RESULT:
        reads = any(graph.value(node.inputs[i]).dtype == "uint8" for i, _ in _OPERANDS.get(node.op, ()))
        return _qnn if reads or unsigned else None
    return None


def _qnn(walk: _Walk, node: Node) -> relay.Expr:
    inputs = [walk.plain(i) for i in node.inputs]
    for data, zero_point in _OPERANDS.get(node.op, ()):
        if walk.is_unsigned(node.inputs[data]):
            inputs[data], inputs[zero_point] = walk.signed(node.inputs[data]), walk.zero_point(node.inputs[zero_point])
    if not walk.is_unsigned(node.index):
        return call(node, inputs)
    place = _RESULT[node.op]
    inputs[place] = walk.zero_point(node.inputs[place])
    attrs = node.expr.attrs
    if node.op == "qnn.quantize":
        return like(node, relay.qnn.op.quantize(*inputs, axis=int(attrs.axis), out_dtype="int8"))
    if node.op == "qnn.requantize":
        return like(node, relay.qnn.op.requantize(
            *inputs, axis=int(attrs.axis), rounding=str(attrs.rounding), compute_dtype=str(attrs.compute_dtype),
            out_dtype="int8"))
    return call(node, inputs)


def _move(walk: _Walk, node: Node) -> relay.Expr:
    return call(node, [walk.signed(node.inputs[0]), *(walk.plain(i) for i in node.inputs[1:])])


def _elementwise(walk: _Walk, node: Node) -> relay.Expr:
    return call(node, [walk.signed(i) for i in node.inputs])


def _clip(walk: _Walk, node: Node) -> relay.Expr:
    low, high = (int(float(v)) for v in (node.expr.attrs.a_min, node.expr.attrs.a_max))
    return like(node, relay.clip(walk.signed(node.inputs[0]), low - SHIFT, high - SHIFT))


def _concatenate(walk: _Walk, node: Node) -> relay.Expr:
    values, scales, zero_points, scale, zero_point = node.inputs
    fields, points = (walk.graph.nodes[i] for i in (values, zero_points))
    if fields.op != "tuple" or points.op != "tuple":
        return _minus(call(node, [walk.plain(i) for i in node.inputs]))
    return relay.Call(node.expr.op, [
        relay.Tuple([walk.signed(i) for i in fields.inputs]), walk.plain(scales),
        relay.Tuple([walk.zero_point(i) for i in points.inputs]), walk.plain(scale), walk.zero_point(zero_point)],
        node.expr.attrs, node.expr.type_args, node.expr.span)


_MOVING: dict[str, _Rule] = {"qnn.concatenate": _concatenate, "nn.pad": _elementwise, "clip": _clip,
                             "maximum": _elementwise, "minimum": _elementwise}
