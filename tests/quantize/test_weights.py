"""Weight scales and biases: zero and tiny channels (B24), large biases (B27), int32 limits."""

from __future__ import annotations

import numpy as np
import pytest

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize import fixedpoint
from byoc_accel.quantize.interpret import accumulators, interpret
from byoc_accel.quantize.qregion import QConv, QRegion, QTensor
from byoc_accel.quantize.quantize import quantize
from byoc_accel.quantize.verify import verify
from byoc_accel.quantize.weights import RATIO_MIN, quantize_weights
from byoc_accel.region.region import Port
from tests.region.build import chain, conv, weights

INT32 = (1 << 31) - 1


def q(weight, bias, x_scale=0.02, y_scale=0.05, power_of_two=False):
    with np.errstate(all="raise"):
        return quantize_weights("layer", np.asarray(weight, np.float64).reshape(len(weight), 1, 1, -1),
                                np.asarray(bias, np.float64), x_scale, y_scale, power_of_two)


def reach(out):
    flat = np.abs(out.weight.reshape(len(out.weight), -1).astype(np.int64))
    return 255 * flat.sum(1) + np.abs(out.bias.astype(np.int64))


def test_worked_example():
    """max |w| = 0.254 -> scale 0.002; 0.1 / 0.002 = 50; bias 0.3 / (0.02 * 0.002) = 7500."""
    out = q([[0.254, 0.1, -0.003]], [0.3])
    assert out.scale[0] == pytest.approx(0.002) and out.weight.ravel().tolist() == [127, 50, -2]
    assert out.bias.tolist() == [7500]


def test_every_channel_has_its_own_scale():
    weight = weights(3, 16, 1, 1, 40).reshape(16, 40) * np.geomspace(1e-3, 1e3, 16)[:, None]
    out = q(weight, np.zeros(16))
    assert np.array_equal(np.abs(out.weight.reshape(16, -1)).max(1), np.full(16, 127))
    np.testing.assert_array_less(np.abs(out.weight.reshape(16, -1) * out.scale[:, None] - weight).max(1),
                                 out.scale * 0.500001)


@pytest.mark.case("B24")
def test_minimum_scale_for_zero_and_tiny_channels():
    floor = RATIO_MIN * 0.05 / 0.02
    out = q([[0.0, 0.0], [1e-40, -1e-40], [1e-12, 0.0], [0.5, 0.25]], [0.75, 0.0, 0.0, 0.0])
    assert out.scale[:3].tolist() == [floor] * 3 and out.scale[3] == 0.5 / 127
    assert not out.weight[:3].any()
    assert abs(out.bias[0] * 0.02 * floor - 0.75) <= 0.5 * 0.02 * floor
    for scale in out.scale:  # all encodable, none degenerate
        assert fixedpoint.from_real(0.02 * scale / 0.05).multiplier >= 1 << 30


@pytest.mark.case("B27")
def test_bias_that_does_not_fit_widens_the_scale():
    """B27: weights up to 0.01 and a bias of 3.0 fit at once; a bias of 1e6 needs a wider scale for its channel."""
    small = q([[0.01, -0.005]], [3.0])
    assert small.scale[0] == pytest.approx(0.01 / 127) and small.bias[0] == round(3.0 / (0.02 * small.scale[0]))
    wide = q([[0.01, -0.005], [0.01, -0.005]], [1e6, 0.0])
    assert reach(wide).max() <= INT32
    assert wide.scale[1] == pytest.approx(0.01 / 127) and wide.scale[0] > wide.scale[1]
    assert wide.bias[0] * 0.02 * wide.scale[0] == pytest.approx(1e6, rel=1e-6)
    assert abs(int(wide.bias[0])) > INT32 // 4  # no wider than needed


def test_long_reductions_stay_in_int32():
    """70,000 products of 127 * 255 would be 2.27e9."""
    out = q(np.ones((1, 70000)), [0.0])
    assert reach(out)[0] <= INT32 and out.weight.max() > 100
    assert out.weight.reshape(-1)[0] * out.scale[0] == pytest.approx(1.0, rel=0.01)


def test_power_of_two_scales():
    rng = np.random.default_rng(0)
    out = q(rng.normal(0, 1, (20, 9)) * np.geomspace(1e-6, 1e3, 20)[:, None], rng.normal(0, 1e4, 20), 2.0 ** -6,
            2.0 ** -3, power_of_two=True)
    mantissa, _ = np.frexp(out.scale)
    assert (mantissa == 0.5).all() and reach(out).max() <= INT32


