"""ONNX models of QuantizeLinear / DequantizeLinear pairs, as quantizers write them, from seeded weights."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"int16": TensorProto.INT16, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


class Net:
    """A graph under construction: every method adds nodes and returns the name of the float value that they make.

    `dtype` is that of the quantized activations. A value's scale and zero point are drawn when it is quantized.
    """

    def __init__(self, seed: int = 0, dtype: str = "uint8", opset: int = 13):
        self.rng, self.dtype, self.opset = np.random.default_rng(seed), dtype, opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.scales: dict[str, np.float32] = {}
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}_{self.count}"

    def constant(self, array: np.ndarray) -> str:
        name = self.name("const")
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: Sequence[str], **attrs: object) -> str:
        name = self.name(op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attrs))
        return name

    def zero_point(self, shift: int) -> np.ndarray:
        """A zero point that is 0 + shift as int8, 128 + shift as uint8."""
        return np.asarray(shift + (128 if self.dtype == "uint8" else 0), self.dtype)

    def float_input(self, shape: Sequence[int], scale: float = 0.02, shift: int = -7) -> str:
        """A float32 input of the graph, quantized at once."""
        name = self.name("input")
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return self.quantized(name, scale, shift)

    def stored_input(self, shape: Sequence[int], scale: float = 0.02, shift: int = -7) -> str:
        """An input of the graph that is quantized already."""
        name = self.name("input")
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[self.dtype], list(shape)))
        return self._dequantize(name, scale, self.zero_point(shift))

    def quantized(self, value: str, scale: float, shift: int) -> str:
        """QuantizeLinear and DequantizeLinear after `value`."""
        pair = [self.constant(np.float32(scale)), self.constant(self.zero_point(shift))]
        return self._dequantize(self.node("QuantizeLinear", [value, *pair]), scale, self.zero_point(shift))

    def _dequantize(self, stored: str, scale: float, zero_point: np.ndarray) -> str:
        pair = [self.constant(np.float32(scale)), self.constant(zero_point)]
        name = self.node("DequantizeLinear", [stored, *pair])
        self.scales[name] = np.float32(scale)
        return name

    def weight(self, shape: Sequence[int], axis: int | None = 0, dtype: str = "int8", zero_point: int = 0) -> tuple[
            str, np.ndarray]:
        """A dequantized weight and its scales; `axis` None for one scale."""
        low, high = (-127, 128) if dtype == "int8" else (0, 256)
        stored = self.rng.integers(low, high, shape).astype(dtype)
        scale = self.rng.uniform(0.5, 1.5, () if axis is None else shape[axis]).astype(np.float32)
        scale = (scale * np.float32(0.02 / np.sqrt(np.prod(shape[1:])))).astype(np.float32)
        zero = np.full(scale.shape, zero_point, dtype)
        attrs = {} if axis is None else {"axis": axis}
        name = self.node("DequantizeLinear",
                         [self.constant(stored), self.constant(scale), self.constant(zero)], **attrs)
        return name, scale

    def bias(self, x: str, scale: np.ndarray, channels: int) -> str:
        """int32, at the scale of the sums."""
        stored = self.rng.integers(-4000, 4000, channels).astype(np.int32)
        sums = (self.scales[x] * scale).astype(np.float32)
        attrs = {"axis": 0} if sums.ndim else {}
        zero = np.zeros(sums.shape, np.int32)
        return self.node("DequantizeLinear", [self.constant(stored), self.constant(sums), self.constant(zero)], **attrs)

    def conv(self, x: str, channels: tuple[int, int], kernel: Sequence[int] = (3, 3), *, relu: bool = False,
             bias: bool = True, axis: int | None = 0, group: int = 1, scale: float = 0.03, shift: int = 5,
             **attrs: object) -> str:
        """Conv from channels[0] to channels[1], perhaps Relu, and a quantized result."""
        weight, scales = self.weight((channels[1], channels[0] // group, *kernel), axis)
        inputs = [x, weight, *([self.bias(x, scales, channels[1])] if bias else [])]
        y = self.node("Conv", inputs, group=group, kernel_shape=list(kernel), **attrs)
        return self.quantized(self.node("Relu", [y]) if relu else y, scale, -128 if relu else shift)

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The checked model with float outputs."""
        graph = helper.make_graph(self.nodes, "net", self.inputs,
                                  [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        return model
