"""Requants of average pooling, one per number of positions that divide."""
from __future__ import annotations

import numpy as np

from ..region import geometry
from ..region.region import Pool
from . import fixedpoint
from .qregion import QPool, Requant


def lower_pool(where: str, node: Pool, x_shape: tuple[int, ...], x: tuple[float, int],
               y: tuple[float, int]) -> QPool:
    """QPool of `node`; x and y are (scale, zero point).

    A raw average works on the stored integers: zero points 0, exact division, truncated or (rounding "nearest")
    rounded half away from zero. Any other average multiplies the sum of (x - zero point) by x.scale / y.scale / n.
    """
    raw = node.kind == "avg" and node.raw
    requants: tuple[tuple[int, Requant], ...] = ()
    if node.kind == "avg":
        counts = geometry.pool_counts(x_shape[1], x_shape[2], node.kernel, node.stride, node.padding,
                                      node.count_include_pad)
        ratio = float(np.float32(x[0])) / float(np.float32(y[0]))
        requants = tuple((n, fixedpoint.average(n, where) if raw else fixedpoint.average_ratio(n, ratio, where))
                         for n in np.unique(counts).tolist())
    return QPool(node.name, node.x, node.y, node.kind, node.kernel, node.stride, node.padding,
                 node.count_include_pad, 0 if raw else x[1], 0 if raw else y[1], requants,
                 "truncate" if raw and node.rounding != "nearest" else node.rounding)
