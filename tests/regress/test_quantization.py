"""Public bug reports about quantization and dense layers (B11, B22 to B33, S6): literals and Python integers."""
from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.container.image import unpack  # noqa: E402
from byoc_accel.errors import AccelError  # noqa: E402
from byoc_accel.quantize.fixedpoint import from_real  # noqa: E402
from byoc_accel.quantize.qregion import QConv, QRegion, QTensor  # noqa: E402
from byoc_accel.quantize.report import QuantReport  # noqa: E402
from byoc_accel.quantize.weights import PrecisionWarning  # noqa: E402
from byoc_accel.region.region import Port  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.sim import simulate_program  # noqa: E402
from byoc_accel.target import load_target  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    compare,
    const,
    external_functions,
    host_ops,
    module,
    qadd,
    qconv2d,
    qdense,
    random_inputs,
    reason,
    region_count,
    run,
)


def float_input(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape, dtype="float32")


def qx(*shape: int, name: str = "x") -> relay.Var:
    return relay.var(name, shape=shape, dtype="int8")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.case("B11")
@pytest.mark.parametrize("layer", ["conv", "dense"])
def test_no_bias_is_a_zero_bias(layer: str) -> None:
    """One program for no bias and for zeros, another one for a bias; all give TVM's bytes."""
    def model(bias: np.ndarray | None) -> tvm.IRModule:
        if layer == "conv":
            y = qconv2d(qx(1, 4, 4, 4), 4, (1, 1), np.random.default_rng(0), in_channels=4, bias="none")
        else:
            y = qdense(qx(2, 4), 4, np.random.default_rng(0), in_units=4, bias="none")
        total = y.args[0] if bias is None else relay.nn.bias_add(y.args[0], const(bias, "int32"), axis=-1)
        return module(relay.Call(y.op, [total, *y.args[1:]], y.attrs))

    programs = []
    for bias in (None, np.zeros(4), np.array([0, 1000, -1000, 3000])):
        mod = model(bias)
        part, report = ba.partition(mod)
        assert not host_ops(report)
        (function,) = external_functions(part).values()
        programs.append(unpack(hook.compile_function(function)[1])[0].code)
        compare(run(part, random_inputs(mod)), run(mod, random_inputs(mod)))
    assert programs[0] == programs[1] != programs[2]


@pytest.mark.case("B22")
@pytest.mark.parametrize("form", ["dense", "dense of transpose", "matmul"])
def test_every_output_names_the_weight_that_was_read(form: str) -> None:
    """W[i, j] = 5 i + j, inputs of one 1, scales 1: the device gives 5 i + j."""
    w = np.arange(15, dtype="int8").reshape(3, 5)
    one, zero = const(1.0, "float32"), const(0, "int32")
    weight = {"dense": lambda: const(w), "dense of transpose": lambda: relay.transpose(const(w.T.copy())),
              "matmul": lambda: relay.transpose(relay.reshape(const(w.T.copy()), (5, 3)))}[form]()
    y = relay.qnn.op.dense(qx(5, 5), weight, zero, zero, one, one, 3, "int32")
    mod = module(relay.qnn.op.requantize(y, one, zero, one, zero, out_dtype="int8"))
    part, report = ba.partition(mod)
    assert region_count(part) == 1 and not host_ops(report)
    assert run(part, {"x": np.eye(5, dtype="int8")})[0].T.tolist() == w.tolist()


@pytest.mark.case("B23")
def test_one_output_and_one_input() -> None:
    rng = np.random.default_rng(0)
    check_library(module(qdense(qx(1, 128), 1, rng, in_units=128)), regions=1)
    check_library(module(qdense(qx(3, 1), 5, rng, in_units=1)), regions=1)
    check_library(module(qconv2d(qx(1, 5, 5, 6), 1, (3, 3), rng, in_channels=6)), regions=1)


@pytest.mark.case("B23")
def test_no_outputs_at_all() -> None:
    """N = 0: TVM's type check or a rule of ours says so, and nothing is compiled."""
    try:
        mod = module(relay.nn.dense(float_input(2, 4), const(np.zeros((0, 4)), "float32")))
    except tvm.TVMError:
        return
    _, report = ba.partition(mod, calibration=[random_inputs(mod)])
    assert not report.regions and reason(report, "nn.dense")


