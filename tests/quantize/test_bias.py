"""Bias correction: it removes a mean error that is there, leaves one that chance explains, and fits int32."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize.activations import Ranges
from byoc_accel.quantize.bias import correct, mean_error, steps
from byoc_accel.quantize.fixedpoint import quantize_real
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.methods import Method
from byoc_accel.quantize.qregion import QConv
from byoc_accel.quantize.quantize import calibrate_and_quantize, quantize
from byoc_accel.quantize.text import to_text
from byoc_accel.quantize.verify import verify
from byoc_accel.region.interpret import interpret as interpret_region
from byoc_accel.region.region import ConvTranspose2d
from tests.region.build import chain, conv, weights
from tests.strategies_region import LARGE, float_regions

PLAIN = Method("minmax", correct_bias=False)
CORRECTED = Method("minmax")


def biased():
    """Positive inputs, and weights that all round the same way: 1.3 steps become 1, beside one weight of 127 steps."""
    weight = np.full((4, 1, 1, 64), 1.3 / 127)
    weight[np.arange(4), 0, 0, np.arange(4)] = 1.0
    return chain((1, 4, 4, 64), conv(weight, np.array([0.0, 1.0, -1.0, 3.0]), name="wide"),
                 conv(weights(2, 5, 1, 1, 4), np.linspace(-1, 1, 5), name="next"))


def positive(count, seed):
    rng = np.random.default_rng(seed)
    return [[rng.uniform(0.2, 1.0, (1, 64, 4, 4)).astype(np.float32)] for _ in range(count)]


def mean_errors(region, qregion, samples, tensor):
    """Per channel: mean of float minus int8."""
    x = np.concatenate([s[0] for s in samples]).transpose(0, 2, 3, 1)
    first, y = qregion.by_name()[qregion.inputs[0].tensor], qregion.by_name()[tensor]
    found = interpret(qregion, [quantize_real(x, first.scale, first.zero_point)])[tensor].astype(np.float64)
    return (interpret_region(region, [x], np.float64)[tensor] - y.scale * (found - y.zero_point)).mean((0, 1, 2))


def test_mean_error_of_a_biased_layer_vanishes_on_fresh_inputs():
    region, fresh = biased(), positive(40, 9)
    plain, _ = quantize(region, positive(20, 1), method=PLAIN)
    corrected, _ = quantize(region, positive(20, 1), method=CORRECTED)
    verify(corrected)
    for tensor in ("y0", "y1"):
        before, after = (np.abs(mean_errors(region, q, fresh, tensor)) for q in (plain, corrected))
        assert before.max() > 5 * after.max(), tensor
    assert np.abs(mean_errors(region, plain, fresh, "y0")).min() > 0.05  # 63 * 0.3 / 127 * 0.6
    assert np.abs(mean_errors(region, corrected, fresh, "y0")).max() < plain.by_name()["y0"].scale / 4


def test_second_layer_is_fed_by_the_corrected_first_one():
    """Were it fed by the uncorrected layer, its own correction would take the first one's error off a second time."""
    region = biased()
    ranges, _, _ = calibrate_and_quantize(region, positive(20, 1), method=CORRECTED)
    first, second = (np.array(layer) for layer in ranges.bias)
    passed_on = region.nodes[1].weight[:, 0, 0].astype(np.float64) @ first
    assert np.abs(first).min() > 0.05 and np.abs(second).max() < np.abs(passed_on).max() / 5


def test_correction_is_the_mean_before_the_clamp():
    """A relu hides half of the values; the correction is still 63 * 0.3 / 127 times the mean input."""
    region = biased()
    clipped = replace(region, nodes=(replace(region.nodes[0], clip=(1.5, math.inf)), region.nodes[1]))
    for each in (region, clipped):
        ranges, _, _ = calibrate_and_quantize(each, positive(50, 1), method=CORRECTED)
        np.testing.assert_allclose(ranges.bias[0], 63 * 0.3 / 127 * 0.6, rtol=0.05)


