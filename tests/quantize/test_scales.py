"""Range -> scale and zero point, and the table functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize.scales import choose, coarser_steps, from_range
from byoc_accel.quantize.tables import lookup_table
from byoc_accel.region.region import Concat, Conv2d, Port, Region, Tensor, Unary


def test_worked_examples():
    assert from_range(0.0, 25.5) == (float(np.float32(0.1)), -128)
    assert from_range(-1.0, 1.55) == (float(np.float32(0.01)), -28)  # -128 + 1.0 / 0.01
    assert from_range(2.0, 5.1) == (float(np.float32(0.02)), -128)  # widened to hold 0
    assert from_range(-5.1, -2.0) == (float(np.float32(0.02)), 127)
    assert from_range(0.0, 0.0) == (1.0, -128)
    assert from_range(0.0, 25.5, power_of_two=True) == (0.125, -128)
    assert from_range(-1.0, 1.55, floor=0.5) == (0.5, -126)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.booleans())
def test_range_is_covered_and_zero_is_exact(a, b, power_of_two):
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    scale, zero_point = from_range(low, high, power_of_two=power_of_two)
    assert scale == float(np.float32(scale)) and -128 <= zero_point <= 127
    assert (-128 - zero_point) * scale <= low + 0.51 * scale and (127 - zero_point) * scale >= high - 0.51 * scale
    if power_of_two:
        assert math.frexp(scale)[0] == 0.5


@pytest.mark.parametrize("bounds, reach", [((-128.0, 127.0), 128.0), ((-64.0, 191.0), 191.0), ((-191.0, 64.0), 191.0)])
def test_results_far_below_what_a_layer_can_reach(bounds, reach):
    """Scale 1, zero points 0, -64 and 63: the least step of y is largest |x| times weights of 2 + 1 times 2^-29."""
    weight = np.array([[2.0, -1.0], [0.5, 0.5]], np.float32).reshape(2, 1, 1, 2)
    tensors, ports = zip(*((Tensor(n, (1, 1, 1, 2)), Port(n, (1, 1, 1, 2), "float32", (0, 1, 2, 3))) for n in "xy"))
    region = Region("r", tensors, (Conv2d("c", "x", "y", weight),), ports[:1], ports[1:])
    assert choose(region, {"x": bounds, "y": (0.0, 1e-12)}, False)["y"][0] == float(np.float32(3 * reach * 2.0 ** -29))


def test_coarser_steps_of_concats_that_only_the_host_reads():
    """Ranges are widened to hold 0; one operand is always 0 and has no step of its own."""
    names = {"a": (1, 1, 2, 3), "b": (1, 1, 2, 3), "c": (1, 1, 2, 3), "end": (1, 1, 6, 3), "inner": (1, 1, 4, 3),
             "last": (1, 1, 4, 3)}
    nodes = (Concat("j", ("a", "b", "c"), "end", 2), Concat("k", ("a", "b"), "inner", 2),
             Unary("u", "inner", "last", "relu"))
    ports = [Port(n, names[n], "float32", (0, 1, 2, 3)) for n in ("a", "b", "c", "end", "inner", "last")]
    region = Region("r", tuple(Tensor(n, s, "float32") for n, s in names.items()), nodes, tuple(ports[:3]),
                    tuple(ports[3:]))
    bounds = {"a": (2.0, 4.0), "b": (-8.0, 1.0), "c": (0.0, 0.0)}
    assert coarser_steps(region, bounds) == {"j": (4.0 + 8.0) / 4.0}


@pytest.mark.parametrize("name,args,reference", [
    ("relu", (), lambda x: max(x, 0.0)), ("leaky_relu", (0.125,), lambda x: x if x > 0 else 0.125 * x),
    ("sigmoid", (), lambda x: 1 / (1 + math.exp(-x))), ("tanh", (), math.tanh),
    ("hard_swish", (), lambda x: x * min(max(x + 3, 0), 6) / 6), ("exp", (), math.exp)])
def test_lookup_table(name, args, reference):
    """Entry i belongs to value i - 128. Scales are powers of two, so that ties would show."""
    with np.errstate(all="raise"):
        table = lookup_table("t", name, args, (0.0625, -20), (2.0 ** -7, -60))
    for q in range(-128, 128):
        real = reference(0.0625 * (q + 20)) * 128
        expected = min(max(math.floor(abs(real) + 0.5) * (1 if real >= 0 else -1) - 60, -128), 127)
        assert table[q + 128] == expected, q


def test_lookup_table_saturates_where_the_function_overflows():
    with np.errstate(all="raise"):
        table = lookup_table("t", "exp", (), (1e4, 0), (0.5, 0))
    assert table[128] == 2 and table[127] == 0 and table[129] == 127


def test_lookup_table_refuses_nan():
    with pytest.raises(QuantizeError, match="layer: clip\\(-128.0\\) is not a number"):
        lookup_table("layer", "clip", (math.nan, math.nan), (1.0, 0), (1.0, 0))