@pytest.mark.case("B24")
def test_tiny_weights_stored_as_float16() -> None:
    """A channel of 1e-6, which a scale in float16 would round to 0, and one of zeros beside an ordinary one: finite,
    no warning of NumPy, and results within a step of the float ones."""
    w = normal(4, 6).astype("float16")
    w[1], w[2] = np.float16(1e-6), 0
    bias = np.array([0.1, 0.75, -0.75, 0.2], "float32")
    y = relay.nn.bias_add(relay.nn.dense(float_input(2, 6), relay.cast(const(w), "float32")), const(bias))
    mod = module(y)
    inputs = random_inputs(mod)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        part, report = ba.partition(mod, calibration=[inputs])
    (found,), (expected,) = run(part, inputs), run(mod, inputs)
    step = (max(expected.max(), 0) - min(expected.min(), 0)) / 255
    assert len(report.regions) == 1 and np.abs(found - expected).max() <= 2 * step
    assert np.abs(found[:, 1:3] - [0.75, -0.75]).max() <= step


@pytest.mark.case("S6")
def test_a_layer_whose_weights_all_vanish_warns() -> None:
    """Weights of 1e-12 beside a bias of 1: no scale that the result allows keeps any of them."""
    y = relay.nn.bias_add(relay.nn.dense(float_input(2, 6), const(normal(4, 6) * 1e-12)), const(np.ones(4), "float32"))
    mod = module(y)
    inputs = random_inputs(mod)
    with pytest.warns(PrecisionWarning, match="dense_0.*all weights become 0"):
        part, _ = ba.partition(mod, calibration=[inputs])
    compare_steps(run(part, inputs)[0], run(mod, inputs)[0], 0.01)


def compare_steps(found: np.ndarray, expected: np.ndarray, limit: float) -> None:
    assert np.abs(found - expected).max() <= limit


def exact(total: int, real: Fraction, rounding: str) -> int:
    """round(total * real) in Python integers; `real` is below 1 and exact in 31 bits."""
    if rounding == "double":
        return double(total, real)
    value = total * real
    below = value.numerator // value.denominator
    rest = value - below
    if rounding == "truncate":
        return below if total >= 0 or rest == 0 else below + 1
    if rest != Fraction(1, 2):
        return below + (rest > Fraction(1, 2))
    return below + (1 if rounding == "upward" or total > 0 else 0)


def double(total: int, real: Fraction) -> int:
    """TFLite's two roundings: to 31 bits with halves upward, then to the power of two with halves away from zero."""
    right = 0
    while real < Fraction(1, 2):
        real, right = real * 2, right + 1
    high = (total * real + Fraction(1, 2)).__floor__()
    value = Fraction(abs(high), 1 << right) + Fraction(1, 2)
    return value.__floor__() if high >= 0 else -value.__floor__()


@pytest.mark.case("B26")
@pytest.mark.parametrize("rounding", ["upward", "nearest", "truncate", "double"])
@pytest.mark.parametrize("numerator,bits", [(1, 9), (3, 10), (1, 1)])
def test_all_sums_of_sixteen_bits_on_the_simulator(rounding: str, numerator: int, bits: int) -> None:
    """One channel for each high byte of the sum, x for its low byte: all 65,536 sums, half of them at ties."""
    real = Fraction(numerator, 1 << bits)
    requant = from_real(float(real))
    bias = np.arange(-128, 128, dtype=np.int32) * 256
    node = QConv("d", "x", "y", np.ones((256, 1, 1, 1), np.int8), bias, np.full(256, requant.multiplier),
                 np.full(256, requant.shift), (1, 1), (0, 0, 0, 0), (1, 1), 1, rounding, (-128, 127))
    tensors = (QTensor("x", (1, 1, 256, 1), 1.0, 0), QTensor("y", (1, 1, 256, 256), 1.0, 0))
    ports = tuple(Port(t.name, t.shape, "int8", (0, 1, 2, 3)) for t in tensors)
    qregion = QRegion("sweep", tensors, (node,), ports[:1], ports[1:])
    from byoc_accel.compile import compile_qregion

    target = load_target("reference")
    program = compile_qregion(qregion, QuantReport("sweep", "exact", "model", 0, ()), target).program
    x = np.arange(-128, 128).astype(np.int8)
    outputs, _ = simulate_program(program, target, {program.buffers[0].name: x})
    (found,) = outputs.values()
    expected = [[min(max(exact(int(v) + int(b), real, rounding), -128), 127) for b in bias] for v in x]
    np.testing.assert_array_equal(found.reshape(256, 256), expected)


@pytest.mark.case("B26")
def test_quantize_at_a_boundary_saturates() -> None:
    """-129 -> -128 and 128 -> 127; halves away from zero as TVM's qnn.quantize."""
    x = float_input(1, 8)
    q = relay.qnn.op.quantize(x, const(1.0, "float32"), const(0, "int32"), out_dtype="int8")
    one, zero = const(1.0, "float32"), const(0, "int32")
    y = relay.qnn.op.dense(q, const(np.eye(8), "int8"), zero, zero, one, one, 8, "int32")
    mod = module(relay.qnn.op.requantize(y, one, zero, one, zero, out_dtype="int8"))
    part, report = ba.partition(mod)
    assert not host_ops(report)
    values = np.array([[-129, 128, -1.5, -0.5, 0.5, 1.5, 1e9, -1e9]], "float32")
    assert run(part, {"x": values})[0].tolist() == [[-128, 127, -2, -1, 1, 2, 127, -128]]
    compare(run(part, {"x": values}), run(mod, {"x": values}))


