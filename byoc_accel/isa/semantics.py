"""What each instruction does: one NumPy function per mnemonic on the machine's memories and state.

Instructions are executed one after another in program order; these functions define the result of every
race-free program. They favour plainness over speed. Control flow and tokens are in isa/machine.py.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..errors import ProgramError
from .inst import Inst
from .lane_decode import LaneDecoder
from .lane_layout import conv_tiles, dwc_tiles
from .lane_table import unpack_table
from .parameters import unpack_parameters
from .payload import unpack_taps, unpack_weights

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


@dataclass
class State:
    """Memories and registers. sram: int8; accumulators: int32 (entries, columns); buffers: int8, by binding.

    `settings` holds the last instruction that set each piece of state (ageo, par, addp, lut, pgeo).
    """

    rows: int
    sram: np.ndarray
    accumulators: np.ndarray
    buffers: list[np.ndarray]
    registers: list[int]
    decoder: LaneDecoder
    settings: dict[str, Inst] = field(default_factory=dict)

    def setting(self, mnemonic: str) -> Inst:
        """The last `mnemonic` instruction; raises ProgramError if there was none."""
        if mnemonic not in self.settings:
            raise ProgramError(f"{mnemonic} state is used but never set; put a {mnemonic} before")
        return self.settings[mnemonic]

    def register(self, number: int) -> int:
        """Value of an address register; raises ProgramError if the target has no such register."""
        if number >= len(self.registers):
            raise ProgramError(f"r{number} is used, the target has {len(self.registers)}; use a lower one")
        return self.registers[number]

    def set_register(self, number: int, value: int) -> None:
        """Set register 1 or higher; raises ProgramError for others."""
        self.register(number)
        if number == 0:
            raise ProgramError("r0 is set, it always reads 0; use another register")
        self.registers[number] = value

    def address(self, offset: int, number: int) -> int:
        """Address field plus register."""
        return offset + self.register(number)


def requantize(v: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, rounding: str) -> np.ndarray:
    """v * multiplier / 2**shift, rounded; int64 in and out, |v| <= 2**31, multiplier < 2**31, shift 1..62."""
    half = np.int64(1) << (shift - 1)
    if rounding == "upward":
        return (v * multiplier + half) >> shift
    if rounding == "nearest":
        return np.sign(v) * ((np.abs(v) * multiplier + half) >> shift)
    if rounding == "truncate":
        return np.sign(v) * ((np.abs(v) * multiplier) >> shift)
    product = np.clip(v << np.maximum(31 - shift, 0), INT32_MIN, INT32_MAX) * multiplier
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.sign(nudged) * (np.abs(nudged) >> 31)
    right = np.maximum(shift - 31, 0)
    return np.sign(high) * ((np.abs(high) + (np.int64(1) << right >> 1)) >> right)


def wrap(v: np.ndarray) -> np.ndarray:
    """int64 of the low 32 bits of v, as a signed number."""
    return v.astype(np.int32).astype(np.int64)


def places(memory: np.ndarray, base: int, *axes: tuple[int, int]) -> np.ndarray:
    """Indices base + i0 * stride0 + i1 * stride1 + ... for axes (count, stride), shape (count0, count1, ...).

    Raises ProgramError if one lies outside of `memory`.
    """
    index = np.array(base, np.int64)
    for count, stride in axes:
        index = index[..., None] + np.arange(count, dtype=np.int64) * stride
    if index.max() >= len(memory):
        raise ProgramError(f"address {index.max()} is accessed, the memory ends at {len(memory)}; lower it")
    return index


def setr(state: State, inst: Inst) -> None:
    state.set_register(inst.reg, inst.value)


def addr(state: State, inst: Inst) -> None:
    state.set_register(inst.reg, min(state.register(inst.reg) + inst.increment, inst.limit))


def flip(state: State, inst: Inst) -> None:
    old = state.register(inst.reg)
    if old > inst.value:
        raise ProgramError(f"flip by {inst.value} of r{inst.reg} = {old}; the value must not be less")
    state.set_register(inst.reg, inst.value - old)


def _sram_rows(state: State, inst: Inst) -> np.ndarray:
    return places(state.sram, state.address(inst.sram_address, inst.sram_reg),
                  (inst.planes, inst.sram_plane_stride), (inst.rows, inst.sram_row_stride),
                  (inst.row_bytes, 1))


def _external_and_sram(state: State, inst: Inst) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if inst.binding >= len(state.buffers):
        raise ProgramError(f"binding {inst.binding} is used, there are {len(state.buffers)} buffers; bind it")
    buffer = state.buffers[inst.binding]
    external = places(buffer, state.address(inst.external_offset, inst.external_reg),
                      (inst.planes, inst.external_plane_stride), (inst.rows, inst.external_row_stride),
                      (inst.row_bytes, 1))
    return buffer, external, _sram_rows(state, inst)


def wtab(state: State, inst: Inst) -> None:
    state.decoder.load(unpack_table(inst.payload, inst.centre, bool(inst.masks)), bool(inst.fresh))


def load(state: State, inst: Inst) -> None:
    buffer, external, sram = _external_and_sram(state, inst)
    state.sram[sram] = buffer[external]


def store(state: State, inst: Inst) -> None:
    buffer, external, sram = _external_and_sram(state, inst)
    buffer[external] = state.sram[sram]


def fill(state: State, inst: Inst) -> None:
    state.sram[_sram_rows(state, inst)] = inst.value


def _accumulate(state: State, inst: Inst, sums: np.ndarray) -> None:
    """Add (or write) int64 sums (positions, columns) to the accumulators."""
    entries = places(state.accumulators, inst.acc_base, (len(sums), 1))
    if inst.accumulate:
        sums = sums + state.accumulators[entries, :inst.columns]
    state.accumulators[entries, :inst.columns] = wrap(sums)


def conv_weights(state: State, inst: Inst, g: Inst) -> np.ndarray:
    """int8 (runs_y, runs_x, run_bytes, columns)."""
    if inst.codec == "raw":
        return unpack_weights(inst.payload, g.runs_y, g.runs_x, g.run_bytes, inst.columns, state.rows)
    decoded = state.decoder.decode(inst.payload, conv_tiles(g.runs_y * g.runs_x, g.run_bytes, state.rows), inst.columns)
    return decoded.values.reshape(g.runs_y, g.runs_x, g.run_bytes, inst.columns)


def dwc_weights(state: State, inst: Inst, g: Inst) -> np.ndarray:
    """int8 (runs_y, runs_x, columns)."""
    if inst.codec == "raw":
        return unpack_taps(inst.payload, g.runs_y, g.runs_x, inst.columns)
    decoded = state.decoder.decode(inst.payload, dwc_tiles(g.runs_y * g.runs_x), inst.columns)
    return decoded.values.reshape(g.runs_y, g.runs_x, inst.columns)


def conv(state: State, inst: Inst) -> None:
    g = state.setting("ageo")
    weights = conv_weights(state, inst, g)
    ifm = state.sram[places(state.sram, state.address(inst.ifm_address, inst.ifm_reg),
                            (g.height, g.y_step), (g.width, g.x_step),
                            (g.runs_y, g.run_y_stride), (g.runs_x, g.run_x_stride), (g.run_bytes, 1))]
    _accumulate(state, inst, ifm.reshape(g.height * g.width, -1).astype(np.int64)
                @ weights.reshape(-1, inst.columns).astype(np.int64))


def dwc(state: State, inst: Inst) -> None:
    g = state.setting("ageo")
    weights = dwc_weights(state, inst, g)
    ifm = state.sram[places(state.sram, state.address(inst.ifm_address, inst.ifm_reg),
                            (g.height, g.y_step), (g.width, g.x_step),
                            (g.runs_y, g.run_y_stride), (g.runs_x, g.run_x_stride), (inst.columns, 1))]
    sums = (ifm.astype(np.int64) * weights).sum(axis=(2, 3))
    _accumulate(state, inst, sums.reshape(g.height * g.width, inst.columns))


def ageo(state: State, inst: Inst) -> None:
    state.settings["ageo"] = inst


def par(state: State, inst: Inst) -> None:
    state.settings["par"] = inst


def addp(state: State, inst: Inst) -> None:
    state.settings["addp"] = inst


def lut(state: State, inst: Inst) -> None:
    state.settings["lut"] = inst


def pgeo(state: State, inst: Inst) -> None:
    state.settings["pgeo"] = inst


def post(state: State, inst: Inst) -> None:
    g, p = state.setting("pgeo"), state.setting("par")
    if inst.columns > p.columns:
        raise ProgramError(f"post uses {inst.columns} columns, its par loaded {p.columns}; load more")
    bias, multiplier, shift = (x[:inst.columns] for x in unpack_parameters(p))
    v = wrap(_source(state, inst, g) + bias)
    v = np.clip(requantize(v, multiplier, shift, p.rounding) + p.zero_point, p.clamp_low, p.clamp_high)
    if inst.residual:
        v = _residual(state, inst, g, v)
    if inst.table:
        v = np.frombuffer(state.setting("lut").payload, np.int8)[v + 128]
    state.sram[places(state.sram, state.address(inst.out_address, inst.out_reg),
                      (g.height, g.out_y_step), (g.width, g.out_x_step), (inst.columns, 1))] = v


def _source(state: State, inst: Inst, g: Inst) -> np.ndarray:
    """int64 (height, width, columns): accumulators, or the maximum of each window of the SRAM."""
    if not inst.source_sram:
        entries = places(state.accumulators, inst.acc_base, (g.height, g.width), (g.width, 1))
        return state.accumulators[entries, :inst.columns].astype(np.int64)
    windows = state.sram[places(state.sram, state.address(inst.a_address, inst.a_reg),
                                (g.height, g.a_y_step), (g.width, g.a_x_step),
                                (g.window_y, g.window_y_stride), (g.window_x, g.window_x_stride),
                                (inst.columns, 1))]
    return windows.max(axis=(2, 3)).astype(np.int64)


def _residual(state: State, inst: Inst, g: Inst, v: np.ndarray) -> np.ndarray:
    """The residual add of int8-valued v and the residual operand, each (height, width, columns)."""
    p = state.setting("addp")
    r = state.sram[places(state.sram, state.address(inst.r_address, inst.r_reg),
                          (g.height, g.r_y_step), (g.width, g.r_x_step), (inst.columns, 1))].astype(np.int64)
    a = requantize((v - p.zero_point_a) << p.left_shift, p.multiplier_a, p.shift_a, p.rounding)
    b = requantize((r - p.zero_point_b) << p.left_shift, p.multiplier_b, p.shift_b, p.rounding)
    total = requantize(wrap(a + b), p.multiplier_out, p.shift_out, p.rounding)
    return np.clip(total + p.zero_point_out, p.clamp_low, p.clamp_high)


def sync(state: State, inst: Inst) -> None:
    """Only tokens, which isa/machine.py handles."""


#: The function of every instruction that is not control flow.
SEMANTICS: dict[str, Callable[[State, Inst], None]] = {
    **{f.__name__: f for f in (setr, addr, flip, wtab, load, fill, store, ageo, conv, dwc, par, addp, lut, pgeo, post)},
    **{name: sync for name in ("sync_in", "sync_out", "sync_array", "sync_post")},
}
