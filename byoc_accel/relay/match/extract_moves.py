"""Extraction of ops that only move values: concatenation, padding, nearest neighbour upsampling."""
from __future__ import annotations

from ...support.candidate import Candidate, ConcatCandidate, PadCandidate, UpsampleCandidate, ViewCandidate
from ..ir.attributes import compute_dtype_of, rounding_of
from ..patterns import Match
from .extractor import Extractor


def concat(ex: Extractor, match: Match) -> Candidate:
    """concatenate and qnn.concatenate of tensors that are gathered for nobody else."""
    graph, node = ex.graph, ex.graph.nodes[match.anchor]
    xs = tuple(graph.value(i) for i in graph.nodes[match.head].inputs)
    y = graph.value(match.result)
    axis = int(graph.attrs(match.anchor).axis)
    candidate = ConcatCandidate(str(match.result), node.op, xs, y, axis % len(y.shape) if y.shape else axis)
    if not candidate.quantized:
        return candidate
    _, scales, zero_points, scale, zero_point = node.inputs
    pairs = zip(graph.nodes[scales].inputs, graph.nodes[zero_points].inputs)
    return ConcatCandidate(candidate.name, candidate.op, xs, y, candidate.axis, tuple(ex.scale(*p) for p in pairs),
                           ex.scale(scale, zero_point), rounding_of("None"), compute_dtype_of("None"))


def pad(ex: Extractor, match: Match) -> Candidate:
    """nn.pad; padding by nothing is a view."""
    graph, node, attrs = ex.graph, ex.graph.nodes[match.anchor], ex.graph.attrs(match.anchor)
    x, y = graph.value(node.inputs[0]), graph.value(match.result)
    widths = tuple((int(before), int(after)) for before, after in attrs.pad_width)
    if not any(map(any, widths)):
        return ViewCandidate(str(match.result), node.op, x, y)
    return PadCandidate(str(match.result), node.op, x, y, widths, ex.scalar(node.inputs[1]), str(attrs.pad_mode))


def upsample(ex: Extractor, match: Match) -> Candidate:
    """nn.upsampling, image.resize2d, and repeat along one axis; a resize to the same size is a view."""
    graph, node, attrs = ex.graph, ex.graph.nodes[match.anchor], ex.graph.attrs(match.anchor)
    x, y = graph.value(node.inputs[0]), graph.value(match.result)
    name = str(match.result)
    if node.op == "repeat":
        return UpsampleCandidate(name, node.op, x, y, "")
    layout = str(attrs.layout)
    if node.op == "nn.upsampling":
        mode = "align_corners" if bool(attrs.align_corners) else "asymmetric"
        candidate = UpsampleCandidate(name, node.op, x, y, layout, str(attrs.method), mode)
    else:
        candidate = UpsampleCandidate(name, node.op, x, y, layout, str(attrs.method),
                                      str(attrs.coordinate_transformation_mode), str(attrs.rounding_method))
    same = x.shape == y.shape and candidate.mode == "asymmetric" and candidate.method == "nearest_neighbor"
    return ViewCandidate(name, node.op, x, y) if same else candidate
