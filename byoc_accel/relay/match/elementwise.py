"""Elementwise functions that frontends write as several ops: x * sigmoid(x), clip(x + 3, 0, 6) / 6, ...

A cluster computes one value from one other value and scalar constants, and nobody else reads what lies between.
It is recognised by its values at many points, so the order and form of its ops do not matter.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

import numpy as np
import tvm

from ...region import functions
from ...support.candidate import Scale
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph

MAX_OPS = 12
_POINTS = np.concatenate([np.arange(-240, 241) / 20.0, [-40.0, -25.0, 25.0, 40.0]])
_FAR = np.array([-1e9, -1e6, -1e3, -100.0, 100.0, 1e3, 1e6, 1e9])  # where some ways to write a function overflow
_TOLERANCE = 1e-5  # relative; constants such as 1/6 are float32

_erf = np.frompyfunc(math.erf, 1, 1)
OPS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "exp": np.exp, "log": np.log, "tanh": np.tanh, "abs": np.abs, "negative": np.negative,
    "sqrt": np.sqrt, "erf": lambda x: _erf(x).astype(np.float64), "power": np.power,
    "sigmoid": lambda x: functions.evaluate("sigmoid", (), x), "nn.relu": lambda x: np.maximum(x, 0.0)}
ATTRIBUTE_OPS: dict[str, Callable[[np.ndarray, tvm.ir.Attrs], np.ndarray]] = {
    "clip": lambda x, a: np.clip(x, float(a.a_min), float(a.a_max)),
    "nn.leaky_relu": lambda x, a: np.where(x > 0, x, float(a.alpha) * x)}
_JOINS = ("multiply", "divide", "add", "subtract", "maximum", "minimum", "qnn.add", "qnn.mul", "qnn.subtract")
_FLOAT_OPS = frozenset({*OPS, *ATTRIBUTE_OPS})


@dataclass(frozen=True)
class Cluster:
    """`nodes` in topological order compute `function` of node `root`; the last one is the result.

    table: int8 (256,) of the stored integers -128..127, with the result's scale; None for a function of floats.
    """

    root: int
    nodes: tuple[int, ...]
    function: str
    args: tuple[float, ...]
    table: np.ndarray | None = None
    y_scale: Scale | None = None


def find_clusters(graph: Graph, evaluate: ConstantEvaluator) -> Mapping[int, tuple[Cluster, ...]]:
    """Recognised clusters by their first node, the largest first; they may overlap. Only float32 values count."""
    found: dict[int, list[Cluster]] = {}
    parents = find_parents(graph, _FLOAT_OPS, "float32")
    for end in parents:
        for root in ancestors(end, parents)[1:]:
            cluster = _cluster(graph, root, end, evaluate)
            if cluster is not None:
                found.setdefault(cluster.nodes[0], []).append(cluster)
    return {first: tuple(sorted(c, key=lambda x: -len(x.nodes))) for first, c in found.items()}


def find_parents(graph: Graph, ops: Set[str], dtype: str | None = None) -> dict[int, int]:
    """For each node with one of the elementwise `ops` (and result `dtype`), the nearest earlier node that it is a
    function of. Its other operands are scalar constants."""
    parents: dict[int, int] = {}
    for node in graph.nodes:
        if node.constant or node.op not in ops:
            continue
        value = graph.value(node.index)
        scalars = all(math.prod(d or 0 for d in graph.value(i).shape) == 1
                      for i in node.inputs if graph.nodes[i].constant)
        inputs = list(dict.fromkeys(i for i in node.inputs if not graph.nodes[i].constant))
        if dtype not in (None, value.dtype) or not scalars or any(graph.value(i).shape != value.shape for i in inputs):
            continue
        if len(inputs) == 1:
            parents[node.index] = inputs[0]
        elif node.op in _JOINS:
            common = _common(inputs[0], inputs[1], parents)
            if common is not None:
                parents[node.index] = common
    return parents


def _common(a: int, b: int, parents: Mapping[int, int]) -> int | None:
    """The nearest node that both are functions of, within MAX_OPS steps."""
    above = ancestors(a, parents)
    return next((i for i in ancestors(b, parents) if i in above), None)


def ancestors(index: int, parents: Mapping[int, int]) -> list[int]:
    """Node `index`, its parent, and so on, at most MAX_OPS steps up."""
    chain = [index]
    while chain[-1] in parents and len(chain) <= MAX_OPS:
        chain.append(parents[chain[-1]])
    return chain


def _cluster(graph: Graph, root: int, end: int, evaluate: ConstantEvaluator) -> Cluster | None:
    nodes = between(graph, root, end)
    if nodes is None or (len(nodes) == 1 and graph.nodes[end].op not in _JOINS):
        return None  # named functions of one op have a pattern
    known = _recognise(lambda x: _evaluate(graph, root, nodes, x, evaluate))
    return None if known is None else Cluster(root, nodes, *known)


def between(graph: Graph, root: int, end: int) -> tuple[int, ...] | None:
    """Nodes from `root` (not included) to `end`, or None when one of them has another reader or operand."""
    inside: set[int] = set()
    stack = [end]
    while stack:
        index = stack.pop()
        if index == root or index in inside or graph.nodes[index].constant:
            continue
        if index < root or len(inside) >= MAX_OPS:
            return None
        inside.add(index)
        stack.extend(graph.nodes[index].inputs)
    for index in inside - {end}:
        if index == graph.result or any(u not in inside for u in graph.uses[index]):
            return None
    return tuple(sorted(inside))


def _evaluate(graph: Graph, root: int, nodes: tuple[int, ...], x: np.ndarray,
              evaluate: ConstantEvaluator) -> np.ndarray | None:
    values: dict[int, np.ndarray] = {root: x}
    for index in nodes:
        node = graph.nodes[index]
        args = []
        for i in node.inputs:
            value = values.get(i) if i in values else evaluate(graph.nodes[i].expr)
            if value is None:
                return None
            args.append(value if i in values else value.reshape(-1)[0].astype(np.float64))
        with np.errstate(all="ignore"):
            values[index] = (ATTRIBUTE_OPS[node.op](args[0], node.expr.attrs) if node.op in ATTRIBUTE_OPS
                             else OPS[node.op](*args))
    return values[nodes[-1]]


def _recognise(function: Callable[[np.ndarray], np.ndarray | None]) -> tuple[str, tuple[float, ...]] | None:
    """Name and arguments of a table function with the same values, or None."""
    y, far = function(_POINTS), function(_FAR)
    if y is None or far is None or not np.isfinite(y).all():
        return None
    names, table = _plain_functions()
    equal = (np.abs(y - table) <= _TOLERANCE * np.maximum(1.0, np.abs(table))).all(axis=1)
    minus_one, zero, one = (float(y[_POINTS == x][0]) for x in (-1.0, 0.0, 1.0))
    low, high = float(far[0]), float(far[-1])
    clip = -math.inf if low == _FAR[0] else low, math.inf if high == _FAR[-1] else high
    known = [(name, ()) for name, same in zip(names, equal) if same]
    for name, args in (*known, ("leaky_relu", (-minus_one,)), ("elu", (minus_one / math.expm1(-1.0),)), ("clip", clip),
                       ("affine", (one - zero, zero))):
        if not np.isnan(args).any() and _same(y, name, args, _POINTS) and _same(far, name, args, _FAR):
            return name, args
    return None


def _same(y: np.ndarray, name: str, args: tuple[float, ...], points: np.ndarray) -> bool:
    """Whether y are the values of a table function at those `points` where they are finite."""
    reference = functions.evaluate(name, args, points)
    with np.errstate(all="ignore"):
        near = np.abs(y - reference) <= _TOLERANCE * np.maximum(1.0, np.abs(reference))
    return bool((near | ~np.isfinite(y)).all())


@functools.cache
def _plain_functions() -> tuple[list[str], np.ndarray]:
    """Names and values at _POINTS, one row each, of the functions without parameters."""
    names = [name for name, f in sorted(functions.FUNCTIONS.items()) if not f.args]
    return names, np.stack([functions.evaluate(name, (), _POINTS) for name in names])
