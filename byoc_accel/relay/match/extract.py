"""Match -> Candidate: reads attributes, constants and types of the matched Relay ops, and nothing else.

A candidate's name is the number of the match's last node.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...support.candidate import (
    AddCandidate,
    ArithmeticCandidate,
    BoundaryCandidate,
    Candidate,
    ConvCandidate,
    PoolCandidate,
    PreluCandidate,
    Requantize,
    UnaryCandidate,
    Value,
    ViewCandidate,
)
from ...support.weights import written_out
from ..ir.attributes import clamp_bounds, compute_dtype_of, padding_of, pair, rounding_of, spatial_size
from ..patterns import Match, channel_axis, channel_vector, constant_on_the_left, per_channel_operand, scale_layout
from .extract_moves import concat, pad, upsample
from .extractor import ONLY_WITH_LAYER, Extractor
from .tables import evaluate_tables, result_scale, table_function


def candidate(ex: Extractor, match: Match) -> Candidate:
    """What `match` found."""
    if match.missing:
        return ex.other(match.anchor, f"no {match.missing} follows")
    return _EXTRACT[match.pattern.name](ex, match)


def conv(ex: Extractor, match: Match) -> Candidate:
    """conv1d, conv2d, conv2d_transpose and their QNN forms."""
    graph, attrs = ex.graph, ex.graph.attrs(match.anchor)
    node = graph.nodes[match.anchor]
    layout = str(attrs.data_layout)
    spatial = sum(axis in "HW" for axis in layout)
    candidate = ConvCandidate(
        str(match.result), node.op, graph.value(node.inputs[0]), graph.value(match.result), layout,
        str(attrs.kernel_layout), ex.constant(node.inputs[1]), pair(attrs.strides, spatial),
        padding_of(attrs.padding, spatial), pair(attrs.dilation, spatial), int(attrs.groups),
        out_layout=str(attrs.out_layout))
    if candidate.transposed:
        candidate = written_out(candidate)
    return _with_tail(ex, match, _with_scales(ex, match, candidate))


def dense(ex: Extractor, match: Match) -> Candidate:
    """nn.dense, nn.matmul and nn.batch_matmul with a constant on one side (dense: its weight), and their QNN forms."""
    graph, node, attrs = ex.graph, ex.graph.nodes[match.anchor], ex.graph.attrs(match.anchor)
    transposed = bool(getattr(attrs, "transpose_a", False)), bool(getattr(attrs, "transpose_b", True))
    constant = 0 if constant_on_the_left(graph, match.anchor) else 1
    x, y = graph.value(node.inputs[1 - constant]), graph.value(match.result)
    weight = ex.constant(node.inputs[constant])
    if weight is not None and weight.ndim == 3:
        if (weight != weight[:1]).any() or x.shape[0] != y.shape[0]:
            return ex.other(match.anchor, "the constant has several batches that differ, or more than the operand")
        weight = weight[0]
    plain = "OI" if (transposed[1] if constant else not transposed[0]) else "IO"
    candidate = ConvCandidate(str(match.result), node.op, x, y, "", plain, weight, (1, 1), (0, 0, 0, 0), (1, 1), 1)
    if constant == 0 or transposed[0]:
        candidate = _across(ex, match, candidate, constant, transposed)
    return _with_tail(ex, match, _with_scales(ex, match, candidate))


def _across(ex: Extractor, match: Match, c: ConvCandidate, constant: int, transposed: tuple[bool, bool]) -> Candidate:
    """A product that reduces the first axis of its operand's matrices, or writes units along the first one of its
    result: a 1x1 convolution along the other axis."""
    if c.quantized or len(c.x.shape) not in (2, 3) or len(c.y.shape) != len(c.x.shape):
        return ex.other(match.anchor, "the constant is the left operand, or the left operand is transposed")
    batch = "N" * (len(c.x.shape) - 2)
    reduces_last = transposed[1] if constant == 0 else not transposed[0]
    layout, out_layout = (batch + ("WC" if last else "CW") for last in (reduces_last, constant == 1))
    weight = c.weight
    if weight is not None:
        weight = (weight if c.kernel_layout == "OI" else weight.T)[:, :, None]
    return _replace(c, layout=layout, out_layout=out_layout, kernel_layout="OIW", weight=weight)


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


def _with_scales(ex: Extractor, match: Match, candidate: Candidate) -> Candidate:
    """The operands that QNN layers have besides data and weight."""
    if not isinstance(candidate, ConvCandidate) or not candidate.quantized:
        return candidate
    _, _, x_zero_point, w_zero_point, x_scale, w_scale = ex.graph.nodes[match.anchor].inputs
    return _replace(candidate, x_scale=ex.scale(x_scale, x_zero_point), weight_scale=ex.constant(w_scale),
                    weight_zero_point=ex.constant(w_zero_point))


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


def _clamps(ex: Extractor, match: Match) -> tuple[float, float] | None:
    """The clamping of all relu, clip and saturating casts of the tail, as one pair of bounds."""
    clip: tuple[float, float] | None = None
    for stage, index in match.tail:
        if stage == "clamp":
            low, high = clamp_bounds(ex.graph, index)
            clip = (low, high) if clip is None else (min(max(clip[0], low), high), min(max(clip[1], low), high))
    return clip


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


def arithmetic(ex: Extractor, match: Match) -> Candidate:
    """Binary elementwise ops that no layer took."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x1, x2 = node.inputs[:2]
    if graph.value(match.anchor).dtype not in ("float32", "int8"):
        return ex.other(match.anchor, ONLY_WITH_LAYER)
    return ArithmeticCandidate(str(match.result), node.op, graph.value(x1), graph.value(x2), graph.value(match.result),
                               graph.nodes[x1].constant or graph.nodes[x2].constant)


