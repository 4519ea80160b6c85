"""Nodes that become several steps, each of which writes a part of the result: concat, pad, upsampling, transposed
convolution."""
from __future__ import annotations

import numpy as np

from ..quantize.qregion import QConcat, QConv, QConvTranspose, QPad, QTensor, QUpsample
from .plan import ConvStep, ElementStep, Part, Step


def expand(node: QConcat | QPad | QUpsample | QConvTranspose, tensors: dict[str, QTensor]) -> list[Step]:
    """The steps of one node, in order; together they write every byte of the result."""
    if isinstance(node, QConcat):
        return _concat(node, tensors)
    if isinstance(node, QPad):
        return _pad(node, tensors)
    if isinstance(node, QUpsample):
        return _upsample(node, tensors)
    return _transposed(node, tensors)


def _concat(node: QConcat, tensors: dict[str, QTensor]) -> list[Step]:
    """One requantizing copy per input, into its slice."""
    steps: list[Step] = []
    origin = [0, 0, 0]
    for number, (name, requant) in enumerate(zip(node.xs, node.requants)):
        shape = tensors[name].shape[1:]
        part = Part(shape, (origin[0], origin[1], origin[2]))  # type: ignore[arg-type]
        steps.append(ElementStep(f"{node.name}[{number}]", name, node.y, requant=requant, rounding=node.rounding,
                                 part=part))
        origin[node.axis - 1] += shape[node.axis - 1]
    return steps


def _pad(node: QPad, tensors: dict[str, QTensor]) -> list[Step]:
    """Fill the result with the value, then copy the input into its middle."""
    part = Part(tensors[node.x].shape[1:], (node.padding[0], node.padding[1], 0), clear=node.value)  # type: ignore[arg-type]
    return [ElementStep(node.name, node.x, node.y, part=part)]


def _upsample(node: QUpsample, tensors: dict[str, QTensor]) -> list[Step]:
    """One copy of the whole input per phase of the factor."""
    shape = tensors[node.x].shape[1:]
    return [ElementStep(f"{node.name}[{y},{x}]", node.x, node.y,
                        part=Part(shape, (y, x, 0), node.factor))  # type: ignore[arg-type]
            for y in range(node.factor[0]) for x in range(node.factor[1])]


def _transposed(node: QConvTranspose, tensors: dict[str, QTensor]) -> list[Step]:
    """One ordinary convolution per phase of the stride: output positions that share the same kernel taps.

    Position o gets taps k = phase + stride * t of input i = (o + padding - phase) / stride - t, with phase =
    (o + padding) mod stride: a convolution with the taps of that phase in reverse order.
    """
    _, height, width, channels = tensors[node.y].shape
    steps: list[Step] = []
    for first_y in range(min(node.stride[0], height)):
        for first_x in range(min(node.stride[1], width)):
            axes = [_phase(first, size, stride, before, kernel) for first, size, stride, before, kernel in zip(
                (first_y, first_x), (height, width), node.stride, node.padding, node.weight.shape[1:3])]
            (taps_y, count_y, pad_y), (taps_x, count_x, pad_x) = axes
            weight = node.weight[:, taps_y][:, :, taps_x] if taps_y and taps_x else np.zeros(
                (channels, 1, 1, node.weight.shape[3]), np.int8)
            conv = QConv(node.name, node.x, node.y, np.ascontiguousarray(weight), node.bias, node.multiplier,
                         node.shift, (1, 1), (pad_y, pad_x, 0, 0), (1, 1), 1, node.rounding, node.clamp)
            part = Part((count_y, count_x, channels), (first_y, first_x, 0), node.stride)
            steps.append(ConvStep(f"{node.name}[{first_y},{first_x}]", conv, node.x, node.y, part=part))
    return steps


def _phase(first: int, size: int, stride: int, before: int, kernel: int) -> tuple[list[int], int, int]:
    """Taps in input order, number of outputs, and padding before (negative: inputs left out) of one phase."""
    taps = list(range((first + before) % stride, kernel, stride))[::-1]
    count = -(-(size - first) // stride)
    return taps, count, len(taps) - 1 - (first + before) // stride if taps else 0
