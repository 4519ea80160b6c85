"""ONNX graphs in forms that TVM's importer understands; the meaning of every output stays.

The importer of hhb-tvm computes QLinearConv and QLinearMatMul in float and leaves the rounding out, gives the sums
of ConvInteger and MatMulInteger the type of their operand, knows no quantize op without a zero point, and stops at a
product of a 3-D value with a dequantized matrix. The first two become DequantizeLinear, Conv or MatMul, and
QuantizeLinear, which is their definition in the ONNX standard; the next two are refused by name.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...errors import ModelError

QDQ_OPSET = 13  # the first with scales along an axis
_REFUSED = ("ConvInteger", "MatMulInteger")
_QUANTIZE = ("QuantizeLinear", "DequantizeLinear")
_DEFAULT_DOMAINS = ("", "ai.onnx")


def importable(model: onnx.ModelProto, inputs: Mapping[str, tuple[int, ...]], where: str) -> onnx.ModelProto:
    """`model`, checked already, as TVM can import it with `inputs` (name -> shape).

    Raises ModelError, with `where` and the op, for what cannot be imported.
    """
    ops = {node.op_type for node in model.graph.node if node.domain in _DEFAULT_DOMAINS}
    refused = sorted(ops & set(_REFUSED))
    if refused:
        raise ModelError(f"{where}: TVM imports {' and '.join(refused)} with a wrong type; export the model with "
                         "QuantizeLinear and DequantizeLinear")
    if ops & {"QLinearConv", "QLinearMatMul"} and _opset(model) < QDQ_OPSET:
        try:
            model = onnx.version_converter.convert_version(model, QDQ_OPSET)
        except (RuntimeError, onnx.checker.ValidationError) as error:
            raise ModelError(f"{where}: its quantized ops need opset {QDQ_OPSET}, and it cannot be converted "
                             f"({error}); export it with that opset") from error
    if not ops & {*_QUANTIZE, "QLinearConv", "QLinearMatMul"}:
        return model
    return _Rewriter(model, inputs, where).run()


def _opset(model: onnx.ModelProto) -> int:
    return next(o.version for o in model.opset_import if o.domain in _DEFAULT_DOMAINS)


class _Rewriter:
    def __init__(self, model: onnx.ModelProto, inputs: Mapping[str, tuple[int, ...]], where: str):
        self.model, self.where = onnx.ModelProto(), where
        self.model.CopyFrom(model)
        graph = self.model.graph
        self.constants = {t.name: t for t in graph.initializer}
        self.constants.update({n.output[0]: a.t for n in graph.node if n.op_type == "Constant"
                               for a in n.attribute if a.name == "value"})
        self.shapes = {**_shapes(self.model, inputs), **inputs}
        self.dequantized = {n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}

    def run(self) -> onnx.ModelProto:
        graph = self.model.graph
        nodes = [new for node in graph.node for new in self._expanded(node)]
        del graph.node[:]
        graph.node.extend(nodes)
        return self.model

    def _expanded(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        if node.op_type == "QLinearConv":
            yield from self._qlinear_conv(node)
        elif node.op_type == "QLinearMatMul":
            yield from self._qlinear_matmul(node)
        elif node.op_type in _QUANTIZE:
            yield self._quantize(node)
        elif node.op_type == "MatMul" and node.input[1] in self.dequantized:
            yield from self._flat_matmul(node, node.input[0], node.input[1], node.output[0])
        else:
            yield node

    def _qlinear_conv(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = node.input
        name, inputs = node.output[0], [f"{node.output[0]}/x", f"{node.output[0]}/w"]
        yield self._quantize(helper.make_node("DequantizeLinear", [x, x_scale, x_zero], [inputs[0]]))
        yield self._quantize(helper.make_node("DequantizeLinear", [w, w_scale, w_zero], [inputs[1]], axis=0))
        if bias and bias[0]:
            sums = self._array(node, x_scale).reshape(()) * self._array(node, w_scale)
            if sums.size == 1:
                sums = sums.reshape(())
            scale = self._constant(f"{name}/b_scale", sums.astype(np.float32))
            zero = self._constant(f"{name}/b_zero", np.zeros(sums.shape, np.int32))
            inputs.append(f"{name}/b")
            yield helper.make_node("DequantizeLinear", [bias[0], scale, zero], [inputs[2]], axis=0)
        conv = helper.make_node("Conv", inputs, [f"{name}/y"], node.name)
        conv.attribute.extend(node.attribute)
        yield conv
        yield self._quantize(helper.make_node("QuantizeLinear", [f"{name}/y", y_scale, y_zero], [name]))

    def _qlinear_matmul(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input
        name = node.output[0]
        for operand, scale, zero, part in ((a, a_scale, a_zero, "a"), (b, b_scale, b_zero, "b")):
            columns = scale in self.constants and numpy_helper.to_array(self.constants[scale]).size > 1
            axis = (-1 if part == "b" else -2) if columns else 0
            yield self._quantize(
                helper.make_node("DequantizeLinear", [operand, scale, zero], [f"{name}/{part}"], axis=axis))
        self.shapes[f"{name}/a"], self.shapes[f"{name}/b"] = self.shapes.get(a), self.shapes.get(b)
        yield from self._flat_matmul(node, f"{name}/a", f"{name}/b", f"{name}/y")
        yield self._quantize(helper.make_node("QuantizeLinear", [f"{name}/y", y_scale, y_zero], [name]))

    def _flat_matmul(self, node: onnx.NodeProto, a: str, b: str, y: str) -> Iterator[onnx.NodeProto]:
        """MatMul, the outer axes of `a` made one when `b` is a matrix."""
        left, right = self.shapes.get(a), self.shapes.get(b)
        if left is None or right is None or len(left) < 3 or len(right) != 2:
            yield helper.make_node("MatMul", [a, b], [y], node.name)
            return
        rows = self._constant(f"{y}/rows", np.array([-1, left[-1]], np.int64))
        shape = self._constant(f"{y}/shape", np.array([*left[:-1], right[-1]], np.int64))
        yield helper.make_node("Reshape", [a, rows], [f"{y}/flat"])
        yield helper.make_node("MatMul", [f"{y}/flat", b], [f"{y}/product"], node.name)
        yield helper.make_node("Reshape", [f"{y}/product", shape], [y])

    def _quantize(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """With scalars for constants of one element, and with the zero point that the standard says: 0, of the stored
        type, uint8 for QuantizeLinear."""
        new = onnx.NodeProto()
        new.CopyFrom(node)
        del new.input[1:]
        scale, zero_point = node.input[1], node.input[2] if len(node.input) > 2 else ""
        if not zero_point:
            stored = self.constants.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
            dtype = np.uint8 if stored is None else numpy_helper.to_array(stored).dtype
            zero_point = self._constant(f"{node.output[0]}/zero_point",
                                        np.zeros(self._array(node, scale).shape, dtype))
        new.input.extend([self._scalar(scale), self._scalar(zero_point)])
        return new

    def _scalar(self, name: str) -> str:
        tensor = self.constants.get(name)
        if tensor is None or not len(tensor.dims) or math.prod(tensor.dims) != 1:
            return name
        scalar = f"{name}/scalar"
        return scalar if scalar in self.constants else self._constant(
            scalar, numpy_helper.to_array(tensor).reshape(()))

    def _array(self, node: onnx.NodeProto, name: str) -> np.ndarray:
        if name not in self.constants:
            raise ModelError(f"{self.where}: {name!r} of {node.op_type} {node.name or node.output[0]!r} is computed at "
                             "run time; export the model with constant scales")
        return numpy_helper.to_array(self.constants[name])

    def _constant(self, name: str, array: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(array, name)
        self.model.graph.initializer.append(self.constants[name])
        return name


def _shapes(model: onnx.ModelProto, inputs: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...] | None]:
    """Static shapes by value name, as far as ONNX can infer them."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, inputs.get(value.name, ())):
            dim.dim_value = size
    graph = onnx.shape_inference.infer_shapes(fixed).graph
    known: Mapping[str, onnx.ValueInfoProto] = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
    shapes: dict[str, tuple[int, ...] | None] = {t.name: tuple(t.dims) for t in graph.initializer}
    for name, value in known.items():
        dims = value.type.tensor_type.shape.dim
        sizes = tuple(int(d.dim_value) for d in dims)
        if value.type.tensor_type.HasField("shape") and all(s > 0 for s in sizes):
            shapes[name] = sizes
    return shapes
