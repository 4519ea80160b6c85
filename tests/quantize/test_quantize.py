"""quantize as a whole: exactness for int8 regions, accuracy for float ones, errors, determinism, the report."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize import fixedpoint
from byoc_accel.quantize.calibration import CalibrationWarning
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.lower_float import clamp
from byoc_accel.quantize.qregion import IDENTITY, QAdd, QConv
from byoc_accel.quantize.quantize import quantize
from byoc_accel.quantize.text import to_text
from byoc_accel.quantize.verify import verify
from byoc_accel.region.interpret import interpret as interpret_region
from byoc_accel.region.region import Add, BatchNorm, Concat, Conv2d, Pool, Region, Reshape, Tensor, Unary
from tests.region.build import chain, conv, host_port, weights
from tests.strategies_region import LARGE, SMALL, float_regions, int8_regions

SQNR_LEAST_DB = {"multiplier": 24.0, "fixed_point": 12.0}  # as docs/accuracy.md states


def samples(region, count, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.normal(0, 1, p.host_shape).astype(np.float32) for p in region.inputs] for _ in range(count)]


def net():
    """A small residual network with everything that folds and fuses."""
    rng = np.random.default_rng(9)
    norm = BatchNorm(
        *(rng.normal(m, 0.3, 16).astype(np.float32) for m in (1, 0, 0)),
        rng.uniform(0.5, 2, 16).astype(np.float32),
        1e-3,
    )
    return chain(
        (1, 12, 12, 3),
        conv(weights(1, 16, 3, 3, 3), padding=(1, 1, 1, 1), name="stem", batch_norm=norm),
        Unary("relu6", "", "", "clip", (0.0, 6.0)),
        conv(weights(2, 16, 3, 3, 1), rng.normal(0, 0.1, 16), name="depthwise", padding=(1, 1, 1, 1), groups=16),
        conv(weights(3, 16, 1, 1, 16), rng.normal(0, 0.1, 16), name="point"),
        Add("residual", "", "y1", ""),
        Unary("swish", "", "", "swish"),
        Pool("max", "", "", "max", (2, 2), (2, 2)),
        conv(weights(4, 24, 3, 3, 16), name="head", stride=(2, 2), clip=(0.0, math.inf)),
        Pool("mean", "", "", "avg", (2, 2), (1, 1)),
        Reshape("flat", "", ""),
        conv(weights(5, 10, 1, 1, 24), rng.normal(0, 1, 10), name="logits"),
    )


@settings(max_examples=100)
@given(int8_regions(SMALL))
def test_int8_regions_keep_every_byte(region):
    with np.errstate(all="raise"):
        qregion, report = quantize(region)
        verify(qregion)
        rng = np.random.default_rng(1)
        inputs = [rng.integers(-128, 128, region.tensor(p.tensor).shape).astype(np.int8) for p in region.inputs]
        expected, got = interpret_region(region, inputs), interpret(qregion, inputs)
    for name in got:
        assert np.array_equal(got[name], expected[name]), name
    assert report.mode == "exact"


@settings(max_examples=60)
@given(float_regions(LARGE))
def test_float_regions_quantize_to_valid_and_close_regions(region):
    for scale in ("multiplier", "fixed_point"):
        with np.errstate(all="raise"):
            qregion, report = quantize(region, samples(region, 3), scale=scale)
        verify(qregion)
        for layer in report.layers:
            assert layer.sqnr_db > SQNR_LEAST_DB[scale], report.to_text()


def test_node_forms():
    qregion, _ = quantize(net(), samples(net(), 8))
    assert [type(n).__name__ for n in qregion.nodes] == [
        "QConv",
        "QConv",
        "QConv",
        "QAdd",
        "QLut",
        "QPool",
        "QConv",
        "QPool",
        "QReshape",
        "QConv",
    ]
    tensors, by_name = qregion.by_name(), {n.name: n for n in qregion.nodes}
    stem = by_name["stem"]
    assert stem.y == "y1" and tensors["y1"].zero_point == -128 and stem.clamp[0] == -128
    assert by_name["head"].clamp == (-128, 127)
    assert (tensors["y6"].scale, tensors["y6"].zero_point) == (tensors["y5"].scale, tensors["y5"].zero_point)
    assert (tensors["y9"].scale, tensors["y9"].zero_point) == (tensors["y8"].scale, tensors["y8"].zero_point)
    assert by_name["residual"].left_shift == 20
    mean = by_name["mean"]
    ratio = tensors["y7"].scale / tensors["y8"].scale / 4
    assert mean.requants == ((4, fixedpoint.from_real(ratio)),) and mean.x_zero_point == tensors["y7"].zero_point


@pytest.mark.parametrize("scale,limit", [("multiplier", 30.0), ("fixed_point", 26.0)])
def test_accuracy_of_a_residual_network_on_fresh_inputs(scale, limit):
    region = net()
    qregion, report = quantize(region, samples(region, 32), scale=scale)
    fresh = np.concatenate([s[0] for s in samples(region, 64, seed=5)]).transpose(0, 2, 3, 1)
    expected = interpret_region(region, [fresh])["y10"]
    x, y = qregion.by_name()["x"], qregion.by_name()["y10"]
    got = interpret(qregion, [fixedpoint.quantize_real(fresh, x.scale, x.zero_point)])["y10"]
    noise = expected - fixedpoint.dequantize(got, y.scale, y.zero_point)
    assert 10 * math.log10(np.square(expected).sum() / np.square(noise).sum()) > limit
    agree = (expected.argmax(3) == got.argmax(3)).mean()
    assert agree > 0.9
    assert report.layers[-1].sqnr_db > limit and report.samples == 16


def test_fixed_point_scales_are_powers_of_two():
    qregion, _ = quantize(net(), samples(net(), 4), scale="fixed_point")
    assert all(math.frexp(t.scale)[0] == 0.5 for t in qregion.tensors)
    for node in qregion.nodes:
        if isinstance(node, QConv):
            assert set(node.multiplier.tolist()) == {1 << 30}
        if isinstance(node, QAdd):
            assert {r.multiplier for r in (node.requant1, node.requant2, node.requant_out)} == {1 << 30}


def test_add_at_a_finer_scale_is_better_than_two_roundings():
    """The reason for left_shift 20: the rounding error of the sum has half the power."""
    shape = (1, 16, 16, 8)
    region = Region(
        "add",
        tuple(Tensor(n, shape) for n in "aby"),
        (Add("add", "a", "b", "y"),),
        (host_port("a", shape), host_port("b", shape)),
        (host_port("y", shape),),
    )
    qregion, _ = quantize(region, [[s[0], 0.7 * s[1]] for s in samples(region, 16)])
    a, b, y = qregion.tensors
    one, two = (fixedpoint.from_real(t.scale / y.scale) for t in (a, b))
    coarse = replace(qregion.nodes[0], requant1=one, requant2=two, requant_out=IDENTITY, left_shift=0)
    q = [np.random.default_rng(1).integers(-60, 60, shape).astype(np.int8) for _ in range(2)]
    real = sum(t.scale / y.scale * (v.astype(float) - t.zero_point) for t, v in zip((a, b), q))
    noise = [
        np.square(real - (interpret(form, q)["y"].astype(float) - y.zero_point)).mean()
        for form in (qregion, replace(qregion, nodes=(coarse,)))
    ]
    assert noise[0] == pytest.approx(1 / 12, rel=0.1) and noise[1] == pytest.approx(2 / 12, rel=0.1)


def joined():
    """Two inputs side by side along the channels."""
    shape = (1, 16, 16, 4)
    return Region("joined", (Tensor("a", shape), Tensor("b", shape), Tensor("y", (1, 16, 16, 8))),
                  (Concat("cat", ("a", "b"), "y", 3),), (host_port("a", shape), host_port("b", shape)),
                  (host_port("y", (1, 16, 16, 8)),))


@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_concat_costs_one_rounding_to_the_common_scale(spread):
    """Inputs share the result's scale, so that the error is that of one rounding, 1/12 step^2, and not of two."""
    region, rng = joined(), np.random.default_rng(3)
    data = [[rng.uniform(-f, f, (1, 4, 16, 16)).astype(np.float32) for f in (1.0, spread)] for _ in range(16)]
    qregion, report = quantize(region, data)
    assert qregion.nodes[0].requants == (None, None)
    step = qregion.by_name()["y"].scale
    signal = (1.0 + spread ** 2) / 2 / 3  # mean square of the two uniform distributions
    assert report.layers[0].sqnr_db == pytest.approx(10 * math.log10(signal / (step ** 2 / 12)), abs=0.15)
    assert 2 * spread / 255 <= step < 1.1 * 2 * spread / 255


