"""Dense layers: operand order, ranks, flattening of NCHW tensors, constants in unusual places (B22, B23, B30)."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.errors import QuantizeError  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    check_region,
    const,
    external_functions,
    float_input,
    host_ops,
    module,
    qconv2d,
    qdense,
    random_inputs,
    reason,
    run,
    run_imported,
)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.case("B22")
@pytest.mark.parametrize("form", ["dense", "dense of transpose", "matmul", "matmul transposed"])
def test_one_hot_inputs_name_the_weight_that_is_read(form: str) -> None:
    """B22: W[i, j] = 5 i + j."""
    w = np.arange(15, dtype="float32").reshape(3, 5)
    x = float_input(5, 5)
    y = {"dense": lambda: relay.nn.dense(x, const(w)),
         "dense of transpose": lambda: relay.nn.dense(x, relay.transpose(const(np.ascontiguousarray(w.T)))),
         "matmul": lambda: relay.nn.matmul(x, const(np.ascontiguousarray(w.T))),
         "matmul transposed": lambda: relay.nn.matmul(x, const(w), transpose_b=True)}[form]()
    imported = check_region(module(y))
    (found,) = run_imported(imported, [np.eye(5, dtype="float32")])
    np.testing.assert_array_equal(found, w.T)


@pytest.mark.case("B23")
@pytest.mark.parametrize("shape,units", [((1, 128), 1), ((2, 3, 8), 4), ((1, 1), 3), ((5, 7), 6), ((2, 3, 4, 5), 6)])
def test_shapes(shape: tuple[int, ...], units: int) -> None:
    """B23"""
    x = float_input(*shape)
    bias = const(weights(units, seed=1))
    y = relay.nn.relu(relay.add(bias, relay.nn.dense(x, const(weights(units, shape[-1])))))
    mod = module(y)
    if len(shape) == 2:
        check_region(mod)
        return
    inputs = random_inputs(mod)  # TVM's own x86 schedules take matrices only
    part, _ = ba.partition(mod, calibration=[inputs])
    (function,) = external_functions(part).values()
    (found,) = run_imported(import_function(function), [inputs["x"]])
    expected = np.maximum(inputs["x"] @ weights(units, shape[-1]).T + weights(units, seed=1), 0)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    (on_device,) = run(part, inputs)
    assert on_device.shape == expected.shape and np.abs(on_device - expected).max() < 0.1


@pytest.mark.case("B23")
def test_constant_operand_and_computed_weight_stay_on_the_host() -> None:
    """B23"""
    w = relay.var("w", shape=(4, 8), dtype="float32")
    mod = module(relay.nn.dense(const(weights(2, 8)), w))
    part, report = ba.partition(mod)
    assert host_ops(report) == ["nn.dense"]
    assert "constant" in reason(report, "nn.dense") and "computed at run time" in reason(report, "nn.dense")
    tvm.ir.assert_structural_equal(part["main"], mod["main"])


@pytest.mark.case("B23")
def test_two_constants_make_no_region() -> None:
    """B23"""
    x = float_input(2, 4)
    y = relay.add(x, relay.nn.dense(const(weights(2, 8)), const(weights(4, 8, seed=1))))
    _, report = ba.partition(module(y))
    assert not report.regions and host_ops(report) == ["add"]


@pytest.mark.parametrize("flatten", ["batch_flatten", "reshape", "squeeze"])
@pytest.mark.parametrize("batch", [1, 2])
def test_dense_after_flattening_nchw(flatten: str, batch: int) -> None:
    """The host flattens (c, h, w), the device holds (h, w, c)."""
    rng = np.random.default_rng(0)
    hw = 1 if flatten == "squeeze" else 3
    x = relay.var("x", shape=(batch, 4, hw + 2, hw + 2), dtype="int8")
    y = qconv2d(x, 6, (3, 3), rng, in_channels=4, layout="NCHW", zp=(-5, 4))
    y = {"batch_flatten": relay.nn.batch_flatten, "squeeze": lambda v: relay.squeeze(v, [2, 3]),
         "reshape": lambda v: relay.reshape(v, (batch, -1))}[flatten](y)
    check_region(module(qdense(y, 5, rng, in_units=6 * hw * hw, zp=(4, -3))))


def test_dense_after_transpose_and_flatten() -> None:
    """The transpose costs nothing: only the order of the weight's columns changes."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 5, 5, 3), dtype="int8")
    y = qconv2d(x, 6, (3, 3), rng, in_channels=3, zp=(-5, 4))
    for axes in ([0, 3, 1, 2], [0, 2, 3, 1], [0, 2, 1, 3]):
        flat = relay.reshape(relay.transpose(y, axes), (1, 54))
        imported = check_region(module(qdense(flat, 5, rng, in_units=54, zp=(4, -3))))
        assert [type(n).__name__ for n in imported.region.nodes] == ["Conv2d", "Reshape", "Conv2d"]


