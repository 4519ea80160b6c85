"""ONNX models of QuantizeLinear / DequantizeLinear pairs: every byte as TVM's own lowering of the integer graph.

The reference runs FoldConstant and FakeQuantizationToInteger here, on the importer's module. A second reference,
independent of that pass, is the float graph itself: results may differ by a few steps of the last scale, never more.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.cli import main  # noqa: E402
from byoc_accel.errors import ModelError  # noqa: E402
from byoc_accel.relay.files.model_file import ImportedModel, import_model  # noqa: E402
from byoc_accel.relay.report import PartitionReport  # noqa: E402
from tests.relay.models import const, host_ops, module, reason, run  # noqa: E402
from tests.relay.qdq_models import Net  # noqa: E402

DTYPES = ("int8", "uint8")
HOST_SHIFT = ["cast", "subtract", "cast"]  # uint8 to int8 at a uint8 input


def load(net: Net, outputs: list[str], folder: Path) -> ImportedModel:
    onnx.save(net.model(outputs), folder / "net.onnx")
    return import_model(folder / "net.onnx")


def arrays(model: ImportedModel, seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for name, info in model.inputs.items():
        real = rng.normal(0, 1.2, info.shape)
        low = 0 if info.dtype == "uint8" else -128
        out[name] = (real if info.dtype == "float32" else rng.integers(low, low + 256, info.shape)).astype(info.dtype)
    return out


def integer(model: ImportedModel) -> tvm.IRModule:
    """TVM's own integer graph."""
    folded = relay.transform.FoldConstant()(relay.transform.InferType()(model.module))
    return relay.transform.InferType()(relay.transform.FakeQuantizationToInteger()(folded))


def check(net: Net, outputs: list[str], folder: Path, *, steps: float, reference: bool = True) -> PartitionReport:
    """Bytes of our library against TVM's, and within `steps` scales of the output against the float graph.

    reference False: TVM cannot build what its own pass makes of this model.
    """
    model = load(net, outputs, folder)
    inputs = arrays(model)
    part, report = ba.partition(model.module, model.params)
    found, real = run(part, inputs), run(model.module, inputs)
    if reference:
        for a, b in zip(found, run(integer(model), inputs)):
            np.testing.assert_array_equal(a, b)
    for name, a, b in zip(outputs, found, real):
        assert len(np.unique(a)) > 5 and np.abs(a - b).max() <= 1.001 * steps * net.scales[name]
    return report


@pytest.mark.parametrize("dtype", DTYPES)
def test_residual_network(dtype: str, tmp_path: Path) -> None:
    """Per-channel convs with relu, depthwise, residual add with relu, max pool, flatten, Gemm with bias."""
    net = Net(1, dtype)
    a = net.conv(net.float_input((1, 8, 8, 8)), (8, 8), pads=[1, 1, 1, 1], relu=True)
    b = net.conv(a, (8, 8), pads=[1, 1, 1, 1], group=8, strides=[1, 1])
    c = net.conv(b, (8, 8), (1, 1), axis=None)
    s = net.quantized(net.node("Relu", [net.node("Add", [a, c])]), 0.04, -128)
    m = net.quantized(net.node("MaxPool", [s], kernel_shape=[2, 2], strides=[2, 2]), 0.04, -128)
    weight, scales = net.weight((10, 128), 0)
    y = net.node("Gemm", [net.node("Flatten", [m]), weight, net.bias(m, scales, 10)], transB=1)
    report = check(net, [net.quantized(y, 0.05, -3)], tmp_path, steps=4)
    assert not host_ops(report) and len(report.regions) == 1, report.to_text()


@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_input_and_output(dtype: str, tmp_path: Path) -> None:
    """Integers at both ends: uint8 ones are shifted by 128 on the host."""
    net = Net(2, dtype)
    conv = net.conv(net.stored_input((1, 8, 8, 8)), (8, 8), relu=True)
    model = load(net, [conv], tmp_path)
    stored = relay.Function(model.module["main"].params, model.module["main"].body.args[0])
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(stored))
    inputs = arrays(model)
    part, report = ba.partition(mod)
    folded = relay.transform.FakeQuantizationToInteger()(relay.transform.FoldConstant()(mod))
    (found,), (expected,) = run(part, inputs), run(relay.transform.InferType()(folded), inputs)
    assert found.dtype == expected.dtype == dtype
    np.testing.assert_array_equal(found, expected)
    assert host_ops(report) == ([*HOST_SHIFT, "cast", "add", "cast"] if dtype == "uint8" else [])