def test_concat_input_with_other_readers_keeps_its_scale():
    """a is an output by itself: its error stays that of its own range, a quarter of the concat's."""
    base = joined()
    region = replace(base, outputs=base.outputs + (host_port("a", (1, 16, 16, 4)),))
    rng = np.random.default_rng(3)
    data = [[rng.uniform(-f, f, (1, 4, 16, 16)).astype(np.float32) for f in (1.0, 4.0)] for _ in range(16)]
    qregion, _ = quantize(region, data)
    a, b, y = qregion.tensors
    assert b.scale == y.scale == pytest.approx(4 * a.scale, rel=0.1)
    assert qregion.nodes[0].requants[1] is None and qregion.nodes[0].requants[0] is not None


def test_clamp_in_real_units():
    assert clamp(None, 0.1, 5) == (-128, 127)
    assert clamp((0.0, math.inf), 0.1, -20) == (-20, 127)
    assert clamp((0.0, 6.0), 0.1, -20) == (-20, 40)
    assert clamp((-1.0, 0.25), 0.1, 5) == (-5, 8)  # 2.5 steps away from zero: 3
    assert clamp((-math.inf, 1e30), 1e-9, 0) == (-128, 127)


@pytest.mark.parametrize(
    "where,index,value",
    [
        ("weight", (1, 0, 2, 1), np.nan),
        ("weight", (0, 0, 0, 0), np.inf),
        ("bias", (2,), -np.inf),
        ("mean", (1,), np.nan),
    ],
)
@pytest.mark.case("B25")
def test_unusable_constants_are_named_b25(where, index, value):
    norm = BatchNorm(*(np.ones(3, np.float32) for _ in range(4)), 1e-3)
    node = conv(weights(1, 3, 1, 3, 2), np.zeros(3), "layer7", batch_norm=norm)
    array = getattr(norm if where == "mean" else node, where)
    array[index] = value
    label = "batch norm mean" if where == "mean" else where
    text = f"conv2d 'layer7': {label}\\[{', '.join(map(str, index))}\\] is {value}"
    with pytest.raises(QuantizeError, match=text), np.errstate(all="raise"):
        quantize(chain((1, 4, 4, 2), node), [[np.zeros((1, 2, 4, 4))]])


