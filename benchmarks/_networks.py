"""Networks with ImageNet-size inputs and fixed-seed weights: those of relay.testing, and int8 ones in QNN ops.

Weights follow He et al. (normal, variance 2 / fan-in) and batch norms differ per channel, so that activations neither
vanish nor grow, and no two channels are alike.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Union

import numpy as np
import tvm
from tvm import relay
from tvm.relay import testing

Params = dict[str, np.ndarray]
SEED = 0
#: Blocks of each stage, and whether they are bottlenecks, by depth (He et al. 2015, table 1).
RESNETS = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}
#: Expansion, output channels, repetitions, first stride (Sandler et al. 2018, table 2).
MOBILENET_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                (6, 320, 1, 1))


@dataclass(frozen=True)
class Network:
    """A module with one input `data` of `shape`, dtype float32 or int8."""

    name: str
    module: tvm.IRModule
    params: Params
    shape: tuple[int, ...]
    dtype: str

    def sample(self, seed: int = 1) -> Params:
        """One input: noise of mean 0 and variance 1, or of the whole int8 range."""
        rng = np.random.default_rng(seed)
        if self.dtype == "int8":
            return {"data": rng.integers(-128, 128, self.shape).astype(np.int8)}
        return {"data": rng.standard_normal(self.shape).astype(np.float32)}


def resnet(depth: int, size: int = 224, batch: int = 1) -> Network:
    """relay.testing ResNet (pre-activation), `size` x `size` pixels, 1,000 classes, float32 NCHW."""
    module, _ = testing.resnet.get_workload(batch, 1000, depth, (3, size, size))
    return Network(f"resnet{depth}_{size}", module, _weights(module), (batch, 3, size, size), "float32")


def mobilenet_v1(size: int = 224) -> Network:
    """relay.testing MobileNetV1, float32 NCHW."""
    module, _ = testing.mobilenet.get_workload(1, 1000, (3, size, size))
    return Network(f"mobilenet_v1_{size}", module, _weights(module), (1, 3, size, size), "float32")


def _weights(module: tvm.IRModule) -> Params:
    """Values of every parameter of main but `data`, by its name's ending."""
    rng = np.random.default_rng(SEED)
    spread = {"gamma": (0.7, 1.3), "beta": (-0.2, 0.2), "moving_mean": (-0.2, 0.2), "moving_var": (0.5, 1.5),
              "bias": (-0.2, 0.2)}
    params = {}
    for variable in module["main"].params:
        name, shape = variable.name_hint, [int(d) for d in variable.checked_type.shape]
        if name == "data":
            continue
        ending = next((e for e in spread if name.endswith(e)), None)
        values = rng.uniform(*spread[ending], shape) if ending else rng.standard_normal(shape) * _he(shape[1:])
        params[name] = values.astype(np.float32)
    return params


def _he(fan_in: list[int]) -> float:
    return float(np.sqrt(2.0 / np.prod(fan_in)))


class Value(NamedTuple):
    """A tensor under construction. std: of its values before relu; int8 values have scale std / 32, so that they span
    4 deviations each way, or 8 upwards from zero point -128 after relu."""

    expr: relay.Expr
    channels: int
    std: float = 1.0
    zero_point: int = 0

    @property
    def scale(self) -> float:
        return self.std / 32