@pytest.mark.parametrize("scale", [34 / 255, 0.1, 1 / 127.5])
def test_halves_at_a_float_input(scale: float) -> None:
    """TVM's code multiplies by the reciprocal of the scale; a division gives another byte for up to one in twelve of
    these values, halves of a step and their neighbours. Images of whole numbers are full of them."""
    halves = ((np.arange(-100, 100) + 0.5) * np.float64(np.float32(scale))).astype("float32")
    values = np.stack([halves, np.nextafter(halves, np.float32(9)), np.nextafter(halves, np.float32(-9))])
    x = float_input(1, 3, 200, 1)
    stored = relay.qnn.op.quantize(x, const(scale, "float32"), const(3, "int32"), out_dtype="int8")
    mod = module(relay.nn.max_pool2d(stored, (1, 1), layout="NHWC"))
    inputs = {"x": values.reshape(1, 3, 200, 1)}
    part, report = ba.partition(mod)
    assert not host_ops(report)
    np.testing.assert_array_equal(run(part, inputs)[0], run(mod, inputs)[0])


@pytest.mark.case("B28")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_scales_of_another_axis_are_never_taken_for_channels(layout: str) -> None:
    """N = C = H = W = O = I = 4, so that no shape tells the axes apart: requantize along the channels is offloaded and
    exact, along any other axis it stays with the host (TVM's own lowering knows no axis but these two)."""
    rng = np.random.default_rng(0)
    x = qx(4, 4, 4, 4)
    y = qconv2d(x, 4, (1, 1), rng, in_channels=4, layout=layout)
    scales = (np.array([1, 2, 4, 8]) * 0.0005).astype("float32")
    for axis in range(4):
        args = [y.args[0], const(scales), *y.args[2:]]
        mod = module(relay.qnn.op.requantize(*args, axis=axis, out_dtype="int8"))
        part, report = ba.partition(mod)
        if axis == layout.index("C"):
            assert not host_ops(report)
            compare(run(part, random_inputs(mod)), run(mod, random_inputs(mod)))
        else:
            assert not report.regions and "axis" in reason(report, "qnn.conv2d"), report.to_text()


@pytest.mark.case("B28")
def test_one_repeated_scale_is_the_scalar_one() -> None:
    results = []
    for scale in (np.full(4, 0.002, "float32"), np.float32(0.002)):
        y = qdense(qx(2, 4), 4, np.random.default_rng(0), in_units=4, bias="none")
        mod = module(relay.qnn.op.requantize(y.args[0], const(scale), *y.args[2:], axis=1, out_dtype="int8"))
        part, report = ba.partition(mod)
        assert not host_ops(report)
        results.append(run(part, random_inputs(mod))[0])
        compare([results[-1]], run(mod, random_inputs(mod)))
    np.testing.assert_array_equal(*results)


@pytest.mark.case("B28")
def test_scales_with_axes_of_their_own() -> None:
    """Scales of shape (4, 1, 1, 1): TVM's type check or a rule of ours refuses them."""
    x = qx(1, 4, 4, 4)
    w = np.random.default_rng(0).integers(-127, 128, (4, 4, 1, 1)).astype("int8")
    scales = const(np.full((4, 1, 1, 1), 0.002), "float32")
    y = relay.qnn.op.conv2d(x, const(w), const(0, "int32"), const(0, "int32"), const(0.05, "float32"), scales,
                            kernel_size=(1, 1), channels=4, out_dtype="int32")
    try:
        mod = module(relay.qnn.op.requantize(y, scales, const(0, "int32"), const(0.1, "float32"), const(0, "int32"),
                                             axis=1, out_dtype="int8"))
    except tvm.TVMError:
        return
    _, report = ba.partition(mod)
    assert not report.regions and reason(report, "qnn.conv2d")


