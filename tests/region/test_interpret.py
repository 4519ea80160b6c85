"""Region.interpret on float regions: published worked examples, and loops over single elements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.errors import RegionError
from byoc_accel.region.functions import FUNCTIONS, evaluate
from byoc_accel.region.interpret import interpret
from byoc_accel.region.region import Add, Conv2d, Pool, Reshape, Unary
from tests.region.build import chain, conv, weights
from tests.strategies_region import SMALL, float_regions


def run(region, x):
    return interpret(region, [np.asarray(x, np.float32)])[region.outputs[0].tensor]


def row(values):
    return np.asarray(values, np.float32).reshape(1, 1, -1, 1)


@pytest.mark.case("B15")
def test_even_kernel_same_padding_b15():
    region = chain((1, 1, 8, 1), conv(np.array([1, 2, 4, 8]).reshape(1, 1, 4, 1), padding=(0, 1, 0, 2)))
    assert run(region, row(range(1, 9))).ravel().tolist() == [34, 49, 64, 79, 94, 109, 52, 23]
    region = chain((1, 1, 8, 1), conv(np.array([1, 2, 4, 8]).reshape(1, 1, 4, 1), padding=(0, 2, 0, 1)))
    assert run(region, row(range(1, 9))).ravel().tolist()[:2] == [20, 34]


@pytest.mark.case("B16")
def test_dilation_b16():
    region = chain((1, 1, 8, 1), conv(np.ones((1, 1, 3, 1)), padding=(0, 2, 0, 2), dilation=(1, 2)))
    assert run(region, row(np.ones(8))).ravel().tolist() == [2, 2, 3, 3, 3, 3, 2, 2]


@pytest.mark.case("B17")
def test_stride_larger_than_kernel_b17():
    x = np.arange(49, dtype=np.float32).reshape(1, 7, 7, 1)
    region = chain((1, 7, 7, 1), conv(np.ones((1, 1, 1, 1)), stride=(3, 3)))
    assert run(region, x)[0, :, :, 0].tolist() == [[0, 3, 6], [21, 24, 27], [42, 45, 48]]


@pytest.mark.case("B18")
def test_one_pixel_with_padding_reads_the_centre_tap_b18():
    region = chain((1, 1, 1, 1), conv(np.arange(1, 10).reshape(1, 3, 3, 1), padding=(1, 1, 1, 1)))
    assert run(region, [[[[2.0]]]]).item() == 10.0


@pytest.mark.case("B31")
def test_pooling_b31():
    x = np.arange(25, dtype=np.float32).reshape(1, 5, 5, 1)
    for include, expected in ((False, 12 / 4), (True, 12 / 9)):
        region = chain(x.shape, Pool("p", "", "", "avg", (3, 3), (2, 2), (1, 1, 1, 1), include))
        assert run(region, x)[0, 0, 0, 0] == np.float32(expected)
    region = chain(x.shape, Pool("p", "", "", "max", (3, 3), (2, 2), (1, 1, 1, 1)))
    assert run(region, -1.0 - x)[0, :, :, 0].tolist() == [[-1, -2, -4], [-6, -7, -9], [-16, -17, -19]]


@pytest.mark.case("B22")
def test_dense_names_the_weight_read_b22():
    region = chain((1, 1, 1, 5), conv(np.arange(15).reshape(3, 1, 1, 5)))
    for j in range(5):
        assert run(region, np.eye(5)[j].reshape(1, 1, 1, 5)).ravel().tolist() == [j, 5 + j, 10 + j]


def test_batch_norm_between_bias_and_clip():
    """((2 * 3 + 1) - 2) * 4 / sqrt(3 + 1) - 1 = 9, clipped to 6."""
    from byoc_accel.region.region import BatchNorm

    norm = BatchNorm(*(np.array([v], np.float32) for v in (4, -1, 2, 3)), 1.0)
    region = chain((1, 1, 1, 1), conv([[[[3.0]]]], [1.0], batch_norm=norm))
    assert run(region, [[[[2.0]]]]).item() == 9.0
    assert run(chain((1, 1, 1, 1), conv([[[[3.0]]]], [1.0], batch_norm=norm, clip=(0, 6))), [[[[2.0]]]]).item() == 6.0


def test_chain_with_residual_and_reshape():
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    region = chain(x.shape, Unary("r", "", "", "leaky_relu", (0.5,)), Add("a", "", "x", "", (0.0, 10.0)),
                   Reshape("f", "", ""))
    assert run(region, x - 2).ravel().tolist() == [0, 0, 0, 2, 4, 6, 8, 10]


def test_wrong_inputs_are_named():
    region = chain((1, 2, 2, 2), Unary("r", "", "", "relu"))
    with pytest.raises(RegionError, match="got 2 inputs instead of 1"):
        interpret(region, [np.zeros((1, 2, 2, 2))] * 2)
    with pytest.raises(RegionError, match="input 'x' is float64 \\(1, 2, 2, 3\\); give float32 \\(1, 2, 2, 2\\)"):
        interpret(region, [np.zeros((1, 2, 2, 3))])
    with pytest.raises(RegionError, match="input 'x' is missing"):
        interpret(region, {"z": np.zeros((1, 2, 2, 2))})


def test_overflow_gives_infinity_without_a_warning():
    region = chain((1, 1, 1, 1), conv([[[[1e30]]]]), conv([[[[1e30]]]], name="c2"))
    with np.errstate(all="raise"):
        assert np.isposinf(run(region, [[[[1.0]]]])).all()


REFERENCE = {  # plain Python, one number at a time
    "relu": lambda x: max(x, 0.0), "clip": lambda x, a, b: min(max(x, a), b),
    "leaky_relu": lambda x, a: x if x > 0 else a * x, "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "hard_sigmoid": lambda x: min(max(x + 3, 0), 6) / 6, "tanh": math.tanh,
    "hard_swish": lambda x: x * min(max(x + 3, 0), 6) / 6, "swish": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x / 2 * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
    "elu": lambda x, a: x if x > 0 else a * (math.exp(x) - 1), "softplus": lambda x: math.log1p(math.exp(x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))), "exp": math.exp, "abs": abs, "negative": lambda x: -x,
    "square": lambda x: x * x, "affine": lambda x, f, o: f * x + o}


def test_every_function_against_the_math_module():
    assert set(REFERENCE) == set(FUNCTIONS)
    x = np.r_[np.linspace(-9, 9, 301), 0.0, -1e-8]
    for name, function in FUNCTIONS.items():
        args = {"clip": (-1.0, 2.5), "affine": (2.0, -0.5)}.get(name, (0.3,) * len(function.args))
        expected = [REFERENCE[name](float(v), *args) for v in x]
        with np.errstate(all="raise"):
            np.testing.assert_allclose(evaluate(name, args, x), expected, rtol=1e-9, atol=1e-12)
            assert not np.isnan(evaluate(name, args, np.array([-1e4, 1e4, -3e38, 3e38]))).any()


def element(node, values, n, oy, ox, c):
    """One float64 output element of a conv2d or a pool."""
    x = values[node.x]
    conv_node = isinstance(node, Conv2d)
    kernel = node.weight.shape[1:3] if conv_node else node.kernel
    dilation = node.dilation if conv_node else (1, 1)
    per_group = node.weight.shape[0] // node.groups if conv_node else 1
    total, found, inside = 0.0, [], 0
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            y = oy * node.stride[0] - node.padding[0] + ky * dilation[0]
            xx = ox * node.stride[1] - node.padding[1] + kx * dilation[1]
            inside += y < x.shape[1] + node.padding[2] and xx < x.shape[2] + node.padding[3]
            if not (0 <= y < x.shape[1] and 0 <= xx < x.shape[2]):
                continue
            if conv_node:
                first = c // per_group * node.weight.shape[3]
                total += sum(x[n, y, xx, first + k] * float(w) for k, w in enumerate(node.weight[c, ky, kx]))
            else:
                found.append(x[n, y, xx, c])
    if not conv_node:
        if node.kind == "max":
            return max(found)
        return sum(found) / (inside if node.count_include_pad else len(found))
    if node.bias is not None:
        total += float(node.bias[c])
    if node.batch_norm is not None:
        norm = node.batch_norm
        total = ((total - float(norm.mean[c])) * float(norm.gamma[c])
                 / math.sqrt(float(norm.variance[c]) + norm.epsilon) + float(norm.beta[c]))
    return total if node.clip is None else min(max(total, node.clip[0]), node.clip[1])


@settings(max_examples=80)
@given(float_regions(SMALL))
def test_convolutions_and_pools_element_by_element(region):
    rng = np.random.default_rng(2)
    inputs = [rng.normal(0, 1, region.tensor(p.tensor).shape) for p in region.inputs]
    values = interpret(region, inputs, np.float64)
    for node in region.nodes:
        if not isinstance(node, (Conv2d, Pool)):
            continue
        got = values[node.y]
        assert got.shape == region.tensor(node.y).shape
        for flat in rng.choice(got.size, min(20, got.size), replace=False):
            index = np.unravel_index(flat, got.shape)
            assert math.isclose(got[index], element(node, values, *map(int, index)), rel_tol=1e-9, abs_tol=1e-9)


def test_stacked_samples_equal_single_ones():
    region = chain((1, 5, 4, 3), conv(weights(1, 6, 3, 3, 3), padding=(1, 1, 1, 1)),
                   Pool("p", "", "", "avg", (2, 2), (2, 2)), Reshape("f", "", ""),
                   conv(weights(2, 4, 1, 1, 24), name="d"))
    x = np.random.default_rng(0).normal(0, 1, (7, 5, 4, 3)).astype(np.float32)
    together = run(region, x)
    for i in range(7):
        np.testing.assert_allclose(run(region, x[i:i + 1])[0], together[i], rtol=1e-5, atol=1e-6)
