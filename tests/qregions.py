"""Small QRegions with random weights, made by hand: the shapes that tests of later stages use."""
from __future__ import annotations

import numpy as np

from byoc_accel.quantize.qregion import IDENTITY, QAdd, QConv, QNode, QPool, QRegion, QReshape, QTensor, Requant
from byoc_accel.region.region import Port

PLAIN = (0, 0, 0, 0)
SAME = (1, 1, 1, 1)


def tensor(name: str, shape: tuple[int, ...], zero_point: int = 3) -> QTensor:
    return QTensor(name, shape, 0.1, zero_point)  # type: ignore[arg-type]


def conv(rng: np.random.Generator, name: str, x: str, y: str, shape: tuple[int, int, int, int], *, stride=(1, 1),
         padding=PLAIN, dilation=(1, 1), groups: int = 1, clamp=(-128, 127)) -> QConv:
    """Random conv; `shape` is that of the weights, (O, KH, KW, I / groups). Results use most of the int8 range."""
    weight = rng.integers(-127, 128, shape).astype(np.int8)
    reduction = shape[1] * shape[2] * shape[3]
    shift = 30 + 6 + int(np.ceil(np.log2(reduction + 1) / 2))
    return QConv(name, x, y, weight, rng.integers(-4000, 4000, shape[0]).astype(np.int32),
                 rng.integers(1 << 30, 1 << 31, shape[0]), np.full(shape[0], shift), stride, padding, dilation,
                 groups, "upward", clamp)


def add(name: str, x1: str, x2: str, y: str) -> QAdd:
    return QAdd(name, x1, x2, y, Requant(1 << 30, 31), Requant(1_500_000_000, 31), IDENTITY, 0, "upward",
                (-128, 127))


def region(name: str, tensors: list[QTensor], nodes: list[QNode], inputs: list[str], outputs: list[str]) -> QRegion:
    """QRegion whose host side is int8 NHWC."""
    shapes = {t.name: t.shape for t in tensors}
    ports = [tuple(Port(n, shapes[n], "int8", (0, 1, 2, 3)) for n in side) for side in (inputs, outputs)]
    return QRegion(name, tuple(tensors), tuple(nodes), *ports)


def residual_net(size: int = 8, channels: int = 8, batch: int = 1, seed: int = 0) -> QRegion:
    """conv, conv + residual, 2x2 max pool, flatten, dense: one of everything that chains."""
    rng = np.random.default_rng(seed)
    full, half = (batch, size, size, channels), (batch, size // 2, size // 2, channels)
    features = half[1] * half[2] * channels
    tensors = [tensor("x", full), tensor("a", full, -5), tensor("b", full, 7), tensor("c", full, 1),
               tensor("p", half, 1), tensor("f", (batch, 1, 1, features), 1), tensor("o", (batch, 1, 1, 10), 0)]
    kernel = (channels, 3, 3, channels)
    nodes: list[QNode] = [
        conv(rng, "c1", "x", "a", kernel, padding=SAME), conv(rng, "c2", "a", "b", kernel, padding=SAME),
        add("add", "x", "b", "c"),
        QPool("pool", "c", "p", "max", (2, 2), (2, 2), PLAIN, False, 1, 1, (), "upward"),
        QReshape("flatten", "p", "f"), conv(rng, "fc", "f", "o", (10, 1, 1, features))]
    return region("residual_net", tensors, nodes, ["x"], ["o"])


def one_conv(x: tuple[int, int, int, int], kernel: tuple[int, int, int, int], *, seed: int = 0, **options) -> QRegion:
    """A single convolution on an input of shape `x` (N, H, W, C)."""
    rng = np.random.default_rng(seed)
    node = conv(rng, "conv", "x", "y", kernel, **options)
    top, left, bottom, right = node.padding
    extent = [(k - 1) * d + 1 for k, d in zip(kernel[1:3], node.dilation)]
    height = (x[1] + top + bottom - extent[0]) // node.stride[0] + 1
    width = (x[2] + left + right - extent[1]) // node.stride[1] + 1
    return region("one_conv", [tensor("x", x), tensor("y", (x[0], height, width, kernel[0]), -3)], [node], ["x"], ["y"])
