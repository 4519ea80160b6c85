"""Weights from the host's layout to (O, KH, KW, I / groups)."""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from .candidate import ConvCandidate

MAX_KERNEL = 256


def channels(c: ConvCandidate) -> tuple[int, int]:
    """(input channels, output channels) of a candidate with static shapes and a known layout."""
    if not c.layout:
        return c.x.shape[-1], c.y.shape[-1]
    return c.x.shape[c.layout.index("C")], c.y.shape[(c.out_layout or c.layout).index("C")]


def is_multiplier_form(c: ConvCandidate) -> bool:
    """Depthwise weights that count input channels along O and the multiplier along I, as TVM may state them.

    Output channel c * multiplier + m then reads input channel c. With a multiplier of 1 both forms are one.
    """
    axes = dict(zip(c.kernel_layout, c.weight.shape))
    inputs, outputs = channels(c)
    return 1 < c.groups == inputs and (axes["O"], axes["I"]) == (inputs, outputs // inputs) != (outputs, 1)


def ohwi(c: ConvCandidate) -> np.ndarray:
    """The weight of a supported candidate as (O, KH, KW, I / groups); absent axes have size 1."""
    order = [c.kernel_layout.index(axis) for axis in "OHWI" if axis in c.kernel_layout]
    weight = c.weight.transpose(order)
    for position, axis in enumerate("OHWI"):
        if axis not in c.kernel_layout:
            weight = np.expand_dims(weight, position)
    if is_multiplier_form(c):
        weight = weight.transpose(0, 3, 1, 2).reshape(-1, *weight.shape[1:3])[..., None]
    return np.ascontiguousarray(weight)


def written_out(c: ConvCandidate) -> ConvCandidate:
    """A transposed convolution with one group and dilation 1: zeros between groups and dilated taps stand in its
    weight, where tiles of zeros cost nothing. As it is when it has no constant weight, or one of another shape."""
    if c.weight is None or not (c.x.is_static and c.y.is_static) or (c.groups == 1 and c.dilation == (1, 1)):
        return c
    weight = c.weight.transpose([c.kernel_layout.index(axis) for axis in "IOHW"])
    (inputs, outputs), (rows, columns, *kernel) = channels(c), weight.shape
    if (rows, columns * c.groups) != (inputs, outputs) or rows % c.groups or min(c.dilation) < 1:
        return c
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, c.dilation)]
    if max(extent) > MAX_KERNEL:
        return c
    full = np.zeros((inputs, outputs, *extent), weight.dtype)
    for group in range(c.groups):
        mine = slice(group * rows // c.groups, (group + 1) * rows // c.groups)
        full[mine, group * columns:(group + 1) * columns, ::c.dilation[0], ::c.dilation[1]] = weight[mine]
    return replace(c, weight=full, kernel_layout="IOHW", groups=1, dilation=(1, 1))


def magnitudes(c: ConvCandidate) -> np.ndarray:
    """int64 (O,): the sum of |weight| of every output channel of a supported quantized candidate."""
    weight, layout = (ohwi(c), "OHWI") if is_multiplier_form(c) else (c.weight, c.kernel_layout)
    axes = tuple(i for i, axis in enumerate(layout) if axis != "O")
    return np.abs(weight.astype(np.int16 if weight.itemsize == 1 else np.int64)).sum(axis=axes, dtype=np.int64)
