"""Footprints: the exact bytes a strided access touches, and whether two of them overlap."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

import numpy as np


@dataclass(frozen=True)
class Footprint:
    """Bytes start + i0 * stride0 + i1 * stride1 + ... + [0, length) for every i below its count.

    `dims` holds (stride, count) with ascending strides, each larger than `length`, and counts above 1. Build
    it with `footprint`, which merges what is contiguous; the start is kept apart so that one footprint serves
    all addresses.
    """

    length: int
    dims: tuple[tuple[int, int], ...]

    @cached_property
    def span(self) -> int:
        """Bytes from the first to one past the last."""
        return self.length + sum(stride * (count - 1) for stride, count in self.dims)


@lru_cache(maxsize=4096)
def footprint(length: int, *dims: tuple[int, int]) -> Footprint:
    """The Footprint of `length` contiguous bytes repeated along `dims` of (stride, count), in any order."""
    left = sorted((stride, count) for stride, count in dims if stride and count > 1)
    while True:
        near = next((d for d in left if d[0] <= length), None)
        if near:  # neighbours touch: one longer run
            left.remove(near)
            length += near[0] * (near[1] - 1)
            continue
        pair = next(((a, b) for i, a in enumerate(left) for b in left[i + 1:]
                     if b[0] % a[0] == 0 and b[0] // a[0] <= a[1]), None)
        if not pair:
            return Footprint(length, tuple(left))
        a, b = pair  # every multiple of a's stride is hit without gaps: one longer row
        left = sorted([d for d in left if d is not a and d is not b] + [(a[0], a[1] + b[0] // a[0] * (b[1] - 1))])


@lru_cache(maxsize=1024)
def intervals(shape: Footprint) -> tuple[np.ndarray, np.ndarray]:
    """Sorted, disjoint, maximal [first, end) pairs relative to the start: two int64 arrays."""
    first = np.zeros(1, np.int64)
    for stride, count in shape.dims:
        first = (first[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    first = np.unique(first)
    last = first + shape.length
    gap = np.flatnonzero(first[1:] > last[:-1])
    return first[np.concatenate(([0], gap + 1))], last[np.concatenate((gap, [len(last) - 1]))]


def size_bytes(shape: Footprint) -> int:
    """Number of distinct bytes."""
    first, end = intervals(shape)
    return int((end - first).sum())


@lru_cache(maxsize=65536)
def overlap(a: Footprint, b: Footprint, distance: int) -> bool:
    """Whether a byte is in both, b starting `distance` bytes after a (negative: before)."""
    if distance >= a.span or -distance >= b.span:
        return False
    if not a.dims and not b.dims:
        return True
    period = gcd(*(stride for stride, _ in a.dims + b.dims))
    if distance % period >= a.length and -distance % period >= b.length:
        return False  # interleaved, e.g. channel slices of one tensor
    first_a, end_a = intervals(a)
    first_b, end_b = intervals(b)
    before = np.searchsorted(first_b + distance, end_a) - 1  # last run of b that starts before each run of a ends
    return bool(((before >= 0) & (end_b[before] + distance > first_a)).any())


def mark(covered: np.ndarray, start: int, shape: Footprint) -> None:
    """Set the bytes of the footprint in the bool array `covered`; they must lie inside of it."""
    view = np.lib.stride_tricks.as_strided(
        covered[start:], [count for _, count in shape.dims] + [shape.length],
        [stride for stride, _ in shape.dims] + [1])
    view[...] = True
