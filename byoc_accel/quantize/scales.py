"""Scale and zero point of every tensor of a float region, from its range."""
from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ..region.region import (
    Add,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Node,
    Pad,
    Pool,
    Region,
    Reshape,
    Upsample,
    node_inputs,
)
from . import fixedpoint
from .weights import magnitude

STEPS = 255
#: Smallest tensor scale: far above float32's subnormals, so that no quotient of the host glue underflows.
SCALE_MIN = 2.0 ** -100
#: Smallest y scale over the largest value that a layer's weights can give: keeps results below 2**30.
REACH_RATIO = 2.0 ** -29


def from_range(low: float, high: float, floor: float = 0.0, power_of_two: bool = False) -> tuple[float, int]:
    """(scale, zero point) so that low..high, widened to hold 0, maps to -128..127; 0 is exact.

    The scale is representable in float32, at least `floor` and SCALE_MIN; 1.0 for the range 0..0.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / STEPS, floor, SCALE_MIN) if low < high else max(1.0, floor)
    if power_of_two:
        scale = fixedpoint.power_of_two(scale, "tensor scale")
    scale = float(np.float32(scale))
    middle = -128.0 - low / scale  # what is left over by a wider scale stays at the top
    return scale, int(np.clip(fixedpoint.round_half_away(middle), fixedpoint.INT8_MIN, fixedpoint.INT8_MAX))


def choose(region: Region, bounds: dict[str, tuple[float, float]], power_of_two: bool) -> dict[str, tuple[float, int]]:
    """(scale, zero point) by tensor name.

    Nodes that only move values keep their input's. The inputs of a concat share the result's, so that they are copied
    and not rounded again; an input that something else reads too keeps its own.
    """
    keep = _kept(region)
    groups = _groups(region, keep)
    ranges = _group_ranges(region, bounds, keep, groups)
    producers = {node.y: node for node in region.nodes}
    shared: dict[str, tuple[float, int]] = {}
    out: dict[str, tuple[float, int]] = {}
    for name in [port.tensor for port in region.inputs] + [node.y for node in region.nodes]:
        if name in keep:
            out[name] = out[keep[name]]
            continue
        group = groups[name]
        floor = _reach(producers[name], out) * REACH_RATIO if name in producers else 0.0
        if group not in shared or shared[group][0] < floor:
            out[name] = from_range(*ranges[group], floor, power_of_two)
        else:
            out[name] = shared[group]
        shared.setdefault(group, out[name])
    return out


def coarser_steps(region: Region, bounds: dict[str, tuple[float, float]]) -> dict[str, float]:
    """By name of each concat that only the host reads: how many times the step that its operands share is the step that
    the one of the smallest range would have alone."""
    readers = Counter(x for node in region.nodes for x in node_inputs(node))
    outputs = {port.tensor for port in region.outputs}
    found = {}
    for node in region.nodes:
        if isinstance(node, Concat) and node.y in outputs and not readers[node.y]:
            low, high = zip(*((min(low, 0.0), max(high, 0.0)) for low, high in (bounds[x] for x in node.xs)))
            alone = [h - m for m, h in zip(low, high) if h > m]
            found[node.name] = (max(high) - min(low)) / min(alone, default=math.inf)
    return found


def _kept(region: Region) -> dict[str, str]:
    """Result -> input, for nodes whose results are values of their input (and what a pad adds)."""
    return {n.y: n.x for n in region.nodes
            if isinstance(n, (Reshape, Pad, Upsample)) or (isinstance(n, Pool) and n.kind == "max")}


def _groups(region: Region, keep: dict[str, str]) -> dict[str, str]:
    """Tensor -> name of the group that shares its scale: a concat's result and those inputs that only it reads."""
    readers: dict[str, set[str]] = {}
    for node in region.nodes:
        for name in node_inputs(node):
            readers.setdefault(name, set()).add(node.y)
    for port in region.outputs:
        readers.setdefault(port.tensor, set()).add("the host")
    parent = {t.name: t.name for t in region.tensors}

    def find(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for name, source in keep.items():
        parent[name] = source
    for node in region.nodes:
        if isinstance(node, Concat):
            for x in node.xs:
                if _read_once(x, keep, readers):
                    parent[find(x)] = find(node.y)
    return {name: find(name) for name in parent}


def _read_once(x: str, keep: dict[str, str], readers: dict[str, set[str]]) -> bool:
    """True when x, and what it was moved from, has one reader."""
    while len(readers[x]) == 1 and x in keep:
        x = keep[x]
    return len(readers[x]) == 1


def _group_ranges(region: Region, bounds: dict[str, tuple[float, float]], keep: dict[str, str],
                  groups: dict[str, str]) -> dict[str, tuple[float, float]]:
    """The range that holds all ranges of a group, and the values of its pads."""
    out: dict[str, tuple[float, float]] = {}
    for tensor in region.tensors:
        if tensor.name not in keep:
            _widen(out, groups[tensor.name], *bounds[tensor.name])
    for node in region.nodes:
        if isinstance(node, Pad):
            _widen(out, groups[node.y], node.value, node.value)
    return out


def _widen(ranges: dict[str, tuple[float, float]], name: str, low: float, high: float) -> None:
    old = ranges.get(name, (low, high))
    ranges[name] = min(old[0], low), max(old[1], high)


def _reach(node: Node, parameters: dict[str, tuple[float, int]]) -> float:
    """Largest |real value| that the node's arithmetic can give for any int8 input."""
    def reach(name: str) -> float:
        scale, zero_point = parameters[name]
        return scale * max(127 - zero_point, 128 + zero_point)

    if isinstance(node, (Conv2d, ConvTranspose2d)):
        bias = np.zeros(len(node.weight)) if node.bias is None else node.bias
        return magnitude(node.weight, bias, reach(node.x))
    if isinstance(node, Add):
        return reach(node.x1) + reach(node.x2)
    if isinstance(node, Concat):
        return max(reach(x) for x in node.xs)
    return reach(node.x) if isinstance(node, Pool) else 0.0
