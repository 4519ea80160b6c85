"""int8 regions against TVM: a Relay module of the same QNN ops, built for llvm and run; every byte must be equal."""
from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings

from byoc_accel.quantize.interpret import interpret as interpret_qregion
from byoc_accel.quantize.quantize import quantize
from byoc_accel.quantize.verify import verify as verify_qregion
from byoc_accel.region.interpret import interpret
from byoc_accel.region.region import (
    INT8,
    Add,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Pad,
    Pool,
    Port,
    Region,
    Reshape,
    Tensor,
    Unary,
    Upsample,
    node_inputs,
)
from byoc_accel.region.verify import verify
from tests.strategies_region import Size, int8_regions

pytestmark = pytest.mark.relay

TARGET = "llvm -mtriple=x86_64-linux-gnu"
NCHW = (0, 3, 1, 2)


def relay_rounding(node) -> str:
    return {"upward": "UPWARD", "nearest": "TONEAREST"}[node.rounding]


def to_relay(region: Region):
    """The region as a Relay function on NHWC int8 tensors; convolutions and pools in NCHW between transposes."""
    from tvm import relay

    tensors = region.by_name()
    env = {p.tensor: relay.var(p.tensor, shape=tensors[p.tensor].shape, dtype="int8") for p in region.inputs}
    parameters = list(env.values())
    f32 = lambda v: relay.const(np.asarray(v, np.float32))  # noqa: E731
    i32 = lambda v: relay.const(np.asarray(v, np.int32))  # noqa: E731

    def clip(expr, bounds):
        return expr if bounds is None else relay.clip(expr, *bounds)

    for node in region.nodes:
        y = tensors[node.y]
        if isinstance(node, (Conv2d, ConvTranspose2d)):
            convolution = convolved if isinstance(node, Conv2d) else convolved_transposed
            acc = convolution(relay, node, relay.transpose(env[node.x], NCHW), tensors[node.x], y, f32, i32)
            if node.bias is not None:
                acc = relay.nn.bias_add(acc, relay.const(node.bias), axis=1)
            out = relay.qnn.op.requantize(acc, f32(node.acc_scale), i32(0), f32(y.scale), i32(y.zero_point), axis=1,
                                          rounding=relay_rounding(node), compute_dtype="int64", out_dtype="int8")
            env[node.y] = clip(relay.transpose(out, (0, 2, 3, 1)), node.clip)
        elif isinstance(node, Add):
            a, b = tensors[node.x1], tensors[node.x2]
            out = relay.qnn.op.add(env[node.x1], env[node.x2], f32(a.scale), i32(a.zero_point), f32(b.scale),
                                   i32(b.zero_point), f32(y.scale), i32(y.zero_point))
            env[node.y] = clip(out, node.clip)
        elif isinstance(node, Pool):
            out = relay.transpose(env[node.x], NCHW)
            options = {"pool_size": node.kernel, "strides": node.stride, "padding": node.padding}
            if node.kind == "max":
                out = relay.nn.max_pool2d(out, **options)
            else:
                out = relay.cast(relay.nn.avg_pool2d(relay.cast(out, "int32"), **options,
                                                     count_include_pad=node.count_include_pad), "int8")
            env[node.y] = relay.transpose(out, (0, 2, 3, 1))
        elif isinstance(node, Unary):
            env[node.y] = unary(relay, node, tensors, env[node.x], f32, i32)
        else:
            env[node.y] = moved(relay, node, tensors, [env[x] for x in node_inputs(node)], f32, i32)
    return relay.Function(parameters, relay.Tuple([env[p.tensor] for p in region.outputs]))


def convolved(relay, node, data, x, y, f32, i32):
    o, kh, kw, _ = node.weight.shape
    return relay.qnn.op.conv2d(
        data, relay.const(np.ascontiguousarray(node.weight.transpose(NCHW))), i32(x.zero_point), i32(0), f32(x.scale),
        f32(node.weight_scale), kernel_size=(kh, kw), channels=o, strides=node.stride, padding=node.padding,
        dilation=node.dilation, groups=node.groups, data_layout="NCHW", kernel_layout="OIHW", out_dtype="int32")


def convolved_transposed(relay, node, data, x, y, f32, i32):
    """TVM cuts `padding` off the full result and appends `output_padding`; y's shape says which of the two."""
    o, kh, kw, _ = node.weight.shape
    over = [(x.shape[1 + a] - 1) * node.stride[a] + node.weight.shape[1 + a] - node.padding[a] - y.shape[1 + a]
            for a in (0, 1)]
    return relay.qnn.op.conv2d_transpose(
        data, relay.const(np.ascontiguousarray(node.weight.transpose(3, 0, 1, 2))), i32(x.zero_point), i32(0),
        f32(x.scale), f32(node.weight_scale), kernel_size=(kh, kw), channels=o, strides=node.stride,
        padding=(*node.padding, *(max(n, 0) for n in over)), output_padding=tuple(max(-n, 0) for n in over),
        data_layout="NCHW", kernel_layout="IOHW", out_dtype="int32")


