"""Rules of single instructions: field limits of the target, usable state, and the memory they touch.

`work` checks one instruction under the state it will find and returns its accesses, whose addresses still
miss the address registers. emit/verify.py calls it once per instruction and state, then checks addresses and
order for every execution.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import EncodeError
from ..isa.footprint import Footprint, footprint, overlap, size_bytes
from ..isa.inst import Inst
from ..isa.parameters import unpack_parameters
from ..isa.payload import unpack_taps, unpack_weights
from ..target import Target
from .program import Buffer

SHIFT_MIN, SHIFT_MAX = 1, 62
MULTIPLIER_LIMIT = 1 << 31
LEFT_SHIFT_MAX = 23  # 255 << 23 is the largest shifted operand below 2**31

#: State that an instruction needs; post needs more with `residual` and `table`.
NEEDS: dict[str, tuple[str, ...]] = {"conv": ("ageo",), "dwc": ("ageo",), "post": ("pgeo", "par")}


class BrokenRule(Exception):
    """What is wrong, the limit, and what to do; the caller knows where."""


@dataclass(frozen=True)
class Access:
    """Bytes (or accumulator entries) that an instruction touches: `offset` + address register + footprint.

    `memory` is "sram", "accumulators", or the index of an external buffer; `operand` is the name of the
    address field.
    """

    memory: str | int
    operand: str
    offset: int
    register: int
    shape: Footprint
    write: bool


@dataclass(frozen=True)
class Work:
    """Accesses of an instruction, in-place pairs already proven, and what it does to the accumulators.

    `columns` are read or written in the accumulator entries; `positions` is width * height.
    """

    accesses: tuple[Access, ...]
    columns: int = 0
    positions: int = 0


def needs(inst: Inst) -> tuple[str, ...]:
    """Mnemonics of the state that `inst` uses."""
    if inst.mnemonic != "post":
        return NEEDS.get(inst.mnemonic, ())
    return NEEDS["post"] + ("addp",) * bool(inst.residual) + ("lut",) * bool(inst.table)


def work(inst: Inst, settings: dict[str, Inst], target: Target, buffers: tuple[Buffer, ...]) -> Work:
    """Accesses of `inst` under `settings` (by mnemonic); raises BrokenRule."""
    if inst.mnemonic in ("load", "store", "fill"):
        return _transfer(inst, buffers)
    if inst.mnemonic in ("conv", "dwc"):
        return _tile_work(inst, settings["ageo"], target)
    if inst.mnemonic == "post":
        return _post(inst, settings["pgeo"], settings["par"])
    if inst.mnemonic == "par":
        _parameters(inst, target)
    if inst.mnemonic == "addp":
        _residual_parameters(inst)
    return Work(())


def require(holds: bool, text: str) -> None:
    """Raise BrokenRule(text) unless `holds`."""
    if not holds:
        raise BrokenRule(text)


def _transfer(inst: Inst, buffers: tuple[Buffer, ...]) -> Work:
    stores = inst.mnemonic == "store"
    sram = Access("sram", "sram_address", inst.sram_address, inst.sram_reg,
                  footprint(inst.row_bytes, (inst.sram_row_stride, inst.rows), (inst.sram_plane_stride, inst.planes)),
                  not stores)
    if inst.mnemonic == "fill":
        return Work((sram,))
    require(inst.binding < len(buffers), f"binding = {inst.binding}; the program has {len(buffers)} buffers, add one")
    kinds = ("output", "scratch") if stores else ("input", "scratch")
    buffer = buffers[inst.binding]
    require(buffer.kind in kinds, f"binding = {inst.binding} is {buffer.kind} {buffer.name!r}; "
                                  f"{inst.mnemonic} takes {' or '.join(kinds)} buffers only")
    shape = footprint(inst.row_bytes, (inst.external_row_stride, inst.rows), (inst.external_plane_stride, inst.planes))
    external = Access(inst.binding, "external_offset", inst.external_offset, inst.external_reg, shape, stores)
    return Work((external, sram))


def _columns(inst: Inst, target: Target) -> None:
    require(inst.columns <= target.array_columns,
            f"columns = {inst.columns}; array.columns is {target.array_columns}, split the channels")


def _tile_work(inst: Inst, g: Inst, target: Target) -> Work:
    _columns(inst, target)
    dense = inst.mnemonic == "conv"
    positions = g.width * g.height
    if not dense:
        _window(g, target)
    if inst.codec == "raw":
        _raw_weights(inst, g, target)
    if inst.chain:
        require(set(inst.signal) <= {"post"}, f"chain gives tokens to {', '.join(inst.signal)}; only post may follow")
    shape = footprint(g.run_bytes if dense else inst.columns, (g.x_step, g.width), (g.y_step, g.height),
                      (g.run_x_stride, g.runs_x), (g.run_y_stride, g.runs_y))
    return Work((Access("sram", "ifm_address", inst.ifm_address, inst.ifm_reg, shape, False),
                 Access("accumulators", "acc_base", inst.acc_base, 0, footprint(positions), True)),
                inst.columns, positions)


def _raw_weights(inst: Inst, g: Inst, target: Target) -> None:
    try:
        if inst.mnemonic == "conv":
            unpack_weights(inst.payload, g.runs_y, g.runs_x, g.run_bytes, inst.columns, target.array_rows)
        else:
            unpack_taps(inst.payload, g.runs_y, g.runs_x, inst.columns)
    except EncodeError as error:
        raise BrokenRule(error.args[0].split(": ", 1)[1] + "; repack for this ageo") from None


def window_inputs(outputs: int, taps: int, step: int, stride: int) -> int:
    """Input positions along one axis that a depthwise window of `taps` visits (docs/ISA.md, Timing)."""
    if taps == 1:
        return outputs
    return min((outputs - 1) * (step // stride) + taps, outputs * taps)


def _window(g: Inst, target: Target) -> None:
    taps = g.runs_x * g.runs_y
    require(taps <= target.array_rows, f"a window of {g.runs_y} x {g.runs_x} taps; array.rows is "
                                       f"{target.array_rows}, cut the window")
    require(g.runs_y - 1 <= target.line_buffer_rows, f"runs_y = {g.runs_y}; line_buffer.rows is "
                                                     f"{target.line_buffer_rows} earlier rows, cut the window")
    for axis, runs, step, stride in (("x", g.runs_x, g.x_step, g.run_x_stride),
                                     ("y", g.runs_y, g.y_step, g.run_y_stride)):
        require(runs == 1 or (stride > 0 and step % stride == 0),
                f"{axis}_step = {step} is no multiple of run_{axis}_stride = {stride}; use one tap along {axis}")
    columns = window_inputs(g.width, g.runs_x, g.x_step, g.run_x_stride)
    require(g.runs_y == 1 or columns <= target.line_buffer_positions,
            f"{columns} input positions in a row; line_buffer.positions is {target.line_buffer_positions}, "
            "narrow the block")


def _parameters(inst: Inst, target: Target) -> None:
    _columns(inst, target)
    try:
        _, multiplier, shift = unpack_parameters(inst)
    except EncodeError as error:
        raise BrokenRule(error.args[0].split(": ", 1)[1]) from None
    bad = np.flatnonzero((multiplier < 0) | (shift < SHIFT_MIN) | (shift > SHIFT_MAX))
    require(not bad.size, f"channel {bad[:1]} has multiplier {multiplier[bad[:1]]} and shift {shift[bad[:1]]}; "
                          f"shifts are {SHIFT_MIN} to {SHIFT_MAX}, multipliers below 2^31")
    _clamp(inst)


def _residual_parameters(inst: Inst) -> None:
    for name in ("a", "b", "out"):
        multiplier, shift = inst[f"multiplier_{name}"], inst[f"shift_{name}"]
        require(multiplier < MULTIPLIER_LIMIT and SHIFT_MIN <= shift <= SHIFT_MAX,
                f"multiplier_{name} = {multiplier}, shift_{name} = {shift}; "
                f"shifts are {SHIFT_MIN} to {SHIFT_MAX}, multipliers below 2^31")
    require(inst.left_shift <= LEFT_SHIFT_MAX, f"left_shift = {inst.left_shift}; at most {LEFT_SHIFT_MAX} fits 32 bits")
    _clamp(inst)


def _clamp(inst: Inst) -> None:
    require(inst.clamp_low <= inst.clamp_high,
            f"clamp_low = {inst.clamp_low} is above clamp_high = {inst.clamp_high}; exchange them")


def _post(inst: Inst, g: Inst, par: Inst) -> Work:
    require(inst.columns <= par.columns, f"columns = {inst.columns}; the par before loaded {par.columns}, load more")
    positions = g.width * g.height
    out = Access("sram", "out_address", inst.out_address, inst.out_reg,
                 footprint(inst.columns, (g.out_x_step, g.width), (g.out_y_step, g.height)), True)
    accesses = [out]
    if inst.source_sram:
        shape = footprint(inst.columns, (g.a_x_step, g.width), (g.a_y_step, g.height),
                          (g.window_x_stride, g.window_x), (g.window_y_stride, g.window_y))
        accesses.append(Access("sram", "a_address", inst.a_address, inst.a_reg, shape, False))
    else:
        accesses.append(Access("accumulators", "acc_base", inst.acc_base, 0, footprint(positions), False))
    if inst.residual:
        shape = footprint(inst.columns, (g.r_x_step, g.width), (g.r_y_step, g.height))
        accesses.append(Access("sram", "r_address", inst.r_address, inst.r_reg, shape, False))
    return Work(tuple(accesses), inst.columns, positions)


def check_in_place(inst: Inst, g: Inst, starts: dict[str, int], shapes: dict[str, Footprint]) -> None:
    """The result of a post may overlap an operand only position by position; `starts` and `shapes` by operand."""
    for operand, steps in (("a", (g.a_x_step, g.a_y_step)), ("r", (g.r_x_step, g.r_y_step))):
        name = f"{operand}_address"
        if name not in starts or not overlap(shapes["out_address"], shapes[name], starts[name] - starts["out_address"]):
            continue
        same = (starts[name] == starts["out_address"] and (operand == "r" or g.window_x * g.window_y == 1)
                and all(count == 1 or step == out for count, step, out in
                        zip((g.width, g.height), steps, (g.out_x_step, g.out_y_step))))
        apart = size_bytes(shapes["out_address"]) == g.width * g.height * inst.columns
        require(same and apart, f"the result at {starts['out_address']} overlaps operand {operand} at {starts[name]} "
                                "other than position by position; move one of them")
