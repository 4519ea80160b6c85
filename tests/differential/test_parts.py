"""Nodes whose steps write parts of a result, against NumPy: concat, pad, upsampling, transposed convolution."""
from __future__ import annotations

import numpy as np
import pytest

from byoc_accel.isa.encode import decode_all
from byoc_accel.quantize import fixedpoint
from byoc_accel.quantize.qregion import QConcat, QConvTranspose, QNode, QPad, QUpsample, Requant
from byoc_accel.target import load_target
from tests import qregions as q
from tests.differential.machines import build, check, on_golden_machine

TARGETS = {name: load_target(name) for name in ("tiny", "reference")}
targets = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
scale = pytest.mark.parametrize("scale", [1, 8], ids=["small", "beyond tiny's SRAM"])


def _check(target, node: QNode, inputs: dict[str, tuple[np.ndarray, int]], expected: np.ndarray, zero_point: int):
    tensors = [q.tensor(name, array.shape, zp) for name, (array, zp) in inputs.items()]
    region = q.region("parts", [*tensors, q.tensor("y", expected.shape, zero_point)], [node], list(inputs), ["y"])
    program = build(region, target)
    got, = on_golden_machine(program, target, [array for array, _ in inputs.values()], 7)
    assert np.array_equal(got.reshape(expected.shape), expected)


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


@targets
@scale
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_concat(target, scale, axis):
    """The first input is requantized from zero point 3 to 2, the second is copied."""
    shapes = [[1, 5 * scale, 4 * scale, 6], [1, 5 * scale, 4 * scale, 6]]
    shapes[1][axis] += 3
    a, b = (_random(*shape, seed=i) for i, shape in enumerate(shapes))
    requant = Requant(1_400_000_000, 31)
    scaled = fixedpoint.requantize(a.astype(np.int64) - 3, requant.multiplier, requant.shift, "upward") + 2
    expected = np.concatenate([np.clip(scaled, -128, 127).astype(np.int8), b], axis)
    _check(target, QConcat("concat", ("a", "b"), "y", axis, (requant, None), "upward"), {"a": (a, 3), "b": (b, 2)},
           expected, 2)


@targets
@scale
def test_pad(target, scale):
    x = _random(1, 5 * scale, 4 * scale, 6)
    expected = np.pad(x, ((0, 0), (1, 3), (2, 0), (0, 0)), constant_values=-7)
    _check(target, QPad("pad", "x", "y", (1, 2, 3, 0), -7), {"x": (x, 3)}, expected, 3)


@targets
@scale
def test_upsample(target, scale):
    x = _random(1, 5 * scale, 4 * scale, 6)
    _check(target, QUpsample("up", "x", "y", (2, 3)), {"x": (x, 3)}, x.repeat(2, 1).repeat(3, 2), 3)


@targets
@scale
@pytest.mark.parametrize("kernel, stride, padding", [
    ((3, 3), (2, 2), (1, 1)), ((4, 2), (2, 3), (1, 0)), ((2, 2), (2, 2), (0, 0)), ((5, 3), (3, 1), (2, 2)),
    ((1, 1), (2, 2), (0, 0))])
def test_transposed_convolution(target, scale, kernel, stride, padding):
    """Expected by scattering every input position into the full result, then cutting the padding off."""
    rng = np.random.default_rng(1)
    x = _random(1, 5 * scale, 4 * scale, 6)
    weight, bias = _random(7, *kernel, 6, seed=2), rng.integers(-1000, 1000, 7)
    full = [(size - 1) * s + k for size, s, k in zip(x.shape[1:3], stride, kernel)]
    acc = np.zeros((1, *full, 7), np.int64) + bias
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            rows, columns = (slice(n * s, n * s + k) for n, s, k in zip((i, j), stride, kernel))
            acc[0, rows, columns] += np.einsum("okli,i->klo", weight.astype(np.int64), x[0, i, j].astype(np.int64) - 3)
    acc = acc[:, padding[0]:full[0] - padding[0], padding[1]:full[1] - padding[1]]
    multiplier, shift = rng.integers(1 << 30, 1 << 31, 7), np.full(7, 39)
    expected = np.clip(fixedpoint.requantize(acc, multiplier, shift, "upward") - 4, -128, 127).astype(np.int8)
    node = QConvTranspose("up", "x", "y", weight, bias.astype(np.int32), multiplier, shift, stride, padding, "upward",
                          (-128, 127))
    _check(target, node, {"x": (x, 3)}, expected, -4)


@targets
@scale
@pytest.mark.parametrize("width, channels", [(9, 5), (3, 16), (5, 3), (2, 20)])
def test_add_of_rows_that_are_cut_without_regard_to_positions(target, scale, width, channels):
    """Rows of 45, 48, 15 and 40 bytes: whole positions of the post unit, what is left, or both."""
    shape = (1, 6 * scale, width * scale, channels)
    tensors = [q.tensor("a", shape), q.tensor("b", shape, -7), q.tensor("y", shape, 5)]
    region = q.region("add", tensors, [q.add("add", "a", "b", "y")], ["a", "b"], ["y"])
    program = check(region, target)
    if scale == 1 and target.name == "reference":
        posts = sum(inst.mnemonic == "post" for _, inst in decode_all(program.code))
        assert posts == (width * channels >= 16) + (width * channels % 16 > 0)
