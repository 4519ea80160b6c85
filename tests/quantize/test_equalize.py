"""Equalization: the float function stays, channels of unlike range get steps of their own, and only where it helps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize import equalize
from byoc_accel.quantize.activations import Ranges
from byoc_accel.quantize.calibration import device_samples
from byoc_accel.quantize.equalize import Channels, Reader, apply, choose, groups, pack, predicted_noise, unpack
from byoc_accel.quantize.fixedpoint import quantize_real
from byoc_accel.quantize.fold import fold
from byoc_accel.quantize.interpret import interpret as interpret_qregion
from byoc_accel.quantize.methods import Method
from byoc_accel.quantize.quantize import calibrate_and_quantize, quantize
from byoc_accel.quantize.text import to_text
from byoc_accel.quantize.verify import verify
from byoc_accel.region.interpret import interpret
from byoc_accel.region.region import Add, Pool, Unary
from tests.region.build import chain, conv, host_port, weights
from tests.strategies_region import LARGE, float_regions

SPREAD = np.geomspace(1.0, 1 / 64, 8)  # of the channels between the layers


def samples(region, count, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.normal(0, 1, p.host_shape).astype(np.float32) for p in region.inputs] for _ in range(count)]


def uneven():
    """A depthwise layer whose channels differ 64-fold, read by a 1x1 layer that makes up for it."""
    point = weights(2, 8, 1, 1, 8) / SPREAD.astype(np.float32)
    wide = weights(1, 8, 3, 3, 1) * SPREAD[:, None, None, None]
    depthwise = conv(wide, np.linspace(-1, 1, 8) * SPREAD, "depthwise", padding=(1, 1, 1, 1), groups=8,
                     clip=(0.0, math.inf))
    return chain((1, 6, 6, 8), depthwise, conv(point, name="point"))


@settings(max_examples=60)
@given(float_regions(LARGE))
def test_any_factors_keep_the_float_function(region):
    """Factors between 1/8 and 8 for every group: tensors get them, outputs stay."""
    folded, rng = fold(region), np.random.default_rng(0)
    factors = {}
    for group in groups(folded):
        factors.update(dict.fromkeys(group, np.exp2(rng.uniform(-3, 3, folded.tensor(group[0]).shape[3]))))
    inputs = [rng.normal(0, 1, folded.tensor(p.tensor).shape) for p in folded.inputs]
    before, after = (interpret(r, inputs, np.float64) for r in (folded, apply(folded, factors)))
    for port in folded.outputs:
        assert port.tensor not in factors
    for name, values in after.items():
        expected = before[name] * factors.get(name, 1.0)
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(expected).max()))


def test_groups_reach_through_what_is_linear_and_no_further():
    """x and the output are fixed, and so are relu6 and the sigmoid's two sides; adds and pools pass factors on."""
    region = chain((1, 8, 8, 4), conv(weights(1, 4, 1, 1, 4), name="a"), Unary("relu", "", "", "relu"),
                   conv(weights(2, 4, 1, 1, 4), name="b"), Add("add", "", "y1", ""),
                   Pool("p", "", "", "avg", (2, 2), (2, 2)),
                   conv(weights(3, 4, 1, 1, 4), name="c", clip=(0.0, 6.0)), conv(weights(4, 4, 1, 1, 4), name="d"),
                   Unary("s", "", "", "sigmoid"), conv(weights(5, 4, 1, 1, 4), name="e"))
    assert sorted(map(sorted, groups(region))) == [["y0", "y1", "y2", "y3", "y4"]]
    second = replace(region, outputs=region.outputs + (host_port("y3", (1, 8, 8, 4)),))
    assert groups(second) == []


def test_depthwise_weights_read_their_own_channel():
    """Multiplier 2: outputs 2c and 2c + 1 read channel c. A wrong order would not undo the factors."""
    region = chain((1, 5, 5, 3), conv(weights(1, 3, 1, 1, 3), name="a"),
                   conv(weights(2, 6, 3, 3, 1), name="depthwise", groups=3), conv(weights(3, 2, 1, 1, 6), name="b"))
    scaled = apply(region, {"y0": np.array([1.0, 10.0, 100.0])})
    np.testing.assert_allclose(scaled.nodes[1].weight.ravel(),
                               region.nodes[1].weight.ravel() / np.repeat([1.0, 10.0, 100.0], 18), rtol=1e-12)
    assert scaled.nodes[2].weight is region.nodes[2].weight or np.array_equal(scaled.nodes[2].weight,
                                                                              region.nodes[2].weight)


