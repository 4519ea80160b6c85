"""Views: where the elements of a host tensor lie, against NumPy on arrays of distinct numbers."""
from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.support import view as views

SHAPES = st.tuples(*[st.sampled_from([1, 2, 3, 4, 6])] * 4)
PERMS = st.permutations(range(4)).map(tuple)


def host_order(shape: tuple[int, ...], perm: tuple[int, ...]) -> np.ndarray:
    """Device element of every element of device.transpose(perm), by NumPy."""
    return np.arange(math.prod(shape)).reshape(shape).transpose(perm).reshape(-1)


@given(SHAPES, PERMS)
def test_offsets_are_where_numpy_puts_them(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(views.offsets(views.from_perm(shape, perm)), host_order(shape, perm))


@given(SHAPES, PERMS, PERMS)
def test_equal_views_are_equal_orders_and_only_those(shape: tuple[int, ...], a: tuple[int, ...],
                                                     b: tuple[int, ...]) -> None:
    same = np.array_equal(host_order(shape, a), host_order(shape, b))
    assert (views.from_perm(shape, a) == views.from_perm(shape, b)) == same


@given(SHAPES, PERMS, PERMS)
def test_transpose(shape: tuple[int, ...], perm: tuple[int, ...], axes: tuple[int, ...]) -> None:
    host_shape = tuple(shape[a] for a in perm)
    moved = views.transpose(views.from_perm(shape, perm), host_shape, axes)
    expected = host_order(shape, perm).reshape(host_shape).transpose(axes).reshape(-1)
    assert moved is not None
    np.testing.assert_array_equal(views.offsets(moved), expected)


@given(SHAPES, PERMS, st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12]), min_size=1, max_size=5))
def test_transpose_after_any_reshape(shape: tuple[int, ...], perm: tuple[int, ...], sizes: list[int]) -> None:
    """A reshape that cuts across the axes of the device is refused, never misread."""
    total = math.prod(shape)
    host_shape = tuple(sizes) if math.prod(sizes) == total else (total // 2, 2) if total % 2 == 0 else (total,)
    axes = tuple(reversed(range(len(host_shape))))
    moved = views.transpose(views.from_perm(shape, perm), host_shape, axes)
    if moved is not None:
        expected = host_order(shape, perm).reshape(host_shape).transpose(axes).reshape(-1)
        np.testing.assert_array_equal(views.offsets(moved), expected)


@given(SHAPES, PERMS)
def test_find_perm_is_the_inverse(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    view = views.from_perm(shape, perm)
    found = views.find_perm(shape, view)
    assert found is not None and views.from_perm(shape, found) == view


def test_find_perm_prefers_plain_layouts() -> None:
    assert views.find_perm((1, 1, 1, 8), views.row_major(8)) == views.NHWC
    assert views.find_perm((1, 4, 4, 1), views.from_perm((1, 4, 4, 1), views.NCHW)) == views.NHWC
    assert views.find_perm((2, 3, 4, 5), views.from_perm((2, 3, 4, 5), views.NCHW)) == views.NCHW


def test_orders_that_no_permutation_gives() -> None:
    assert views.find_perm((1, 1, 1, 8), ((2, 1), (4, 2))) is None
    assert all(views.from_perm((1, 1, 1, 8), p) != ((2, 1), (4, 2)) for p in itertools.permutations(range(4)))
