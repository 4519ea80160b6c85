"""Weights from the host's layout to (O, KH, KW, I / groups)."""
from __future__ import annotations

import numpy as np

from .candidate import ConvCandidate


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


def magnitudes(c: ConvCandidate) -> np.ndarray:
    """int64 (O,): the sum of |weight| of every output channel of a supported quantized candidate."""
    weight, layout = (ohwi(c), "OHWI") if is_multiplier_form(c) else (c.weight, c.kernel_layout)
    axes = tuple(i for i, axis in enumerate(layout) if axis != "O")
    return np.abs(weight.astype(np.int16 if weight.itemsize == 1 else np.int64)).sum(axis=axes, dtype=np.int64)