def test_uneven_channels_gain():
    region, fresh = uneven(), samples(uneven(), 16, seed=7)
    ratios = []
    for method in (Method(correct_bias=False), Method(correct_bias=False, equalize=True)):
        ranges, qregion, _ = calibrate_and_quantize(region, samples(region, 24), method=method)
        verify(qregion)
        _, report = quantize(region, fresh, ranges=ranges)
        ratios.append([layer.sqnr_db for layer in report.layers])
    assert ratios[1][1] > ratios[0][1] + 6.0 and ratios[1][1] > 30.0, ratios


def test_factors_are_bounded_and_fill_the_range():
    folded = fold(uneven())
    factors = choose(folded, device_samples(folded, samples(folded, 24)), 200.0)
    assert set(factors) == {"y0"}
    assert 1.0 < factors["y0"].max() / factors["y0"].min() <= 1.001 / equalize.SMALLEST
    assert factors["y0"][5:].min() > 3 * factors["y0"][0]  # small channels get the large factors


def test_even_channels_are_left_alone():
    """Channels of one range whose readers weigh all alike: nothing is predicted to gain."""
    eye = np.eye(4).reshape(4, 1, 1, 4)
    region = chain((1, 1, 1, 4), conv(eye, name="a"), conv(eye, name="b"))
    data = [[np.full((1, 4, 1, 1), v, np.float32)] for v in (-1.0, 1.0, 1.0, -1.0)]
    assert choose(region, device_samples(region, data), 200.0) == {}


def test_predicted_noise_by_hand():
    """Steps (3 + 1) / 255 and 2 / 127; weights' squares 5 and 10; mean squares 1 and 4."""
    channels = {"x": Channels(np.array([-1.0, 0.0]), np.array([1.0, 3.0]), np.array([1.0, 4.0]))}
    reader = Reader("x", np.array([[5.0, 10.0]]), np.array([[1.0, 2.0]]))
    expected = 15.0 * (4 / 255) ** 2 / 12 + (2 / 127) ** 2 / 12 * 5.0
    assert predicted_noise([reader], channels, np.ones(2)) == pytest.approx(expected)
    halved = (5.0 + 40.0) * (2.5 / 255) ** 2 / 12 + (4 / 127) ** 2 / 12 * 2.0
    assert predicted_noise([reader], channels, np.array([1.0, 0.5])) == pytest.approx(halved)


def test_ranges_carry_the_factors():
    region, method = uneven(), Method(equalize=True)
    for scale in ("multiplier", "fixed_point"):
        ranges, qregion, report = calibrate_and_quantize(region, samples(region, 8), scale, method)
        again = Ranges.from_json(ranges.to_json())
        assert again == ranges and len(again.factors) == 1 and len(again.factors[0]) == 8
        assert to_text(quantize(region, ranges=again, scale=scale)[0]) == to_text(qregion)
        assert quantize(region, samples(region, 8), scale, again)[1].layers == report.layers
    assert calibrate_and_quantize(region, samples(region, 8))[0].factors == ()


def test_report_is_in_the_units_of_the_model():
    """From the definition: int8 values, their scale, and the factors taken off again."""
    region, data = uneven(), samples(uneven(), 8)
    ranges, qregion, report = calibrate_and_quantize(region, data, method=Method(equalize=True))
    x = np.concatenate([s[0] for s in data]).transpose(0, 2, 3, 1)
    first, y = qregion.by_name()["x"], qregion.by_name()["y0"]
    q = interpret_qregion(qregion, [quantize_real(x, first.scale, first.zero_point)])["y0"].astype(np.float64)
    real = interpret(region, [x], np.float64)["y0"]
    noise = real - y.scale * (q - y.zero_point) / np.array(ranges.factors[0])
    expected = 10 * math.log10(np.square(real).sum() / np.square(noise).sum())
    assert report.layers[0].sqnr_db == pytest.approx(expected, abs=1e-3)


def test_factors_of_another_region_are_refused():
    folded = fold(uneven())
    good = pack(folded, {"y0": np.arange(1.0, 9.0)})
    assert unpack(folded, good)["y0"].tolist() == list(range(1, 9))
    for bad in ((), (good[0][:7],), good * 2, ((0.0, *good[0][1:]),), ((math.inf, *good[0][1:]),)):
        if not bad:
            assert unpack(folded, bad) == {}
            continue
        with pytest.raises(QuantizeError, match="factors do not fit the tensors"):
            unpack(folded, bad)


@settings(max_examples=30)
@given(float_regions(LARGE))
def test_any_region_stays_valid(region):
    for scale in ("multiplier", "fixed_point"):
        with np.errstate(all="raise"):
            ranges, qregion, _ = calibrate_and_quantize(region, samples(region, 3), scale, Method(equalize=True))
        verify(qregion)
        assert to_text(quantize(region, ranges=ranges, scale=scale)[0]) == to_text(qregion)
