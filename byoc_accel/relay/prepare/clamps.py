"""Clamps of integers where the patterns look for them, in forms that give the same bytes.

    requantize(max(sum, c))        -> clip(requantize(sum), requantize(c), 127)      requantize never falls
    max(int8, c), min(int8, c)     -> clip
    requantize(average of int32 from int8, to its own scale)  -> cast to int8
"""
from __future__ import annotations

import numpy as np
from tvm import relay

from ...quantize import fixedpoint
from ..ir.attributes import clamp_bounds, compute_dtype_of, rounding_of
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, Node, build_graph
from ..ir.rewrite import like, rewrite

_CLAMPS = ("maximum", "minimum", "clip", "nn.relu")
_AVERAGES = ("nn.avg_pool2d", "nn.global_avg_pool2d", "nn.adaptive_avg_pool2d", "mean")
_LIMITS = {"int8": (-128, 127), "int32": (-2 ** 31, 2 ** 31 - 1)}
MAX_RATIO = 0.5  # so that no int32 sum leaves int32 when it is scaled before it is clamped
Bounds = tuple[np.ndarray, np.ndarray]


def move_clamps(function: relay.Function) -> relay.Function:
    """The typed `function` with the exchanges above."""
    graph = build_graph(function)
    walk = _Walk(graph)
    return rewrite(function, graph, walk.change)


class _Walk:
    def __init__(self, graph: Graph):
        self.graph, self.evaluate = graph, ConstantEvaluator()
        self.below: dict[int, relay.Expr] = {}  # clamp node -> what it clamps, after the walk

    def change(self, node: Node, inputs: list[relay.Expr]) -> relay.Expr | None:
        if node.constant or not node.inputs:
            return None
        if node.op in _CLAMPS:
            data = self._data(node.index)
            if data is not None:
                new = inputs[node.inputs.index(data)]
                self.below[node.index] = self.below.get(data, new)
                return self._as_clip(node, new)
        if node.op == "qnn.requantize" and self.graph.value(node.index).dtype == "int8":
            return self._average(node, inputs) or self._clamped_sum(node, inputs)
        return None

    def _data(self, index: int) -> int | None:
        """The operand that an integer clamp clamps; its other one is constant."""
        node = self.graph.nodes[index]
        if node.op not in _CLAMPS or self.graph.value(index).dtype not in _LIMITS:
            return None
        varying = [i for i in node.inputs if not self.graph.nodes[i].constant]
        if len(varying) != 1 or self.graph.value(varying[0]).shape != self.graph.value(index).shape:
            return None
        return varying[0]

    def _bounds(self, index: int) -> Bounds | None:
        """(low, high) of a clamp, as int64 arrays that broadcast against its data."""
        node = self.graph.nodes[index]
        low, high = _LIMITS[self.graph.value(index).dtype]
        if node.op in ("clip", "nn.relu"):
            bounds = clamp_bounds(self.graph, index)
            low, high = max(bounds[0], low), min(bounds[1], high)
            return np.array(int(low)), np.array(int(high))
        value = self.evaluate(next(self.graph.nodes[i].expr for i in node.inputs if self.graph.nodes[i].constant))
        if value is None:
            return None
        wide = value.astype(np.int64)
        return (wide, np.array(high)) if node.op == "maximum" else (np.array(low), wide)

    def _as_clip(self, node: Node, data: relay.Expr) -> relay.Expr | None:
        if self.graph.value(node.index).dtype != "int8" or node.op not in ("maximum", "minimum"):
            return None
        bounds = self._bounds(node.index)
        if bounds is None or any(b.min() != b.max() for b in bounds):
            return None
        return like(node, relay.clip(data, *(int(b.min()) for b in bounds)))

    def _average(self, node: Node, inputs: list[relay.Expr]) -> relay.Expr | None:
        x = self.graph.nodes[node.inputs[0]]
        if x.op not in _AVERAGES or self.graph.nodes[x.inputs[0]].op != "cast":
            return None
        source = self.graph.nodes[x.inputs[0]].inputs[0]
        values = [self._scalar(i) for i in node.inputs[1:]]
        if self.graph.value(source).dtype != "int8" or None in values or values[:2] != values[2:]:
            return None
        return relay.cast(inputs[0], "int8")

    def _scalar(self, index: int) -> float | int | None:
        node = self.graph.nodes[index]
        value = self.evaluate(node.expr) if node.constant else None
        return value.reshape(-1)[0].item() if value is not None and value.size == 1 else None

    def _clamped_sum(self, node: Node, inputs: list[relay.Expr]) -> relay.Expr | None:
        """requantize of clamps: each bound goes through the requantize of its channel."""
        chain, index = [], node.inputs[0]
        while index in self.below and self.graph.single_use(index) is not None:
            chain.append(index)
            index = self._data(index)
        if not chain or self.graph.value(index).dtype != "int32":
            return None
        bounds = [self._bounds(i) for i in chain]
        if any(b is None for b in bounds):
            return None
        rank, axis = len(self.graph.value(node.index).shape), int(node.expr.attrs.axis)
        low, high = (_along(axis % rank, rank, [b[side] for b in bounds], pick)
                     for side, pick in ((0, np.maximum), (1, np.minimum)))
        if low is None or high is None or (low > high).any():
            return None
        ends = [self._requantized(node, side) for side in (low, high)]
        if any(end is None for end in ends):
            return None
        below = self.below[chain[0]]
        return relay.clip(like(node, _on(node, [below, *inputs[1:]])), *ends)

    def _requantized(self, node: Node, values: np.ndarray) -> int | None:
        """The int8 that all of `values`, one per channel or one in all, become; None when channels differ."""
        _, s_in, z_in, s_out, z_out = (self.evaluate(self.graph.nodes[i].expr) if self.graph.nodes[i].constant else None
                                       for i in node.inputs)
        rounding = rounding_of(str(node.expr.attrs.rounding))
        if any(v is None for v in (s_in, z_in, s_out, z_out)) or z_in.any() or s_out.size != 1 or rounding is None:
            return None
        if compute_dtype_of(str(node.expr.attrs.compute_dtype)) != "int64":
            return None
        ratios = s_in.reshape(-1).astype(np.float64) / float(s_out)
        if not (np.isfinite(ratios) & (ratios > 0) & (ratios <= MAX_RATIO)).all():
            return None
        multiplier, shift = fixedpoint.from_real_channels(ratios)
        scaled = fixedpoint.requantize(values, multiplier, shift, rounding) + int(z_out)
        stored = np.clip(scaled, -128, 127)
        return int(stored[0]) if (stored == stored[0]).all() else None


def _on(node: Node, inputs: list[relay.Expr]) -> relay.Call:
    return relay.Call(node.expr.op, inputs, node.expr.attrs, node.expr.type_args)


def _along(axis: int, rank: int, arrays: list[np.ndarray], pick: np.ufunc) -> np.ndarray | None:
    """Bounds of several clamps in one, (channels,) or (1,); None when one varies along another axis."""
    total = None
    for array in arrays:
        aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
        if any(size != 1 for i, size in enumerate(aligned.shape) if i != axis):
            return None
        total = aligned.reshape(-1) if total is None else pick(total, aligned.reshape(-1))
    return total
