"""Golden machine: executes a program one instruction after another. Slow and obvious; the meaning of WIA."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import AccelError, ProgramError
from ..target import Target
from .encode import decode
from .inst import Inst
from .lane_decode import LaneDecoder
from .lane_layout import LaneShape
from .semantics import SEMANTICS, State

TOKEN_LIMIT = 255


class Machine:
    """State plus program counter, loop stack and tokens; `step` executes one instruction.

    buffers: int8 arrays by binding, changed in place. `fill` is what the memories hold at the start: one int8
    value, or a random generator for noise.
    """

    def __init__(self, code: bytes, target: Target, buffers: Sequence[np.ndarray],
                 fill: int | np.random.Generator = 0):
        self.code = code
        self.target = target
        self.offset = 0
        self.halted = False
        self.loops: list[tuple[int, int]] = []  # (offset of the body, iterations left after this one)
        self.tokens: dict[tuple[str, str], int] = {}  # (from unit, to unit) -> count
        entries = target.accumulator_entries
        self.state = State(
            rows=target.array_rows,
            sram=_memory(target.sram_bytes, fill).view(np.int8),
            accumulators=_memory(4 * entries * target.array_columns, fill).view(np.int32)
            .reshape(entries, target.array_columns),
            buffers=list(buffers),
            registers=[0] * target.fetch_address_registers,
            decoder=LaneDecoder(LaneShape(target.array_columns, target.decoder_rows_per_cycle)),
        )

    def step(self) -> Inst:
        """Execute one instruction and return it; raises EncodeError or ProgramError."""
        inst, size = decode(self.code, self.offset)
        here, self.offset = self.offset, self.offset + size
        try:
            self._execute(inst)
        except AccelError as error:
            text = error.args[0].split(": ", 1)[1]
            raise ProgramError(f"offset {here} ({inst.mnemonic}): {text}") from None
        return inst

    def run(self) -> None:
        """Execute until halt; raises EncodeError or ProgramError."""
        while not self.halted:
            self.step()

    def _execute(self, inst: Inst) -> None:
        for unit in inst.wait_units:
            self._move(unit, inst.unit, -1)
        if inst.mnemonic == "halt":
            self._halt()
        elif inst.mnemonic == "loop":
            self._loop(inst.count)
        elif inst.mnemonic == "endl":
            self._endl()
        else:
            SEMANTICS[inst.mnemonic](self.state, inst)
        for unit in inst.signal_units:
            self._move(inst.unit, unit, 1)

    def _move(self, giver: str, taker: str, change: int) -> None:
        count = self.tokens.get((giver, taker), 0) + change
        if not 0 <= count <= TOKEN_LIMIT:
            raise ProgramError(f"{count} tokens from {giver} to {taker}; allowed are 0 to {TOKEN_LIMIT}, "
                               "pair each wait with an earlier signal")
        self.tokens[giver, taker] = count

    def _halt(self) -> None:
        left = {f"{giver} to {taker}": count for (giver, taker), count in self.tokens.items() if count}
        if left or self.loops:
            raise ProgramError(f"tokens {left} and {len(self.loops)} open loops are left; close them")
        self.halted = True

    def _loop(self, count: int) -> None:
        if len(self.loops) == self.target.fetch_loop_depth:
            raise ProgramError(f"loops nest deeper than {len(self.loops)} (fetch.loop_depth); unroll one")
        self.loops.append((self.offset, count - 1))
        self.state.decoder.close()

    def _endl(self) -> None:
        if not self.loops:
            raise ProgramError("no loop is open; remove the endl")
        body, left = self.loops.pop()
        self.state.decoder.close()
        if left:
            self.loops.append((body, left - 1))
            self.offset = body


def run(code: bytes, target: Target, buffers: Sequence[np.ndarray],
        fill: int | np.random.Generator = 0) -> list[np.ndarray]:
    """Contents of all buffers after the program: flat int8 arrays by binding; `buffers` stay unchanged.

    `fill` is what SRAM and accumulators hold at the start: one int8 value, or a random generator for noise.
    Raises EncodeError or ProgramError naming the offset of the instruction.
    """
    machine = Machine(code, target, [np.array(b, np.int8).reshape(-1) for b in buffers], fill)
    machine.run()
    return machine.state.buffers


def _memory(size_bytes: int, fill: int | np.random.Generator) -> np.ndarray:
    if isinstance(fill, np.random.Generator):
        return fill.integers(0, 256, size_bytes, np.uint8)
    return np.full(size_bytes, fill & 0xFF, np.uint8)
