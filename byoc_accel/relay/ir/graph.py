"""A Relay function's body as a list of nodes in topological order, built and walked without recursion."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relay

from ...support.candidate import Value

#: Ops whose result is no function of their inputs' values, so that constant inputs do not make it one.
_IMPURE_PREFIXES = ("random.", "memory.", "vm.", "dyn.", "device_copy", "debug", "annotation.", "on_device")


@dataclass(frozen=True)
class Node:
    """One expression. op: the operator's name, "@symbol" for a call of a global function, or a word for the
    kind of expression ("var", "constant", "tuple", "get", "call of a function", "control flow").

    constant: every leaf below is a constant. `inputs` are node numbers in operand order.
    """

    index: int
    expr: relay.Expr
    op: str
    inputs: tuple[int, ...]
    constant: bool


@dataclass(frozen=True)
class Graph:
    """`uses[i]` are the nodes that read node i, once per operand; the result of the function counts as one use.

    The body is the last node.
    """

    nodes: tuple[Node, ...]
    uses: tuple[tuple[int, ...], ...]

    @property
    def result(self) -> int:
        return len(self.nodes) - 1

    def value(self, index: int) -> Value:
        """Shape and dtype of a tensor node; a tuple has dtype "tuple" and no static shape."""
        return Value(str(index), *tensor_type(self.nodes[index].expr))

    def attrs(self, index: int) -> tvm.ir.Attrs:
        return self.nodes[index].expr.attrs

    def single_use(self, index: int) -> int | None:
        """The only reader of node `index`, or None when there are more or the function returns it."""
        if index == self.result or len(self.uses[index]) != 1:
            return None
        return self.uses[index][0]


def tensor_type(expr: relay.Expr) -> tuple[tuple[int | None, ...], str]:
    """(shape, dtype) of a typed expression; unknown dimensions are None."""
    kind = expr.checked_type
    if not isinstance(kind, relay.TensorType):
        return (None,), "tuple" if isinstance(kind, relay.TupleType) else type(kind).__name__
    return tuple(int(d) if isinstance(d, tvm.tir.IntImm) else None for d in kind.shape), str(kind.dtype)


def build_graph(function: relay.Function) -> Graph:
    """The graph of a typed function in graph normal form. Control flow and closures are opaque leaves."""
    order = postorder(function.body, operands)
    number = {key(expr): i for i, expr in enumerate(order)}
    nodes: list[Node] = []
    uses: list[list[int]] = [[] for _ in order]
    for index, expr in enumerate(order):
        inputs = tuple(number[key(e)] for e in operands(expr))
        for i in inputs:
            uses[i].append(index)
        nodes.append(Node(index, expr, op_name(expr), inputs, _is_constant(expr, [nodes[i] for i in inputs])))
    return Graph(tuple(nodes), tuple(tuple(u) for u in uses))


def key(expr: relay.Expr) -> int:
    """Identity of an expression for as long as it lives."""
    return expr.handle.value


def operands(expr: relay.Expr) -> list[relay.Expr]:
    """The expressions whose values `expr` computes with."""
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    return []


def postorder(root: relay.Expr, children: Callable[[relay.Expr], Sequence[relay.Expr]]) -> list[relay.Expr]:
    """Every expression below `root` once, operands first."""
    order: list[relay.Expr] = []
    state: dict[int, bool] = {}  # False: operands are being visited, True: in `order`
    stack = [root]
    while stack:
        expr = stack[-1]
        done = state.get(key(expr))
        if done is None:
            state[key(expr)] = False
            stack.extend(e for e in reversed(children(expr)) if key(e) not in state)
            continue
        stack.pop()
        if not done:
            state[key(expr)] = True
            order.append(expr)
    return order


def op_name(expr: relay.Expr) -> str:
    """See `Node.op`."""
    if isinstance(expr, relay.Call):
        if isinstance(expr.op, tvm.ir.Op):
            return str(expr.op.name)
        if isinstance(expr.op, relay.GlobalVar):
            return f"@{expr.op.name_hint}"
        return "call of a function"
    kinds = {relay.Var: "var", relay.Constant: "constant", relay.Tuple: "tuple", relay.TupleGetItem: "get"}
    return kinds.get(type(expr), "control flow")


def _is_constant(expr: relay.Expr, inputs: list[Node]) -> bool:
    if isinstance(expr, relay.Constant):
        return True
    if isinstance(expr, relay.Call):
        if not isinstance(expr.op, tvm.ir.Op) or str(expr.op.name).startswith(_IMPURE_PREFIXES):
            return False
        return all(n.constant for n in inputs)
    return isinstance(expr, (relay.Tuple, relay.TupleGetItem)) and bool(inputs) and all(n.constant for n in inputs)


def copy_call(call: relay.Call, args: list[relay.Expr], span: bool = True) -> relay.Call:
    """`call` on other operands, with attributes of its own; without `span`, nothing tells where it came from."""
    if span:
        return relay.Call(call.op, args, _own_attrs(call), call.type_args, call.span)
    return relay.Call(call.op, args, _own_attrs(call))


def _own_attrs(call: relay.Call) -> tvm.ir.Attrs | None:
    """Attributes that no build of the caller's module changes: TVM's lowering of qnn.requantize writes rounding and
    compute_dtype, as the build's target wants them, into the attributes that it was given."""
    if call.attrs is None or call.op.name != "qnn.requantize":
        return call.attrs
    return tvm.ir.load_json(tvm.ir.save_json(call.attrs))
