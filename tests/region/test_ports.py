"""Host and device layouts of a port."""

from __future__ import annotations

import numpy as np

from byoc_accel.region.ports import to_device, to_host
from byoc_accel.region.region import Port


def test_nchw_trap_shape():
    """C = H = W, so that a missing transpose keeps the shape."""
    host = np.arange(27).reshape(1, 3, 3, 3)
    port = Port("x", (1, 3, 3, 3), "float32", (0, 3, 1, 2))
    device = to_device(port, (1, 3, 3, 3), host)
    assert device[0, 1, 2, 0] == host[0, 0, 1, 2] == 5 and device.flags.c_contiguous
    assert np.array_equal(to_host(port, device), host)


def test_a_permutation_that_is_not_its_own_inverse():
    host = np.arange(2 * 3 * 4 * 5).reshape(4, 5, 2, 3)  # (W, C, N, H)
    port = Port("x", (4, 5, 2, 3), "float32", (2, 3, 0, 1))
    device = to_device(port, (2, 3, 4, 5), host)
    assert device.shape == (2, 3, 4, 5) and device[1, 2, 3, 4] == host[3, 4, 1, 2]
    assert np.array_equal(to_host(port, device), host)


def test_host_shape_of_other_rank():
    port = Port("x", (2, 6), "float32", (0, 3, 1, 2))
    host = np.arange(12).reshape(2, 6)
    device = to_device(port, (2, 1, 3, 2), host)
    assert device[1, 0, 2, 1] == host[1, 5] and device[0, 0, 1, 0] == host[0, 1]
    assert np.array_equal(to_host(port, device), host)