def moved(relay, node, tensors, xs, f32, i32):
    y = tensors[node.y]
    if isinstance(node, Concat):
        parts = [tensors[x] for x in node.xs]
        return relay.qnn.op.concatenate(
            relay.Tuple(xs), relay.Tuple([f32(t.scale) for t in parts]),
            relay.Tuple([i32(t.zero_point) for t in parts]), f32(y.scale), i32(y.zero_point), node.axis)
    if isinstance(node, Pad):
        top, left, bottom, right = node.padding
        return relay.nn.pad(xs[0], ((0, 0), (top, bottom), (left, right), (0, 0)), int(node.value))
    if isinstance(node, Upsample):
        return relay.repeat(relay.repeat(xs[0], node.factor[0], 1), node.factor[1], 2)
    assert isinstance(node, Reshape)
    return relay.reshape(xs[0], y.shape)


def unary(relay, node, tensors, x, f32, i32):
    if node.function == "clip":
        return relay.clip(x, *node.args)
    a, y = tensors[node.x], tensors[node.y]
    real = relay.qnn.op.dequantize(x, f32(a.scale), i32(a.zero_point))
    real = relay.nn.relu(real) if node.function == "relu" else relay.nn.leaky_relu(real, *node.args)
    return relay.qnn.op.quantize(real, f32(y.scale), i32(y.zero_point), out_dtype="int8")


def run_tvm(region: Region, inputs: list[np.ndarray]) -> list[np.ndarray]:
    import tvm
    from tvm import relay
    from tvm.contrib import graph_executor

    module = relay.transform.InferType()(tvm.IRModule.from_expr(to_relay(region)))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(module, target=TARGET)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    for port, array in zip(region.inputs, inputs):
        executor.set_input(port.tensor, array)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(len(region.outputs))]


def check(region: Region, inputs: list[np.ndarray]) -> None:
    verify(region)
    expected = run_tvm(region, inputs)
    qregion, _ = quantize(region)
    verify_qregion(qregion)
    own, integer = interpret(region, inputs), interpret_qregion(qregion, inputs)
    for port, array in zip(region.outputs, expected):
        assert np.array_equal(own[port.tensor], array), port.tensor
        assert np.array_equal(integer[port.tensor], array), port.tensor


def for_relay(region: Region) -> Region:
    """What has a QNN op: averages are raw, adds round upward, functions are clip, relu and leaky relu."""
    def convert(node):
        if isinstance(node, Pool) and node.kind == "avg":
            return replace(node, raw=True, rounding="upward")
        if isinstance(node, (Add, Concat)) or getattr(node, "rounding", "") == "double":
            return replace(node, rounding="upward")
        if isinstance(node, Unary) and node.table is not None:
            return replace(node, function="relu", args=(), table=None)
        if isinstance(node, Unary) and node.function not in ("clip", "relu", "leaky_relu"):
            return replace(node, function="leaky_relu", args=(float(np.float32(0.1)),))
        return node

    return replace(region, nodes=tuple(convert(n) for n in region.nodes))


def port(name: str, shape: tuple[int, ...]) -> Port:
    return Port(name, shape, INT8, (0, 1, 2, 3))


def single(node, *tensors: Tensor) -> Region:
    """A region of one node; the last tensor is its output."""
    return Region("one", tensors, (node,), tuple(port(t.name, t.shape) for t in tensors[:-1]),
                  (port(tensors[-1].name, tensors[-1].shape),))


def merged(regions: list[Region]) -> Region:
    """All regions side by side, because one build of many costs less than many builds."""
    def rename(item, prefix):
        names = {f.name: prefix + getattr(item, f.name) for f in fields(item)
                 if f.name in ("name", "x", "x1", "x2", "y", "tensor")}
        return replace(item, **names)

    parts = [tuple(rename(item, f"r{i}_") for i, r in enumerate(regions) for item in getattr(r, side))
             for side in ("tensors", "nodes", "inputs", "outputs")]
    return Region("merged", *parts)


def values(seed: int, *tensors: Tensor) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, t.shape).astype(np.int8) for t in tensors]


@settings(max_examples=10)
@given(int8_regions(Size(nodes=6, spatial=9, channels=17, tensor_bytes=1500)))
def test_random_regions(region):
    region = for_relay(region)
    check(region, values(1, *(region.tensor(p.tensor) for p in region.inputs)))


@pytest.mark.parametrize("rounding", ["upward", "nearest"])
def test_requantize_ratios(rounding):
    """Powers of two have their own code in TVM, ratios above 1 shift left, equal scales skip the multiply. Per
    tensor and per channel, with every accumulator from -2**15 to 2**15 and ties among them."""
    weight = np.array([1, 127, -127, 2], np.int8).reshape(4, 1, 1, 1)
    x, y = Tensor("x", (1, 128, 2, 1), INT8, 1.0, 3), Tensor("y", (1, 128, 2, 4), INT8, 0.5, -7)
    bias = np.array([0, 1, -5, 90], np.int32)
    regions = []
    for ratio in [0.5, 0.25, 2.0, 1.0, 3.7, 2.0 ** -20, 0.49999997]:
        for channels in ([1, 1, 1, 1], [1, 1, 1, 1.25]):
            acc_scale = np.full(4, ratio * 0.5, np.float32) * np.array(channels, np.float32)
            node = Conv2d("c", "x", "y", weight, bias, acc_scale=acc_scale, weight_scale=acc_scale, rounding=rounding)
            regions.append(single(node, x, y))
    check(merged(regions), [np.arange(-128, 128).astype(np.int8).reshape(1, 128, 2, 1)] * len(regions))


