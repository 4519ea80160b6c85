"""How the elements of a host tensor lie in the bytes of a device tensor (NHWC).

A view is a sequence of (size, stride) pairs in the order of the host's elements, outermost first; strides count
device elements. Reshape keeps a view, transpose permutes it, and two tensors can share bytes exactly when their
views are equal. Views are canonical: no axis of size 1, adjacent axes merged.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

View = tuple[tuple[int, int], ...]
Shape4 = tuple[int, int, int, int]

NHWC = (0, 1, 2, 3)
NCHW = (0, 3, 1, 2)


def canonical(axes: Sequence[tuple[int, int]]) -> View:
    """`axes` without those of size 1, neighbours merged where they are contiguous."""
    merged: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    return tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))


def row_major(count: int) -> View:
    """The view of a host tensor whose elements lie in host order."""
    return canonical([(count, 1)])


def from_perm(shape: Shape4, perm: Sequence[int]) -> View:
    """The view of host = device.transpose(perm)."""
    step = strides(shape)
    return canonical([(shape[axis], step[axis]) for axis in perm])


def find_perm(shape: Shape4, view: View) -> tuple[int, int, int, int] | None:
    """A permutation with from_perm(shape, perm) == view, the plain one if it fits, or None."""
    for perm in (NHWC, NCHW, *itertools.permutations(range(4))):
        if from_perm(shape, perm) == view:
            return perm
    return None


def split(view: View, host_shape: Sequence[int]) -> list[View] | None:
    """The view of every host axis of its own, or None when an axis lies across the view's axes."""
    rest = list(view)
    parts: list[View] = []
    for length in reversed(host_shape):
        axes: list[tuple[int, int]] = []
        while length > 1:
            if not rest:
                return None
            size, stride = rest.pop()
            common = math.gcd(size, length)
            if common != min(size, length):
                return None
            axes.insert(0, (common, stride))
            if size > common:
                rest.append((size // common, stride * common))
            length //= common
        parts.insert(0, tuple(axes))
    return None if rest else parts


def transpose(view: View, host_shape: Sequence[int], axes: Sequence[int]) -> View | None:
    """The view of host.transpose(axes), or None when the axes of `host_shape` cannot be told apart in `view`."""
    parts = split(view, host_shape)
    if parts is None:
        return None
    return canonical([pair for axis in axes for pair in parts[axis]])


def offsets(view: View) -> np.ndarray:
    """Device element of every host element, int64 (count,)."""
    result = np.zeros(1, np.int64)
    for size, stride in view:
        result = (result[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return result


def match_axes(shape: Shape4, view: View, host_shape: Sequence[int],
               axes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ways to see host axes (ascending) as whole device axes: a permutation as of `find_perm`, and the device axes.

    Each device axis is different; channels come first where an axis of size 1 could be any.
    """
    for perm in dict.fromkeys((NHWC, NCHW, *itertools.permutations(range(4)))):
        if from_perm(shape, perm) != view:
            continue
        places = [[j for j in (3, 2, 1, 0) if shape[perm[j]] == host_shape[axis]
                   and math.prod(shape[p] for p in perm[:j]) == math.prod(host_shape[:axis])] for axis in axes]
        for found in itertools.product(*places):
            if all(a < b for a, b in zip(found, found[1:])):
                yield perm, tuple(perm[j] for j in found)


def resized(shape: Shape4, axes: Sequence[int], sizes: Sequence[int]) -> Shape4:
    """`shape` with other sizes along device `axes`."""
    changed = dict(zip(axes, sizes))
    n, h, w, c = (changed.get(axis, size) for axis, size in enumerate(shape))
    return n, h, w, c
