"""Post unit: channel parameters, residual add, lookup table, and the post instruction itself."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..isa.payload import pack_table
from ..quantize.qregion import IDENTITY, QAdd, QLut
from .builder import Access
from .channels import Channels
from .context import Context, Operand


@dataclass(frozen=True)
class Tail:
    """What follows the first requantize: residual add and table, with the residual operand."""

    add: QAdd | None = None
    add_first: bool = True
    first_zero_point: int = 0
    residual: Operand | None = None
    residual_zero_point: int = 0
    out_zero_point: int = 0
    table: QLut | None = None


def identity(columns: int) -> Channels:
    """Parameters that pass int8 values through unchanged."""
    return Channels(np.zeros(columns, np.int64), np.full(columns, IDENTITY.multiplier),
                    np.full(columns, IDENTITY.shift), "upward", 0, (-128, 127))


def set_channels(ctx: Context, channels: Channels) -> None:
    """par."""
    ctx.configure("par", **channels.fields)


def set_tail(ctx: Context, tail: Tail) -> None:
    """addp and lut, where the step has them."""
    if tail.add is not None:
        add = tail.add
        first, second = (add.requant1, add.requant2) if tail.add_first else (add.requant2, add.requant1)
        ctx.configure("addp", rounding=add.rounding, zero_point_a=tail.first_zero_point,
                      zero_point_b=tail.residual_zero_point, multiplier_a=first.multiplier, shift_a=first.shift,
                      multiplier_b=second.multiplier, shift_b=second.shift,
                      multiplier_out=add.requant_out.multiplier, shift_out=add.requant_out.shift,
                      left_shift=add.left_shift, zero_point_out=tail.out_zero_point,
                      clamp_low=add.clamp[0], clamp_high=add.clamp[1])
    if tail.table is not None:
        ctx.configure("lut", pack_table(tail.table.table))


@dataclass(frozen=True)
class Grid:
    """Positions that one post instruction covers and the bytes between them, in processing order (x fastest)."""

    width: int
    height: int
    out: tuple[int, int]
    residual: tuple[int, int] = (0, 0)
    source: tuple[int, int] = (0, 0)
    window: tuple[int, int] = (1, 1)
    window_strides: tuple[int, int] = (0, 0)


def set_grid(ctx: Context, grid: Grid) -> None:
    """pgeo; pairs are (x, y)."""
    ctx.configure("pgeo", width=grid.width, height=grid.height, a_x_step=grid.source[0], a_y_step=grid.source[1],
                  window_x=grid.window[0], window_y=grid.window[1], window_x_stride=grid.window_strides[0],
                  window_y_stride=grid.window_strides[1], r_x_step=grid.residual[0], r_y_step=grid.residual[1],
                  out_x_step=grid.out[0], out_y_step=grid.out[1])


def post(ctx: Context, columns: int, tail: Tail, out: tuple[int, int], out_access: Access, *, acc_base: int = 0,
         positions: int = 0, source: tuple[int, int, Access] | None = None, residual_address: int = 0,
         chain_from: int = -1) -> None:
    """One post instruction. out and source are (address, register); the source is SRAM or the accumulators."""
    reads: list[Access] = []
    fields: dict[str, int] = {"out_address": out[0], "out_reg": out[1], "columns": columns}
    if source is None:
        fields["acc_base"] = acc_base
        reads.append(Access("acc", acc_base, acc_base + positions))
    else:
        fields.update(source_sram=1, a_address=source[0], a_reg=source[1])
        reads.append(source[2])
    if tail.add is not None and tail.residual is not None:
        fields.update(residual=1, r_address=residual_address, r_reg=tail.residual.register)
        reads.append(tail.residual.access)
    if tail.table is not None:
        fields["table"] = 1
    ctx.builder.add("post", "post", tuple(reads), (out_access,), chain_from=chain_from, **fields)
