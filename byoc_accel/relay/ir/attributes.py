"""Attributes of Relay ops in our form: roundings, bounds, sizes, strides and padding."""
from __future__ import annotations

from collections.abc import Sequence

from tvm import relay

from ...support.candidate import Value
from .graph import Graph

_ROUNDINGS = {"UPWARD": "upward", "TONEAREST": "nearest"}
INT8_LOW, INT8_HIGH = -128, 127


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


def clamp_bounds(graph: Graph, index: int) -> tuple[float, float]:
    """Bounds of nn.relu or clip; those of integers are cut toward zero, as TVM does."""
    node, value = graph.nodes[index], graph.value(index)
    is_float = value.dtype.startswith("float")
    if node.op == "nn.relu":
        return 0.0, float("inf") if is_float else float(INT8_HIGH if value.dtype == "int8" else 2 ** 31 - 1)
    attrs = graph.attrs(index)
    low, high = float(attrs.a_min), float(attrs.a_max)
    return (low, high) if is_float else (float(int(low)), float(int(high)))


def spatial_size(value: Value, layout: str) -> tuple[int, int] | None:
    """(height, width); a one-dimensional layout has height 1. None when unknown."""
    if len(layout) != len(value.shape) or sorted(layout) not in (sorted("NHWC"), sorted("NWC")):
        return None
    sizes = dict(zip(layout, value.shape))
    height, width = sizes.get("H", 1), sizes["W"]
    return None if height is None or width is None else (height, width)


def pair(values: Sequence[int], spatial: int) -> tuple[int, int]:
    """(along y, along x) from one or two numbers; a missing y counts as 1."""
    numbers = [int(v) for v in values]
    if spatial == 1:
        return 1, numbers[0]
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def padding_of(values: Sequence[int], spatial: int) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from one, two or four numbers; along x only when there is no height."""
    numbers = [int(v) for v in values]
    if spatial == 1:
        return 0, numbers[0], 0, numbers[-1]
    if len(numbers) == 1:
        numbers = numbers * 2
    return tuple(numbers * 2) if len(numbers) == 2 else tuple(numbers)