GEOMETRIES = [
    (3, 2, (2, 2), (0, 1, 2, 0), (1, 1), 1, 3, 5), (3, 2, (2, 2), (2, 0, 0, 1), (1, 1), 1, 3, 5),  # B14
    (1, 1, (3, 3), (0, 0, 0, 0), (1, 1), 1, 4, 4), (2, 2, (5, 5), (0, 0, 0, 0), (1, 1), 1, 2, 3),  # B17
    (3, 3, (1, 2), (2, 3, 2, 3), (2, 3), 1, 4, 4),  # B16
    (3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 2, 8, 8), (3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 4, 12, 24),  # B19
    (3, 3, (2, 2), (0, 0, 1, 1), (1, 1), 6, 6, 12), (5, 5, (2, 2), (2, 2, 2, 2), (1, 1), 7, 7, 7)]


def convolution(kh, kw, stride, padding, dilation, groups, i, o) -> Region:
    rng = np.random.default_rng(kh * 100 + o)
    x = Tensor("x", (2, 13, 11, i), INT8, 0.05, -128)
    weight = rng.integers(-127, 128, (o, kh, kw, i // groups)).astype(np.int8)
    extents = [(k - 1) * d + 1 for k, d in zip((kh, kw), dilation)]
    out = [(n + a + b - e) // s + 1
           for n, a, b, e, s in zip((13, 11), padding[:2], padding[2:], extents, stride)]
    y = Tensor("y", (2, *out, o), INT8, 0.2, 5)
    spread = 74.0 * 74 * np.sqrt(weight[0].size)
    acc_scale = (0.2 * 40 / spread * np.exp(rng.uniform(-1, 1, o))).astype(np.float32)
    bias = rng.integers(-9000, 9000, o).astype(np.int32)
    node = Conv2d("c", "x", "y", weight, bias, stride, padding, dilation, groups,
                  (-100.0, 100.0), weight_scale=acc_scale, acc_scale=acc_scale)
    return single(node, x, y)


def check_merged(regions: list[Region], seed: int) -> None:
    region = merged(regions)
    check(region, values(seed, *(region.tensor(p.tensor) for p in region.inputs)))


def test_convolution_geometry():
    check_merged([convolution(*g) for g in GEOMETRIES], 3)


ADDS = [
    (0.1, 3, 0.2, -7, 0.15, 5), (0.1, 3, 0.1, 3, 0.1, 3), (0.1, 3, 0.1, -7, 0.1, 5), (0.5, 0, 0.25, 0, 1.0, 0),
    (0.02, 127, 0.3, -128, 0.01, -128)]


def test_add_scales():
    """B32; equal scale and zero point is a special case in TVM, as is an equal scale alone."""
    regions, shape = [], (1, 16, 16, 16)
    for s1, z1, s2, z2, sy, zy in ADDS:
        a, b, y = Tensor("a", shape, INT8, s1, z1), Tensor("b", shape, INT8, s2, z2), Tensor("y", shape, INT8, sy, zy)
        regions += [single(Add("add", "a", "b", "y"), a, b, y), single(Add("add", "a", "a", "y"), a, y)]
    check_merged(regions, 4)


POOLS = [((3, 3), (2, 2), (1, 1, 1, 1)), ((2, 5), (1, 3), (0, 2, 1, 4)), ((7, 7), (1, 1), (0, 0, 0, 0)),
         ((25, 5), (1, 1), (0, 0, 0, 0))]


def test_pools():
    x = Tensor("x", (1, 27, 9, 4), INT8, 0.1, -100)
    regions = []
    for kernel, stride, padding in POOLS:
        out = [(n + a + b - k) // s + 1 for n, a, b, k, s in zip((27, 9), padding[:2], padding[2:], kernel, stride)]
        y = Tensor("y", (1, *out, 4), INT8, 0.1, -100)
        for kind, include in (("avg", False), ("avg", True), ("max", False)):
            regions.append(single(Pool("p", "x", "y", kind, kernel, stride, padding, include, kind == "avg"), x, y))
    check_merged(regions, 6)


def test_tables_of_exact_functions():
    x = Tensor("x", (1, 16, 16, 1), INT8, float(np.float32(0.037)), -9)
    y = Tensor("y", (1, 16, 16, 1), INT8, float(np.float32(0.021)), -120)
    regions = [single(Unary("u", "x", "y", function, args), x, y)
               for function, args in (("relu", ()), ("leaky_relu", (float(np.float32(0.1)),)))]
    check(merged(regions), [np.arange(-128, 128).astype(np.int8).reshape(x.shape)] * 2)