def test_unencodable_scales_are_named():
    base = chain((1, 1, 1, 4), conv(np.ones((2, 1, 1, 4)), name="dense"))
    tensors = (
        replace(base.tensors[0], dtype="int8", scale=1.0, zero_point=0),
        replace(base.tensors[1], dtype="int8", scale=1e-20, zero_point=0),
    )
    node = replace(
        base.nodes[0],
        weight=np.ones((2, 1, 1, 4), np.int8),
        weight_scale=np.ones(2, np.float32),
        acc_scale=np.ones(2, np.float32),
    )
    with pytest.raises(QuantizeError, match="'dense' channel 0: scale .* needs a shift of"):
        quantize(replace(base, tensors=tensors, nodes=(node,)))
    zero = replace(node, acc_scale=np.array([1, 0], np.float32))
    with pytest.raises(QuantizeError, match="'dense' channel 1: scale is 0.0"):
        quantize(replace(base, tensors=(tensors[0], replace(tensors[1], scale=1.0)), nodes=(zero,)))


def test_tflite_takes_the_product_of_scales_in_double():
    """TVM's importer rounds x.scale * w.scale to float32 first; the multipliers differ in their last digits."""
    x_scale, w_scale, y_scale = (float(np.float32(v)) for v in (0.0123456, 0.00765432, 0.0311))
    base = chain((1, 1, 1, 4), conv(np.ones((1, 1, 1, 4)), name="dense"))
    tensors = tuple(
        replace(t, dtype="int8", scale=s, zero_point=0) for t, s in zip(base.tensors, (x_scale, y_scale))
    )
    product = np.array([np.float32(x_scale) * np.float32(w_scale)])
    node = replace(
        base.nodes[0],
        weight=np.ones((1, 1, 1, 4), np.int8),
        weight_scale=np.array([w_scale], np.float32),
        acc_scale=product,
    )
    multipliers = []
    for rounding in ("upward", "double"):
        region = replace(base, tensors=tensors, nodes=(replace(node, rounding=rounding),))
        multipliers.append(quantize(region)[0].nodes[0].multiplier[0])
    exact = Fraction(x_scale) * Fraction(w_scale) / Fraction(y_scale)
    assert multipliers[1] == round(exact * 2**39) != multipliers[0]
    assert multipliers[0] == round(Fraction(float(product[0])) / Fraction(y_scale) * 2**39)


