"""Match -> Candidate: reads attributes, constants and types of the matched Relay ops, and nothing else."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..support.candidate import (
    AddCandidate,
    BoundaryCandidate,
    Candidate,
    ConvCandidate,
    OtherCandidate,
    PoolCandidate,
    Requantize,
    Scale,
    UnaryCandidate,
    Value,
    ViewCandidate,
)
from .constants import ConstantEvaluator
from .graph import Graph
from .patterns import Match, channel_axis, channel_vector, per_channel_operand, scale_layout

_ROUNDINGS = {"UPWARD": "upward", "TONEAREST": "nearest"}
INT8_LOW, INT8_HIGH = -128, 127


@dataclass(frozen=True)
class Extractor:
    """Reads candidates out of `graph`."""

    graph: Graph
    evaluate: ConstantEvaluator

    def candidate(self, match: Match) -> Candidate:
        """What `match` found; the result's value carries the number of the match's last node as its name."""
        if match.missing:
            return self.other(match.anchor, f"no {match.missing} follows")
        return _EXTRACT[match.pattern.name](self, match)

    def other(self, index: int, missing: str = "") -> OtherCandidate:
        """Node `index` as an op of no pattern."""
        node = self.graph.nodes[index]
        return OtherCandidate(str(index), node.op, self.graph.value(index), missing,
                              tuple(self.graph.value(i) for i in node.inputs))

    def constant(self, index: int) -> np.ndarray | None:
        """The value of node `index`, None when it is computed at run time."""
        node = self.graph.nodes[index]
        return self.evaluate(node.expr) if node.constant else None

    def scalar(self, index: int) -> float | int | None:
        """The value of a constant with one element (float32 values as exact doubles), else None."""
        array = self.constant(index)
        return array.reshape(-1)[0].item() if array is not None and array.size == 1 else None

    def scale(self, scale: int, zero_point: int) -> Scale:
        return Scale(self.scalar(scale), self.scalar(zero_point))


def conv(ex: Extractor, match: Match) -> Candidate:
    """conv1d, conv2d and qnn.conv2d."""
    graph, attrs = ex.graph, ex.graph.attrs(match.anchor)
    node = graph.nodes[match.anchor]
    layout = str(attrs.data_layout)
    spatial = sum(axis in "HW" for axis in layout)
    candidate = ConvCandidate(
        str(match.result), node.op, graph.value(node.inputs[0]), graph.value(match.result), layout,
        str(attrs.kernel_layout), ex.constant(node.inputs[1]), _pair(attrs.strides, spatial),
        _padding(attrs.padding, spatial), _pair(attrs.dilation, spatial), int(attrs.groups),
        out_layout=str(attrs.out_layout))
    return _with_tail(ex, match, _with_pad(ex, match, _with_scales(ex, match, candidate)))


def dense(ex: Extractor, match: Match) -> Candidate:
    """nn.dense, nn.matmul with a constant on the right, and qnn.dense."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    kernel_layout = "OI"
    if node.op == "nn.matmul":
        attrs = graph.attrs(match.anchor)
        if bool(attrs.transpose_a):
            return ex.other(match.anchor, "the left operand is transposed")
        kernel_layout = "OI" if bool(attrs.transpose_b) else "IO"
    candidate = ConvCandidate(
        str(match.result), node.op, graph.value(node.inputs[0]), graph.value(match.result), "", kernel_layout,
        ex.constant(node.inputs[1]), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    return _with_tail(ex, match, _with_scales(ex, match, candidate))


def scale(ex: Extractor, match: Match) -> Candidate:
    """A factor and an offset per channel of a tensor that no convolution wrote: a depthwise 1x1 of weight 1."""
    graph, layout = ex.graph, scale_layout(ex.graph, match.anchor)
    (data,) = (i for i in graph.nodes[match.anchor].inputs if not graph.nodes[i].constant)
    x, axis = graph.value(data), layout.index("C")
    if x.shape[axis] is None:
        return ex.other(match.anchor, "the number of channels is unknown at compile time")
    candidate = ConvCandidate(
        str(match.result), graph.nodes[match.anchor].op, x, graph.value(match.result), layout,
        "OIHW" if "H" in layout else "OIW", np.ones((x.shape[axis],) + (1,) * (len(layout) - 1), x.dtype), (1, 1),
        (0, 0, 0, 0), (1, 1), x.shape[axis])
    return _with_tail(ex, match, _affine(ex, candidate, match.anchor, data, axis))


def _replace(candidate: ConvCandidate, **changes: object) -> ConvCandidate:
    return ConvCandidate(**{**candidate.__dict__, **changes})


def _with_scales(ex: Extractor, match: Match, candidate: ConvCandidate) -> ConvCandidate:
    """The operands that QNN layers have besides data and weight."""
    if not candidate.quantized:
        return candidate
    _, _, x_zero_point, w_zero_point, x_scale, w_scale = ex.graph.nodes[match.anchor].inputs
    return _replace(candidate, x_scale=ex.scale(x_scale, x_zero_point), weight_scale=ex.constant(w_scale),
                    weight_zero_point=ex.constant(w_zero_point))


def _with_pad(ex: Extractor, match: Match, candidate: ConvCandidate) -> Candidate:
    """Fold a preceding nn.pad of the spatial axes into the padding of the convolution."""
    if match.head is None:
        return candidate
    node, attrs = ex.graph.nodes[match.head], ex.graph.attrs(match.head)
    widths = [(int(a), int(b)) for a, b in attrs.pad_width]
    fill = ex.scalar(node.inputs[1]) if len(node.inputs) > 1 else None
    zero = candidate.x_scale.zero_point if candidate.x_scale else 0
    spatial = all(not any(w) or axis in "HW" for axis, w in zip(candidate.layout, widths))
    if str(attrs.pad_mode) != "constant" or fill is None or fill != zero or not spatial:
        return ex.other(match.anchor, f"nn.pad before it is no padding of height and width with the value {zero}")
    by_axis = dict(zip(candidate.layout, widths))
    (top, bottom), (left, right) = by_axis.get("H", (0, 0)), by_axis.get("W", (0, 0))
    extra = (top, left, bottom, right)
    return _replace(candidate, x=ex.graph.value(node.inputs[0]),
                    padding=tuple(a + b for a, b in zip(candidate.padding, extra)))


def _with_tail(ex: Extractor, match: Match, candidate: Candidate) -> Candidate:
    if not isinstance(candidate, ConvCandidate):
        return candidate
    axis = channel_axis(ex.graph, match.anchor)
    last = match.anchor
    for stage, index in match.tail:
        if stage == "affine":
            candidate = _affine(ex, candidate, index, last, axis)
            if not isinstance(candidate, ConvCandidate):
                return candidate
        elif stage == "requantize":
            candidate = _replace(candidate, requantize=_requantize(ex, index))
        last = index
    return _replace(candidate, clip=_clamps(ex, match))


def _affine(ex: Extractor, candidate: ConvCandidate, index: int, last: int, axis: int | None) -> Candidate:
    """One more per-channel operation on the sums: y = sum * factor + offset, in float64."""
    operand = per_channel_operand(ex.graph, index, last, axis)
    array = None if operand is None else ex.constant(operand)
    channels = candidate.y.shape[axis]
    op = ex.graph.nodes[index].op
    if array is None or channels is None:
        return ex.other(index, "its operand cannot be computed at compile time")
    vector = channel_vector(array, channels)
    if candidate.quantized:
        return _replace(candidate, bias=vector)
    if candidate.bias is None and candidate.factor is None and op in ("nn.bias_add", "add"):
        return _replace(candidate, bias=vector)
    factor = np.ones(channels) if candidate.factor is None else candidate.factor
    offset = np.zeros(channels) if candidate.offset is None else candidate.offset
    with np.errstate(all="ignore"):  # the quantizer reports what is not finite
        if op == "multiply":
            factor, offset = factor * vector, offset * vector
        elif op == "divide":
            factor, offset = factor / vector, offset / vector
        else:
            offset = offset - vector if op == "subtract" else offset + vector
    return _replace(candidate, factor=factor, offset=offset)


def _requantize(ex: Extractor, index: int) -> Requantize:
    node, attrs = ex.graph.nodes[index], ex.graph.attrs(index)
    _, s_in, z_in, s_out, z_out = node.inputs
    rank = len(ex.graph.value(index).shape)
    return Requantize(ex.constant(s_in), ex.constant(z_in), int(attrs.axis) % rank, rounding_of(str(attrs.rounding)),
                      compute_dtype_of(str(attrs.compute_dtype)), ex.graph.value(index).dtype, ex.scale(s_out, z_out))


def rounding_of(word: str) -> str | None:
    """Our name of a requantize attribute; "None" is the setting of requantize_config, "UPWARD" by default."""
    if word in ("None", ""):
        word = str(relay.qnn.op.current_requantize_config().rounding) or "UPWARD"
    return _ROUNDINGS.get(word)


def compute_dtype_of(word: str) -> str:
    """As `rounding_of`; TVM's default is int64 for targets without SSE 4.1."""
    if word in ("None", ""):
        word = str(relay.qnn.op.current_requantize_config().compute_dtype) or "int64"
    return word


def _clamps(ex: Extractor, match: Match) -> tuple[float, float] | None:
    """The clamping of all relu, clip and saturating casts of the tail, as one pair of bounds."""
    clip: tuple[float, float] | None = None
    for stage, index in match.tail:
        if stage == "clamp":
            low, high = clamp_bounds(ex.graph, index)
            clip = (low, high) if clip is None else (min(max(clip[0], low), high), min(max(clip[1], low), high))
    return clip


def clamp_bounds(graph: Graph, index: int) -> tuple[float, float]:
    """Bounds of nn.relu or clip; those of integers are cut toward zero, as TVM does."""
    node, value = graph.nodes[index], graph.value(index)
    is_float = value.dtype.startswith("float")
    if node.op == "nn.relu":
        return 0.0, float("inf") if is_float else float(INT8_HIGH if value.dtype == "int8" else 2 ** 31 - 1)
    attrs = graph.attrs(index)
    low, high = float(attrs.a_min), float(attrs.a_max)
    return (low, high) if is_float else (float(int(low)), float(int(high)))


def add(ex: Extractor, match: Match) -> Candidate:
    """add of two computed tensors, and qnn.add."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    candidate = AddCandidate(str(match.result), node.op, graph.value(node.inputs[0]), graph.value(node.inputs[1]),
                             graph.value(match.result), _clamps(ex, match))
    if node.op == "add":
        return candidate
    _, _, s1, z1, s2, z2, s, z = node.inputs
    return AddCandidate(**{**candidate.__dict__, "x1_scale": ex.scale(s1, z1), "x2_scale": ex.scale(s2, z2),
                           "y_scale": ex.scale(s, z), "rounding": rounding_of("None"),
                           "compute_dtype": compute_dtype_of("None")})


def pool(ex: Extractor, match: Match) -> Candidate:
    """Every pooling op, and mean over height and width; also between casts to int32 and back."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x = graph.value(node.inputs[0] if match.head is None else graph.nodes[match.head].inputs[0])
    y, raw = graph.value(match.result), match.head is not None
    kind = "max" if "max" in node.op else "avg"
    if node.op == "mean":
        return _mean(ex, match, x, y, raw)
    attrs = graph.attrs(match.anchor)
    layout = str(attrs.layout)
    size = _spatial(x, layout)
    if size is None or y.shape.count(None):
        return ex.other(match.anchor, f"layout {layout} or a shape that is unknown at compile time")
    out_layout = str(attrs.out_layout)
    if "global" in node.op or ("adaptive" in node.op and _spatial(y, layout) == (1, 1)):
        return PoolCandidate(str(match.result), node.op, x, y, kind, layout, size, (1, 1), (0, 0, 0, 0), raw=raw,
                             out_layout=out_layout)
    if "adaptive" in node.op:
        return ex.other(match.anchor, "adaptive pooling to more than one position")
    spatial = sum(axis in "HW" for axis in layout)
    kernel, strides = _pair(attrs.pool_size, spatial), _pair(attrs.strides, spatial)
    dilation, padding = _pair(attrs.dilation, spatial), list(_padding(attrs.padding, spatial))
    excess = False
    for axis, out in enumerate(_spatial(y, layout)):
        reach = (out - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        beyond = reach - size[axis] - padding[axis] - padding[axis + 2]
        if beyond > 0:  # ceil_mode
            padding[axis + 2] += beyond
            excess = True
    include = kind == "avg" and bool(attrs.count_include_pad)
    return PoolCandidate(str(match.result), node.op, x, y, kind, layout, kernel, strides, tuple(padding), dilation,
                         include, excess and include, raw, out_layout)


def _mean(ex: Extractor, match: Match, x: Value, y: Value, raw: bool) -> Candidate:
    attrs = ex.graph.attrs(match.anchor)
    rank = len(x.shape)
    axes = tuple(range(rank)) if attrs.axis is None else tuple(sorted(int(a) % rank for a in attrs.axis))
    if bool(attrs.exclude):
        axes = tuple(a for a in range(rank) if a not in axes)
    layout = {(4, (2, 3)): "NCHW", (4, (1, 2)): "NHWC", (3, (2,)): "NCW", (3, (1,)): "NWC"}.get((rank, axes))
    size = None if layout is None else _spatial(x, layout)
    if layout is None or size is None:
        return ex.other(match.anchor, f"mean over axes {axes} of {rank}; height and width alone can be averaged")
    return PoolCandidate(str(match.result), "mean", x, y, "avg", layout, size, (1, 1), (0, 0, 0, 0), raw=raw)


def unary(ex: Extractor, match: Match) -> Candidate:
    """Elementwise functions; relu and clip of integers act on the stored integers."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x, y = graph.value(node.inputs[0]), graph.value(match.anchor)
    name, args = node.op.split(".")[-1], ()
    if node.op in ("clip", "nn.relu") and (node.op == "clip" or x.dtype == "int8"):
        name, args = "clip", clamp_bounds(graph, match.anchor)
    elif node.op == "nn.leaky_relu":
        args = (float(graph.attrs(match.anchor).alpha),)
    return UnaryCandidate(str(match.result), node.op, x, y, name, args)


def view(ex: Extractor, match: Match) -> Candidate:
    """Ops that move no byte on the device."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x, y = graph.value(node.inputs[0]), graph.value(match.anchor)
    if node.op == "layout_transform":
        source, goal = (str(getattr(graph.attrs(match.anchor), k)) for k in ("src_layout", "dst_layout"))
        if sorted(source) != sorted(goal) or len(set(source)) != len(x.shape):
            return ex.other(match.anchor, f"layout {source} to {goal} is no exchange of axes")
        return ViewCandidate(str(match.result), node.op, x, y, tuple(source.index(axis) for axis in goal))
    if node.op != "transpose":
        return ViewCandidate(str(match.result), node.op, x, y)
    given = graph.attrs(match.anchor).axes
    rank = len(x.shape)
    axes = tuple(reversed(range(rank))) if given is None else tuple(int(a) % rank for a in given)
    return ViewCandidate(str(match.result), node.op, x, y, axes)


def boundary(ex: Extractor, match: Match) -> Candidate:
    """qnn.quantize and qnn.dequantize with one scale for the whole tensor."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x, scale, zero_point = node.inputs
    return BoundaryCandidate(str(match.result), node.op, graph.value(x), graph.value(match.anchor),
                             ex.scale(scale, zero_point))


def _spatial(value: Value, layout: str) -> tuple[int, int] | None:
    """(height, width); a one-dimensional layout has height 1. None when unknown."""
    if len(layout) != len(value.shape) or sorted(layout) not in (sorted("NHWC"), sorted("NWC")):
        return None
    sizes = dict(zip(layout, value.shape))
    height, width = sizes.get("H", 1), sizes["W"]
    return None if height is None or width is None else (height, width)


def _pair(values: Sequence[int], spatial: int) -> tuple[int, int]:
    """(along y, along x) from one or two numbers; a missing y counts as 1."""
    numbers = [int(v) for v in values]
    if spatial == 1:
        return 1, numbers[0]
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _padding(values: Sequence[int], spatial: int) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from one, two or four numbers; along x only when there is no height."""
    numbers = [int(v) for v in values]
    if spatial == 1:
        return 0, numbers[0], 0, numbers[-1]
    if len(numbers) == 1:
        numbers = numbers * 2
    return tuple(numbers * 2) if len(numbers) == 2 else tuple(numbers)


_EXTRACT: dict[str, Callable[[Extractor, Match], Candidate]] = {
    "conv": conv, "qnn.conv": conv, "dense": dense, "qnn.dense": dense, "scale": scale, "add": add, "qnn.add": add,
    "pool": pool, "raw_pool": pool, "unary": unary, "view": view, "boundary": boundary}
