"""The lower bound of a report: each of its three terms where it is the largest, on a target whose widths all differ."""
from __future__ import annotations

from dataclasses import replace

import pytest

from byoc_accel.report import bound_cycles
from byoc_accel.target import load_target

TARGET = replace(load_target("reference"), array_rows=4, array_columns=16, fetch_bytes_per_cycle=16,
                 dma_bytes_per_cycle=2)


@pytest.mark.parametrize("macs, program_bytes, io_bytes, cycles", [
    (6401, 1600, 20, 101), (6400, 1601, 200, 101), (640, 160, 201, 101), (0, 0, 0, 0), (1, 0, 0, 1)])
def test_bound(macs: int, program_bytes: int, io_bytes: int, cycles: int) -> None:
    """64 MACs, 16 program bytes and 2 input or output bytes a cycle."""
    assert bound_cycles(TARGET, macs, program_bytes, io_bytes) == cycles
