"""QRegion.interpret against loops over Python integers, one output element at a time."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.qregion import QAdd, QConv, QLut, QPool, Requant
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
    x = values[node.x]
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
