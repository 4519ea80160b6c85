"""The demo network: a residual CNN of 110,810 parameters for 28 x 28 grey images, as a table of layers.

Convolutions are followed by ReLU. Tensors are NHWC here (a layer is one matrix product), NCHW in the file.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

MODEL_FILE = Path(__file__).parent / "mnist_cnn.onnx"
RECORD_FILE = Path(__file__).parent / "mnist_cnn.json"


@dataclass(frozen=True)
class Layer:
    """kind: conv (square kernel, "same" padding, ReLU) | max (2 x 2) | mean (all positions) | dense.

    `add` names an earlier layer whose output is added before the ReLU.
    """

    name: str
    kind: str
    inputs: int = 0
    outputs: int = 0
    kernel: int = 1
    stride: int = 1
    add: str = ""


LAYERS: tuple[Layer, ...] = (
    Layer("conv1", "conv", 1, 16, kernel=3),
    Layer("pool1", "max"),
    Layer("conv2", "conv", 16, 48, kernel=3),
    Layer("pool2", "max"),
    Layer("conv3", "conv", 48, 48, kernel=3),
    Layer("conv4", "conv", 48, 48, kernel=3, add="pool2"),
    Layer("conv5", "conv", 48, 96, kernel=3, stride=2),
    Layer("conv6", "conv", 96, 192),
    Layer("mean", "mean"),
    Layer("dense", "dense", 192, 10),
)
CONVS = tuple(layer for layer in LAYERS if layer.kind == "conv")
WEIGHTED = (*CONVS, LAYERS[-1])

#: name -> (weight (KH * KW * I, O), bias (O,)), float32
Parameters = dict[str, tuple[np.ndarray, np.ndarray]]


def patches(x: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    """im2col: x (N, H, W, C), "same" zero padding -> (N, OH, OW, KH * KW * C)."""
    if kernel == 1:
        return x[:, ::stride, ::stride]
    edge = kernel // 2
    x = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    windows = sliding_window_view(x, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)


def max_windows(x: np.ndarray) -> np.ndarray:
    """The 2 x 2 windows of x (N, H, W, C), H and W even -> (N, H / 2, W / 2, C, 4)."""
    n, h, w, c = x.shape
    x = x.reshape(n, h // 2, 2, w // 2, 2, c)
    return x.transpose(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, c, 4)


def forward(parameters: Parameters, x: np.ndarray) -> dict[str, np.ndarray]:
    """Output of every layer for x (N, 28, 28, 1); the last one, "dense", holds the 10 scores (N, 10)."""
    outputs: dict[str, np.ndarray] = {}
    for layer in LAYERS:
        if layer.kind == "conv":
            weight, bias = parameters[layer.name]
            x = patches(x, layer.kernel, layer.stride) @ weight + bias
            x = np.maximum(x + outputs[layer.add] if layer.add else x, 0)
        elif layer.kind == "max":
            x = max_windows(x).max(axis=-1)
        elif layer.kind == "mean":
            x = x.mean(axis=(1, 2))
        else:
            weight, bias = parameters[layer.name]
            x = x @ weight + bias
        outputs[layer.name] = x
    return outputs


def predict(parameters: Parameters, x: np.ndarray, batch: int = 250) -> np.ndarray:
    """Scores (N, 10) for x (N, 1, 28, 28)."""
    nhwc = x.transpose(0, 2, 3, 1)
    parts = [forward(parameters, nhwc[i : i + batch])["dense"] for i in range(0, len(x), batch)]
    return np.concatenate(parts)


def load_parameters(path: Path = MODEL_FILE) -> Parameters:
    """Parameters of the committed ONNX file."""
    import onnx
    from onnx import numpy_helper

    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    parameters: Parameters = {}
    for layer in WEIGHTED:
        weight = tensors[f"{layer.name}.weight"]
        if layer.kind == "conv":  # OIHW
            weight = weight.transpose(2, 3, 1, 0).reshape(-1, layer.outputs)
        else:
            weight = weight.T
        parameters[layer.name] = (weight, tensors[f"{layer.name}.bias"])
    return parameters
