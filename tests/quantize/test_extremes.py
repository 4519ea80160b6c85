"""Ranges beyond the calibration samples: Gumbel's estimate, limits that are kept, and what it is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from byoc_accel.quantize.activations import collect_ranges
from byoc_accel.quantize.extremes import extreme_range
from byoc_accel.quantize.fold import fold
from byoc_accel.region.region import Unary
from tests.region.build import chain, conv, weights


def test_worked_example():
    """Maxima 4 and 6: mean 5, deviation sqrt(2); 5 + sqrt(2) * (ln 100 - 0.57722) * 0.77970 = 9.4415."""
    low, high = extreme_range(np.array([-1.0, -3.0]), np.array([4.0, 6.0]), 100)
    assert high == pytest.approx(9.4415, abs=1e-4) and low == pytest.approx(-2 - 4.4415, abs=1e-4)
    assert extreme_range(np.array([-1.0, -3.0]), np.array([4.0, 6.0]), 2) == (-3.0, 6.0)  # never inside


def test_estimate_holds_for_gumbel_maxima():
    """50 samples tell what one of 1,000 exceeds: mu - beta ln(-ln(1 - 1 / 1000)) = mu + 6.907 beta."""
    rng = np.random.default_rng(0)
    found = [extreme_range(np.zeros(50), rng.gumbel(10.0, 2.0, 50), 1000)[1] for _ in range(400)]
    assert np.mean(found) == pytest.approx(10.0 + 2.0 * 6.907, rel=0.03)


def test_limits_that_two_samples_reach_are_kept():
    lows, highs = np.array([0.0, 0.0, 0.0]), np.array([200.0, 255.0, 255.0])
    assert extreme_range(lows, highs, 1000) == (0.0, 255.0)
    assert extreme_range(lows, np.array([200.0, 254.0, 255.0]), 1000)[1] > 255.0


def test_one_sample_and_constants_are_taken_as_they_are():
    assert extreme_range(np.array([-1.0]), np.array([3.0]), 1000) == (-1.0, 3.0)
    assert extreme_range(np.full(5, 2.0), np.full(5, 2.0), 1000) == (2.0, 2.0)


def test_what_float32_cannot_hold_is_not_estimated():
    with np.errstate(all="raise"):
        assert extreme_range(np.zeros(2), np.array([1e38, 3e38]), 1e9)[1] == 3e38
        assert extreme_range(np.zeros(2), np.array([1e308, 1.7e308]), 1e9)[1] == 1.7e308


def images(count, seed):
    """Inputs whose contrast differs from sample to sample, as that of photos does."""
    rng = np.random.default_rng(seed)
    return [[(rng.uniform(0.3, 1.0) * rng.normal(0, 1, (1, 3, 8, 8))).astype(np.float32)] for _ in range(count)]


def test_ranges_stay_within_what_a_node_can_give():
    region = chain((1, 8, 8, 3), conv(8 * weights(1, 4, 1, 1, 3), clip=(0.0, 6.0)), Unary("s", "", "", "sigmoid"),
                   Unary("c", "", "", "clip", (0.6, 0.9)))
    ranges = collect_ranges(region, images(2, 0), "extreme:1000000").by_name(fold(region))
    measured = collect_ranges(region, images(2, 0), "minmax").by_name(fold(region))
    assert ranges["y0"] == (0.0, 6.0) and ranges["y1"][1] <= 1.0 and ranges["y1"][0] >= 0.0
    assert ranges["y2"][0] >= float(np.float32(0.6)) and ranges["y2"][1] <= float(np.float32(0.9))
    assert ranges["x"][1] > measured["x"][1]


def test_fewer_values_saturate_on_inputs_that_did_not_calibrate():
    """16 of 2,000 samples calibrate. By minmax about one of 17 others leaves the range, by extreme:1000 far fewer."""
    region = chain((1, 8, 8, 3), conv(weights(1, 4, 3, 3, 3)))
    samples = images(2000, 3)
    others = np.array([abs(s[0]).max() for s in samples[16:]])
    left = {}
    for method in ("minmax", "extreme:1000"):
        low, high = collect_ranges(region, samples[:16], method).bounds[0]
        left[method] = float((others > max(high, -low)).mean())
    assert left["minmax"] > 0.02 and left["extreme:1000"] < left["minmax"] / 4
    assert math.isfinite(high) and high < 3 * others.max()