@pytest.mark.parametrize("dtype", DTYPES)
def test_clips(dtype: str, tmp_path: Path) -> None:
    """relu6 on sums with one scale per channel and with one scale, and on stored integers, where the pass writes
    bounds that int8 does not have and TVM refuses to build."""
    net = Net(3, dtype)
    x = net.float_input((1, 8, 8, 8))
    ends = [net.constant(np.float32(0)), net.constant(np.float32(1.5))]
    outputs = []
    for axis in (0, None):
        weight, scales = net.weight((8, 8, 3, 3), axis)
        y = net.node("Conv", [x, weight, net.bias(x, scales, 8)])
        outputs.append(net.quantized(net.node("Clip", [y, *ends]), 0.05, -128))
    report = check(net, outputs, tmp_path, steps=1)
    assert not host_ops(report), report.to_text()
    net = Net(3, dtype)
    x = net.conv(net.float_input((1, 8, 8, 8)), (8, 8))
    y = net.node("Clip", [x, net.constant(np.float32(-1)), net.constant(np.float32(6))])
    report = check(net, [net.quantized(y, 0.03, 5)], tmp_path, steps=1, reference=False)
    assert not host_ops(report), report.to_text()


def test_average_pools(tmp_path: Path) -> None:
    """Average pools of one scale are offloaded; the pass that TVM ships fails for AveragePool."""
    net = Net(4, "int8")
    x = net.conv(net.float_input((1, 8, 8, 8)), (8, 8), pads=[1, 1, 1, 1])
    p = net.quantized(net.node("AveragePool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 1]), 0.03, 5)
    g = net.quantized(net.node("GlobalAveragePool", [p]), 0.03, 5)
    y = net.node("Gemm", [net.node("Flatten", [g]), net.weight((8, 8), 0)[0]], transB=1)
    report = check(net, [net.quantized(y, 0.02, 3), p], tmp_path, steps=3)
    assert not host_ops(report), report.to_text()


def test_padding_counted_by_an_average_stays_real(tmp_path: Path) -> None:
    net = Net(5, "int8")
    x = net.conv(net.float_input((1, 8, 8, 8)), (8, 8))
    p = net.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    report = check(net, [net.quantized(p, 0.03, 5)], tmp_path, steps=0)
    assert "nn.avg_pool2d" in host_ops(report)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_value(dtype: str, tmp_path: Path) -> None:
    """Zero point 100 is 228 in uint8, which the pass would write as the int8 value 127."""
    net = Net(6, dtype)
    x = net.float_input((1, 8, 8, 8), shift=100)
    p = net.node("Pad", [x, net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])), net.constant(np.float32(0))])
    y = net.conv(net.quantized(p, 0.02, 100), (8, 8))
    check(net, [y], tmp_path, steps=1, reference=dtype == "int8")


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_of_three_axes(dtype: str, tmp_path: Path) -> None:
    """Which the importer cannot take; scales per column of the matrix, O = I."""
    net = Net(7, dtype)
    weight, _ = net.weight((8, 8), 1)
    y = net.node("MatMul", [net.float_input((1, 6, 8)), weight])
    y = net.node("Add", [y, net.constant(net.rng.normal(0, 0.3, 8).astype(np.float32))])
    report = check(net, [net.quantized(y, 0.05, 3)], tmp_path, steps=1, reference=False)
    assert report.macs_offloaded == report.macs == 6 * 8 * 8


