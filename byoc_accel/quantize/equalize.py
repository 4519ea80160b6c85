"""Channels of activations rescaled, so that one scale per tensor serves all of them: Region -> Region.

A channel of a tensor may be multiplied by a positive factor in front of everything that is linear in it, and divided by
it in the weights that read it. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction"
(2019), section 4.1, do so between two layers by the ranges of their weights; Xiao et al., "SmoothQuant" (2023), by the
ranges of activations. Here a factor may pass adds, pools and activations like relu, and what is predicted to add the
least noise is taken.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import QuantizeError
from ..region.interpret import interpret
from ..region.region import Add, Conv2d, ConvTranspose2d, Node, Pad, Pool, Region, Reshape, Unary, Upsample, node_inputs
from .calibration import DeviceSample, stacked
from .extremes import extreme_range
from .weights import WEIGHT_MAX

Factors = Mapping[str, np.ndarray]  # float64 (C,) by tensor name; tensors without factors are left out
HOMOGENEOUS = ("relu", "leaky_relu", "abs", "negative")
POWERS = tuple(itertools.product((0.25, 0.5, 0.75, 1.0), (0.0, 0.5)))  # of activation and weight range, that are tried
#: Smaller ranges, compared with the largest channel's, count as this: a channel that no sample reached may be reached.
SMALLEST = 1 / 16
DIGITS = 6  # decimal, of a factor: it travels as text, and a machine's order of summation must not show
STEPS = 255


@dataclass(frozen=True)
class Channels:
    """Of one tensor, per channel: the range (C,) that inputs are expected to reach, and the mean square (C,)."""

    low: np.ndarray
    high: np.ndarray
    square: np.ndarray

    def reach(self) -> np.ndarray:
        return np.maximum(self.high, -self.low)


@dataclass(frozen=True)
class Reader:
    """A layer that reads tensor x: sums of squares and maxima of its weights, both (O, C) over the kernel."""

    x: str
    square: np.ndarray
    largest: np.ndarray


def groups(region: Region) -> list[list[str]]:
    """Sets of tensors that can share factors, one per channel: those that only linear nodes join.

    The region's inputs and outputs, and what a non-linear node touches, belong to none.
    """
    shapes = {t.name: t.shape for t in region.tensors}
    parent = {name: name for name in shapes}
    fixed = {port.tensor for port in region.inputs + region.outputs}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in region.nodes:
        if isinstance(node, (Conv2d, ConvTranspose2d)):
            fixed.update(() if _linear(node, shapes) else (node.y,))
            continue
        for name in node_inputs(node):
            parent[find(name)] = find(node.y)
        fixed.update(() if _linear(node, shapes) else (node.y,))
    closed = {find(name) for name in fixed}
    found: dict[str, list[str]] = {}
    for name in shapes:
        if find(name) not in closed:
            found.setdefault(find(name), []).append(name)
    return list(found.values())


def _linear(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether positive factors on the channels of the node's operands come out on those of its result."""
    if isinstance(node, (Conv2d, ConvTranspose2d, Add)):
        return node.clip is None or all(bound == 0.0 or math.isinf(bound) for bound in node.clip)
    if isinstance(node, Unary):
        return node.function in HOMOGENEOUS
    if isinstance(node, Pad):
        return node.value == 0.0
    if isinstance(node, Reshape):
        return shapes[node.x][1:3] == shapes[node.y][1:3] == (1, 1)
    return isinstance(node, (Pool, Upsample)) or getattr(node, "axis", 3) != 3  # concats along other axes


def apply(region: Region, factors: Factors) -> Region:
    """The region whose tensors are those of `region` times their factors; weights and biases become float64."""
    return replace(region, nodes=tuple(_scaled(n, factors) if isinstance(n, (Conv2d, ConvTranspose2d)) else n
                                       for n in region.nodes)) if factors else region


def _scaled(node: Conv2d | ConvTranspose2d, factors: Factors) -> Conv2d | ConvTranspose2d:
    x, y = factors.get(node.x), factors.get(node.y)
    weight, bias = node.weight.astype(np.float64), node.bias
    if x is not None:
        weight = weight / _read(node, x)
    if y is not None:
        weight = weight * y[:, None, None, None]
        bias = None if bias is None else bias.astype(np.float64) * y
    return replace(node, weight=weight, bias=bias)


