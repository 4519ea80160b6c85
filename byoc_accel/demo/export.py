"""Writes the demo network as ONNX."""
from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .network import LAYERS, MODEL_FILE, Layer, Parameters


def export(parameters: Parameters) -> None:
    """Write the network as PyTorch would export it: NCHW, batch 1, opset 13."""
    nodes, weights = [], []

    def tensor(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    last = "image"
    for layer in LAYERS:
        out = "scores" if layer is LAYERS[-1] else layer.name
        if layer.kind == "max":
            nodes.append(helper.make_node("MaxPool", [last], [out], out, kernel_shape=[2, 2], strides=[2, 2]))
        elif layer.kind == "mean":
            nodes.append(helper.make_node("GlobalAveragePool", [last], [out], out))
            nodes.append(helper.make_node("Flatten", [out], ["flat"], "flat", axis=1))
            out = "flat"
        else:
            weight, bias = parameters[layer.name]
            names = [last, tensor(f"{layer.name}.weight", onnx_weight(weight, layer)),
                     tensor(f"{layer.name}.bias", bias)]
            if layer.kind == "dense":
                nodes.append(helper.make_node("Gemm", names, [out], layer.name, transB=1))
            else:
                sums = f"{out}.sum"
                nodes.append(helper.make_node(
                    "Conv", names, [sums], layer.name, kernel_shape=[layer.kernel] * 2,
                    strides=[layer.stride] * 2, pads=[layer.kernel // 2] * 4))
                if layer.add:
                    nodes.append(helper.make_node("Add", [sums, layer.add], [f"{out}.add"], f"{out}.add"))
                    sums = f"{out}.add"
                nodes.append(helper.make_node("Relu", [sums], [out], f"{out}.relu"))
        last = out
    graph = helper.make_graph(
        nodes, "mnist_cnn", [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 28, 28])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])], weights)
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, producer_name="byoc_accel.demo")
    model.ir_version = 7
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(MODEL_FILE))


def onnx_weight(weight: np.ndarray, layer: Layer) -> np.ndarray:
    """(KH * KW * I, O) -> OIHW for a convolution, (O, I) for the dense layer."""
    if layer.kind == "dense":
        return weight.T
    k = layer.kernel
    return weight.reshape(k, k, layer.inputs, layer.outputs).transpose(3, 2, 0, 1)
