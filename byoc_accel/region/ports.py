"""Host arrays <-> device arrays of a `Port`: axes only, no change of values.

host = device (NHWC) .transpose(perm) .reshape(host_shape); the batch axis may be a multiple of the port's.
"""
from __future__ import annotations

import numpy as np

from .region import Port


def to_device(port: Port, shape: tuple[int, int, int, int], host: np.ndarray) -> np.ndarray:
    """`host` (port.host_shape) as a contiguous NHWC array of the tensor's `shape`, same dtype."""
    permuted = np.asarray(host).reshape(tuple(shape[axis] for axis in port.perm))
    inverse = tuple(port.perm.index(axis) for axis in range(4))
    return np.ascontiguousarray(permuted.transpose(inverse))


def to_host(port: Port, device: np.ndarray) -> np.ndarray:
    """NHWC `device` as a contiguous array of port.host_shape, same dtype."""
    return np.ascontiguousarray(device.transpose(port.perm)).reshape(port.host_shape)
