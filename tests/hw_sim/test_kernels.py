"""Each inner kernel against NumPy int64: every bit of the sums, lanes and columns 1..32, odd steps, wrapping."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel import sim
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_taps, pack_weights
from byoc_accel.target import load_target

SRAM_BYTES = 1 << 16
BYTES = 20_000
OUT = 30_000
MARK = 7
WIDE = replace(load_target("reference"), name="wide", array_rows=32, array_columns=32, sram_port_bytes=32,
               sram_bytes=SRAM_BYTES, line_buffer_rows=15)


def check(kernel: str, rows: int, ifm: np.ndarray, *work: object, expected: np.ndarray) -> None:
    """The accumulators after `work` are `expected`, int64 (positions, columns), modulo 2^32.

    A bias of minus the expected sum must leave exactly 0, to which the zero point adds MARK.
    """
    positions, columns = expected.shape
    code = [inst("load", binding=0, row_bytes=BYTES, signal=("array",)), inst("sync_array", wait=("dma_in",)),
            *work, inst("sync_array", signal=("post",)), inst("sync_post", wait=("array",)),
            inst("pgeo", out_x_step=columns)]
    for position, sums in enumerate(expected):
        bias = (-sums).astype(np.int32).astype(np.int64)
        code += [inst("par", zero_point=MARK, clamp_low=-128, clamp_high=127,
                      **parameters(bias, np.array([1 << 30]), np.array([30]), True)),
                 inst("post", columns=columns, acc_base=position, out_address=OUT + position * columns)]
    code += [inst("sync_post", signal=("dma_out",)),
             inst("store", wait=("post",), binding=1, sram_address=OUT, row_bytes=positions * columns), inst("halt")]
    out = np.zeros(positions * columns, np.int8)
    sim.simulate(b"".join(map(encode, code)), replace(WIDE, array_rows=rows), [ifm, out], writable=[False, True],
                 kernel=kernel, fill="noise", mode="functional")
    wrong = np.argwhere(out.reshape(positions, columns) != MARK)
    assert wrong.size == 0, f"{len(wrong)} sums differ, first at (position, column) {wrong[0]}"


def windows(ifm: np.ndarray, height: int, width: int, y_step: int, x_step: int, offsets: np.ndarray) -> np.ndarray:
    base = (np.arange(height)[:, None] * y_step + np.arange(width) * x_step).reshape(-1)
    return ifm[base[:, None] + offsets.reshape(-1)].astype(np.int64)


@pytest.mark.parametrize("kernel", sim.kernels())
def test_conv(kernel: str) -> None:
    rng = np.random.default_rng(3)
    ifm = rng.integers(-128, 128, BYTES).astype(np.int8)
    sizes = [(16, 16, 16), (32, 32, 32), (1, 1, 1), (4, 4, 4), (5, 17, 3), (32, 31, 33), (7, 8, 40), (3, 15, 2)]
    sizes += [tuple(rng.integers(1, 33, 3)) for _ in range(12)]
    for rows, columns, run_bytes in sizes:
        rows, columns, run_bytes = int(rows), int(columns), int(run_bytes)
        weights = rng.integers(-128, 128, (2, 3, run_bytes, columns)).astype(np.int8)
        geometry = inst("ageo", width=5, height=3, x_step=7, y_step=101, run_bytes=run_bytes, runs_y=2, runs_x=3,
                        run_y_stride=53, run_x_stride=11)
        work = inst("conv", columns=columns, ifm_address=13, payload=pack_weights(weights, rows))
        offsets = (np.arange(2)[:, None, None] * 53 + np.arange(3)[:, None] * 11 + np.arange(run_bytes)) + 13
        acc = windows(ifm, 3, 5, 101, 7, offsets) @ weights.reshape(-1, columns).astype(np.int64)
        check(kernel, rows, ifm, geometry, work, expected=acc)


@pytest.mark.parametrize("kernel", sim.kernels())
def test_dwc(kernel: str) -> None:
    rng = np.random.default_rng(4)
    ifm = rng.integers(-128, 128, BYTES).astype(np.int8)
    for runs_y, runs_x, columns in ((3, 3, 16), (1, 1, 32), (2, 3, 5), (4, 8, 31), (5, 5, 17), (1, 7, 8), (4, 4, 9)):
        weights = rng.integers(-128, 128, (runs_y, runs_x, columns)).astype(np.int8)
        geometry = inst("ageo", width=6, height=2, x_step=34, y_step=600, runs_y=runs_y, runs_x=runs_x,
                        run_y_stride=300, run_x_stride=17)
        work = inst("dwc", columns=columns, ifm_address=2, payload=pack_taps(weights))
        offsets = 2 + np.arange(runs_y)[:, None, None] * 300 + np.arange(runs_x)[:, None] * 17 + np.arange(columns)
        taps = windows(ifm, 2, 6, 600, 34, offsets).reshape(12, runs_y * runs_x, columns)
        acc = (taps * weights.reshape(-1, columns).astype(np.int64)).sum(axis=1)
        check(kernel, 32, ifm, geometry, work, expected=acc)


@pytest.mark.parametrize("kernel", sim.kernels())
def test_extremes_and_wrapping(kernel: str) -> None:
    """-128 * -128 in all lanes, added up until int32 wraps."""
    ifm = np.full(BYTES, -128, np.int8)
    weights = np.full((1, 1, 4096, 16), -128, np.int8)
    work = inst("conv", columns=16, payload=pack_weights(weights, 32))
    again = inst("conv", columns=16, accumulate=1, payload=pack_weights(weights, 32))
    for repeats in (1, 2, 31, 32, 40):
        acc = np.full((1, 16), repeats * 4096 * 128 * 128, np.int64)
        check(kernel, 32, ifm, inst("ageo", run_bytes=4096), work, *[again] * (repeats - 1), expected=acc)


@pytest.mark.parametrize("kernel", sim.kernels())
def test_unused_columns_keep_their_value(kernel: str) -> None:
    """A conv of few columns after one of many leaves the others as they are."""
    rng = np.random.default_rng(5)
    ifm = rng.integers(-128, 128, BYTES).astype(np.int8)
    for few in (1, 3, 8, 9, 16, 17, 31):
        wide, narrow = (rng.integers(-128, 128, (1, 1, 20, c)).astype(np.int8) for c in (32, few))
        geometry = inst("ageo", width=3, height=1, x_step=20, run_bytes=20)
        inputs = windows(ifm, 1, 3, 0, 20, np.arange(20))
        acc = inputs @ wide.reshape(20, 32).astype(np.int64)
        acc[:, :few] = inputs @ narrow.reshape(20, few).astype(np.int64)
        check(kernel, 32, ifm, geometry, inst("conv", columns=32, payload=pack_weights(wide, 32)),
              inst("conv", columns=few, payload=pack_weights(narrow, 32)), expected=acc)
