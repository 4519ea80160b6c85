"""Fake-quantized graphs (dequantize, float op, quantize) -> integer graphs, through TVM's FakeQuantizationToInteger.

TVM's pass trusts what it is given. What it would compute wrongly stays float, on the host, with the reason that
`refusal` gives; clips and pads that it leaves without a meaning get theirs. docs/numerics.md has the list.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import tvm
from tvm import relay

from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, Node, build_graph
from ..ir.rewrite import call, like, rewrite
from . import fq2i_rules  # noqa: F401  (registers rules with TVM)

_MATRIX = ("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.matmul", "nn.batch_matmul")
_SUMS = (*_MATRIX, "nn.conv1d", "add", "subtract", "multiply", "concatenate", "nn.avg_pool2d", "nn.global_avg_pool2d",
         "nn.adaptive_avg_pool2d", "mean")
_MAXIMA = ("nn.max_pool2d", "nn.global_max_pool2d")
_MOVES = ("reshape", "transpose", "squeeze", "expand_dims", "nn.batch_flatten", "nn.pad", "nn.relu", "clip",
          *_MAXIMA, "strided_slice")
#: Ops on sums with scales per channel that leave every element in its place, or at least every channel in its axis.
_SAME_PLACE = ("nn.bias_add", "add", "subtract", "nn.relu", "clip", "maximum", "minimum", "qnn.quantize")
_WITH_CHANNELS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.global_avg_pool2d", "add")
_JOINS = ("add", "subtract", "multiply")
_BARRIER = "annotation.stop_fusion"


def to_integer(module: tvm.IRModule, is_plain: Callable[[object], bool]) -> tvm.IRModule:
    """The typed `module` with integer ops for float ops between dequantize and quantize.

    Only functions for which `is_plain` holds change, and a module where no layer computes on dequantized values
    comes back as it is.
    """
    plain = [var for var, f in module.functions.items() if is_plain(f)]
    if not any(_fake_quantized(build_graph(module[var])) for var in plain):
        return module
    work = relay.transform.InferType()(relay.transform.FoldConstant()(_copy(module)))
    for var in plain:
        work[var] = _guard(work[var])
    work = relay.transform.InferType()(work)
    work = relay.transform.InferType()(relay.transform.FakeQuantizationToInteger()(work))
    result = _copy(module)
    for var in plain:
        result[var] = _repair(work[var])
    return relay.transform.InferType()(result)


def refusal(graph: Graph, index: int) -> str:
    """Why FakeQuantizationToInteger is kept from node `index`, or that it has no rule."""
    return next(_reasons(graph, graph.nodes[index], ConstantEvaluator()),
                "FakeQuantizationToInteger has no integer form of it and of what stands there beside it")


def _copy(module: tvm.IRModule) -> tvm.IRModule:
    return tvm.IRModule(module.functions, module.type_definitions, attrs=module.attrs)


def _fake_quantized(graph: Graph) -> bool:
    """Whether a layer reads a value that was dequantized at run time; functions of one value are no layers."""
    sources, real = _sources(graph), set()
    for node in graph.nodes:
        reads = any(i in real for i in node.inputs)
        if reads and node.op in (*_SUMS, *_MAXIMA) and (node.op not in _JOINS or len(sources[node.index]) > 1):
            return True
        if not node.constant and (node.op == "qnn.dequantize" or (reads and node.op in (*_MOVES, "tuple"))):
            real.add(node.index)
    return False


def _sources(graph: Graph) -> list[frozenset[int]]:
    """For every node, the stored values that the float ops up to it read."""
    sources: list[frozenset[int]] = []
    for node in graph.nodes:
        if node.op == "qnn.dequantize" and not node.constant:
            sources.append(frozenset(node.inputs[:1]))
        elif node.op == "qnn.quantize":
            sources.append(frozenset())
        else:
            sources.append(frozenset().union(*(sources[i] for i in node.inputs)))
    return sources


def _guard(function: relay.Function) -> relay.Function:
    graph = build_graph(function)
    return rewrite(function, graph, _Guard(graph).change)


class _Guard:
    """Float nodes in the form that TVM's pass converts rightly, or behind a barrier, for which it has no rule.

    sums: sums of products, and whether the pass tracks their scales per channel. flat: nodes that are a reshape of
    another value, as (that value after the walk, its shape): what follows elementwise is computed before the reshape,
    because the pass forgets that a reshape renumbers the axis of the scales, and no pattern looks behind it.
    """

    def __init__(self, graph: Graph):
        self.graph, self.evaluate, self.sources = graph, ConstantEvaluator(), _sources(graph)
        self.sums: dict[int, bool] = {}
        self.flat: dict[int, tuple[relay.Expr, tuple[int | None, ...]]] = {}

    def change(self, node: Node, inputs: list[relay.Expr]) -> relay.Expr | None:
        if node.op in ("qnn.dequantize", "qnn.quantize"):
            inputs = [inputs[0], *(_scalar(self.graph, self.evaluate, i, e)
                                   for i, e in zip(node.inputs[1:], inputs[1:]))]
        if node.constant or not isinstance(node.expr, relay.Call):
            return call(node, inputs) if isinstance(node.expr, relay.Call) else None
        if next(_reasons(self.graph, node, self.evaluate), None) is not None:
            return _barrier(node, inputs)
        if any(i in self.sums for i in self._data(node)):
            return self._after_sums(node, inputs)
        if node.op in _JOINS and len(self.sources[node.index]) == 1:  # x + 3, x * sigmoid(x): float, then a table
            return _barrier(node, inputs)
        if node.op in _MATRIX:
            self.sums[node.index] = _vector_scales(self.graph, node.inputs[1], self.evaluate) is not None
        if node.op == "nn.dense" and node.expr.attrs.units is None:  # the type check of vector scales would crash
            return like(node, relay.nn.dense(*inputs, self._shape(node.index)[-1], node.expr.attrs.out_dtype))
        return call(node, inputs)

    def _data(self, node: Node) -> list[int]:
        """Operands of `node`, those of a tuple one by one."""
        return [j for i in node.inputs for j in (self.graph.nodes[i].inputs if self.graph.nodes[i].op == "tuple"
                                                 else (i,))]

    def _shape(self, index: int) -> tuple[int | None, ...]:
        return self.graph.value(index).shape

    def _after_sums(self, node: Node, inputs: list[relay.Expr]) -> relay.Expr:
        """A node that reads sums of products."""
        source, per_channel = node.inputs[0], any(self.sums.get(i) for i in self._data(node))
        shape = self._shape(node.index)
        if node.op in _SAME_PLACE and source in self.sums and shape == self._shape(source):
            if node.op != "qnn.quantize":
                self.sums[node.index] = per_channel
            if source in self.flat and self._follows_flat(node):
                value, flat = self.flat[source]
                value = call(node, [value, *inputs[1:]])
                self.flat[node.index] = (value, flat)
                return relay.reshape(value, shape)
            hidden = source in self.flat
        elif node.op == "reshape" and self._is_split(node):
            self.sums[node.index] = per_channel
            self.flat[node.index] = (inputs[0], self._shape(source))
            hidden = False
        else:
            hidden = node.op not in _WITH_CHANNELS
        return _barrier(node, inputs) if hidden and per_channel else call(node, inputs)

    def _is_split(self, node: Node) -> bool:
        """Whether a reshape splits the rows of a matrix that nothing else reads."""
        (source,) = node.inputs
        before, after = self._shape(source), self._shape(node.index)
        return len(before) == 2 and before[-1] == after[-1] and self.graph.single_use(source) is not None

    def _follows_flat(self, node: Node) -> bool:
        """Whether the other operands of an elementwise node fit the value before the reshape."""
        channels = self._shape(node.index)[-1]
        others = [i for i in node.inputs[1:] if math.prod(self._shape(i) or (1,)) != 1]
        return self.graph.single_use(node.inputs[0]) is not None and all(
            self.graph.nodes[i].constant and self._shape(i) == (channels,) for i in others)


def _barrier(node: Node, inputs: list[relay.Expr]) -> relay.Expr:
    return relay.annotation.stop_fusion(call(node, inputs))


def _scalar(graph: Graph, evaluate: ConstantEvaluator, index: int, expr: relay.Expr) -> relay.Expr:
    value = evaluate(graph.nodes[index].expr) if graph.nodes[index].constant else None
    if value is None or value.ndim == 0 or value.size != 1:
        return expr
    return relay.const(value.reshape(()), str(value.dtype))


def _reasons(graph: Graph, node: Node, evaluate: ConstantEvaluator) -> Iterator[str]:
    if node.constant or not isinstance(node.expr, relay.Call):
        return
    for position, index in enumerate(node.inputs):
        source = _vector_scales(graph, index, evaluate)
        if source is None:
            continue
        if not graph.nodes[source].constant:
            yield f"operand {position} has scales along axis {_axis(graph, source)}; activations must have one scale"
        elif node.op in _MATRIX and position == 1:
            yield from _weight_axis(graph, node, source, index)


def _vector_scales(graph: Graph, index: int, evaluate: ConstantEvaluator) -> int | None:
    """The dequantize with more than one scale whose elements node `index` holds."""
    source = _dequantize(graph, index)
    scale = None if source is None else graph.nodes[graph.nodes[source].inputs[1]]
    if scale is None or not scale.constant:
        return None
    value = evaluate(scale.expr)
    return source if value is not None and value.size != 1 else None


def _dequantize(graph: Graph, index: int) -> int | None:
    """The dequantize whose elements node `index` holds, perhaps in another order."""
    while graph.nodes[index].op in _MOVES and graph.nodes[index].inputs:
        index = graph.nodes[index].inputs[0]
    return index if graph.nodes[index].op == "qnn.dequantize" else None


def _axis(graph: Graph, source: int) -> int:
    return int(graph.attrs(source).axis) % len(graph.value(source).shape)


def _weight_axis(graph: Graph, node: Node, source: int, weight: int) -> Iterator[str]:
    """TVM takes any vector of scales for one along the output channels."""
    axis: int | None = _axis(graph, source)
    path = []
    while weight != source:
        path.append(weight)
        weight = graph.nodes[weight].inputs[0]
    for index in reversed(path):
        axis = _moved(graph, index, axis)
    channels = _channel_axis(graph, node)
    if axis != channels:
        where = "an axis that its reshape hides" if axis is None else f"axis {axis}"
        yield f"the scales of its weights lie along {where}; they must lie along axis {channels}, the output channels"


def _moved(graph: Graph, index: int, axis: int | None) -> int | None:
    node = graph.nodes[index]
    if axis is None or node.op != "transpose":
        return None
    axes = graph.attrs(index).axes
    rank = len(graph.value(index).shape)
    order = list(reversed(range(rank))) if axes is None else [int(a) % rank for a in axes]
    return order.index(axis)


def _channel_axis(graph: Graph, node: Node) -> int | None:
    attrs = node.expr.attrs
    if "conv" in node.op:
        return str(attrs.kernel_layout).index("O")
    if node.op == "nn.dense":
        return 0
    return (0 if bool(attrs.transpose_b) else 1) if node.op == "nn.matmul" else None


def _repair(function: relay.Function) -> relay.Function:
    """Without barriers; clip bounds within the type, which TVM could not build; pad values of the data's type."""
    graph, evaluate = build_graph(function), ConstantEvaluator()

    def change(node: Node, inputs: list[relay.Expr]) -> relay.Expr | None:
        if node.op == _BARRIER:
            return inputs[0]
        dtype = graph.value(node.index).dtype
        if node.op == "clip" and not dtype.startswith("float"):
            return _saturated_clip(node, inputs[0], dtype)
        if node.op == "nn.pad" and graph.nodes[node.inputs[1]].op == "qnn.quantize":
            return _typed_pad(graph, evaluate, node, inputs, dtype)
        return None

    return rewrite(function, graph, change)


def _saturated_clip(node: Node, data: relay.Expr, dtype: str) -> relay.Expr | None:
    limits, attrs = np.iinfo(dtype), node.expr.attrs
    low, high = float(attrs.a_min), float(attrs.a_max)
    if limits.min <= low and high <= limits.max or not low <= high:
        return None
    return like(node, relay.clip(data, max(low, limits.min), min(high, limits.max)))


def _typed_pad(graph: Graph, evaluate: ConstantEvaluator, node: Node, inputs: list[relay.Expr],
               dtype: str) -> relay.Expr | None:
    """The pass quantizes every pad value to int8, also for uint8 data."""
    real, scale, zero_point = (evaluate(graph.nodes[i].expr) if graph.nodes[i].constant else None
                               for i in graph.nodes[node.inputs[1]].inputs)
    if real is None or scale is None or zero_point is None or not math.isfinite(float(real)):
        return None
    limits = np.iinfo(dtype)
    stored = int(np.clip(np.rint(float(real) / float(scale)) + int(zero_point), limits.min, limits.max))
    return call(node, [inputs[0], relay.const(stored, dtype)])