def pool(ex: Extractor, match: Match) -> Candidate:
    """Every pooling op, and mean over height and width; also between casts to int32 and back."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x = graph.value(node.inputs[0] if match.head is None else graph.nodes[match.head].inputs[0])
    y, raw = graph.value(match.result), match.head is not None
    kind = "max" if "max" in node.op else "avg"
    if node.op in ("mean", "max"):
        return _reduction(ex, match, x, y, raw)
    attrs = graph.attrs(match.anchor)
    layout = str(attrs.layout)
    size = spatial_size(x, layout)
    if size is None or y.shape.count(None):
        return ex.other(match.anchor, f"layout {layout} or a shape that is unknown at compile time")
    out_layout = str(attrs.out_layout)
    if "global" in node.op or ("adaptive" in node.op and spatial_size(y, layout) == (1, 1)):
        return PoolCandidate(str(match.result), node.op, x, y, kind, layout, size, (1, 1), (0, 0, 0, 0), raw=raw,
                             out_layout=out_layout)
    if "adaptive" in node.op:
        kernel = tuple(i // o for i, o in zip(size, spatial_size(y, layout)))
        if any(i % o for i, o in zip(size, spatial_size(y, layout))):
            return ex.other(match.anchor, "adaptive pooling to a number of positions that does not divide the size")
        return PoolCandidate(str(match.result), node.op, x, y, kind, layout, kernel, kernel, (0, 0, 0, 0), raw=raw,
                             out_layout=out_layout)
    spatial = sum(axis in "HW" for axis in layout)
    kernel, strides = pair(attrs.pool_size, spatial), pair(attrs.strides, spatial)
    dilation, padding = pair(attrs.dilation, spatial), list(padding_of(attrs.padding, spatial))
    excess = False
    for axis, out in enumerate(spatial_size(y, layout)):
        reach = (out - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        beyond = reach - size[axis] - padding[axis] - padding[axis + 2]
        if beyond > 0:  # ceil_mode
            padding[axis + 2] += beyond
            excess = True
    include = kind == "avg" and bool(attrs.count_include_pad)
    return PoolCandidate(str(match.result), node.op, x, y, kind, layout, kernel, strides, tuple(padding), dilation,
                         include, excess and include, raw, out_layout)


def raw_pool(ex: Extractor, match: Match) -> Candidate:
    """An average of stored integers; a requantize of it is a table behind it."""
    candidate, graph = pool(ex, match), ex.graph
    if not isinstance(candidate, PoolCandidate) or graph.nodes[match.result].op != "qnn.requantize":
        return candidate
    (data,) = (i for i in graph.nodes[match.result].inputs if not graph.nodes[i].constant)
    (table,) = evaluate_tables([table_function(graph, data, (match.result,), ex.evaluate, "int32")])
    if table is None:
        return ex.other(match.anchor, "it is requantized with scales per channel")
    return replace(candidate, table=table, y_scale=result_scale(graph, match.result, ex.evaluate))


def _reduction(ex: Extractor, match: Match, x: Value, y: Value, raw: bool) -> Candidate:
    op, attrs = ex.graph.nodes[match.anchor].op, ex.graph.attrs(match.anchor)
    rank = len(x.shape)
    axes = tuple(range(rank)) if attrs.axis is None else tuple(sorted(int(a) % rank for a in attrs.axis))
    if bool(attrs.exclude):
        axes = tuple(a for a in range(rank) if a not in axes)
    layout = {(4, (2, 3)): "NCHW", (4, (1, 2)): "NHWC", (3, (2,)): "NCW", (3, (1,)): "NWC"}.get((rank, axes))
    size = None if layout is None else spatial_size(x, layout)
    if layout is None or size is None:
        return ex.other(match.anchor, f"{op} over axes {axes} of {rank}; height and width alone are pooled")
    return PoolCandidate(str(match.result), op, x, y, "avg" if op == "mean" else "max", layout, size, (1, 1),
                         (0, 0, 0, 0), raw=raw)


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


def prelu(ex: Extractor, match: Match) -> Candidate:
    """nn.prelu with its slopes in the operand's axes; with equal slopes it is a leaky relu."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    x, y, slopes = graph.value(node.inputs[0]), graph.value(match.anchor), ex.constant(node.inputs[1])
    if slopes is not None and (slopes == slopes[:1]).all():
        return UnaryCandidate(str(match.result), node.op, x, y, "leaky_relu", (float(slopes[0]),))
    if slopes is not None:
        axis = int(graph.attrs(match.anchor).axis) % len(x.shape)
        slopes = slopes.reshape([-1 if a == axis else 1 for a in range(len(x.shape))])
    return PreluCandidate(str(match.result), node.op, x, y, slopes)


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


_EXTRACT: dict[str, Callable[[Extractor, Match], Candidate]] = {
    "conv": conv, "qnn.conv": conv, "conv_transpose": conv, "qnn.conv_transpose": conv, "dense": dense,
    "qnn.dense": dense, "scale": scale, "add": add, "qnn.add": add, "concat": concat, "qnn.concat": concat, "pad": pad,
    "upsample": upsample, "pool": pool, "raw_pool": raw_pool, "unary": unary, "two": arithmetic, "constant": arithmetic,
    "prelu": prelu, "view": view, "boundary": boundary}