class Float:
    """float32 NCHW layers, batch norms folded into weights and bias."""

    dtype = "float32"

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)

    def input(self, size: int) -> Value:
        return Value(relay.var("data", shape=(1, 3, size, size), dtype=self.dtype), 3)

    def conv(self, x: Value, channels: int, kernel: int, stride: int = 1, *, depthwise: bool = False,
             relu: bool = True, gain: float = 1.0) -> Value:
        """gain: deviation of the result, of x's."""
        shape = [channels, 1 if depthwise else x.channels, kernel, kernel]
        weight = self.rng.standard_normal(shape) * _he(shape[1:]) * gain
        y = relay.nn.conv2d(x.expr, _float(weight), (stride, stride), (kernel // 2, kernel // 2), channels=channels,
                            kernel_size=(kernel, kernel), groups=x.channels if depthwise else 1)
        y = relay.nn.bias_add(y, _float(self._bias(channels, x.std * gain)))
        return Value(relay.nn.relu(y) if relu else y, channels, x.std * gain)

    def add(self, a: Value, b: Value, relu: bool) -> Value:
        y = relay.add(a.expr, b.expr)
        return Value(relay.nn.relu(y) if relu else y, a.channels, float(np.hypot(a.std, b.std)))

    def max_pool(self, x: Value) -> Value:
        return x._replace(expr=relay.nn.max_pool2d(x.expr, (3, 3), (2, 2), padding=(1, 1)))

    def classifier(self, x: Value, classes: int) -> relay.Expr:
        y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x.expr))
        weight = self.rng.standard_normal((classes, x.channels)) * _he([x.channels])
        return relay.nn.bias_add(relay.nn.dense(y, _float(weight)), _float(self._bias(classes, x.std)))

    def _bias(self, channels: int, std: float) -> np.ndarray:
        return self.rng.uniform(-0.2, 0.2, channels) * std


class Int8(Float):
    """The same layers as QNN ops on int8 NHWC."""

    dtype = "int8"

    def input(self, size: int) -> Value:
        return Value(relay.var("data", shape=(1, size, size, 3), dtype=self.dtype), 3)

    def conv(self, x: Value, channels: int, kernel: int, stride: int = 1, *, depthwise: bool = False,
             relu: bool = True, gain: float = 1.0) -> Value:
        inputs = 1 if depthwise else x.channels
        weight, scale = self._weight(channels, (kernel, kernel, inputs), gain)
        pad = kernel // 2
        y = relay.qnn.op.conv2d(
            x.expr, relay.const(weight.transpose(1, 2, 0, 3) if depthwise else weight.transpose(1, 2, 3, 0)),
            _int(x.zero_point), _int(0), _float(x.scale), _float(scale), kernel_size=(kernel, kernel),
            channels=channels, strides=(stride, stride), padding=(pad, pad), data_layout="NHWC",
            kernel_layout="HWOI" if depthwise else "HWIO", groups=x.channels if depthwise else 1, out_dtype="int32")
        return self._requantized(y, channels, x, scale, x.std * gain, -128 if relu else 0)

    def add(self, a: Value, b: Value, relu: bool) -> Value:
        y = Value(a.expr, a.channels, float(np.hypot(a.std, b.std)), -128 if relu else 0)
        numbers = [n for v in (a, b, y) for n in (_float(v.scale), _int(v.zero_point))]
        expr = relay.qnn.op.add(a.expr, b.expr, *numbers)
        return y._replace(expr=relay.clip(expr, y.zero_point, 127) if relu else expr)

    def max_pool(self, x: Value) -> Value:
        return x._replace(expr=relay.nn.max_pool2d(x.expr, (3, 3), (2, 2), padding=(1, 1), layout="NHWC"))

    def classifier(self, x: Value, classes: int) -> relay.Expr:
        y = relay.nn.global_avg_pool2d(relay.cast(x.expr, "int32"), layout="NHWC")
        y = relay.reshape(relay.cast(y, "int8"), (1, x.channels))
        weight, scale = self._weight(classes, (x.channels,), 1.0)
        y = relay.qnn.op.dense(y, relay.const(weight), _int(x.zero_point), _int(0), _float(x.scale), _float(scale),
                               classes, "int32")
        return self._requantized(y, classes, x, scale, x.std, 0).expr

    def _weight(self, channels: int, taps: tuple[int, ...], gain: float) -> tuple[np.ndarray, np.ndarray]:
        """int8 (channels, *taps) and the scale of each channel."""
        real = self.rng.standard_normal((channels, *taps)) * _he(list(taps)) * gain
        scale = np.abs(real).max(axis=tuple(range(1, real.ndim))) / 127
        return np.rint(real / scale.reshape(-1, *[1] * len(taps))).astype(np.int8), scale

    def _requantized(self, sums: relay.Expr, channels: int, x: Value, weight_scale: np.ndarray, std: float,
                     zero_point: int) -> Value:
        y = Value(sums, channels, std, zero_point)
        scale, axis = x.scale * weight_scale, -1
        bias = np.rint(self._bias(channels, std) / scale).astype(np.int32)
        expr = relay.nn.bias_add(sums, relay.const(bias), axis=axis)
        expr = relay.qnn.op.requantize(expr, _float(scale), _int(0), _float(y.scale), _int(zero_point), axis=axis,
                                       out_dtype="int8")
        return y._replace(expr=relay.clip(expr, zero_point, 127) if zero_point else expr)