def test_scales_are_expressions(tmp_path: Path) -> None:
    """S5: scale = 2^-3 computed by Pow, and a split."""
    net = Net(8, "uint8")
    net.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8]))
    scale = net.node("Pow", [net.constant(np.float32(2)), net.constant(np.float32(-3))])
    zero = net.constant(net.zero_point(3))
    x = net.node("DequantizeLinear", [net.node("QuantizeLinear", ["x", scale, zero]), scale, zero])
    halves = ["first", "second"]
    net.nodes.append(helper.make_node("Split", [x, net.constant(np.array([4, 4]))], halves, "split", axis=1))
    net.scales.update(dict.fromkeys([x, *halves], np.float32(0.125)))
    convs = [net.conv(half, (4, 8), scale=0.1) for half in halves]
    report = check(net, [net.quantized(net.node("Add", convs), 0.2, 1)], tmp_path, steps=1)
    assert report.macs_offloaded == report.macs > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_host_between_regions(dtype: str, tmp_path: Path) -> None:
    """TVM folds the scales of dequantize, a float op and quantize into one; apart they round differently at ties."""
    net = Net(9, dtype)
    x = net.conv(net.float_input((1, 8, 8, 8)), (8, 8))
    factors = np.full((1, 8, 1, 1), 1 / 6, np.float32)
    factors[0, 3] = 0.3  # no scalar, so no table
    y = net.conv(net.quantized(net.node("Mul", [x, net.constant(factors)]), 0.01, 3), (8, 8))
    report = check(net, [y], tmp_path, steps=0, reference=False)
    assert len(report.regions) == 2 and "multiply" in host_ops(report)


