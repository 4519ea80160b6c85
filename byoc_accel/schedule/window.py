"""Depthwise windows larger than one pass of the array: the cheapest cut."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..errors import ScheduleError
from ..isa.fields import SIZES
from ..target import Target

#: Program bytes of a pass besides most of its weights.
PASS_BYTES = SIZES["dwc"] + 4


@dataclass(frozen=True)
class Split:
    """How a depthwise window is cut: at most `rows` x `columns` taps per pass, with x and y exchanged or not;
    `cycles` of all `passes`, which are (cycles, taps) each."""

    rows: int
    columns: int
    swapped: bool
    cycles: int
    passes: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def split_window(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], size: tuple[int, int],
                 target: Target) -> Split:
    """Cheapest cut of a kernel for `size` (height, width) positions, all pairs (y, x); cycles as in docs/ISA.md,
    and those of fetching the instructions."""
    choices = []
    for swapped in (False, True):
        (k_y, k_x), (s_y, s_x), (d_y, d_x), (height, width) = (
            (pair[::-1] if swapped else pair) for pair in (kernel, stride, dilation, size))
        for rows in range(1, k_y + 1):
            columns = _widest(rows, k_x, (s_y, s_x), (d_y, d_x), width, target)
            if columns:
                passes = _passes((k_y, k_x), (rows, columns), (s_y, s_x), (d_y, d_x), (height, width), swapped)
                cycles = _cycles(passes, target)
                fetch = len(passes) * PASS_BYTES / target.fetch_bytes_per_cycle
                choices.append((cycles + fetch, len(passes), swapped, rows, columns, cycles, passes))
    if not choices:
        raise ScheduleError(f"depthwise window {kernel}: no cut fits the array")
    *_, swapped, rows, columns, cycles, passes = min(choices)
    return Split(rows, columns, swapped, cycles, passes)


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


def _passes(kernel: tuple[int, int], cut: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int],
            size: tuple[int, int], swapped: bool) -> tuple[tuple[int, int], ...]:
    """(cycles, taps) of every pass of the array, the x axis inside; if the axes are exchanged the other way round."""
    origins = [(y, x) for y in range(0, kernel[0], cut[0]) for x in range(0, kernel[1], cut[1])]
    out = []
    for origin in sorted(origins, key=lambda o: o[::-1] if swapped else o):
        taps = (min(cut[0], kernel[0] - origin[0]), min(cut[1], kernel[1] - origin[1]))
        visits = [_inputs(n, t, s // d if t > 1 else s) for n, t, s, d in zip(size, taps, stride, dilation)]
        out.append((max(size[0] * size[1], visits[0] * visits[1]), taps[0] * taps[1]))
    return tuple(out)


def _cycles(passes: tuple[tuple[int, int], ...], target: Target) -> int:
    """Time of all passes; each takes at least as long as the decoder takes for the next tile."""
    return sum(max(cycles, -(-taps // target.decoder_rows_per_cycle) + target.decoder_latency_cycles)
               for cycles, taps in passes)
