"""Elementwise functions between int8 tensors as tables, PReLU, and requantized averages, against TVM's own lowering."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import (  # noqa: E402
    build,
    check_library,
    check_region,
    const,
    conv,
    float_input,
    host_ops,
    int8_input,
    module,
    qadd,
    qconv2d,
    random_inputs,
    reason,
    run,
    run_library,
)

S, Z = 0.08, -7  # of the tensor in front
Y = (0.03, 11)


def quantize(x: relay.Expr, scale: float, zero_point: int) -> relay.Expr:
    return relay.qnn.op.quantize(x, const(scale, "float32"), const(zero_point, "int32"), out_dtype="int8")


def dequantize(x: relay.Expr, scale: float = S, zero_point: int = Z) -> relay.Expr:
    return relay.qnn.op.dequantize(x, const(scale, "float32"), const(zero_point, "int32"))


def requantize(x: relay.Expr, scale: float = S, zero_point: int = Z, y: tuple[float, int] = Y,
               **attrs: object) -> relay.Expr:
    return relay.qnn.op.requantize(x, const(scale, "float32"), const(zero_point, "int32"), const(y[0], "float32"),
                                   const(y[1], "int32"), out_dtype="int8", **attrs)


def sandwich(f: Callable[[relay.Expr], relay.Expr]) -> Callable[[relay.Expr], relay.Expr]:
    return lambda x: quantize(f(dequantize(x)), *Y)


def number(value: float) -> relay.Expr:
    return const(value, "float32")


def scales(*pairs: tuple[float, int]) -> list[relay.Expr]:
    return [const(v, t) for s in pairs for v, t in zip(s, ("float32", "int32"))]


FORMS: dict[str, Callable[[relay.Expr], relay.Expr]] = {
    "sigmoid": sandwich(relay.sigmoid), "tanh": sandwich(relay.tanh), "exp": sandwich(relay.exp),
    "leaky_relu": sandwich(lambda x: relay.nn.leaky_relu(x, 0.1)), "abs": sandwich(relay.abs),
    "relu6": sandwich(lambda x: relay.clip(x, 0.0, 6.0)), "rsqrt": sandwich(lambda x: relay.rsqrt(x * x + number(0.1))),
    "hard_swish": sandwich(lambda x: x * relay.clip(x + number(3.0), 0.0, 6.0) / number(6.0)),
    "swish": sandwich(lambda x: x * relay.sigmoid(x)), "square": sandwich(lambda x: x * x),
    "mish": sandwich(lambda x: x * relay.tanh(relay.log(number(1.0) + relay.exp(x)))),
    "requantize": requantize, "requantize finer": lambda x: requantize(x, y=(0.001, -100)),
    "requantize nearest": lambda x: requantize(x, rounding="TONEAREST"),
    "add": lambda x: relay.qnn.op.add(x, const(33, "int8"), *scales((S, Z), (0.05, 3), Y)),
    "multiply": lambda x: relay.qnn.op.mul(const([33], "int8"), x, *scales((0.05, 3), (S, Z), Y)),
    "subtract": lambda x: relay.qnn.op.subtract(x, const(33, "int8"), *scales((S, Z), (0.05, 3), Y)),
    "qnn.sigmoid": lambda x: relay.qnn.op.sigmoid(x, *scales((S, Z), Y)),
    "product with its own sigmoid": lambda x: relay.qnn.op.mul(x, relay.qnn.op.sigmoid(x, *scales((S, Z), Y)),
                                                               *scales((S, Z), Y, Y)),
}


def layer(seed: int = 0, layout: str = "NHWC") -> relay.Expr:
    shape = (1, 16, 16, 4) if layout == "NHWC" else (1, 4, 16, 16)
    return qconv2d(int8_input(*shape), 4, (1, 1), np.random.default_rng(seed), in_channels=4, layout=layout,
                   zp=(3, Z), scales=(0.05, S))


def test_every_form_has_the_bytes_of_tvm() -> None:
    """All in one region, on the simulator; each reads all 256 values."""
    x = relay.nn.max_pool2d(int8_input(1, 48, 16, 4), (1, 1), layout="NHWC")
    mod = module(relay.Tuple([x, *(form(x) for form in FORMS.values())]))
    inputs = random_inputs(mod)
    part, report = ba.partition(mod)
    assert not host_ops(report) and len(report.regions) == 1
    found, expected = run(part, inputs), run(mod, inputs)
    assert len(np.unique(expected[0])) == 256
    for name, a, b in zip(["x", *FORMS], found, expected):
        np.testing.assert_array_equal(a, b, name)


def test_in_a_network() -> None:
    """MobileNetV3: layers, hard swish, a residual, a requantized mean; NCHW."""
    rng = np.random.default_rng(1)
    x = layer(layout="NCHW")
    y = FORMS["hard_swish"](x)
    y = qadd(requantize(y, *Y, (0.05, 2)), x, (0.05, 2), (S, Z), (0.1, 1))
    y = qconv2d(y, 8, (3, 3), rng, in_channels=4, layout="NCHW", zp=(1, 4), scales=(0.1, 0.05))
    mean = requantize(relay.mean(relay.cast(y, "int32"), [2, 3], keepdims=True), 0.05, 4, (0.02, -3))
    mod = module(qconv2d(mean, 5, (1, 1), rng, in_channels=8, layout="NCHW", zp=(-3, 0), scales=(0.02, 0.05)))
    report = check_library(mod, regions=1)
    assert not host_ops(report)


@pytest.mark.parametrize("form", ["mean", "mean keep", "avg_pool2d", "global"])
def test_requantized_averages(form: str) -> None:
    """TFLite's MEAN, and pools that change the scale."""
    wide = relay.cast(layer(), "int32")
    y = {"mean": lambda: relay.mean(wide, [1, 2]), "mean keep": lambda: relay.mean(wide, [1, 2], keepdims=True),
         "avg_pool2d": lambda: relay.nn.avg_pool2d(wide, (3, 3), (2, 2), padding=(1, 1), layout="NHWC"),
         "global": lambda: relay.nn.global_avg_pool2d(wide, layout="NHWC")}[form]()
    imported = check_region(module(requantize(y)))
    assert [type(n).__name__ for n in imported.region.nodes] == ["Conv2d", "Pool", "Unary"]