def test_unknown_scale_mode():
    with pytest.raises(QuantizeError, match="scale 'float' is unknown"):
        quantize(net(), samples(net(), 1), scale="float")


def test_without_calibration_it_warns_and_works():
    region = net()
    with pytest.warns(CalibrationWarning, match="no calibration inputs"):
        qregion, report = quantize(region)
    verify(qregion)
    assert report.source == "noise" and report.layers[-1].sqnr_db > 20
    with pytest.warns(CalibrationWarning):
        again, _ = quantize(region)
    assert to_text(again) == to_text(qregion)
    x = qregion.by_name()["x"]
    assert 3.0 < (127 - x.zero_point) * x.scale < 6.0


@pytest.mark.case("B28")
def test_channel_axis_b28():
    """O = I = 4 and scales 1, 2, 4, 8 along axis 0: an exchange of the axes would change the values."""
    weight = np.arange(1, 17, dtype=np.int8).reshape(4, 1, 1, 4)
    base = chain((1, 1, 1, 4), conv(weight, name="dense"))
    tensors = tuple(replace(t, dtype="int8", scale=s, zero_point=0) for t, s in zip(base.tensors, (1.0, 0.08)))
    scales = (np.array([1, 2, 4, 8]) * 0.01).astype(np.float32)
    node = replace(base.nodes[0], weight=weight, weight_scale=scales, acc_scale=scales)
    qregion, _ = quantize(replace(base, tensors=tensors, nodes=(node,)))
    y = interpret(qregion, [np.array([[[[2, 0, 1, 0]]]], np.int8)])["y0"].ravel()
    assert y.tolist() == [round(a * b / 8 + 1e-9) for a, b in zip((5, 17, 29, 41), (1, 2, 4, 8))]


