"""Groups of layers -> external functions, and the caller rewritten to call them. No recursion."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay

from ...errors import HostError
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, copy_call, key, operands, postorder
from ..ir.rewrite import rebuild
from .groups import Group

COMPILER = "byoc_accel"


@dataclass(frozen=True)
class Draft:
    """A group as a typed function without attributes. origin[i] is the node of the caller's graph that node i of
    the function's graph was copied from, -1 for what is new (parameters, folded constants, the output tuple)."""

    group: Group
    function: relay.Function
    origin: tuple[int, ...]


def draft_functions(graph: Graph, groups: Sequence[Group], evaluate: ConstantEvaluator) -> list[Draft]:
    """One typed function per group; constant operands are folded to their values."""
    module = tvm.IRModule()
    origins = []
    for index, group in enumerate(groups):
        function, origin = _function(graph, group, evaluate)
        module[relay.GlobalVar(f"r{index}")] = function
        origins.append(tuple(origin.get(key(e), -1) for e in postorder(function.body, operands)))
    module = relay.transform.InferType()(module)
    return [Draft(group, module[f"r{index}"], origins[index]) for index, group in enumerate(groups)]


def _function(graph: Graph, group: Group, evaluate: ConstantEvaluator) -> tuple[relay.Function, dict[int, int]]:
    copies: dict[int, relay.Expr] = {}
    origin: dict[int, int] = {}
    params = []
    for position, index in enumerate(group.inputs):
        copies[index] = relay.Var(f"x{position}", graph.nodes[index].expr.checked_type)
        params.append(copies[index])
    for index in sorted(i for layer in group.layers for i in layer.match.nodes):
        expr = graph.nodes[index].expr
        args = [_operand(graph, i, copies, evaluate) for i in graph.nodes[index].inputs]
        copies[index] = relay.Tuple(args, expr.span) if isinstance(expr, relay.Tuple) else copy_call(expr, args)
        origin[key(copies[index])] = index
    results = [copies[i] for i in group.outputs]
    body = results[0] if len(results) == 1 else relay.Tuple(results)
    return relay.Function(params, body), origin


def _operand(graph: Graph, index: int, copies: dict[int, relay.Expr], evaluate: ConstantEvaluator) -> relay.Expr:
    if index not in copies:
        node = graph.nodes[index]
        if isinstance(node.expr, relay.Constant):
            return node.expr
        if isinstance(node.expr, relay.Tuple):  # the scales of a qnn.concatenate
            return relay.Tuple([_operand(graph, i, copies, evaluate) for i in node.inputs])
        value = evaluate(node.expr)
        if value is None:
            raise HostError(f"constant {node.op} cannot be computed at compile time; replace it by its value")
        copies[index] = relay.const(np.asarray(value, order="C"), str(value.dtype))
    return copies[index]


def external(draft: Draft, symbol: str) -> relay.Function:
    """The function of `draft` as TVM's external functions are marked."""
    function = draft.function
    one = tvm.tir.IntImm("int32", 1)
    marks: dict[str, object] = {"Primitive": one, "Inline": one, "Compiler": COMPILER, "global_symbol": symbol}
    for name, value in marks.items():
        function = function.with_attr(name, value)
    return function


def call_regions(function: relay.Function, graph: Graph, groups: Sequence[Group],
                 callees: Sequence[relay.GlobalVar]) -> relay.Function:
    """`function` with every group replaced by a call of its external function."""
    owner = {index: g for g, group in enumerate(groups) for index in group.outputs}
    calls: dict[int, relay.Expr] = {}
    copies: dict[int, relay.Expr] = {}
    stack = [graph.result]
    while stack:
        index = stack[-1]
        needed = groups[owner[index]].inputs if index in owner else graph.nodes[index].inputs
        waiting = [i for i in needed if i not in copies]
        if waiting and index not in copies:
            stack.extend(waiting)
            continue
        stack.pop()
        if index in copies:
            continue
        if index not in owner:
            copies[index] = rebuild(graph.nodes[index].expr, [copies[i] for i in needed])
            continue
        region = owner[index]
        group = groups[region]
        if region not in calls:
            calls[region] = relay.Call(callees[region], [copies[i] for i in group.inputs])
        call = calls[region]
        single = len(group.outputs) == 1
        copies[index] = call if single else relay.TupleGetItem(call, group.outputs.index(index))
    return relay.Function(function.params, copies[graph.result], function.ret_type, function.type_params,
                          function.attrs, function.span)