def test_hopeless_bias_is_an_error():
    with pytest.raises(QuantizeError, match="layer: output channel 0: no weight scale keeps bias 1e\\+300"):
        q([[1e-300]], [1e300], 1e-30, 1e-30)


def layer(weight, bias, x, **options):
    """Dequantized results of a one-layer region calibrated on x itself, and the float results."""
    region = chain((1, 1, 1, weight.shape[3]), conv(weight, bias))
    samples = [[v.reshape(1, -1, 1, 1)] for v in x]
    with np.errstate(all="raise"):
        qregion, _ = quantize(region, samples, **options)
        verify(qregion)
        tensors = qregion.by_name()
        inputs = fixedpoint.quantize_real(x.reshape(len(x), 1, 1, -1), tensors["x"].scale, tensors["x"].zero_point)
        y = interpret(qregion, [inputs])["y0"]
    real = tensors["y0"].scale * (y.astype(np.float64) - tensors["y0"].zero_point)
    return real.reshape(len(x), -1), x @ weight.reshape(len(weight), -1).T + bias, tensors["y0"].scale


@pytest.mark.case("B24")
@pytest.mark.parametrize("scale", ["multiplier", "fixed_point"])
def test_zero_channel_gives_its_bias_b24(scale):
    weight, bias = weights(1, 8, 1, 1, 16), np.linspace(-1, 1, 8).astype(np.float32)
    weight[3], bias[3] = 0.0, 0.75
    weight[5] = np.linspace(-1e-40, 1e-40, 16)
    x = np.random.default_rng(2).normal(0, 1, (12, 16)).astype(np.float32)
    got, expected, step = layer(weight, bias, x, scale=scale)
    assert np.abs(got[:, 3] - 0.75).max() <= 0.5 * step + 1e-9
    assert np.abs(got[:, 5] - bias[5]).max() <= 0.5 * step + 1e-9
    assert np.abs(got - expected).max() <= 4 * step


@pytest.mark.case("B24")
def test_whole_layer_zero_gives_zeros_b24():
    x = np.random.default_rng(2).normal(0, 1, (4, 16)).astype(np.float32)
    got, _, _ = layer(np.zeros((8, 1, 1, 16), np.float32), np.zeros(8, np.float32), x)
    assert not got.any()


@pytest.mark.case("B27")
def test_constant_results_far_above_their_range_b27():
    """The bias cancels what the weights give on the calibration data: the range is tiny, results may be large."""
    weight = np.full((1, 1, 1, 4), 1e6, np.float32)
    region = chain((1, 1, 1, 4), conv(weight, [-4e6 + 0.5]))
    samples = [[np.ones((1, 4, 1, 1), np.float32)]]  # 0.5 on these, -4e6 on others: 2e9 steps of 0.5 / 255
    qregion, _ = quantize(region, samples)
    verify(qregion)
    y = qregion.by_name()["y0"]
    assert y.scale == pytest.approx(8e6 * 2.0 ** -29, rel=0.01)


@pytest.mark.case("B27")
@pytest.mark.parametrize("sign", [1, -1])
def test_k4096_at_the_extremes_b27(sign):
    """All products at +-127 * 127: the accumulator is +-66,064,384, exactly."""
    ratio = fixedpoint.from_real(100.0 / 66064384)
    node = QConv("d", "x", "y", np.full((1, 1, 1, 4096), sign * 127, np.int8), np.zeros(1, np.int32),
                 np.array([ratio.multiplier]), np.array([ratio.shift]), (1, 1), (0, 0, 0, 0), (1, 1), 1, "nearest",
                 (-128, 127))
    tensors = (QTensor("x", (1, 1, 1, 4096), 1.0, 0), QTensor("y", (1, 1, 1, 1), 1.0, 0))
    ports = tuple(Port(t.name, t.shape, "int8", (0, 1, 2, 3)) for t in tensors)
    qregion = QRegion("k4096", tensors, (node,), ports[:1], ports[1:])
    verify(qregion)
    x = np.full((1, 1, 1, 4096), 127, np.int8)
    assert accumulators(node, x, 0).item() == sign * 66064384
    assert interpret(qregion, [x])["y"].item() == sign * 100