@pytest.mark.parametrize("form", ["two readers", "per channel", "uint8", "softmax", "a constant per channel"])
def test_what_stays_on_the_host_is_right(form: str) -> None:
    x = layer()
    real = relay.sigmoid(dequantize(x))
    rows = np.array([S, 0.05, 0.06, 0.07], "float32")
    y = {"two readers": lambda: relay.Tuple([quantize(real, *Y), real]),
         "per channel": lambda: relay.qnn.op.requantize(x, const(rows), const(0, "int32"), number(0.05),
                                                        const(1, "int32"), axis=3, out_dtype="int8"),
         "uint8": lambda: relay.qnn.op.requantize(x, number(S), const(Z, "int32"), number(0.05), const(100, "int32"),
                                                  out_dtype="uint8"),
         "softmax": lambda: quantize(relay.nn.softmax(dequantize(x)), *Y),
         "a constant per channel": lambda: relay.qnn.op.add(x, const([1, 2, 3, 4], "int8"),
                                                            *scales((S, Z), (0.05, 3), Y))}[form]()
    report = check_library(module(y), regions=1)
    assert host_ops(report)


def test_alone_a_table_stays_on_the_host() -> None:
    _, report = ba.partition(module(requantize(int8_input(1, 4))))
    assert host_ops(report) == ["qnn.requantize"]


class TestPrelu:
    SLOPES = np.array([0.25, -0.5, 0.0, 1.5], "float32")

    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    @pytest.mark.parametrize("flat", [False, True])
    def test_slopes_per_channel(self, layout: str, flat: bool) -> None:
        """flat: as TFLite's importer writes it."""
        shape = (1, 4, 4, 4)
        y, axis = conv(float_input(*shape), layout=layout), layout.index("C")
        if flat:
            slopes = np.broadcast_to(self.SLOPES.reshape([4 if a == axis else 1 for a in range(4)]), shape).reshape(-1)
            y = relay.reshape(relay.nn.prelu(relay.reshape(y, [-1]), const(slopes), 0), shape)
        else:
            y = relay.nn.prelu(y, const(self.SLOPES), axis)
        imported = check_region(module(y))
        assert [type(n).__name__ for n in imported.region.nodes] == ["Conv2d", "Unary", "Unary", "Conv2d", "Add"]

    def test_accuracy(self) -> None:
        """Within two steps of the result's 255."""
        y = conv(relay.nn.prelu(conv(float_input(1, 4, 8, 8)), const(self.SLOPES), 1), seed=1)
        mod = module(relay.Tuple([y, relay.nn.prelu(conv(float_input(1, 4, 8, 8)), const(self.SLOPES), 1)]))
        inputs = random_inputs(mod)
        part, report = ba.partition(mod, calibration=[inputs])
        assert not host_ops(report)
        found, expected = run_library(build(part), inputs)[1], run(mod, inputs)[1]
        assert np.abs(found - expected).max() <= 2 * (expected.max() - expected.min()) / 255

    def test_one_slope_is_a_leaky_relu(self) -> None:
        slopes = const(np.full(4, 0.3, "float32"))
        imported = check_region(module(relay.nn.prelu(conv(float_input(1, 4, 4, 4)), slopes)))
        assert [getattr(n, "function", "") for n in imported.region.nodes] == ["", "leaky_relu"]

    def test_other_slopes_stay_on_the_host(self) -> None:
        y = conv(float_input(1, 4, 4, 4))
        alpha = relay.var("alpha", shape=(4,), dtype="float32")
        for slopes, axis, why in ((alpha, 1, "computed at run time"), (const(self.SLOPES), 2, "along height or width")):
            mod = module(relay.nn.prelu(y, slopes, axis))
            _, report = ba.partition(mod, calibration=[random_inputs(mod)])
            assert why in reason(report, "nn.prelu")


def test_products_of_two_tensors_stay_on_the_host() -> None:
    """Squeeze-excite: the reason names the rule."""
    y = conv(float_input(1, 4, 6, 6))
    gate = relay.sigmoid(relay.nn.global_avg_pool2d(y))
    mod = module(relay.multiply(y, gate))
    _, report = ba.partition(mod, calibration=[random_inputs(mod)])
    assert host_ops(report) == ["multiply"] and "only the sum" in reason(report, "multiply")
