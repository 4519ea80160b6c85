"""Adds, elementwise ops, batch norm and what fuses, against TVM's own lowering (B11, B32, B33)."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    check_region,
    const,
    conv,
    float_input,
    host_ops,
    module,
    normal,
    qadd,
    qconv2d,
    qdense,
    random_inputs,
    reason,
    run,
    run_imported,
)


class TestFusing:
    """B11: bias in every form, batch norm, clamps."""

    @pytest.mark.case("B11")
    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    @pytest.mark.parametrize("form", ["none", "zeros", "bias_add", "add", "add_left", "scalar", "axis -1"])
    def test_bias(self, form: str, layout: str) -> None:
        y = conv(float_input(1, 4, 4, 4), layout=layout)
        axis = layout.index("C")
        column = (4, 1, 1) if layout == "NCHW" else (4,)
        y = {"none": lambda: y, "zeros": lambda: relay.nn.bias_add(y, const(np.zeros(4), "float32"), axis=axis),
             "bias_add": lambda: relay.nn.bias_add(y, normal(4), axis=axis),
             "add": lambda: relay.add(y, normal(*column)), "add_left": lambda: relay.add(normal(*column), y),
             "scalar": lambda: relay.add(y, const(0.5, "float32")),
             "axis -1": lambda: relay.nn.bias_add(y, normal(4), axis=-1)}[form]()
        other_axis = form == "axis -1" and layout == "NCHW"  # C = H = W, so that it would not show
        imported = check_region(module(y), ops_left=["nn.bias_add"] if other_axis else []) if not other_axis else None
        if other_axis:
            _, report = ba.partition(module(y), calibration=[random_inputs(module(y))])
            assert host_ops(report) == ["nn.bias_add"]
        else:
            assert len(imported.region.nodes) == 1

    @pytest.mark.case("B33")
    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    @pytest.mark.parametrize("bias", [False, True])
    def test_batch_norm(self, layout: str, bias: bool) -> None:
        """B33: negative gamma, gamma 0, variance 0; the folded weights decide the scale."""
        y = conv(float_input(1, 4, 4, 4), layout=layout)
        axis = layout.index("C")
        if bias:
            y = relay.nn.bias_add(y, normal(4, seed=5), axis=axis)
        norm = [const(v, "float32") for v in ([-1.5, 0.0, 2.0, 1.0], [0.1, -0.2, 0.3, 0.4], [0.5, 0.1, -0.3, 0.2],
                                              [1.0, 2.0, 0.0, 0.5])]
        y = relay.nn.relu(relay.nn.batch_norm(y, *norm, axis=axis, epsilon=1e-3)[0])
        imported = check_region(module(y))
        assert len(imported.region.nodes) == 1

    def test_scaling_in_any_order(self) -> None:
        y = conv(float_input(1, 4, 5, 5))
        for step in (lambda v: relay.multiply(normal(4, 1, 1, seed=1), v), lambda v: relay.add(v, normal(4, 1, 1)),
                     lambda v: relay.divide(v, const(3.0, "float32")), lambda v: relay.subtract(v, normal(4, 1, 1)),
                     lambda v: relay.clip(v, -1.0, 2.0), relay.nn.relu):
            y = step(y)
        imported = check_region(module(y))
        assert len(imported.region.nodes) == 1 and imported.region.nodes[0].clip == (0.0, 2.0)

    def test_a_constant_minus_a_layer_is_no_bias(self) -> None:
        mod = module(relay.subtract(normal(4, 1, 1), conv(float_input(1, 4, 5, 5))))
        _, report = ba.partition(mod, calibration=[random_inputs(mod)])
        assert host_ops(report) == ["subtract"]

    def test_a_constant_that_broadcasts_the_layer_is_no_bias(self) -> None:
        mod = module(relay.add(conv(float_input(1, 4, 5, 5)), normal(2, 4, 1, 1)))
        _, report = ba.partition(mod, calibration=[random_inputs(mod)])
        assert host_ops(report) == ["add"]

    def test_a_value_with_two_readers_is_not_fused_away(self) -> None:
        y = conv(float_input(1, 4, 5, 5))
        imported = check_region(module(relay.add(relay.nn.relu(y), y)))
        assert [type(n).__name__ for n in imported.region.nodes] == ["Conv2d", "Unary", "Add"]

    def test_dropout_vanishes(self) -> None:
        check_region(module(relay.nn.dropout(conv(float_input(1, 4, 5, 5)), 0.5)))

    @pytest.mark.case("B33")
    def test_global_pooling_after_folded_layers(self) -> None:
        """B33: conv -> bn -> relu6 -> global average -> 1x1 conv -> dense"""
        y = relay.nn.batch_norm(conv(float_input(1, 4, 6, 6)), normal(4, seed=1), normal(4, seed=2), normal(4, seed=3),
                                const(np.full(4, 0.5), "float32"))[0]
        y = relay.nn.global_avg_pool2d(relay.clip(y, 0.0, 6.0))
        y = relay.nn.conv2d(y, normal(5, 4, 1, 1), channels=5, kernel_size=(1, 1))
        check_region(module(relay.nn.dense(relay.nn.batch_flatten(y), normal(3, 5))))


@pytest.mark.case("B32")
class TestAdd:
    """B32"""

    def test_residual_with_different_zero_points(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 8), dtype="int8")
        a = qconv2d(x, 8, (3, 3), rng, in_channels=8, padding=(1, 1), zp=(3, -7), scales=(0.05, 0.1))
        check_region(module(relay.clip(qadd(x, a, (0.05, 3), (0.1, -7), (0.12, 5)), -20, 100)))

    def test_projection_block(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 8), dtype="int8")
        a = qconv2d(x, 16, (3, 3), rng, in_channels=8, padding=(1, 1), strides=(2, 2), zp=(3, -7), scales=(0.05, 0.1))
        b = qconv2d(x, 16, (1, 1), rng, in_channels=8, strides=(2, 2), zp=(3, 4), scales=(0.05, 0.02))
        y = qadd(a, b, (0.1, -7), (0.02, 4), (0.1, -128))
        check_library(module(y), regions=1)

    @pytest.mark.parametrize("scales", [(0.1, 0.1), (0.1, 0.3)])
    def test_a_value_added_to_itself(self, scales: tuple[float, float]) -> None:
        x = relay.var("x", shape=(1, 3, 3, 4), dtype="int8")
        check_library(module(qadd(x, x, (scales[0], 3), (scales[0], 3), (scales[1], -1))), regions=1)

    @pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 4, 5), (1, 2, 4, 5)])
    def test_ranks(self, shape: tuple[int, ...]) -> None:
        a, b = (relay.var(n, shape=shape, dtype="int8") for n in "ab")
        check_region(module(qadd(a, b, (0.1, 3), (0.03, 9), (0.1, -1)), a, b))

    def test_operands_of_different_shapes_stay_on_the_host(self) -> None:
        a, b = float_input(1, 4, 3, 3, name="a"), float_input(1, 1, 3, 3, name="b")
        _, report = ba.partition(module(relay.add(a, b)))
        assert "(1, 4, 3, 3) and (1, 1, 3, 3)" in reason(report, "add")

    def test_plain_add_of_stored_integers_stays_on_the_host(self) -> None:
        a, b = (relay.var(n, shape=(1, 4), dtype="int8") for n in "ab")
        _, report = ba.partition(module(relay.add(a, b)))
        assert "int8 and int8 in" in reason(report, "add")

    def test_scale_that_changes_between_layers(self) -> None:
        """The sum reads 0.2 where the convolution wrote 0.1: two regions, exact."""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7), scales=(0.05, 0.1))
        check_library(module(qadd(a, a, (0.2, -7), (0.1, -7), (0.3, 0))))

    def test_zero_point_that_changes_between_layers(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7))
        report = check_library(module(qconv2d(a, 4, (3, 3), rng, in_channels=4, padding=(1, 1), zp=(5, 1))))
        assert len(report.regions) == 2

    def test_input_that_two_layers_read_differently(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7), scales=(0.05, 0.1))
        check_library(module(qadd(a, x, (0.1, -7), (0.2, 4), (0.3, 0))), regions=2)

    def test_a_lone_float_add_stays_on_the_host(self) -> None:
        a, b = float_input(1, 4, name="a"), float_input(1, 4, name="b")
        part, report = ba.partition(module(relay.add(a, b)))
        assert not report.regions and "alone" in reason(report, "add")

    def test_float_residual(self) -> None:
        x = float_input(1, 4, 5, 5)
        check_region(module(relay.nn.relu(relay.add(conv(x), x))))


class TestElementwise:
    @pytest.mark.parametrize("form,function,args", [
        ("maximum", "clip", (0.5, np.inf)), ("minimum", "clip", (-np.inf, 50.0)), ("both", "clip", (0.0, 100.0)),
        ("relu", "relu", ())])
    def test_bounds_far_from_zero(self, form: str, function: str, args: tuple[float, ...]) -> None:
        """A clamp is told from relu by its value far outside of the usual range too."""
        y = conv(float_input(1, 4, 5, 5))
        y = {"maximum": lambda: relay.maximum(y, const(0.5, "float32")),
             "minimum": lambda: relay.minimum(const(50.0, "float32"), y),
             "both": lambda: relay.minimum(relay.maximum(y, const(0.0, "float32")), const(100.0, "float32")),
             "relu": lambda: relay.maximum(y, const(0.0, "float32"))}[form]()
        imported = check_region(module(y))
        assert (imported.region.nodes[1].function, imported.region.nodes[1].args) == (function, args)
        scaled = {"x": random_inputs(module(y))["x"] * 1000}
        (found,), (expected,) = run_imported(imported, [scaled["x"]]), run(module(y), scaled)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)

    @pytest.mark.parametrize("function", ["relu", "clip", "leaky_relu", "sigmoid", "tanh", "swish", "hard_swish",
                                          "hard_sigmoid"])
    def test_float_functions(self, function: str) -> None:
        y = conv(float_input(1, 4, 5, 5))
        y = relay.nn.max_pool2d(y, (2, 2))
        three, six = const(3.0, "float32"), const(6.0, "float32")
        gate = relay.divide(relay.clip(relay.add(y, three), 0.0, 6.0), six)
        y = {"relu": lambda: relay.nn.relu(y), "clip": lambda: relay.clip(y, -0.5, 1.0),
             "leaky_relu": lambda: relay.nn.leaky_relu(y, 0.2), "sigmoid": lambda: relay.sigmoid(y),
             "tanh": lambda: relay.tanh(y), "swish": lambda: relay.multiply(y, relay.sigmoid(y)),
             "hard_swish": lambda: relay.multiply(y, gate), "hard_sigmoid": lambda: gate}[function]()
        imported = check_region(module(y))
        assert imported.region.nodes[-1].function == function

    def test_functions_after_functions(self) -> None:
        """A hard-swish that is scaled and shifted, and a hard-sigmoid whose first ops belong to a convolution."""
        three, six = const(3.0, "float32"), const(6.0, "float32")
        y = relay.nn.max_pool2d(conv(float_input(1, 4, 7, 7)), (2, 2))
        y = relay.divide(relay.multiply(y, relay.clip(relay.add(y, three), 0.0, 6.0)), six)
        y = relay.add(relay.multiply(const(1.5, "float32"), y), const(-0.25, "float32"))
        y = relay.divide(relay.clip(relay.add(conv(y), three), 0.0, 6.0), six)
        imported = check_region(module(y))
        functions = [n.function for n in imported.region.nodes if hasattr(n, "function")]
        assert functions == ["hard_swish", "affine", "affine"]

    def test_scaling_by_a_number(self) -> None:
        y = relay.nn.max_pool2d(conv(float_input(1, 4, 5, 5)), (2, 2))
        y = relay.subtract(relay.multiply(y, const(0.5, "float32")), const(1.0, "float32"))
        imported = check_region(module(y))
        assert imported.region.nodes[-1].function == "affine" and imported.region.nodes[-1].args == (0.5, -1.0)

    def test_a_gate_with_another_reader_is_no_function(self) -> None:
        y = relay.nn.max_pool2d(conv(float_input(1, 4, 5, 5)), (2, 2))
        gate = relay.sigmoid(y)
        mod = module(relay.Tuple([relay.multiply(y, gate), gate]))
        _, report = ba.partition(mod, calibration=[random_inputs(mod)])
        assert host_ops(report) == ["multiply"]

    def test_clamps_of_stored_integers(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        y = relay.nn.max_pool2d(qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7)), (2, 2), layout="NHWC")
        check_region(module(relay.clip(relay.nn.relu(y), -3, 50)))

    def test_alone_it_stays_on_the_host(self) -> None:
        part, report = ba.partition(module(relay.nn.relu(float_input(1, 4))))
        assert not report.regions and "alone" in reason(report, "nn.relu")


class TestQuantizedForms:
    def test_requantize_to_int32_with_clip_and_cast(self) -> None:
        """As the ONNX importer and FakeQuantizationToInteger write it."""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        y = qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7))
        wide = relay.qnn.op.requantize(y.args[0], *y.args[1:], axis=3, out_dtype="int32")
        check_region(module(relay.cast(relay.clip(wide, -128, 127), "int8")))
        report = check_library(module(relay.cast(relay.clip(wide, -200, 100), "int8")), regions=0)
        assert "clip (-200.0, 100.0)" in reason(report, "qnn.conv2d")

    def test_without_requantize(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(2, 6), dtype="int8")
        y = qdense(x, 4, rng, in_units=6).args[0]
        _, report = ba.partition(module(y))
        assert "qnn.requantize" in reason(report, "qnn.dense")

    def test_rounding_setting_of_tvm(self) -> None:
        """`requantize_config` decides for ops that state no rounding of their own, for TVM and for us."""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(0, 0), scales=(0.5, 0.5), bias="none")
        mod = module(qadd(a, x, (0.5, 0), (0.5, 0), (1.0, 0)))
        with relay.qnn.op.requantize_config(rounding="TONEAREST"):
            imported = check_region(mod)
        assert {n.rounding for n in imported.region.nodes} == {"nearest"}

    @pytest.mark.case("B27")
    def test_sums_that_could_overflow_stay_on_the_host(self) -> None:
        """B27"""
        x = relay.var("x", shape=(1, 4096), dtype="int8")
        full = relay.qnn.op.dense(x, const(np.full((2, 4096), 127), "int8"), const(-128, "int32"), const(0, "int32"),
                                  const(0.1, "float32"), const(0.1, "float32"), 2, "int32")

        def model(bias: int, scale: float = 12000.0, **attrs: object) -> tvm.IRModule:
            y = relay.nn.bias_add(full, const([0, bias], "int32"))
            parameters = const(0.01, "float32"), const(0, "int32"), const(scale, "float32"), const(0, "int32")
            return module(relay.qnn.op.requantize(y, *parameters, out_dtype="int8", **attrs))

        most = 2 ** 31 - 1 - 4096 * 127 * 255
        check_region(model(most))
        assert "can reach" in reason(ba.partition(model(most + 1))[1], "qnn.dense")
        shift = float(np.float32(0.01)) * 2 ** 24  # exact: TVM adds 2 ** 23 in int32, which wraps beyond that
        highest = {"x": np.full((1, 4096), 127, np.int8)}
        assert [y.tolist() for y in run(model(most - 2 ** 23, shift), highest)] == [[[8, 127]]]
        assert [y.tolist() for y in run(model(most - 2 ** 23 + 1, shift), highest)] == [[[8, -128]]]
        check_region(model(most - 2 ** 23, shift))
        message = reason(ba.partition(model(most - 2 ** 23 + 1, shift))[1], "qnn.dense")
        assert "can reach 2,139,095,040 and 8,388,608 to round" in message
        check_region(model(most, shift, rounding="TONEAREST"))

    def test_a_build_for_another_target_changes_nothing(self) -> None:
        """TVM writes the target's choice of arithmetic into the attributes of the module that it builds."""
        def model() -> tvm.IRModule:
            x = relay.var("x", shape=(1, 16), dtype="int8")
            return module(qdense(x, 10, np.random.default_rng(0), in_units=16))

        mod, inputs = model(), random_inputs(model())
        part, _ = ba.partition(mod)
        with tvm.transform.PassContext(opt_level=3):
            relay.build(mod, target="llvm -mtriple=x86_64-linux-gnu -mcpu=skylake")
        assert "float32" in reason(ba.partition(mod)[1], "qnn.dense")  # so the trap is real
        np.testing.assert_array_equal(run(part, inputs)[0], run(model(), inputs)[0])

    @pytest.mark.case("S2")
    def test_host_softmax_after_other_zero_points(self) -> None:
        """S2"""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 16), dtype="int8")
        y = qdense(x, 10, rng, in_units=16, zp=(3, 24), scales=(0.05, 0.17))
        real = relay.qnn.op.dequantize(y, const(0.17, "float32"), const(24, "int32"))
        mod = module(relay.qnn.op.quantize(relay.nn.softmax(real), const(1 / 256, "float32"), const(-128, "int32"),
                                           out_dtype="int8"))
        check_library(mod, regions=1)

    def quantize(self, x: relay.Expr, scale: float, zero_point: int) -> relay.Expr:
        return relay.qnn.op.quantize(x, const(scale, "float32"), const(zero_point, "int32"), out_dtype="int8")

    def dequantize(self, x: relay.Expr, scale: float, zero_point: int) -> relay.Expr:
        return relay.qnn.op.dequantize(x, const(scale, "float32"), const(zero_point, "int32"))

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_float_ends(self, layout: str) -> None:
        """quantize and dequantize at the boundary: done while copying, with TVM's bits, also for extreme values."""
        shape = (1, 5, 4, 3) if layout == "NHWC" else (1, 3, 5, 4)
        x = float_input(*shape)
        y = qconv2d(self.quantize(x, 0.05, -5), 6, (3, 3), np.random.default_rng(0), in_channels=3, layout=layout)
        mod = module(self.dequantize(y, 0.06, 7))
        part, report = ba.partition(mod)
        assert not host_ops(report) and len(report.regions) == 1
        values = np.random.default_rng(0).normal(size=shape).astype("float32") * 4
        values.reshape(-1)[:6] = [np.inf, -np.inf, 0.125, -0.125, 1e30, -0.0]
        np.testing.assert_array_equal(run(part, {"x": values})[0], run(mod, {"x": values})[0])

    def test_float_ends_that_others_read_too(self) -> None:
        """The stored integers, their floats, and one input read at two scales."""
        rng = np.random.default_rng(0)
        x = float_input(1, 16)
        q = self.quantize(x, 0.05, 3)
        y = qdense(q, 8, rng, in_units=16, zp=(3, 7))
        z = qdense(self.quantize(x, 0.1, -2), 8, rng, in_units=16, zp=(-2, 7))
        check_library(module(relay.Tuple([q, y, self.dequantize(y, 0.06, 7), self.dequantize(y, 0.07, 7), z])))

    def test_quantize_alone_stays_on_the_host(self) -> None:
        mod = module(self.dequantize(self.quantize(float_input(1, 4), 0.1, 0), 0.1, 0))
        assert len(host_ops(ba.partition(mod)[1])) == 2

    def test_float_and_integer_layers_do_not_mix(self) -> None:
        """A float layer, an integer layer, a float layer: three regions."""
        rng = np.random.default_rng(0)
        x = float_input(1, 16)
        y = relay.nn.relu(relay.nn.dense(x, normal(16, 16)))
        y = qdense(self.quantize(y, 0.05, 3), 8, rng, in_units=16, zp=(3, 7))
        y = relay.nn.dense(self.dequantize(y, 0.06, 7), normal(4, 8))
        mod = module(y)
        inputs = random_inputs(mod)
        part, report = ba.partition(mod, calibration=[inputs])
        assert len(report.regions) == 3 and not host_ops(report)
        (found,), (expected,) = run(part, inputs), run(mod, inputs)
        assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()

    def test_fake_quantized_layers_become_integer_layers(self) -> None:
        """dequantize -> float dense -> quantize: exactly as after FakeQuantizationToInteger by hand."""
        x = relay.var("x", shape=(2, 6), dtype="int8")
        w = np.random.default_rng(0).integers(-127, 128, (4, 6)).astype("int8")
        y = relay.nn.dense(self.dequantize(x, 0.05, 3), self.dequantize(const(w), 0.01, 0))
        mod = module(self.quantize(y, 0.04, -7))
        inputs = random_inputs(mod)
        part, report = ba.partition(mod)
        assert len(report.regions) == 1 and not host_ops(report)
        integer = relay.transform.InferType()(relay.transform.FakeQuantizationToInteger()(mod))
        check_region(integer)
        np.testing.assert_array_equal(run(part, inputs)[0], run(integer, inputs)[0])

    def test_other_compute_dtype_stays_on_the_host(self) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 16), dtype="int8")
        y = qdense(x, 10, rng, in_units=16)
        wide = relay.qnn.op.requantize(y.args[0], *y.args[1:], axis=1, compute_dtype="float32", out_dtype="int8")
        report = check_library(module(wide), regions=0)
        assert "float32" in reason(report, "qnn.dense")


