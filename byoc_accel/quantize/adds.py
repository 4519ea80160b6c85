"""The residual add at a common, finer scale: TFLite's kernel, and the form for float models."""
from __future__ import annotations

import numpy as np

from ..region.region import Add
from . import fixedpoint
from .qregion import QAdd

LEFT_SHIFT = 20


def add_at_common_scale(where: str, node: Add, x1_scale: float, x2_scale: float, y_scale: float,
                        clamp: tuple[int, int]) -> QAdd:
    """Operands scaled by s / (2 max), the sum by 2 max / (2**20 y_scale), ratios of float32 scales in double.

    Both operands meet at 2**-20 of a step, so that only the sum is rounded: an error of 1/12 step**2 where qnn.add's
    form (each operand rounded to y's scale) has 2/12.
    """
    s1, s2, y = (float(np.float32(s)) for s in (x1_scale, x2_scale, y_scale))
    twice = 2.0 * max(s1, s2)
    return QAdd(node.name, node.x1, node.x2, node.y, fixedpoint.from_real(s1 / twice, where),
                fixedpoint.from_real(s2 / twice, where), fixedpoint.from_real(twice / (2.0 ** LEFT_SHIFT * y), where),
                LEFT_SHIFT, node.rounding, clamp)
