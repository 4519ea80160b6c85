"""Composite functions that other passes made are dissolved: what is inside of them is matched like everything else."""
from __future__ import annotations

from tvm import relay

from ..ir.graph import key, operands, postorder
from ..ir.rewrite import rebuild, with_body


def dissolve(function: relay.Function) -> relay.Function:
    """`function` with the body of every composite that it calls in place of the call."""
    return with_body(function, _dissolved(function.body))


def _dissolved(body: relay.Expr) -> relay.Expr:
    copies: dict[int, relay.Expr] = {}
    for expr in postorder(body, operands):
        inputs = [copies[key(e)] for e in operands(expr)]
        if _is_composite(expr):
            inner = _dissolved(expr.op.body)
            copies[key(expr)] = relay.bind(inner, dict(zip(expr.op.params, inputs)))
        else:
            copies[key(expr)] = rebuild(expr, inputs) if inputs else expr
    return copies[key(body)]


def _is_composite(expr: relay.Expr) -> bool:
    return (isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function) and expr.op.attrs is not None
            and "Composite" in expr.op.attrs.keys() and "Compiler" not in expr.op.attrs.keys())
