"""Scale and zero point of every tensor of a float region, from its range."""
from __future__ import annotations

import numpy as np

from ..region.region import Add, Conv2d, Pool, Region, Reshape
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
    """(scale, zero point) by tensor name; maxima and reshapes keep their input's, since they keep its values."""
    keep = {n.y: n.x for n in region.nodes
            if isinstance(n, Reshape) or (isinstance(n, Pool) and n.kind == "max")}
    producers = {node.y: node for node in region.nodes}
    out: dict[str, tuple[float, int]] = {}
    order = [port.tensor for port in region.inputs] + [node.y for node in region.nodes]
    for name in order:
        if name in keep:
            out[name] = out[keep[name]]
            continue
        floor = 0.0
        if name in producers:
            floor = _reach(producers[name], out) * REACH_RATIO
        out[name] = from_range(*bounds[name], floor, power_of_two)
    return out


def _reach(node: object, parameters: dict[str, tuple[float, int]]) -> float:
    """Largest |real value| that the node's arithmetic can give for any int8 input."""
    def reach(name: str) -> float:
        scale, zero_point = parameters[name]
        return scale * max(127 - zero_point, 128 + zero_point)

    if isinstance(node, Conv2d):
        bias = np.zeros(len(node.weight)) if node.bias is None else node.bias
        return magnitude(node.weight, bias, reach(node.x))
    if isinstance(node, Add):
        return reach(node.x1) + reach(node.x2)
    return reach(node.x) if isinstance(node, Pool) else 0.0