def test_rows_share_each_weight_tile() -> None:
    """A batch of vectors is one row of positions, not as many runs of the program."""
    imported = check_region(module(relay.nn.dense(float_input(9, 16), const(weights(4, 16)))))
    assert imported.region.tensors[0].shape == (1, 1, 9, 16)


@pytest.mark.case("B11")
@pytest.mark.case("B28")
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", ["none", "bias_add", "add", "add_left"])
def test_quantized_dense(per_channel: bool, bias: str) -> None:
    x = relay.var("x", shape=(3, 20), dtype="int8")
    check_region(module(qdense(x, 7, np.random.default_rng(0), in_units=20, per_channel=per_channel, bias=bias,
                               clip=(-100, 90))))


def weight_forms(w: np.ndarray) -> dict[str, relay.Expr]:
    """One float32 weight of small integers, written in ways that frontends write it."""
    big_endian = w.astype(">f4")
    return {
        "float16 cast": relay.cast(const(w.astype("float16")), "float32"),
        "float64 cast": relay.cast(const(w.astype("float64")), "float32"),
        "int8 cast": relay.cast(const(w.astype("int8")), "float32"),
        "bfloat16 cast": relay.cast(relay.cast(const(w), "bfloat16"), "float32"),
        "transpose twice": relay.transpose(relay.transpose(const(w))),
        "dequantize int8": relay.qnn.op.dequantize(const(w.astype("int8")), const(1.0, "float32"), const(0, "int32")),
        "dequantize uint8": relay.qnn.op.dequantize(const((w + 128).astype("uint8")), const(1.0, "float32"),
                                                    const(128, "int32")),
        "big endian": const(np.asarray(big_endian, "float32")),
        "sum": relay.multiply(relay.add(const(w / 2), const(w / 2)), const(1.0, "float32")),
        "power": relay.multiply(const(w * 8), relay.power(const(2.0, "float32"), const(-3.0, "float32")))}


@pytest.mark.case("B30")
@pytest.mark.case("S5")
@pytest.mark.parametrize("form", list(weight_forms(np.zeros((1, 1)))))
def test_weights_in_any_form(form: str) -> None:
    """B30, S5"""
    w = np.random.default_rng(0).integers(-8, 8, (4, 6)).astype("float32")
    imported = check_region(module(relay.nn.dense(float_input(2, 6), weight_forms(w)[form])))
    np.testing.assert_array_equal(imported.region.nodes[0].weight[:, 0, 0], w)


@pytest.mark.case("B30")
def test_quantized_weight_that_is_a_quantized_float_constant() -> None:
    """B30: #9135, weights are quantize(constant)."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 6), dtype="int8")
    w = relay.qnn.op.quantize(const(rng.normal(size=(4, 6)), "float32"), const(0.05, "float32"), const(0, "int32"))
    y = relay.qnn.op.dense(x, w, const(3, "int32"), const(0, "int32"), const(0.1, "float32"), const(0.05, "float32"),
                           4, "int32")
    y = relay.qnn.op.requantize(y, const(0.005, "float32"), const(0, "int32"), const(0.09, "float32"),
                                const(1, "int32"), out_dtype="int8")
    check_region(module(y))


@pytest.mark.case("B30")
@pytest.mark.parametrize("zero_point", [1, -128])
def test_asymmetric_weights_stay_on_the_host(zero_point: int) -> None:
    """B30: never silently treated as symmetric."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 6), dtype="int8")
    y = relay.qnn.op.dense(x, const(rng.integers(-128, 128, (4, 6)), "int8"), const(3, "int32"),
                           const(zero_point, "int32"), const(0.1, "float32"), const(0.05, "float32"), 4, "int32")
    y = relay.qnn.op.requantize(y, const(0.005, "float32"), const(0, "int32"), const(0.09, "float32"),
                                const(1, "int32"), out_dtype="int8")
    report = check_library(module(y), regions=0)
    assert "symmetric" in reason(report, "qnn.dense") and str(zero_point) in reason(report, "qnn.dense")


@pytest.mark.case("B30")
@pytest.mark.parametrize("dtype", ["float16", "float64", "int16"])
def test_other_activation_types_stay_on_the_host(dtype: str) -> None:
    """B30"""
    x = relay.var("x", shape=(2, 6), dtype=dtype)
    _, report = ba.partition(module(relay.nn.dense(x, const(np.ones((4, 6)), dtype), out_dtype=dtype)))
    assert host_ops(report) == ["nn.dense"] and dtype in reason(report, "nn.dense")


@pytest.mark.case("B25")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["weight", "bias"])
def test_values_that_are_not_finite_are_errors(value: float, where: str) -> None:
    """B25: an error with layer, index and value, and no fallback."""
    w, b = weights(4, 6), weights(4, seed=1)
    (w if where == "weight" else b)[2] = value
    mod = module(relay.nn.bias_add(relay.nn.dense(float_input(2, 6), const(w)), const(b)))
    with pytest.raises(QuantizeError, match=rf"dense_0.*{where}\[2.*{value}"):
        ba.partition(mod, calibration=[random_inputs(mod)])