def test_ranges_carry_the_corrections():
    region = biased()
    for scale in ("multiplier", "fixed_point"):
        ranges, qregion, _ = calibrate_and_quantize(region, positive(8, 1), scale)
        again = Ranges.from_json(ranges.to_json())
        assert again == ranges and [len(layer) for layer in again.bias] == [4, 5]
        assert to_text(quantize(region, ranges=again, scale=scale)[0]) == to_text(qregion)
        assert to_text(quantize(region, positive(8, 1), scale)[0]) == to_text(qregion)
        assert to_text(quantize(region, ranges=replace(again, bias=()), scale=scale)[0]) != to_text(qregion)


def test_corrections_of_other_layers_are_refused():
    ranges, _, _ = calibrate_and_quantize(biased(), positive(4, 1))
    for bad in (ranges.bias[:1], (ranges.bias[1], ranges.bias[0]), ((math.nan,) * 4, ranges.bias[1])):
        with pytest.raises(QuantizeError, match="bias corrections do not fit"):
            quantize(biased(), ranges=replace(ranges, bias=bad))


def test_chance_is_not_corrected():
    assert mean_error(np.array([[0.3]])).tolist() == [0.0]
    np.testing.assert_allclose(mean_error(np.array([[1.0, 0.1], [2.0, -0.1], [3.0, 0.0]])), [2 * (1 - 1 / 3 / 4), 0.0],
                               rtol=1e-12)  # variance of the mean 1 / 3; a mean of 0
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, (10, 4000))
    assert np.square(mean_error(noise)).mean() < 0.6 * np.square(noise.mean(0)).mean()
    shifted = mean_error(noise + 5.0)
    np.testing.assert_allclose(shifted, noise.mean(0) + 5.0, rtol=0.05)


def test_one_sample_corrects_nothing():
    ranges, qregion, _ = calibrate_and_quantize(biased(), positive(1, 1), method=CORRECTED)
    assert ranges.bias == ((0.0,) * 4, (0.0,) * 5)
    assert to_text(qregion) == to_text(quantize(biased(), positive(1, 1), method=PLAIN)[0])


def test_corrected_bias_stays_in_int32():
    region = biased()
    qregion, _ = quantize(region, positive(4, 1), method=PLAIN)
    for value in (1e30, -1e30):
        huge = correct(qregion, ((value,) * 4, (value,) * 5))
        verify(huge)
        for node in huge.nodes:
            reach = 255 * np.abs(node.weight.astype(np.int64)).reshape(len(node.weight), -1).sum(1)
            assert (reach + np.abs(node.bias.astype(np.int64)) <= (1 << 31) - 1).all()


def test_transposed_convolutions_are_corrected():
    base = biased()
    up = ConvTranspose2d("up", "x", "y0", base.nodes[0].weight.repeat(2, 1).repeat(2, 2), None, (2, 2))
    region = replace(base, nodes=(up,), tensors=(base.tensors[0], replace(base.tensors[1], shape=(1, 8, 8, 4))),
                     outputs=(replace(base.outputs[0], tensor="y0", host_shape=(1, 4, 8, 8)),))
    before, after = (np.abs(mean_errors(region, quantize(region, positive(20, 1), method=m)[0], positive(40, 9), "y0"))
                     for m in (PLAIN, CORRECTED))
    assert before.min() > 0.05 and before.max() > 5 * after.max()


@settings(max_examples=30)
@given(float_regions(LARGE))
def test_any_region_stays_valid_and_steps_are_the_accumulators(region):
    rng = np.random.default_rng(0)
    samples = [[rng.normal(0, 1, p.host_shape).astype(np.float32) for p in region.inputs] for _ in range(3)]
    with np.errstate(all="raise"):
        ranges, qregion, _ = calibrate_and_quantize(region, samples)
        plain, _ = quantize(region, ranges=replace(ranges, bias=()))
    verify(qregion)
    tensors = qregion.by_name()
    found = iter(ranges.bias)
    for node, before in zip(qregion.nodes, plain.nodes):
        if not isinstance(node, QConv) and not hasattr(node, "bias"):
            continue
        unit = steps(node, tensors[node.y])
        change = (node.bias.astype(np.int64) - before.bias) * unit
        np.testing.assert_allclose(change, next(found), atol=0.51 * unit.max(), rtol=1e-4)