@pytest.mark.case("B25")
def test_same_bytes_every_time():
    """A digest of the stored integers: equal on every host and for every hash seed (B25)."""
    rng = np.random.default_rng(0)
    weight = (rng.integers(-64, 65, (6, 3, 3, 2)) / 64).astype(np.float32)
    region = chain(
        (1, 5, 5, 2),
        conv(weight, np.arange(6) / 8, padding=(1, 1, 1, 1), clip=(0.0, 6.0)),
        Unary("hs", "", "", "hard_swish"),
    )
    data = [[(rng.integers(-64, 65, (1, 2, 5, 5)) / 32).astype(np.float32)] for _ in range(4)]
    qregion, _ = quantize(region, data)
    first = qregion.nodes[0]
    content = b"".join(
        a.astype(a.dtype.newbyteorder("<")).tobytes()
        for a in (first.weight, first.bias, first.multiplier, first.shift, qregion.nodes[1].table)
    )
    assert hashlib.sha256(content).hexdigest()[:16] == "345e009559f39794"


def test_golden_text(golden):
    rng = np.random.default_rng(0)
    weight = (rng.integers(-64, 65, (4, 3, 3, 2)) / 64).astype(np.float32)
    region = chain(
        (1, 5, 5, 2),
        conv(weight, np.arange(4) / 8, padding=(1, 1, 1, 1), clip=(0.0, 6.0)),
        Unary("hs", "", "", "hard_swish"),
        Add("twice", "", "", ""),
        Pool("mean", "", "", "avg", (2, 2), (1, 1), (1, 0, 0, 0)),
        Reshape("flat", "", ""),
    )
    data = [[(rng.integers(-64, 65, (1, 2, 5, 5)) / 32).astype(np.float32)] for _ in range(4)]
    qregion, _ = quantize(region, data, scale="fixed_point")
    golden("quantize/example", to_text(qregion))


def test_inputs_are_not_mutated():
    region = net()
    before = [n.weight.copy() for n in region.nodes if isinstance(n, Conv2d)]
    data = samples(region, 2)
    copies = [s[0].copy() for s in data]
    quantize(region, data)
    assert all(np.array_equal(a, n.weight) for a, n in zip(before, (n for n in region.nodes if isinstance(n, Conv2d))))
    assert all(np.array_equal(a, s[0]) for a, s in zip(copies, data))


def test_report_text_and_json():
    _, report = quantize(net(), samples(net(), 4))
    text = report.to_text()
    assert "stem" in text and "SQNR" in text and len(text.splitlines()) == 2 + len(report.layers)
    data = json.loads(report.to_json())
    assert data["mode"] == "multiplier" and data["layers"][0]["name"] == "stem"
    assert data["layers"][0]["sqnr_db"] == report.layers[0].sqnr_db
    zero = chain((1, 1, 1, 4), conv(np.zeros((2, 1, 1, 4)), name="zero"))
    _, exact = quantize(zero, [[np.ones((1, 4, 1, 1), np.float32)]])
    assert exact.layers[0].sqnr_db == math.inf
    assert json.loads(exact.to_json())["layers"][0]["sqnr_db"] == "inf" and " inf" in exact.to_text()


def test_sqnr_is_computed_from_the_definition():
    region = chain((1, 4, 4, 2), conv(weights(1, 3, 1, 1, 2), name="c"))
    data = samples(region, 3)
    qregion, report = quantize(region, data)
    x = np.concatenate([s[0] for s in data]).transpose(0, 2, 3, 1)
    tensors = qregion.by_name()
    q = np.clip(
        np.floor(np.abs(x / np.float32(tensors["x"].scale)) + 0.5) * np.sign(x) + tensors["x"].zero_point, -128, 127
    )
    y = interpret(qregion, [q.astype(np.int8)])["y0"].astype(np.float64)
    real = np.einsum("nhwi,oi->nhwo", x.astype(np.float64), region.nodes[0].weight[:, 0, 0].astype(np.float64))
    noise = real - tensors["y0"].scale * (y - tensors["y0"].zero_point)
    assert report.layers[0].sqnr_db == pytest.approx(10 * math.log10((real**2).sum() / (noise**2).sum()), abs=1e-3)
    assert report.layers[0].saturated == ((y == -128) | (y == 127)).mean()