Layers = Union[Float, Int8]


def resnet_v1(layers: Layers, depth: int, size: int = 224, width: int = 64) -> Network:
    """He et al. 2015 with the stride in the 3x3 layer; `width` channels in the first stage, 1,000 classes."""
    blocks, bottleneck = RESNETS[depth]
    data = layers.input(size)
    x = layers.max_pool(layers.conv(data, width, 7, 2))
    for stage, count in enumerate(blocks):
        for index in range(count):
            x = _block(layers, x, width << stage, 1 + (stage > 0 and index == 0), bottleneck)
    name = f"resnet{depth}_v1_{layers.dtype}_{size}_{width}"
    return network(name, layers, data, layers.classifier(x, 1000))


def _block(layers: Layers, x: Value, channels: int, stride: int, bottleneck: bool) -> Value:
    out = 4 * channels if bottleneck else channels
    y = layers.conv(x, channels, 1) if bottleneck else x
    y = layers.conv(y, channels, 3, stride)
    y = layers.conv(y, out, 1 if bottleneck else 3, relu=False, gain=0.5)
    same = stride == 1 and x.channels == out
    return layers.add(y, x if same else layers.conv(x, out, 1, stride, relu=False), relu=True)


def resnet8(layers: Layers, size: int = 32, width: int = 16) -> Network:
    """The residual network of MLPerf Tiny: three stages of one block each, 10 classes."""
    data = layers.input(size)
    x = layers.conv(data, width, 3)
    for stage in range(3):
        x = _block(layers, x, width << stage, 1 + (stage > 0), False)
    return network(f"resnet8_{layers.dtype}_{size}_{width}", layers, data, layers.classifier(x, 10))


def mobilenet_v2(layers: Layers, size: int = 224, width: float = 1.0) -> Network:
    """Sandler et al. 2018 with relu instead of relu6, 1,000 classes."""
    data = layers.input(size)
    x = layers.conv(data, _eighths(32 * width), 3, 2)
    for expansion, channels, count, first in MOBILENET_V2:
        for index in range(count):
            x = _inverted(layers, x, expansion, _eighths(channels * width), first if index == 0 else 1)
    x = layers.conv(x, _eighths(1280 * max(width, 1.0)), 1)
    name = f"mobilenet_v2_{layers.dtype}_{size}_{width:g}"
    return network(name, layers, data, layers.classifier(x, 1000))


def _inverted(layers: Layers, x: Value, expansion: int, channels: int, stride: int) -> Value:
    y = layers.conv(x, x.channels * expansion, 1) if expansion > 1 else x
    y = layers.conv(y, y.channels, 3, stride, depthwise=True)
    same = stride == 1 and x.channels == channels
    y = layers.conv(y, channels, 1, relu=False, gain=0.5 if same else 1.0)
    return layers.add(y, x, relu=False) if same else y


def _eighths(channels: float) -> int:
    """The nearest multiple of 8."""
    return max(8, int(channels + 4) // 8 * 8)


def network(name: str, layers: Layers, data: Value, output: relay.Expr) -> Network:
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data.expr], output)))
    shape = tuple(int(d) for d in data.expr.type_annotation.shape)
    return Network(name, module, {}, shape, layers.dtype)


def _float(values: object) -> relay.Expr:
    return relay.const(np.asarray(values, np.float32))


def _int(value: int) -> relay.Expr:
    return relay.const(value, "int32")
