"""Folds keep the float meaning; what they may not merge stays (B33)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize.fold import fold, fold_activations, fold_batch_norm, fold_pads
from byoc_accel.quantize.quantize import quantize
from byoc_accel.region.interpret import interpret
from byoc_accel.region.region import BatchNorm, Pad, Pool, Unary
from byoc_accel.region.verify import verify
from tests.region.build import chain, conv, host_port, weights
from tests.strategies_region import LARGE, float_regions

X = np.random.default_rng(0).normal(0, 1, (3, 6, 6, 3))


def norm(gamma, variance, epsilon=1e-3):
    n = len(gamma)
    return BatchNorm(
        *(np.asarray(v, np.float32) for v in (gamma, np.linspace(-1, 1, n), np.linspace(2, -2, n), variance)), epsilon
    )


def test_batch_norm_worked():
    """gamma 4, beta -1, mean 2, var 3, eps 1: factor 2; weight 3 -> 6, bias (1 - 2) * 2 - 1 = -3."""
    node = conv([[[[3.0]]]], [1.0], batch_norm=BatchNorm(*(np.array([v], np.float32) for v in (4, -1, 2, 3)), 1.0))
    folded = fold_batch_norm(chain((1, 1, 1, 1), node)).nodes[0]
    assert folded.batch_norm is None and folded.weight.item() == 6.0 and folded.bias.item() == -3.0
    assert folded.weight.dtype == folded.bias.dtype == np.float64


def test_odd_batch_norms_b33():
    """Negative gamma, gamma 0, variance 0; the fold uses each channel's own weights (O = I = 3)."""
    node = conv(
        weights(1, 3, 3, 3, 3),
        padding=(1, 1, 1, 1),
        clip=(0.0, 6.0),
        batch_norm=norm([-1.5, 0.0, 0.7], [0.5, 1.0, 0.0]),
    )
    region = chain(
        (1, 6, 6, 3), node, Pool("p", "", "", "avg", (6, 6), (1, 1)), conv(weights(2, 5, 1, 1, 3), name="c2")
    )
    folded = fold(region)
    verify(folded)
    a, b = interpret(region, [X], np.float64), interpret(folded, [X], np.float64)
    for name in b:
        np.testing.assert_allclose(b[name], a[name], rtol=1e-9, atol=1e-9)
    qregion, _ = quantize(region, [[v.transpose(2, 0, 1)[None]] for v in X])
    scaled = node.weight * (np.array([-1.5, 0.0, 0.7]) / np.sqrt(np.array([0.5, 1.0, 0.0]) + 1e-3))[:, None, None, None]
    scales = np.abs(scaled).reshape(3, -1).max(1) / 127  # of the folded weights, not of the originals
    np.testing.assert_array_equal(qregion.nodes[0].weight[0], np.rint(scaled[0] / scales[0]))
    assert not qregion.nodes[0].weight[1].any()


def test_degenerate_batch_norm_is_named():
    region = chain((1, 6, 6, 3), conv(weights(1, 2, 1, 1, 3), name="bad", batch_norm=norm([1, 1], [1, -1e-3])))
    with pytest.raises(QuantizeError, match="conv2d 'bad': batch norm variance\\[1\\] is -0.001"):
        quantize(region, [[X[:1].transpose(0, 3, 1, 2)]])


@settings(max_examples=60)
@given(float_regions(LARGE))
def test_folds_keep_every_value_that_stays(region):
    rng = np.random.default_rng(1)
    inputs = [rng.normal(0, 1, region.tensor(p.tensor).shape) for p in region.inputs]
    folded = fold(region)
    verify(folded)
    a, b = interpret(region, inputs, np.float64), interpret(folded, inputs, np.float64)
    for name in b:
        np.testing.assert_allclose(b[name], a[name], rtol=1e-7, atol=1e-7)


def test_clips_compose():
    region = chain(
        (1, 6, 6, 3),
        conv(weights(1, 2, 1, 1, 3), clip=(-1.0, 4.0)),
        Unary("r", "", "", "relu"),
        Unary("c", "", "", "clip", (-3.0, 2.0)),
    )
    folded = fold_activations(region)
    assert len(folded.nodes) == 1 and folded.nodes[0].clip == (0.0, 2.0) and folded.nodes[0].y == "y2"
    assert [t.name for t in folded.tensors] == ["x", "y2"]
    disjoint = chain(
        (1, 6, 6, 3), conv(weights(1, 2, 1, 1, 3), clip=(3.0, 4.0)), Unary("c", "", "", "clip", (0.0, 1.0))
    )
    assert fold_activations(disjoint).nodes[0].clip == (1.0, 1.0)


