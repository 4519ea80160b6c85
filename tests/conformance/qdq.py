"""The node tests as quantizers write them: the op between QuantizeLinear and DequantizeLinear pairs, all of int8."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .nodes import WEIGHTED, Case

OPS = (*WEIGHTED, "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Add")  # may be regions alone
KEEP_SCALE = ("MaxPool", "GlobalMaxPool")  # results in the scale of their operand
JOINS = ("Add",)  # all of their inputs are computed
PER_AXIS_OPSET = 13
STEPS = 255


def quantized(case: Case) -> Case | None:
    """The test with one float32 input and result quantized by their own ranges, weights symmetric (of Conv per output
    channel), biases int32 at the scale of the sums; None for a test of other ops, types or of several results."""
    if case.op not in OPS:
        return None
    arrays = list(case.inputs.values())
    data = arrays if case.op in JOINS else arrays[:1]
    if len(case.outputs) != 1 or any(a.dtype != np.float32 or not a.size or not np.isfinite(a).all()
                                     for a in (*data, *case.outputs)):
        return None
    writer = _Writer(case)
    node = onnx.NodeProto()
    node.CopyFrom(case.model.graph.node[0])
    node.input[:] = [name and writer.operand(position, name) for position, name in enumerate(node.input)]
    scale = writer.scales[0] if case.op in KEEP_SCALE else _affine(case.outputs[0])
    result, node.output[0] = node.output[0], "real"
    writer.nodes.append(node)
    writer.pair("real", scale, result)
    kept = list(case.inputs)[:len(data)]
    graph = helper.make_graph(writer.nodes, case.name, [v for v in case.model.graph.input if v.name in kept],
                              list(case.model.graph.output), writer.constants)
    model = helper.make_model(graph, opset_imports=list(case.model.opset_import), ir_version=case.model.ir_version)
    return replace(case, model=model, inputs={name: case.inputs[name] for name in kept})


def _affine(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 scale and int8 zero point of the array's range, 0 included."""
    low, high = min(0.0, float(array.min())), max(0.0, float(array.max()))
    scale = np.float32((high - low) / STEPS or 1.0)
    return np.asarray(scale), np.asarray(np.clip(np.rint(-128 - low / scale), -128, 127), np.int8)


class _Writer:
    """Nodes and constants of a quantized graph; `scales` of the operands so far."""

    def __init__(self, case: Case):
        self.case, self.nodes, self.constants = case, [], []
        self.scales: list[tuple[np.ndarray, np.ndarray]] = []
        self.per_axis = case.model.opset_import[0].version >= PER_AXIS_OPSET

    def operand(self, position: int, name: str) -> str:
        """What stands in place of the op's input `name`."""
        array, op = self.case.inputs[name], self.case.op
        if position == 0 or op in JOINS:
            self.scales.append(_affine(array))
            return self.pair(name, self.scales[-1], f"{name}_real")
        if op in WEIGHTED and position == 1:
            axes = tuple(range(1, array.ndim)) if op == "Conv" and self.per_axis else None
            scale = (np.abs(array).max(axis=axes) / 127).astype(np.float32)
            scale = np.where(scale == 0, np.float32(1), scale)
            wide = scale.reshape(-1, *[1] * (array.ndim - 1)) if axes else scale
            self.scales.append((scale, np.zeros(scale.shape, np.int8)))
            return self._dequantized(name, np.rint(array / wide).astype(np.int8), self.scales[-1], {"axis": 0})
        if op in WEIGHTED:
            scale = np.asarray(self.scales[0][0] * self.scales[1][0], np.float32)
            wide = scale.reshape(-1)[:array.shape[0]] if scale.ndim else scale
            stored = np.rint(array / wide).astype(np.int32)
            return self._dequantized(name, stored, (scale, np.zeros(scale.shape, np.int32)), {"axis": 0})
        raise ValueError(f"{self.case.name}: input {name} of {op}")

    def pair(self, name: str, scale: tuple[np.ndarray, np.ndarray], result: str) -> str:
        """QuantizeLinear and DequantizeLinear of value `name`, giving `result`."""
        numbers = [self._constant(f"{name}_{kind}", array) for kind, array in zip(("scale", "zero"), scale)]
        self.nodes += [helper.make_node("QuantizeLinear", [name, *numbers], [f"{name}_stored"]),
                       helper.make_node("DequantizeLinear", [f"{name}_stored", *numbers], [result])]
        return result

    def _dequantized(self, name: str, stored: np.ndarray, scale: tuple[np.ndarray, np.ndarray],
                     attrs: dict[str, int]) -> str:
        inputs = [self._constant(f"{name}_{kind}", a) for kind, a in zip(("stored", "scale", "zero"), (stored, *scale))]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_real"],
                                           **(attrs if scale[0].ndim else {})))
        return f"{name}_real"

    def _constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name