@pytest.mark.case("B33")
@pytest.mark.parametrize("skipped", [[], [0], [1]])
def test_after_relay_quantize(skipped: list[int]) -> None:
    """B33: TVM's own quantizer, with layers left in float. Whatever it makes is offloaded rightly or left alone."""
    y = relay.nn.relu(conv(float_input(1, 4, 6, 6), 16, 4))
    y = relay.nn.conv2d(relay.nn.global_avg_pool2d(y), normal(16, 16, 1, 1), channels=16, kernel_size=(1, 1))
    mod = module(relay.nn.dense(relay.nn.batch_flatten(y), normal(3, 16)))
    with relay.quantize.qconfig(skip_conv_layers=skipped, calibrate_mode="global_scale", global_scale=8.0):
        mod = relay.transform.InferType()(relay.quantize.quantize(mod))
    inputs = random_inputs(mod)
    part, _ = ba.partition(mod, calibration=[random_inputs(mod, seed) for seed in range(4)] + [inputs])
    (found,), (expected,) = run(part, inputs), run(mod, inputs)
    assert np.abs(found - expected).max() <= 0.1 * np.abs(expected).max()


@pytest.mark.case("S1")
def test_unused_layers_do_not_matter() -> None:
    """S1: two layers with the same name and weight shape keep their own weights."""
    x = relay.var("x", shape=(1, 8), dtype="int8")
    a, b = (qdense(x, 8, np.random.default_rng(seed), in_units=8) for seed in (0, 1))
    mod = module(relay.Tuple([a, b]))
    (first, second) = run(ba.partition(mod)[0], random_inputs(mod))
    assert (first != second).any()
    check_library(mod)
