"""Ranges: measured, refined, carried as JSON, bound to their region; calibration data that is unusable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize.activations import Ranges, collect_ranges
from byoc_accel.quantize.fold import fold
from byoc_accel.quantize.histogram import Histogram, mse_range, percentile_range
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.methods import Method
from byoc_accel.quantize.quantize import quantize
from byoc_accel.quantize.text import to_text
from byoc_accel.region.region import Add, Tensor, Unary
from tests.region.build import chain, conv, host_port, weights

REGION = chain((1, 4, 4, 2), conv(weights(1, 3, 3, 3, 2), padding=(1, 1, 1, 1)), Unary("act", "", "", "tanh"))
RNG = np.random.default_rng(0)
DATA = [[RNG.normal(0, 1, (1, 2, 4, 4)).astype(np.float32)] for _ in range(6)]


def test_ranges_are_minimum_and_maximum():
    ranges = collect_ranges(REGION, DATA, "minmax")
    stacked = np.concatenate([sample[0] for sample in DATA])
    assert ranges.bounds[0] == (float(stacked.min()), float(stacked.max()))
    assert len(ranges.bounds) == len(REGION.tensors)
    assert -1.0 <= ranges.bounds[2][0] < 0.0 < ranges.bounds[2][1] <= 1.0


def test_dicts_lists_generators_and_batches_agree(monkeypatch):
    from byoc_accel.quantize import calibration

    once = collect_ranges(REGION, DATA)
    assert collect_ranges(REGION, ({"x": sample[0]} for sample in DATA)) == once
    assert collect_ranges(REGION, [[sample[0].astype(np.float64)] for sample in DATA]) == once
    monkeypatch.setattr(calibration, "BATCH_BYTES", 1)
    single = collect_ranges(REGION, DATA)
    np.testing.assert_allclose(single.bounds, once.bounds, rtol=1e-5)


def test_json_round_trip_gives_the_same_qregion():
    ranges = collect_ranges(REGION, DATA)
    text = ranges.to_json()
    assert Ranges.from_json(text) == ranges and "\n" not in text and text.isascii()
    direct, _ = quantize(REGION, DATA, method=Method(correct_bias=False))
    renamed = replace(REGION, name="later")
    later, report = quantize(renamed, ranges=Ranges.from_json(text))
    assert to_text(replace(later, name=direct.name)) == to_text(direct)
    assert report.source == "ranges" and report.layers[0].sqnr_db is None


def test_ranges_of_another_region_are_refused():
    ranges = collect_ranges(REGION, DATA)
    weight = REGION.nodes[0].weight.copy()
    weight[0, 0, 0, 0] += 1
    other = replace(REGION, nodes=(replace(REGION.nodes[0], weight=weight), REGION.nodes[1]))
    with pytest.raises(QuantizeError, match="calibrate again after changing the model"):
        quantize(other, ranges=ranges)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version":2,"region":"a","bounds":[[1]]}', "null",
                                  '{"version":2,"region":"a","bounds":[["x",2]]}',
                                  '{"version":2,"region":"a","bounds":[],"bias":[1]}'])
def test_bad_json(text):
    with pytest.raises(QuantizeError, match="no JSON of activation ranges"):
        Ranges.from_json(text)


def test_bad_contents():
    with pytest.raises(QuantizeError, match="version 9"):
        Ranges.from_json('{"version":9,"region":"a","bounds":[]}')
    good = collect_ranges(REGION, DATA)
    for bounds in ((1.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))):
        with pytest.raises(QuantizeError, match="tensor 'y0': range"):
            quantize(REGION, ranges=replace(good, bounds=(good.bounds[0], bounds, good.bounds[2])))


def sample(**changes):
    array = np.zeros((1, 2, 4, 4), np.float32)
    array[0, 1, 2, 3] = changes.get("value", 0.0)
    return array


@pytest.mark.parametrize("calibration,message", [
    ([], "the calibration set is empty"),
    ([[sample()], [sample(value=np.nan)]], "sample 1: input 'x'\\[0, 1, 2, 3\\] is nan"),
    ([[sample(value=-np.inf)]], "sample 0: input 'x'\\[0, 1, 2, 3\\] is -inf"),
    ([[np.full((1, 2, 4, 4), 1e300)]], "input 'x' as float32\\[0, 0, 0, 0\\] is inf"),
    ([[np.zeros((1, 4, 4, 2))]], "input 'x' is float64 \\(1, 4, 4, 2\\); give float32 \\(1, 2, 4, 4\\)"),
    ([[np.zeros((1, 2, 4, 4), complex)]], "complex128"),
    ([[sample(), sample()]], "sample 0: 2 arrays; give one for each of 1 inputs"),
    ([{"data": sample()}], "no array for input 'x'; it has data")])
def test_unusable_calibration(calibration, message):
    with pytest.raises(QuantizeError, match=message), np.errstate(all="raise"):
        quantize(REGION, calibration)


def test_activation_overflow_names_the_layer():
    region = chain((1, 4, 4, 2), conv(np.full((1, 1, 1, 2), 1e30), name="first"),
                   conv(np.full((1, 1, 1, 1), 1e30), name="second"))
    with pytest.raises(QuantizeError, match="conv2d 'second', samples from 0: activation\\[0, 0, 0, 0\\] is inf"):
        quantize(region, [[np.ones((1, 2, 4, 4), np.float32)]])


def test_infinity_behind_a_table_names_its_layer():
    region = chain((1, 4, 4, 2), Unary("grows", "", "", "exp"), Unary("act", "", "", "relu"))
    with pytest.raises(QuantizeError, match="unary 'grows', samples from 0: activation\\[0, 0, 0, 0\\] is inf"):
        quantize(region, [[np.full((1, 2, 4, 4), 100.0, np.float32)]])


def test_constant_activations_keep_their_value():
    """Whatever the input, layer 1 gives 3, layer 2 gives 0 and layer 3 gives -0.5."""
    region = chain((1, 4, 4, 2), conv(np.zeros((3, 1, 1, 2)), np.full(3, 3.0), name="three"),
                   conv(np.full((2, 1, 1, 3), -1.0), name="zero", clip=(0.0, np.inf)),
                   conv(np.ones((2, 1, 1, 2)), np.full(2, -0.5), name="half"))
    qregion, report = quantize(region, DATA)
    tensors = qregion.by_name()
    assert tensors["y0"].scale == float(np.float32(3 / 255)) and tensors["y1"].scale == 1.0
    q = interpret(qregion, [np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 2)).astype(np.int8)])
    unit = tensors["y1"].scale / 127  # of the last layer's accumulators: its input gave no smaller scale
    for name, value, error in (("y0", 3.0, 1e-6), ("y1", 0.0, 0.0), ("y2", -0.5, unit / 2 + 1e-6)):
        real = tensors[name].scale * (q[name].astype(float) - tensors[name].zero_point)
        np.testing.assert_allclose(real, value, atol=error, rtol=0, err_msg=name)
    assert report.layers[0].sqnr_db > 100


def test_relu6_gets_the_range_0_to_6():
    """When the samples reach 6 the range is 0..6 exactly; when they do not, it ends below."""
    region = chain((1, 4, 4, 2), conv(np.full((2, 1, 1, 2), 4.0), name="c"), Unary("relu6", "", "", "clip", (0.0, 6.0)))
    assert collect_ranges(region, DATA).bounds[1] == (0.0, 6.0)  # of the tensor behind the folded relu6
    low, high = collect_ranges(region, [[0.1 * sample[0]] for sample in DATA]).bounds[1]
    assert low == 0.0 and 0.5 < high < 6.0
    node = quantize(region, DATA)[0].nodes[0]
    assert node.clamp == (-128, 127)


def test_two_inputs_keep_their_order():
    base = chain((1, 4, 4, 2), Unary("act", "", "", "relu"))
    region = replace(base, tensors=base.tensors + (Tensor("b", (1, 4, 4, 2)), Tensor("s", (1, 4, 4, 2))),
                     nodes=base.nodes + (Add("add", "y0", "b", "s"),),
                     inputs=(host_port("b", (1, 4, 4, 2)), base.inputs[0]), outputs=(host_port("s", (1, 4, 4, 2)),))
    ones = np.ones((1, 2, 4, 4), np.float32)
    ranges = collect_ranges(region, [[3 * ones, -5 * ones]])
    assert ranges.by_name(fold(region)) == {"x": (-5.0, -5.0), "y0": (0.0, 0.0), "b": (3.0, 3.0), "s": (3.0, 3.0)}


def test_percentile_and_mse_cut_outliers():
    rng = np.random.default_rng(4)
    values = np.r_[rng.normal(0, 1, 100000), 40.0]
    histogram = Histogram.empty(float(values.min()), 40.0).add(values)
    low, high = percentile_range(histogram, 99.9)
    assert -3.5 < low < -3.1 and 3.1 < high < 3.5
    assert percentile_range(histogram, 100.0) == (histogram.low, histogram.high)
    # clipping the outlier costs (40 - h)^2, the steps of 100,000 values n ((40 - low) h / 40 / 255)^2 / 12
    best = 40.0 / (1.0 + 100001 * ((40.0 - histogram.low) / 40.0 / 255.0) ** 2 / 12.0)
    low, high = mse_range(histogram)
    assert 34.0 < best < 35.5 and abs(high - best) < 0.5
    flat = Histogram.empty(-1.0, 1.0).add(np.linspace(-1, 1, 10000))
    assert mse_range(flat) == (-1.0, 1.0)  # nothing to gain
    assert mse_range(Histogram.empty(2.0, 2.0).add(np.full(5, 2.0))) == (2.0, 2.0)


@pytest.mark.parametrize("method", ["percentile:99", "mse"])
def test_methods_are_tighter_than_minmax(method):
    rng = np.random.default_rng(1)
    data = [[(0.3 * rng.normal(0, 1, (1, 2, 4, 4)) ** 3).astype(np.float32)] for _ in range(300)]  # heavy tails
    wide, tight = collect_ranges(REGION, data, "minmax"), collect_ranges(REGION, data, method)
    assert tight.digest == wide.digest
    assert all(w[0] - 1e-3 <= t[0] and t[1] <= w[1] + 1e-3 for w, t in zip(wide.bounds, tight.bounds))
    assert tight != wide
    qregions = [quantize(REGION, data, method=Method(m))[0] for m in (method, "minmax")]
    assert qregions[0].tensors[0].scale < qregions[1].tensors[0].scale


@pytest.mark.parametrize("method", ["max", "percentile", "percentile:0", "percentile:101", "percentile:x", "extreme",
                                    "extreme:1", "extreme:inf", "mse:3"])
def test_unknown_methods(method):
    with pytest.raises(QuantizeError, match="range method .* is unknown"):
        Method(method)
    with pytest.raises(QuantizeError, match="range method .* is unknown"):
        collect_ranges(REGION, DATA, method)