@pytest.mark.case("B30")
@pytest.mark.parametrize("form", ["uint8 kernel", "int16 activations", "int64 bias", "float64 weight"])
def test_types_that_are_no_int8_are_exact_or_refused(form: str) -> None:
    """Whatever stays on the host says why, and the model's result is TVM's."""
    rng = np.random.default_rng(0)
    zero = const(0, "int32")
    if form == "float64 weight":
        x = relay.var("x", shape=(2, 6), dtype="float64")
        mod = module(relay.nn.dense(x, const(rng.normal(size=(4, 6)), "float64"), out_dtype="float64"))
    else:
        x = relay.var("x", shape=(2, 6), dtype="int16" if form == "int16 activations" else "int8")
        kind, point = ("uint8", 128) if form == "uint8 kernel" else ("int8", 0)
        w = const(rng.integers(0, 256, (4, 6)) + (0 if kind == "uint8" else -128), kind)
        if form == "int16 activations":
            w = relay.cast(w, "int16")
        y = relay.qnn.op.dense(x, w, zero, const(point, "int32"), const(0.1, "float32"), const(0.05, "float32"), 4,
                               "int32") if form != "int16 activations" else relay.nn.dense(x, w, out_dtype="int32")
        if form == "int64 bias":
            bias = relay.const(np.array([1, -2, 3, 1 << 20]), "int64")
            y = relay.cast(relay.nn.bias_add(relay.cast(y, "int64"), bias), "int32")
        mod = module(relay.qnn.op.requantize(y, const(0.005, "float32"), zero, const(0.5, "float32"), zero,
                                             out_dtype="int8"))
    part, report = ba.partition(mod)
    for row in report.ops:
        assert row.region or row.reason
    inputs = {"x": rng.integers(-100, 100, (2, 6)).astype(str(x.type_annotation.dtype))}
    for a, b in zip(run(part, inputs), run(mod, inputs)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.case("B30")
@pytest.mark.parametrize("bits", ["float8_e4m3fn", "int4"])
def test_narrow_parameters_are_converted_exactly_or_refused_by_name(bits: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = getattr(ml_dtypes, bits)
    values = np.random.default_rng(0).integers(-7, 8, (3, 4)).astype(dtype)
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
    mod = module(relay.nn.dense(x, w), x, w)
    try:
        part, _ = ba.partition(mod, {"w": values}, calibration=[{"x": np.ones((1, 4), "float32")}])
    except AccelError as error:
        assert "'w'" in str(error) and bits in str(error) and "convert" in str(error)
        return
    exact_values = values.astype("float32")
    inputs = {"x": normal(1, 4)}
    assert np.abs(run(part, inputs)[0] - inputs["x"] @ exact_values.T).max() < 2


@pytest.mark.case("B32")
@pytest.mark.parametrize("form", ["two scales", "twice the same", "with a constant", "one scale", "chain"])
def test_concatenation_requantizes_every_operand(form: str) -> None:
    """Scales 0.1 and 0.01 into 0.1, behind convolutions; every byte is TVM's."""
    rng = np.random.default_rng(0)
    x = qx(1, 5, 5, 4)
    a = qconv2d(x, 4, (3, 3), rng, in_channels=4, zp=(-5, 3), scales=(0.05, 0.1))
    b = qconv2d(x, 6, (3, 3), rng, in_channels=4, zp=(-5, -7), scales=(0.05, 0.01))
    held = const(rng.integers(-128, 128, (1, 3, 3, 2)), "int8")
    operands, scales = {"two scales": ([a, b], [(0.1, 3), (0.01, -7)]), "twice the same": ([a, a], [(0.1, 3)] * 2),
                        "with a constant": ([a, held], [(0.1, 3), (0.02, 5)]), "one scale": ([a, a], [(0.1, 3)] * 2),
                        "chain": ([b, a, b], [(0.01, -7), (0.1, 3), (0.01, -7)])}[form]
    y = relay.qnn.op.concatenate(relay.Tuple(operands), relay.Tuple([const(s, "float32") for s, _ in scales]),
                                 relay.Tuple([const(z, "int32") for _, z in scales]), const(0.1, "float32"),
                                 const(3, "int32"), axis=3)
    check_library(module(y))


@pytest.mark.case("B32")
def test_residual_block_with_an_identity_and_a_projection() -> None:
    """Zero points 3 and -7, an identity shortcut, then a 1 x 1 one: one region, TVM's bytes."""
    rng = np.random.default_rng(0)
    x = qx(1, 6, 6, 8)
    a = qconv2d(x, 8, (3, 3), rng, in_channels=8, padding=(1, 1), zp=(3, -7), scales=(0.05, 0.1))
    y = qadd(x, a, (0.05, 3), (0.1, -7), (0.12, 5))
    b = qconv2d(y, 16, (3, 3), rng, in_channels=8, padding=(1, 1), strides=(2, 2), zp=(5, -7), scales=(0.12, 0.1))
    c = qconv2d(y, 16, (1, 1), rng, in_channels=8, strides=(2, 2), zp=(5, 4), scales=(0.12, 0.02))
    check_library(module(qadd(b, c, (0.1, -7), (0.02, 4), (0.1, -128))), regions=1)
