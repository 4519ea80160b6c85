"""QRegion.interpret against loops over Python integers, one output element at a time."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.qregion import (
    QAdd,
    QConcat,
    QConv,
    QConvTranspose,
    QLut,
    QPad,
    QPool,
    QRegion,
    QTensor,
    QUpsample,
    Requant,
)
from byoc_accel.quantize.verify import verify
from byoc_accel.region.region import Port
from tests.quantize.test_fixedpoint import exact
from tests.strategies_region import LARGE, ONE_NODE, SMALL, qregion_cases


def rq(v, requant, rounding):
    return exact(int(v), requant.multiplier, requant.shift, rounding)


def at(x, n, y, xx, c):
    """Element of an (N, H, W, C) array, or None outside of it."""
    return int(x[n, y, xx, c]) if 0 <= y < x.shape[1] and 0 <= xx < x.shape[2] else None


def element(node, values, tensors, n, oy, ox, c):
    """One output element, from the definitions in qregion.py."""
    zp = {name: t.zero_point for name, t in tensors.items()}
    if isinstance(node, QLut):
        return int(node.table[int(values[node.x][n, oy, ox, c]) + 128])
    if isinstance(node, QAdd):
        total = sum(rq((int(values[x][n, oy, ox, c]) - zp[x]) << node.left_shift, r, node.rounding)
                    for x, r in ((node.x1, node.requant1), (node.x2, node.requant2)))
        out = rq(total, node.requant_out, node.rounding) + zp[node.y]
        return min(max(out, node.clamp[0]), node.clamp[1])
    if isinstance(node, QConcat):
        place = [n, oy, ox, c]
        number = 0
        while place[node.axis] >= values[node.xs[number]].shape[node.axis]:
            place[node.axis] -= values[node.xs[number]].shape[node.axis]
            number += 1
        v, requant = int(values[node.xs[number]][tuple(place)]), node.requants[number]
        if requant is None:
            return v
        return min(max(rq(v - zp[node.xs[number]], requant, node.rounding) + zp[node.y], -128), 127)
    x = values[node.x]
    if isinstance(node, QPad):
        v = at(x, n, oy - node.padding[0], ox - node.padding[1], c)
        return node.value if v is None else v
    if isinstance(node, QUpsample):
        return int(x[n, oy // node.factor[0], ox // node.factor[1], c])
    if isinstance(node, QConvTranspose):
        acc = int(node.bias[c])
        for iy in range(x.shape[1]):
            for ix in range(x.shape[2]):
                ky, kx = oy + node.padding[0] - iy * node.stride[0], ox + node.padding[1] - ix * node.stride[1]
                if 0 <= ky < node.weight.shape[1] and 0 <= kx < node.weight.shape[2]:
                    acc += sum((int(v) - zp[node.x]) * int(w) for v, w in zip(x[n, iy, ix], node.weight[c, ky, kx]))
        out = rq(acc, Requant(int(node.multiplier[c]), int(node.shift[c])), node.rounding) + zp[node.y]
        return min(max(out, node.clamp[0]), node.clamp[1])
    if isinstance(node, QConv):
        o, kh, kw, i = node.weight.shape
        first = c // (o // node.groups) * i
        acc = int(node.bias[c])
        for ky in range(kh):
            for kx in range(kw):
                for k in range(i):
                    v = at(x, n, oy * node.stride[0] - node.padding[0] + ky * node.dilation[0],
                           ox * node.stride[1] - node.padding[1] + kx * node.dilation[1], first + k)
                    if v is not None:
                        acc += (v - zp[node.x]) * int(node.weight[c, ky, kx, k])
        out = rq(acc, Requant(int(node.multiplier[c]), int(node.shift[c])), node.rounding) + zp[node.y]
        return min(max(out, node.clamp[0]), node.clamp[1])
    assert isinstance(node, QPool)
    height, width = x.shape[1:3]
    found, padded = [], 0
    for ky in range(node.kernel[0]):
        for kx in range(node.kernel[1]):
            y = oy * node.stride[0] - node.padding[0] + ky
            xx = ox * node.stride[1] - node.padding[1] + kx
            v = at(x, n, y, xx, c)
            if v is not None:
                found.append(v)
            elif y < height + node.padding[2] and xx < width + node.padding[3]:
                padded += 1
    if node.kind == "max":
        return max(found)
    count = len(found) + (padded if node.count_include_pad else 0)
    total = sum(v - node.x_zero_point for v in found)
    return min(max(rq(total, dict(node.requants)[count], node.rounding) + node.y_zero_point, -128), 127)


def check(case, samples):
    qregion, inputs = case
    tensors = qregion.by_name()
    with np.errstate(all="raise"):
        values = interpret(qregion, inputs)
    rng = np.random.default_rng(7)
    for node in qregion.nodes:
        got = values[node.y]
        assert got.dtype == np.int8 and got.shape == tensors[node.y].shape
        if type(node).__name__ == "QReshape":
            assert got.tobytes() == values[node.x].tobytes()
            continue
        for flat in rng.choice(got.size, min(samples, got.size), replace=False):
            index = np.unravel_index(flat, got.shape)
            assert int(got[index]) == element(node, values, tensors, *map(int, index)), (node.name, index)


@settings(max_examples=150)
@given(qregion_cases(SMALL))
def test_small_regions(case):
    check(case, 25)


@settings(max_examples=60)
@given(qregion_cases(ONE_NODE))
def test_single_nodes_every_element(case):
    check(case, 150)


@settings(max_examples=25)
@given(qregion_cases(LARGE))
def test_large_regions(case):
    check(case, 10)


def one(node, y, **inputs):
    """Result of a region of one node; tensors are (array (H, W, C), zero point), y is (shape, zero point)."""
    tensors = [QTensor(name, (1, *a.shape), 0.5, z) for name, (a, z) in inputs.items()]
    tensors.append(QTensor("y", (1, *y[0]), 0.5, y[1]))
    ports = [Port(t.name, t.shape, "int8", (0, 1, 2, 3)) for t in tensors]
    region = QRegion("one", tuple(tensors), (node,), tuple(ports[:-1]), (ports[-1],))
    verify(region)
    return interpret(region, [a.astype(np.int8)[None] for a, _ in inputs.values()])["y"][0]


def test_transposed_convolution_by_hand():
    """Stride 2, kernel 1 2 3, inputs 1 and 10 (zero point -1, so 2 and 11): 2 4 6+11 22 33, then bias 1; half of it
    rounded up, plus the zero point -3. The first and last position are cut off; one more than any input reaches is
    asked for at the end."""
    node = QConvTranspose("t", "x", "y", np.array([1, 2, 3], np.int8).reshape(1, 1, 3, 1), np.array([1], np.int32),
                          np.array([1 << 30]), np.array([31]), (1, 2), (0, 1), "upward", (-128, 127))
    x = np.array([1, 10]).reshape(1, 2, 1)
    acc = [4 + 1, 17 + 1, 22 + 1, 33 + 1, 0 + 1]
    expected = [(a + 1) // 2 - 3 for a in acc]
    assert one(node, ((1, 5, 1), -3), x=(x, -1)).ravel().tolist() == expected == [0, 6, 9, 14, -2]
    assert one(node, ((1, 3, 1), -3), x=(x, -1)).ravel().tolist() == expected[:3]


def test_concat_by_hand():
    """Times 3 and saturated; copied."""
    node = QConcat("c", ("a", "b"), "y", 3, (Requant(3 << 29, 29), None), "upward")
    a, b = np.array([5, 60, -100]).reshape(1, 3, 1), np.array([[7, 8], [9, 10], [-11, 127]]).reshape(1, 3, 2)
    y = one(node, ((1, 3, 3), 4), a=(a, 10), b=(b, 4))
    assert y.tolist() == [[[-11, 7, 8], [127, 9, 10], [-128, -11, 127]]]


def test_pad_and_upsample_by_hand():
    x = np.array([[1, 2]]).reshape(1, 2, 1)
    y = one(QPad("p", "x", "y", (1, 0, 0, 2), -9), ((2, 4, 1), 3), x=(x, 3))
    assert y[..., 0].tolist() == [[-9, -9, -9, -9], [1, 2, -9, -9]]
    y = one(QUpsample("u", "x", "y", (2, 3)), ((2, 6, 1), 3), x=(x, 3))
    assert y[..., 0].tolist() == [[1, 1, 1, 2, 2, 2]] * 2