WRONG: dict[str, tuple[Callable[[Net], str], str, str]] = {
    "input channels": (lambda n: n.conv(n.float_input((1, 8, 8, 8)), (8, 8), axis=1, bias=False), "nn.conv2d",
                       "along axis 1; they must lie along axis 0"),
    "rows of a matrix": (lambda n: n.quantized(
        n.node("MatMul", [n.float_input((8, 8)), n.weight((8, 8), 0)[0]]), 0.05, 3), "nn.dense",
        "along axis 1; they must lie along axis 0"),
    "batch norm between": (lambda n: n.quantized(n.node("BatchNormalization", [
        n.node("Conv", [n.float_input((1, 8, 8, 8)), n.weight((8, 8, 3, 3))[0]]),
        *(n.constant(n.rng.uniform(0.5, 1, 8).astype(np.float32)) for _ in range(4))]), 0.05, 3), "nn.conv2d",
        "no integer form"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_pass_would_compute_wrongly(case: str, tmp_path: Path) -> None:
    """B28: O = I, so no shape tells that the scales lie along the wrong axis. On the host, as the float graph."""
    build, op, text = WRONG[case]
    net = Net(10, "int8")
    report = check(net, [build(net)], tmp_path, steps=0, reference=False)
    assert text in reason(report, op) and not report.regions


@pytest.mark.parametrize("zero_point, offloaded", [(128, True), (120, False)])
def test_unsigned_weights(zero_point: int, offloaded: bool, tmp_path: Path) -> None:
    net = Net(11, "int8")
    x = net.float_input((1, 8, 8, 8))
    weight, scales = net.weight((8, 8, 3, 3), 0, "uint8", zero_point)
    y = net.quantized(net.node("Conv", [x, weight, net.bias(x, scales, 8)]), 0.05, 3)
    report = check(net, [y], tmp_path, steps=1)
    assert bool(report.regions) == offloaded
    assert offloaded or "zero point -8" in reason(report, "qnn.conv2d")


def test_forms_of_scales_and_biases(tmp_path: Path) -> None:
    """Scales of shape (1,), no zero points at all, and a float bias."""
    net = Net(12, "uint8")
    weight = net.constant(net.rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8))
    weight = net.node("DequantizeLinear", [weight, net.constant(np.float32([0.0012]))], axis=0)
    bias = net.constant(net.rng.normal(0, 0.2, 8).astype(np.float32))
    y = net.node("Conv", [net.float_input((1, 8, 8, 8)), weight, bias])
    scale = net.constant(np.float32([0.02]))
    y = net.node("DequantizeLinear", [net.node("QuantizeLinear", [y, scale]), scale, net.constant(np.uint8([0]))])
    net.scales[y] = np.float32(0.02)
    report = check(net, [y], tmp_path, steps=1, reference=False)
    assert not host_ops(report)


def qlinear(op: str, per_channel: bool, seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A QLinearConv or QLinearMatMul of random uint8 data, and its tensors by the standard's names."""
    rng = np.random.default_rng(seed)
    shape = (8, 8, 3, 3) if op == "QLinearConv" else (8, 8)
    scale = rng.uniform(0.001, 0.003, 8 if per_channel else ()).astype(np.float32)
    t = {"x": rng.integers(0, 256, (1, 8, 6, 6) if op == "QLinearConv" else (1, 6, 8)).astype(np.uint8),
         "x_scale": np.float32(0.02), "x_zero": np.uint8(117), "w": rng.integers(-127, 128, shape).astype(np.int8),
         "w_scale": scale, "w_zero": np.zeros(scale.shape, np.int8), "y_scale": np.float32(0.03),
         "y_zero": np.uint8(131)}
    if op == "QLinearConv":
        t["b"] = rng.integers(-3000, 3000, 8).astype(np.int32)
    weights = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in t.items() if n != "x"]
    graph = helper.make_graph(
        [helper.make_node(op, list(t), ["y"], "layer")], "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, t["x"].shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 8, 4, 4] if op == "QLinearConv" else [1, 6, 8])],
        weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)])
    model.ir_version = 7
    return model, t


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_ops(op: str, per_channel: bool, tmp_path: Path) -> None:
    """The importer leaves out their rounding; here against the standard's definition in int64 and float64."""
    model, t = qlinear(op, per_channel, 13)
    onnx.save(model, tmp_path / "net.onnx")
    imported = import_model(tmp_path / "net.onnx")
    part, report = ba.partition(imported.module, imported.params)
    (found,) = run(part, {"x": t["x"]})
    x = t["x"].astype(np.int64) - int(t["x_zero"])
    ratio = float(t["x_scale"]) * t["w_scale"].astype(np.float64) / float(t["y_scale"])
    if op == "QLinearConv":
        w = t["w"].astype(np.int64)
        sums = sum(np.einsum("oi,nihw->nohw", w[:, :, i, j], x[:, :, i:i + 4, j:j + 4])
                   for i in range(3) for j in range(3)) + t["b"][:, None, None]
        ratio = ratio.reshape(-1, 1, 1)
    else:
        sums = x @ t["w"].astype(np.int64)
    exact = sums * ratio
    expected = np.clip(np.rint(exact) + int(t["y_zero"]), 0, 255)
    assert found.dtype == np.uint8 and report.macs_offloaded == report.macs > 0
    clear = np.abs(exact - np.floor(exact) - 0.5) > 1e-4  # no tie, where half up and half to even part
    np.testing.assert_array_equal(found[clear], expected[clear])
    assert clear.mean() > 0.99 and len(np.unique(found)) > 30


