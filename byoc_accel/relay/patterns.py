"""Pattern table for Relay, and the matcher: an anchor op with the ops before and after it that fuse into it.

Patterns only say what belongs together. Whether a match can be offloaded is asked in `support`.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .ir.constants import ConstantEvaluator
from .ir.graph import Graph


@dataclass(frozen=True)
class Stage:
    """Ops that may follow. per_channel: the other operand must be a constant that varies along the channels only.

    repeat: any number of them. required: without one the anchor cannot be offloaded.
    """

    name: str
    ops: tuple[str, ...]
    per_channel: bool = False
    repeat: bool = False
    required: bool = False


@dataclass(frozen=True)
class Pattern:
    """`head` may stand between the anchor and its data operand (required when `head_required`); "tuple" gathers
    several operands. `operands` is what the manual says about those of the anchor.
    """

    name: str
    anchors: tuple[str, ...]
    tail: tuple[Stage, ...] = ()
    head: str = ""
    head_required: bool = False
    operands: str = ""


SCALES = ("add", "multiply", "subtract", "divide")  # by a constant that varies along the channels only
_AFFINE = Stage("affine", ("nn.bias_add", *SCALES), per_channel=True, repeat=True)
_CLAMP = Stage("clamp", ("nn.relu", "clip"), repeat=True)
_BIAS = Stage("affine", ("nn.bias_add", "add"), per_channel=True)
_REQUANTIZE = Stage("requantize", ("qnn.requantize",), required=True)
_NARROW = Stage("narrow", ("cast",))
_TO_INT8 = Stage("narrow", ("cast", "qnn.requantize"), required=True)

POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d", "nn.global_avg_pool2d", "nn.max_pool1d",
         "nn.avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d", "nn.adaptive_avg_pool1d",
         "nn.adaptive_max_pool1d", "mean", "max")
ARITHMETIC = ("multiply", "divide", "subtract", "maximum", "minimum", "power", "qnn.mul", "qnn.subtract")
VIEWS = ("reshape", "nn.batch_flatten", "squeeze", "expand_dims", "transpose", "layout_transform", "copy")

PATTERNS: tuple[Pattern, ...] = (
    Pattern("qnn.conv", ("qnn.conv2d",), (_BIAS, _REQUANTIZE, _CLAMP, _NARROW)),
    Pattern("qnn.conv_transpose", ("qnn.conv2d_transpose",), (_BIAS, _REQUANTIZE, _CLAMP, _NARROW)),
    Pattern("qnn.dense", ("qnn.dense", "qnn.batch_matmul"), (_BIAS, _REQUANTIZE, _CLAMP, _NARROW)),
    Pattern("qnn.add", ("qnn.add",), (_CLAMP,)),
    Pattern("conv", ("nn.conv2d", "nn.conv1d"), (_AFFINE, _CLAMP)),
    Pattern("conv_transpose", ("nn.conv2d_transpose",), (_AFFINE, _CLAMP)),
    Pattern("dense", ("nn.dense", "nn.matmul", "nn.batch_matmul"), (_AFFINE, _CLAMP)),
    Pattern("scale", SCALES, (_AFFINE, _CLAMP), operands=" of a layer's result and a constant per channel"),
    Pattern("raw_pool", ("nn.avg_pool2d", "nn.global_avg_pool2d", "mean"), (_TO_INT8,), head="cast",
            head_required=True),
    Pattern("pool", POOLS),
    Pattern("concat", ("concatenate",), head="tuple", head_required=True),
    Pattern("qnn.concat", ("qnn.concatenate",), head="tuple", head_required=True),
    Pattern("pad", ("nn.pad",)),
    Pattern("upsample", ("nn.upsampling", "image.resize2d", "repeat")),
    Pattern("add", ("add",), (_CLAMP,)),
    Pattern("two", ARITHMETIC),
    Pattern("constant", (*ARITHMETIC, "add", "qnn.add")),
    Pattern("prelu", ("nn.prelu",)),
    Pattern("unary", ("nn.relu", "clip", "nn.leaky_relu", "sigmoid", "tanh", "exp", "abs", "negative")),
    Pattern("view", VIEWS),
    Pattern("boundary", ("qnn.quantize", "qnn.dequantize")),
)
_TAKES_CONSTANT = {"add": False, "two": False, "constant": True}
CLUSTER = Pattern("cluster", ())  # found by elementwise.find_clusters
FUSED_ONLY = frozenset(op for p in PATTERNS for op in (p.head, *(o for stage in p.tail for o in stage.ops)))
BY_ANCHOR: dict[str, tuple[Pattern, ...]] = {
    op: tuple(p for p in PATTERNS if op in p.anchors) for op in sorted({op for p in PATTERNS for op in p.anchors})}


@dataclass(frozen=True)
class Match:
    """One match: `head` is a node number or None; `tail` holds (stage name, node number) in order of execution.

    missing: what a required stage would have been, "" for a complete match.
    """

    pattern: Pattern
    anchor: int
    head: int | None
    tail: tuple[tuple[str, int], ...]
    missing: str = ""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every node of the match; the last one is its result."""
        head = () if self.head is None else (self.head,)
        return (*head, self.anchor, *(node for _, node in self.tail))

    @property
    def result(self) -> int:
        return self.nodes[-1]