def test_activation_stays_when_its_input_has_other_readers():
    region = chain((1, 6, 6, 3), conv(weights(1, 2, 1, 1, 3)), Unary("r", "", "", "relu"))
    out = replace(region, outputs=region.outputs + (host_port("y0", (1, 6, 6, 2)),))
    assert len(fold_activations(out).nodes) == 2
    second = replace(
        region,
        tensors=region.tensors + (replace(region.tensors[2], name="z"),),
        nodes=region.nodes + (Unary("s", "y0", "z", "sigmoid"),),
    )
    assert len(fold_activations(second).nodes) == 3
    assert len(fold_activations(chain((1, 6, 6, 3), Unary("r", "", "", "relu"))).nodes) == 1


def test_int8_relu_folds_only_between_equal_scales():
    base = chain((1, 6, 6, 3), conv(weights(1, 2, 1, 1, 3)), Unary("r", "", "", "relu"))
    scales = np.full(2, 0.01, np.float32)
    node = replace(base.nodes[0], weight=np.ones((2, 1, 1, 3), np.int8), weight_scale=scales, acc_scale=scales)
    tensors = tuple(replace(t, dtype="int8", scale=0.5, zero_point=-3) for t in base.tensors)
    region = replace(base, tensors=tensors, nodes=(node, base.nodes[1]))
    verify(region)
    assert fold_activations(region).nodes[0].clip == (-3.0, 127.0)
    other = replace(region, tensors=tensors[:2] + (replace(tensors[2], zero_point=-128),))
    assert len(fold_activations(other).nodes) == 2


PADDED = Pad("p", "", "", (1, 2, 0, 3))


@pytest.mark.parametrize("value, merged", [(0.0, True), (0.75, False)])
def test_convolutions_take_pads_of_zero_only(value, merged):
    """Asymmetric on all four sides, added to what the layer has; an output keeps its pad."""
    region = chain((1, 6, 6, 3), replace(PADDED, value=value), conv(weights(1, 3, 3, 3, 3), padding=(1, 0, 2, 1)))
    folded = fold_pads(region)
    verify(folded)
    assert [type(n) for n in folded.nodes] == [type(n) for n in region.nodes][merged:]
    assert folded.nodes[-1].padding == ((2, 2, 2, 4) if merged else (1, 0, 2, 1))
    a, b = interpret(region, [X[:1]], np.float64), interpret(folded, [X[:1]], np.float64)
    np.testing.assert_array_equal(b["y1"], a["y1"])
    out = replace(region, outputs=region.outputs + (host_port("y0", region.tensor("y0").shape),))
    assert fold_pads(out) == out


def test_int8_convolutions_take_pads_of_the_zero_point_only():
    base = chain((1, 6, 6, 3), PADDED, conv(weights(1, 3, 3, 3, 3)))
    tensors = tuple(replace(t, dtype="int8", scale=0.5, zero_point=-3) for t in base.tensors)
    for value, merged in ((-3, True), (0, False)):
        region = replace(base, tensors=tensors, nodes=(replace(base.nodes[0], value=value), base.nodes[1]))
        assert len(fold_pads(region).nodes) == 2 - merged


@pytest.mark.parametrize("value, low, merged", [
    (0.0, 0.0, True), (-1.0, 0.0, True), (0.5, 0.0, False), (0.0, -1.0, False)])
def test_max_pools_take_pads_below_a_clip_only(value, low, merged):
    region = chain((1, 6, 6, 3), conv(weights(1, 3, 1, 1, 3), clip=(low, 6.0)), replace(PADDED, value=value),
                   Pool("m", "", "", "max", (4, 4), (1, 1)))
    folded = fold_pads(region)
    verify(folded)
    assert len(folded.nodes) == 3 - merged
    a, b = interpret(region, [X[:1]], np.float64), interpret(folded, [X[:1]], np.float64)
    np.testing.assert_array_equal(b["y2"], a["y2"])


def test_a_pad_stays_when_one_reader_cannot_take_it():
    region = chain((1, 6, 6, 3), PADDED, conv(weights(1, 3, 3, 3, 3)))
    second = replace(region, tensors=region.tensors + (replace(region.tensor("y0"), name="z"),),
                     nodes=region.nodes + (Unary("s", "y0", "z", "sigmoid"),))
    assert len(fold_pads(second).nodes) == 3
