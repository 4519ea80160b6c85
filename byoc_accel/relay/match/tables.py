"""Elementwise functions from one int8 tensor to another, as tables of 256 entries that TVM itself computes.

dequantize - sigmoid - quantize, a requantize, a sum or product with a scalar constant: whatever has one int8 tensor in
and one out is offloaded with the bytes of TVM's own lowering, because that lowering has made them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relay

from ...errors import HostError
from ...support.candidate import Scale
from .. import host
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, copy_call
from .elementwise import ATTRIBUTE_OPS, OPS, Cluster, ancestors, between, find_parents

#: Ops with an int8 result -> positions of its scale and zero point among the operands.
RESULT_SCALE = {
    "qnn.quantize": (1, 2), "qnn.requantize": (3, 4), "qnn.add": (6, 7), "qnn.subtract": (6, 7), "qnn.mul": (6, 7),
    **{f"qnn.{name}": (3, 4) for name in ("sigmoid", "tanh", "exp", "sqrt", "rsqrt", "erf", "log", "abs", "hardswish")},
    "qnn.leaky_relu": (3, 4)}
TABLE_OPS = frozenset({*OPS, *ATTRIBUTE_OPS, *RESULT_SCALE, "qnn.dequantize", "rsqrt", "round", "floor", "ceil", "cast",
                       "nn.softplus"})
TABLE_INPUT = np.arange(-128, 128)

_memo: dict[str, np.ndarray | None] = {}


def find_tables(graph: Graph, evaluate: ConstantEvaluator) -> Mapping[int, tuple[Cluster, ...]]:
    """Clusters from int8 to int8 by their first node, the largest first; they may overlap."""
    found = list(_clusters(graph, find_parents(graph, TABLE_OPS)))
    tables = evaluate_tables([table_function(graph, c.root, c.nodes, evaluate, "int8") for c in found])
    by_first: dict[int, list[Cluster]] = {}
    for cluster, table in zip(found, tables):
        if table is not None:
            scale = result_scale(graph, cluster.nodes[-1], evaluate)
            by_first.setdefault(cluster.nodes[0], []).append(replace(cluster, table=table, y_scale=scale))
    return {first: tuple(sorted(c, key=lambda x: -len(x.nodes))) for first, c in by_first.items()}


def _clusters(graph: Graph, parents: Mapping[int, int]) -> Iterator[Cluster]:
    for end in parents:
        if graph.value(end).dtype != "int8" or graph.nodes[end].op not in RESULT_SCALE:
            continue
        root = next((i for i in ancestors(end, parents)[1:] if graph.value(i).dtype == "int8"), None)
        nodes = None if root is None or not graph.value(root).shape else between(graph, root, end)
        operands = graph.nodes[end].inputs[:2]
        if nodes is None or (len(nodes) == 1 and graph.nodes[end].op == "qnn.add" and operands == (root, root)):
            continue  # a tensor added to itself is a layer
        yield Cluster(root, nodes, "table", ())


def result_scale(graph: Graph, index: int, evaluate: ConstantEvaluator) -> Scale:
    """Scale and zero point of the int8 result of node `index`."""
    values = [evaluate(graph.nodes[graph.nodes[index].inputs[i]].expr) for i in RESULT_SCALE[graph.nodes[index].op]]
    return Scale(*(v.reshape(-1)[0].item() if v is not None and v.size == 1 else None for v in values))


def table_function(graph: Graph, root: int, nodes: Sequence[int], evaluate: ConstantEvaluator,
                   dtype: str) -> relay.Function | None:
    """`nodes` as a function of a tensor with 256 elements in place of `root`; None when a constant has no value."""
    shape = (1,) * (len(graph.value(root).shape) - 1) + (256,)
    x = relay.var("x", shape=shape, dtype=dtype)
    copies: dict[int, relay.Expr] = {root: x}
    for index in nodes:
        args = []
        for i in graph.nodes[index].inputs:
            if i not in copies:
                value = evaluate(graph.nodes[i].expr)
                if value is None or value.size != 1:
                    return None
                copies[i] = relay.const(value.reshape(()), str(value.dtype))
            args.append(copies[i])
        copies[index] = copy_call(graph.nodes[index].expr, args, span=False)
    return relay.Function([x], copies[nodes[-1]])


def evaluate_tables(functions: Sequence[relay.Function | None]) -> list[np.ndarray | None]:
    """int8 (256,) of every function, for -128..127; None where TVM cannot build it. Each is computed once."""
    keys = [None if f is None else tvm.ir.save_json(f) for f in functions]
    new = {k: f for k, f in zip(keys, functions) if k is not None and k not in _memo}
    if new:
        try:
            _memo.update(zip(new, _run(list(new.values()))))
        except HostError:  # one of them; which one shows by building each
            for key, function in new.items():
                try:
                    (_memo[key],) = _run([function])
                except HostError:
                    _memo[key] = None
    return [None if k is None else _memo[k] for k in keys]


def _run(functions: Sequence[relay.Function]) -> list[np.ndarray]:
    """All functions in one build."""
    types = [f.params[0].type_annotation for f in functions]
    params = [relay.var(f"x{i}", kind) for i, kind in enumerate(types)]
    bodies = [relay.bind(f.body, {f.params[0]: p}) for f, p in zip(functions, params)]
    sample = {p.name_hint: TABLE_INPUT.astype(kind.dtype).reshape([int(d) for d in kind.shape])
              for p, kind in zip(params, types)}
    (outputs,) = host.run(relay.Function(params, relay.Tuple(bodies)), tvm.IRModule(), [sample])
    return [array.reshape(-1).astype(np.int8) for array in outputs]