class Matcher:
    """Matches patterns in one graph; `evaluate` gives the values of constants."""

    def __init__(self, graph: Graph, evaluate: ConstantEvaluator):
        self.graph = graph
        self.evaluate = evaluate

    def candidates(self, anchor: int, taken: set[int]) -> Iterator[Match]:
        """Matches of the patterns that start at node `anchor`, complete ones first; `taken` nodes are avoided."""
        found = [self._match(p, anchor, taken) for p in BY_ANCHOR.get(self.graph.nodes[anchor].op, ())]
        for match in sorted((m for m in found if m is not None), key=lambda m: bool(m.missing)):
            yield match
            if match.head is not None and not match.pattern.head_required:
                yield replace(match, head=None)

    def _match(self, pattern: Pattern, anchor: int, taken: set[int]) -> Match | None:
        node = self.graph.nodes[anchor]
        if node.constant or not node.inputs:
            return None
        constant = any(self.graph.nodes[i].constant for i in node.inputs[:2])
        if pattern.name in _TAKES_CONSTANT and constant != _TAKES_CONSTANT[pattern.name]:
            return None
        if pattern.name == "scale" and scale_layout(self.graph, anchor) is None:
            return None
        head = self._head(pattern, node.inputs[0], taken)
        if pattern.head_required and head is None:
            return None
        tail: list[tuple[str, int]] = []
        last, missing = anchor, ""
        axis = channel_axis(self.graph, anchor)
        for stage in pattern.tail:
            before = len(tail)
            while len(tail) == before or stage.repeat:
                user = self._follower(stage, last, axis, taken)
                if user is None:
                    break
                tail.append((stage.name, user))
                last = user
            if stage.required and len(tail) == before:
                missing = " or ".join(stage.ops)
                break
        return Match(pattern, anchor, head, tuple(tail), missing)

    def _head(self, pattern: Pattern, data: int, taken: set[int]) -> int | None:
        node = self.graph.nodes[data]
        if not pattern.head or node.op != pattern.head or node.constant or data in taken:
            return None
        if node.op == "cast" and (self._dtype(node.inputs[0]), self._dtype(data)) != ("int8", "int32"):
            return None
        if node.op == "tuple" and any(self.graph.nodes[i].constant for i in node.inputs):
            return None
        return data if self.graph.single_use(data) is not None else None

    def _dtype(self, index: int) -> str:
        return self.graph.value(index).dtype

    def _follower(self, stage: Stage, last: int, axis: int | None, taken: set[int]) -> int | None:
        user = self.graph.single_use(last)
        if user is None or user in taken or self.graph.nodes[user].op not in stage.ops:
            return None
        if self.graph.nodes[user].op == "cast" and (self._dtype(last), self._dtype(user)) != ("int32", "int8"):
            return None
        if stage.per_channel and per_channel_operand(self.graph, user, last, axis) is None:
            return None
        return user


def per_channel_operand(graph: Graph, user: int, data: int, axis: int | None) -> int | None:
    """The constant operand of the binary op `user` on `data`, if it broadcasts along `axis` only."""
    node = graph.nodes[user]
    if axis is None or len(node.inputs) != 2:
        return None
    position = node.inputs.index(data)
    if position == 1 and node.op not in ("add", "multiply"):
        return None
    other = node.inputs[1 - position]
    shape, rank = graph.value(other).shape, len(graph.value(data).shape)
    if not graph.nodes[other].constant or None in shape or graph.value(user).shape != graph.value(data).shape:
        return None
    if node.op == "nn.bias_add":
        return other if int(graph.attrs(user).axis) % rank == axis else None
    aligned = (1,) * (rank - len(shape)) + shape
    varies = [i for i, size in enumerate(aligned) if size != 1]
    return other if all(i == axis for i in varies) else None


def scale_layout(graph: Graph, anchor: int) -> str | None:
    """Data layout that makes the binary op `anchor` one of a tensor and a constant per channel, or None."""
    node = graph.nodes[anchor]
    data = [i for i in node.inputs if not graph.nodes[i].constant]
    if len(node.inputs) != 2 or len(data) != 1:
        return None
    rank = len(graph.value(data[0]).shape)
    fitting = [layout for layout in ("NCHW", "NHWC", "NCW", "NWC") if len(layout) == rank
               and per_channel_operand(graph, anchor, data[0], layout.index("C")) is not None]
    return fitting[0] if len(fitting) == 1 else None  # a scalar fits them all


def channel_vector(array: np.ndarray, channels: int) -> np.ndarray:
    """A per-channel constant as float64 or int64 (channels,)."""
    wide = np.asarray(array, np.float64 if array.dtype.kind == "f" else np.int64)
    return np.broadcast_to(wide.reshape(-1), (channels,)).copy()


def constant_on_the_left(graph: Graph, anchor: int) -> bool:
    """Whether only the first operand of a matmul is constant; the weight of a dense layer is the second."""
    left, right = graph.nodes[anchor].inputs[:2]
    return "matmul" in graph.nodes[anchor].op and graph.nodes[left].constant and not graph.nodes[right].constant


def channel_axis(graph: Graph, anchor: int) -> int | None:
    """Axis of the output channels in the result of a conv, dense or scale, None for a layout without one."""
    rank = len(graph.value(anchor).shape)
    op = graph.nodes[anchor].op
    if op.endswith(("dense", "matmul")):
        return rank - 2 if constant_on_the_left(graph, anchor) else rank - 1
    if "conv" in op:
        attrs = graph.attrs(anchor)
        layout = str(attrs.out_layout) or str(attrs.data_layout)
        return layout.index("C") if len(layout) == rank and "C" in layout else None
    if op in SCALES:
        layout = scale_layout(graph, anchor)
        return None if layout is None else layout.index("C")
    return None
