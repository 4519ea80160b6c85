"""The post unit of each kernel against NumPy int64: roundings, shifts 1..62, residuals, windows, tables, columns."""
from __future__ import annotations

import numpy as np
import pytest

from byoc_accel import sim
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_table, pack_weights
from byoc_accel.isa.table import ROUNDINGS
from byoc_accel.quantize.fixedpoint import requantize
from tests.hw_sim.test_kernels import WIDE

POSITIONS = 6
BYTES = 4096
OUT = 8192
NAMES = ("a", "b", "out")


def drawn_scale(rng: np.random.Generator, count: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers and shifts whose products with int32 are small, near a half, and beyond every clamp."""
    shifts = rng.integers(1, 63, count) if wide else rng.integers(31, 44, count)
    return rng.integers(0, 1 << 31, count) & -1 << rng.integers(0, 31), shifts


def drawn_biases(rng: np.random.Generator, columns: int) -> np.ndarray:
    biases = rng.integers(-1 << 31, 1 << 31, columns) >> rng.integers(0, 31, columns)
    biases[rng.random(columns) < 0.2] = -1 << 31
    biases[rng.random(columns) < 0.2] = (1 << 31) - 1
    return biases


class Case:
    """One par, perhaps an addp, and a post of a window of the SRAM or of accumulators that are zero."""

    def __init__(self, rng: np.random.Generator, memory: np.ndarray, number: int):
        self.columns, self.rounding = int(rng.integers(1, 33)), ROUNDINGS[number % len(ROUNDINGS)]
        self.from_sram, self.residual, self.table = (bool(rng.integers(2)) for _ in range(3))
        wide = number % 3 == 0
        biases, (multipliers, shifts) = drawn_biases(rng, self.columns), drawn_scale(rng, self.columns, wide)
        zero_point, (low, high) = int(rng.integers(-128, 128)), np.sort(rng.integers(-128, 128, 2)).tolist()
        self.code: list[Inst] = [
            inst("par", rounding=self.rounding, zero_point=zero_point, clamp_low=low, clamp_high=high,
                 **parameters(biases, multipliers, shifts, False)),
            inst("pgeo", width=POSITIONS, out_x_step=self.columns, a_x_step=41, r_x_step=37, window_x=2, window_y=3,
                 window_x_stride=33, window_y_stride=7)]
        v = np.zeros((POSITIONS, self.columns), np.int64)
        if self.from_sram:
            v = np.max([self.read(memory, 5 + 33 * x + 7 * y, 41) for x in range(2) for y in range(3)], axis=0)
        v = (v + biases).astype(np.uint64).astype(np.uint32).astype(np.int32)
        v = np.clip(requantize(v, multipliers, shifts, self.rounding) + zero_point, low, high)
        if self.residual:
            v = self.add(rng, v, self.read(memory, 600, 37), wide)
        if self.table:
            table = rng.integers(-128, 128, 256).astype(np.int8)
            self.code.append(inst("lut", payload=pack_table(table)))
            v = table[v + 128]
        self.expected = v

    def read(self, memory: np.ndarray, base: int, step: int) -> np.ndarray:
        return memory[base + step * np.arange(POSITIONS)[:, None] + np.arange(self.columns)].astype(np.int64)

    def add(self, rng: np.random.Generator, a: np.ndarray, b: np.ndarray, wide: bool) -> np.ndarray:
        multipliers, shifts = drawn_scale(rng, 3, wide)
        points, left = rng.integers(-128, 128, 3).tolist(), int(rng.integers(0, 24))
        low, high = np.sort(rng.integers(-128, 128, 2)).tolist()
        rounding = self.rounding if rng.integers(2) else ROUNDINGS[int(rng.integers(len(ROUNDINGS)))]
        self.code.append(inst("addp", rounding=rounding, left_shift=left, clamp_low=low, clamp_high=high,
                              **{f"zero_point_{n}": p for n, p in zip(NAMES, points)},
                              **{f"multiplier_{n}": int(m) for n, m in zip(NAMES, multipliers)},
                              **{f"shift_{n}": int(s) for n, s in zip(NAMES, shifts)}))
        scaled = [requantize((x - point) << left, m, s, rounding)
                  for x, point, m, s in zip((a, b), points, multipliers, shifts)]
        total = (scaled[0] + scaled[1]).astype(np.uint64).astype(np.uint32).astype(np.int32)
        return np.clip(requantize(total, multipliers[2], shifts[2], rounding) + points[2], low, high)

    def post(self) -> Inst:
        return inst("post", columns=self.columns, source_sram=int(self.from_sram), residual=int(self.residual),
                    table=int(self.table), a_address=5, r_address=600, out_address=OUT)


@pytest.mark.parametrize("kernel", sim.kernels())
def test_post(kernel: str) -> None:
    rng = np.random.default_rng(11)
    memory = rng.integers(-128, 128, BYTES).astype(np.int8)
    machine = sim.Machine(WIDE, mode="functional", kernel=kernel, fill="noise")
    zeros = inst("conv", columns=32, payload=pack_weights(np.zeros((1, 1, 4, 32), np.int8), WIDE.array_rows))
    for number in range(200):
        case = Case(rng, memory, number)
        size = POSITIONS * case.columns
        code = [inst("load", binding=0, row_bytes=BYTES, signal=("array",)), inst("sync_array", wait=("dma_in",)),
                inst("ageo", width=POSITIONS, run_bytes=4), zeros, inst("sync_array", signal=("post",)),
                inst("sync_post", wait=("array",)), *case.code, case.post(),
                inst("sync_post", signal=("dma_out",)),
                inst("store", wait=("post",), binding=1, sram_address=OUT, row_bytes=size), inst("halt")]
        out = np.zeros(size, np.int8)
        machine.run(b"".join(map(encode, code)), [memory, out], [False, True])
        wrong = np.argwhere(out.reshape(POSITIONS, -1) != case.expected)
        assert wrong.size == 0, (f"case {number}, {case.rounding}: {len(wrong)} of {size} bytes differ, first at "
                                 f"(position, column) {wrong[0]}")