@pytest.mark.parametrize("op", ["ConvInteger", "MatMulInteger"])
def test_ops_that_the_importer_gets_wrong_are_refused(op: str, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    shape = [1, 2, 4, 4] if op == "ConvInteger" else [4, 4]
    net = Net(14, "uint8")
    weight = net.constant(net.rng.integers(0, 256, (2, 2, 3, 3) if op == "ConvInteger" else (4, 4)).astype(np.uint8))
    result = [1, 2, 2, 2] if op == "ConvInteger" else [4, 4]
    graph = helper.make_graph([helper.make_node(op, ["x", weight], ["y"])], "net",
                              [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.INT32, result)], net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 7
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=f"imports {op} with a wrong type"):
        import_model(tmp_path / "net.onnx")
    assert main(["compile", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.so")]) == 2
    assert op in capsys.readouterr().err and not (tmp_path / "net.so").exists()


def test_vector_scales_of_a_dense_without_units() -> None:
    """TVM's type check of qnn.dense with a scale per unit ends the process when the units are not stated."""
    rng = np.random.default_rng(15)
    x = relay.var("x", shape=(6, 8), dtype="int8")
    real = relay.qnn.op.dequantize(x, const(0.03, "float32"), const(5, "int32"))
    scales, zeros = const(rng.uniform(0.001, 0.003, 8), "float32"), const(np.zeros(8), "int32")
    weight = relay.qnn.op.dequantize(const(rng.integers(-127, 128, (8, 8)), "int8"), scales, zeros, axis=0)
    silent, stated = (module(relay.qnn.op.quantize(relay.nn.dense(real, weight, units), const(0.05, "float32"),
                                                   const(3, "int32"))) for units in (None, 8))
    inputs = {"x": rng.integers(-128, 128, (6, 8)).astype(np.int8)}
    part, report = ba.partition(silent)
    assert not host_ops(report)
    expected = run(relay.transform.FakeQuantizationToInteger()(stated), inputs)[0]
    np.testing.assert_array_equal(run(part, inputs)[0], expected)


EQUAL, DIFFERENT = ((0.03, 5), (0.03, 5), (0.03, 5)), ((0.03, 5), (0.05, -9), (0.04, 2))


@pytest.mark.parametrize("dtype,axis,scales", [("int8", 1, EQUAL), ("uint8", 1, DIFFERENT), ("int8", 2, DIFFERENT),
                                               ("uint8", -1, EQUAL)])
def test_concat(dtype: str, axis: int, scales: tuple[tuple[float, int], ...], tmp_path: Path) -> None:
    """Of two layers, one of which something else reads too, and a layer behind; C = H = W."""
    net = Net(9, dtype)
    x = net.float_input((1, 6, 6, 6))
    a, b = (net.conv(x, (6, 6), pads=[1, 1, 1, 1], scale=s, shift=z) for s, z in scales[:2])
    joined = net.quantized(net.node("Concat", [a, b], axis=axis), *scales[2])
    y = net.conv(joined, (12 if axis == 1 else 6, 5), (1, 1))
    report = check(net, [y, net.conv(a, (6, 4), (1, 1))], tmp_path, steps=4)
    assert not host_ops(report) and len(report.regions) == 1, report.to_text()


def test_concat_at_the_ends(tmp_path: Path) -> None:
    """Of a model input and a layer, the result an output in a scale of its own."""
    net = Net(10, "uint8")
    x = net.float_input((1, 6, 6, 6), 0.02, -7)
    y = net.conv(x, (6, 6), pads=[1, 1, 1, 1], scale=0.05)
    report = check(net, [net.quantized(net.node("Concat", [x, y, x], axis=1), 0.06, 3)], tmp_path, steps=1)
    assert not host_ops(report) and len(report.regions) == 1, report.to_text()


def test_max_pool_alone(tmp_path: Path) -> None:
    net = Net(11, "int8")
    pool = net.node("MaxPool", [net.float_input((1, 4, 8, 8))], kernel_shape=[2, 2], strides=[2, 2])
    report = check(net, [net.quantized(pool, 0.02, -7)], tmp_path, steps=0)
    assert not host_ops(report) and len(report.regions) == 1, report.to_text()


def test_a_layer_behind_an_elementwise_op_is_no_float_layer(tmp_path: Path) -> None:
    """alpha is a factor in front of the product, for which there is no integer form: all of it stays float."""
    net = Net(12, "int8")
    weight, _ = net.weight((10, 12), None)
    gemm = net.node("Gemm", [net.float_input((3, 12)), weight], transB=1, alpha=0.5)
    model = load(net, [net.quantized(net.node("Relu", [gemm]), 0.01, -128)], tmp_path)
    part, report = ba.partition(model.module, model.params)
    inputs = arrays(model)
    np.testing.assert_array_equal(run(part, inputs)[0], run(model.module, inputs)[0])
    assert not report.regions and "between dequantize and quantize" in reason(report, "nn.dense")


def test_transposed_convolution_in_groups(tmp_path: Path) -> None:
    net = Net(1, "int8")
    weight, _ = net.weight((4, 2, 2, 3), None)
    y = net.node("ConvTranspose", [net.float_input((1, 4, 6, 6)), weight], group=2, strides=[2, 2])
    report = check(net, [net.quantized(y, 0.005, 3)], tmp_path, steps=1)
    assert not host_ops(report) and len(report.regions) == 1, report.to_text()