def _read(node: Conv2d | ConvTranspose2d, x: np.ndarray) -> np.ndarray:
    """The entries of x (C,) for the channel that each weight (O, KH, KW, I / groups) reads; they broadcast."""
    if isinstance(node, ConvTranspose2d) or node.groups == 1:
        return x
    return x.reshape(node.groups, -1).repeat(len(node.weight) // node.groups, 0)[:, None, None, :]


def pack(region: Region, factors: Factors) -> tuple[tuple[float, ...], ...]:
    """Factors of each of `groups`, in order, nothing where there are none; empty when no group has any."""
    if not factors:
        return ()
    return tuple(tuple(factors.get(group[0], np.zeros(0)).tolist()) for group in groups(region))


def unpack(region: Region, packed: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
    """Inverse of `pack`; raises QuantizeError when `packed` is of another region."""
    if not packed:
        return {}
    found, widths = groups(region), {t.name: t.shape[3] for t in region.tensors}
    fits = len(packed) == len(found) and all(len(row) in (0, widths[group[0]]) for row, group in zip(packed, found))
    if not fits or not all(0.0 < factor < math.inf for row in packed for factor in row):
        raise QuantizeError(f"{region.name}: factors do not fit the tensors; calibrate again")
    return {name: np.array(row) for row, group in zip(packed, found) if row for name in group}


def choose(region: Region, samples: Sequence[DeviceSample], count: float) -> dict[str, np.ndarray]:
    """Factors of the groups that gain by them; region: folded, without batch norms. count: as of `extreme_range`.

    For every group: reach^-a * weight^b, with reach the channel's activation range and weight the largest weight that
    reads it, both relative to the largest channel's, and the exponents of POWERS with the least `predicted_noise`.
    """
    channels = _channels(region, samples, count)
    factors: dict[str, np.ndarray] = {}
    for group in groups(region):
        readers = [_reader(n, len(channels[n.x].low)) for n in region.nodes
                   if isinstance(n, (Conv2d, ConvTranspose2d)) and n.x in group]
        reach = np.max([_relative(channels[name].reach()) for name in group], 0)
        best, least = None, predicted_noise(readers, channels, np.ones(len(reach)))
        weight = np.max([_relative(r.largest.max(0)) for r in readers], 0) if readers else reach
        for power, weight_power in POWERS if least > 0.0 else ():
            tried = reach ** -power * weight ** weight_power
            noise = predicted_noise(readers, channels, tried)
            if noise < least:
                best, least = tried, noise
        if best is not None:
            rounded = np.array([float(f"{f:.{DIGITS}g}") for f in best / (reach * best).max()])
            factors.update(dict.fromkeys(group, rounded))
    return factors


def _relative(values: np.ndarray) -> np.ndarray:
    """values over the largest, at least SMALLEST; 1 where all are 0."""
    largest = values.max()
    return np.maximum(values / largest, SMALLEST) if largest > 0.0 else np.ones(len(values))


def predicted_noise(readers: Sequence[Reader], channels: Mapping[str, Channels], factors: np.ndarray) -> float:
    """Squared error that rounding the tensors and the weights of their readers adds to all results of the readers.

    A tensor's step is its range over 255, a weight's the largest weight of its output over 127; rounding to a step adds
    step^2 / 12 (B. Widrow, "Statistical Analysis of Amplitude-Quantized Sampled-Data Systems", 1961).
    """
    total = 0.0
    for reader in readers:
        x = channels[reader.x]
        step = (max(float((x.high * factors).max()), 0.0) - min(float((x.low * factors).min()), 0.0)) / STEPS
        weight_step = (reader.largest / factors).max(1) / WEIGHT_MAX
        total += float((reader.square / factors ** 2).sum()) * step ** 2 / 12.0
        total += float((weight_step ** 2).sum()) / 12.0 * float((x.square * factors ** 2).sum())
    return total


def _reader(node: Conv2d | ConvTranspose2d, width: int) -> Reader:
    square = np.square(node.weight.astype(np.float64)).sum((1, 2))
    largest = np.abs(node.weight.astype(np.float64)).max((1, 2))
    if isinstance(node, ConvTranspose2d) or node.groups == 1:
        return Reader(node.x, square, largest)
    index = np.broadcast_to(_read(node, np.arange(width))[:, 0, 0], square.shape)
    wide = [np.zeros((len(square), width)) for _ in range(2)]
    for target, values in zip(wide, (square, largest)):
        np.put_along_axis(target, index, values, 1)
    return Reader(node.x, *wide)


def _channels(region: Region, samples: Sequence[DeviceSample], count: float) -> dict[str, Channels]:
    parts: dict[str, list[list[np.ndarray]]] = {}
    for _, batch in stacked(region, samples):
        for name, values in interpret(region, batch, np.float64).items():
            parts.setdefault(name, []).append(
                [values.min((1, 2)), values.max((1, 2)), np.square(values).mean((1, 2))])
    out = {}
    for name, batches in parts.items():
        lows, highs, squares = (np.concatenate(column) for column in zip(*batches))
        out[name] = Channels(*extreme_range(lows, highs, count), squares.mean(0))
    return out
