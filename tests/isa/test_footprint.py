"""Footprints against sets of bytes."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.isa.footprint import Footprint, footprint, intervals, mark, overlap, size_bytes

SHAPES = st.tuples(st.integers(1, 6), st.lists(st.tuples(
    st.sampled_from((0, 1, 2, 3, 4, 6, 8, 12, 16, 24)) | st.integers(0, 40), st.integers(1, 4)), max_size=4))


def touched(length: int, dims: list[tuple[int, int]]) -> set[int]:
    starts = {0}
    for stride, count in dims:
        starts = {s + i * stride for s in starts for i in range(count)}
    return {s + i for s in starts for i in range(length)}


@settings(max_examples=400)
@given(SHAPES, SHAPES, st.integers(-80, 80))
def test_overlap_is_exact(a: tuple, b: tuple, distance: int) -> None:
    first, second = touched(*a), touched(*b)
    shape_a, shape_b = footprint(a[0], *a[1]), footprint(b[0], *b[1])
    assert overlap(shape_a, shape_b, distance) == bool(first & {s + distance for s in second})
    assert size_bytes(shape_a) == len(first)
    assert shape_a.span == max(first) + 1
    covered = np.zeros(shape_a.span, bool)
    mark(covered, 0, shape_a)
    assert set(np.flatnonzero(covered)) == first


def test_contiguous_dims_merge() -> None:
    # The input of a 3x3 convolution with stride 2, 4 channels, 8 x 7 positions, on rows of 100 bytes:
    # 2 * 7 + 3 = 17 rows of 2 * 4 * 6 + 12 = 60 bytes.
    assert footprint(12, (8, 7), (200, 8), (100, 3)) == Footprint(60, ((100, 17),))
    assert footprint(16, (64, 4), (512, 3)) == Footprint(16, ((64, 4), (512, 3)))
    assert footprint(16, (64, 4), (256, 3)) == Footprint(16, ((64, 12),))
    assert footprint(5, (0, 9), (7, 1)) == Footprint(5, ())


def test_channel_slices_do_not_overlap() -> None:
    one = footprint(16, (64, 14), (64 * 14, 14))
    assert overlap(one, one, 0) and overlap(one, one, 15) and overlap(one, one, 64)
    assert not overlap(one, one, 16) and not overlap(one, one, -16) and not overlap(one, one, 48)


def test_intervals_are_sorted_and_disjoint() -> None:
    first, end = intervals(footprint(3, (5, 3), (6, 2)))  # starts 0, 5, 6, 10, 11, 16
    assert (first.tolist(), end.tolist()) == ([0, 5, 10, 16], [3, 9, 14, 19])
