"""One walk over a function that exchanges some of its expressions. No recursion."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

from tvm import relay

from .graph import Graph, Node, operands

#: (node, its operands after the walk) -> what takes the node's place, None for the node itself on these operands.
Change = Callable[[Node, list[relay.Expr]], Union[relay.Expr, None]]


def rewrite(function: relay.Function, graph: Graph, change: Change) -> relay.Function:
    """`function`, whose graph is `graph`, with every node as `change` wants it; types must be inferred anew."""
    copies: list[relay.Expr] = []
    for node in graph.nodes:
        inputs = [copies[i] for i in node.inputs]
        changed = change(node, inputs)
        copies.append(rebuild(node.expr, inputs) if changed is None else changed)
    return with_body(function, copies[graph.result])


def with_body(function: relay.Function, body: relay.Expr) -> relay.Function:
    """`function` with another body of the same type, itself for its own body."""
    if body.same_as(function.body):
        return function
    return relay.Function(function.params, body, function.ret_type, function.type_params, function.attrs,
                          function.span)


def call(node: Node, inputs: Sequence[relay.Expr]) -> relay.Expr:
    """The call of `node` on other operands."""
    return relay.Call(node.expr.op, list(inputs), node.expr.attrs, node.expr.type_args, node.expr.span)


def like(node: Node, new: relay.Call) -> relay.Expr:
    """The call `new` under the name of `node`."""
    return relay.Call(new.op, new.args, new.attrs, new.type_args, node.expr.span)


def rebuild(expr: relay.Expr, inputs: list[relay.Expr]) -> relay.Expr:
    """`expr` on other operands, `expr` itself when they are the same."""
    if all(a.same_as(b) for a, b in zip(inputs, operands(expr))):
        return expr
    if isinstance(expr, relay.Call):
        return relay.Call(expr.op, inputs, expr.attrs, expr.type_args, expr.span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(inputs, expr.span)
    return relay.TupleGetItem(inputs[0], expr.index, expr.span)
