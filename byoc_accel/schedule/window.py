"""Depthwise windows larger than one pass of the array: the cheapest cut."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..errors import ScheduleError
from ..target import Target


@dataclass(frozen=True)
class Split:
    """How a depthwise window is cut: at most `rows` x `columns` taps per pass, with x and y exchanged or not, and the
    cycles of all passes."""

    rows: int
    columns: int
    swapped: bool
    cycles: int


@lru_cache(maxsize=4096)
def split_window(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], size: tuple[int, int],
                 target: Target) -> Split:
    """Cheapest cut of a kernel for `size` (height, width) positions, all pairs (y, x); cycles as in docs/ISA.md."""
    choices = []
    for swapped in (False, True):
        (k_y, k_x), (s_y, s_x), (d_y, d_x), (height, width) = (
            (pair[::-1] if swapped else pair) for pair in (kernel, stride, dilation, size))
        for rows in range(1, k_y + 1):
            columns = _widest(rows, k_x, (s_y, s_x), (d_y, d_x), width, target)
            if columns:
                cycles = _cycles((k_y, k_x), (rows, columns), (s_y, s_x), (d_y, d_x), (height, width), target)
                passes = -(-k_y // rows) * -(-k_x // columns)
                choices.append((cycles, passes, swapped, rows, columns))
    if not choices:
        raise ScheduleError(f"depthwise window {kernel}: no cut fits the array")
    cycles, _, swapped, rows, columns = min(choices)
    return Split(rows, columns, swapped, cycles)


def _widest(rows: int, kernel_x: int, stride: tuple[int, int], dilation: tuple[int, int], width: int,
            target: Target) -> int:
    """Most taps along x beside `rows` taps along y that array, line buffers and window register allow; 0 if none."""
    if rows > target.array_rows or rows - 1 > target.line_buffer_rows or (rows > 1 and stride[0] % dilation[0]):
        return 0
    most = min(kernel_x, target.array_rows // rows)
    if stride[1] % dilation[1]:
        most = min(most, 1)
    while rows > 1 and most > 0 and _inputs(width, most, stride[1] // dilation[1]) > target.line_buffer_positions:
        most -= 1
    return most


def _inputs(outputs: int, taps: int, stride: int) -> int:
    """Input positions along one axis that a window of `taps` visits."""
    return min((outputs - 1) * stride + taps, outputs * taps)


def _cycles(kernel: tuple[int, int], cut: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int],
            size: tuple[int, int], target: Target) -> int:
    total = 0
    for first_y in range(0, kernel[0], cut[0]):
        for first_x in range(0, kernel[1], cut[1]):
            taps = (min(cut[0], kernel[0] - first_y), min(cut[1], kernel[1] - first_x))
            visits = [_inputs(n, t, s // d if t > 1 else s) for n, t, s, d in zip(size, taps, stride, dilation)]
            decode = -(-taps[0] * taps[1] // target.decoder_rows_per_cycle) + target.decoder_latency_cycles
            total += max(size[0] * size[1], visits[0] * visits[1], decode)
    return total
