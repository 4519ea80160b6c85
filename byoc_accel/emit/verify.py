"""Prove that a program is safe and means what its instructions say in order: docs/ISA.md, Rules for programs.

The program is executed abstractly: loops are run, registers hold their values, and every access is checked
against the memory's bounds and against all accesses of other units that no token has ordered.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..errors import EncodeError, ProgramError
from ..isa.encode import decode_all
from ..isa.footprint import mark
from ..isa.inst import Inst
from ..target import Target
from .limits import Access, BrokenRule, Work, check_in_place, needs, work
from .program import BUFFER_KINDS, Program
from .races import Order
from .stretch import Stretches

#: Executed instructions, control included, that one program may have; above it is taken for a mistake.
EXECUTED_LIMIT = 1_000_000

SETTINGS = ("ageo", "par", "addp", "lut", "pgeo")


def verify(program: Program, target: Target) -> None:
    """Raise ProgramError (where, what, limit, what to do) unless `program` obeys every rule of the machine.

    Checks the structure, the limits of `target`, addresses in every iteration, state and registers set before
    use, tokens, races, and that every output byte is written.
    """
    _verify_buffers(program, target)
    code = _decode(program)
    _verify_layers(program, code)
    ends = _match_loops(program, code, target)
    _Run(program, target, code, ends).run()


@dataclass(frozen=True)
class _Code:
    """Decoded program: offsets and instructions by index."""

    offsets: tuple[int, ...]
    insts: tuple[Inst, ...]


def _fail(program: Program, text: str) -> ProgramError:
    return ProgramError(f"{program.name}: {text}")


def _where(program: Program, code: _Code, index: int) -> str:
    offset = code.offsets[index]
    layer = next((f", layer {x.name!r}" for x in program.layers if x.start <= offset < x.end), "")
    return f"instruction {index} ({code.insts[index].mnemonic} at offset {offset}{layer})"


def _verify_buffers(program: Program, target: Target) -> None:
    if program.target_digest != target.digest:
        raise _fail(program, f"made for target {program.target_digest.hex()}, verified for {target.name} "
                             f"({target.digest.hex()}); recompile")
    for buffer in program.buffers:
        if buffer.kind not in BUFFER_KINDS or not 0 < buffer.bytes <= target.memory_max_external_bytes:
            raise _fail(program, f"buffer {buffer.name!r} is {buffer.kind} of {buffer.bytes} bytes; allowed are "
                                 f"{', '.join(BUFFER_KINDS)} of 1 to {target.memory_max_external_bytes} bytes")


def _decode(program: Program) -> _Code:
    try:
        pairs = decode_all(program.code)
    except EncodeError as error:
        raise _fail(program, error.args[0].split(": ", 1)[1]) from None
    halts = [index for index, (_, inst) in enumerate(pairs) if inst.mnemonic == "halt"]
    if halts != [len(pairs) - 1]:
        raise _fail(program, f"{len(halts)} halt instructions, at {halts[:4]} of {len(pairs)}; exactly the last "
                             "instruction must be halt")
    return _Code(tuple(offset for offset, _ in pairs), tuple(inst for _, inst in pairs))


def _verify_layers(program: Program, code: _Code) -> None:
    starts = {*code.offsets, len(program.code)}
    expected = 0
    for layer in program.layers:
        if layer.start != expected or layer.end < layer.start or layer.end not in starts:
            raise _fail(program, f"layer {layer.name!r} spans bytes {layer.start} to {layer.end}; spans must follow "
                                 f"each other (next is {expected}) and end between instructions")
        expected = layer.end
    if expected != len(program.code):
        raise _fail(program, f"layers end at byte {expected} of {len(program.code)}; give every byte a layer")


def _match_loops(program: Program, code: _Code, target: Target) -> dict[int, int]:
    """Index of the loop of every endl."""
    open_loops: list[int] = []
    loops: dict[int, int] = {}
    for index, inst in enumerate(code.insts):
        if inst.mnemonic == "loop":
            open_loops.append(index)
            if len(open_loops) > target.fetch_loop_depth:
                raise _fail(program, f"{_where(program, code, index)}: loop {len(open_loops)} deep; "
                                     f"fetch.loop_depth is {target.fetch_loop_depth}, unroll one")
        elif inst.mnemonic == "endl":
            if not open_loops or open_loops[-1] == index - 1:
                what = "closes an empty loop" if open_loops else "closes no loop"
                raise _fail(program, f"{_where(program, code, index)}: {what}; remove it")
            loops[index] = open_loops.pop()
    if open_loops:
        raise _fail(program, f"{_where(program, code, open_loops[-1])}: is never closed; add an endl")
    return loops


@dataclass
class _Run:
    """Abstract execution. `settings` holds the index of the instruction that set each piece of state."""

    program: Program
    target: Target
    code: _Code
    loop_of: dict[int, int]
    registers: list[int | None] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    loops: list[list[int]] = field(default_factory=list)  # index of the loop, iteration
    works: dict[tuple, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registers = [0] + [None] * (self.target.fetch_address_registers - 1)
        self.order = Order(self.target.fetch_queue_depth)
        self.stretches = Stretches(self.target)
        self.sizes = {"sram": self.target.sram_bytes, "accumulators": self.target.accumulator_entries,
                      **{i: b.bytes for i, b in enumerate(self.program.buffers)}}
        self.written = {i: np.zeros(b.bytes, bool) for i, b in enumerate(self.program.buffers) if b.kind == "output"}
        self.columns = np.zeros(self.target.accumulator_entries, np.int64)  # defined columns of each entry

    def run(self) -> None:
        """Execute until halt; raises ProgramError."""
        index = executed = 0
        last = len(self.code.insts) - 1
        while index < last:
            executed += 1
            try:
                if executed > EXECUTED_LIMIT:
                    raise BrokenRule(f"is execution {executed}; at most {EXECUTED_LIMIT} are allowed, "
                                     "shorten the loops")
                index = self.step(index)
            except BrokenRule as broken:
                raise self.error(index, str(broken)) from None
        self.finish(last)

    def error(self, index: int, text: str) -> ProgramError:
        rounds = ", ".join(f"{count}" for _, count in self.loops)
        rounds = f", loop iteration {rounds}" if rounds else ""
        return _fail(self.program, f"{_where(self.program, self.code, index)}{rounds}: {text}")

    def finish(self, last: int) -> None:
        left = self.order.left_over()
        if left:
            raise self.error(last, f"tokens are left over: {', '.join(left)}; take or drop them")
        for binding, written in self.written.items():
            missing = np.flatnonzero(~written)
            if missing.size:
                raise self.error(last, f"{missing.size} bytes of output {self.program.buffers[binding].name!r} are "
                                       f"never written, the first is byte {missing[0]}; store them")

    def step(self, index: int) -> int:
        """Execute one instruction; returns the index of the next. Raises BrokenRule."""
        inst = self.code.insts[index]
        name = inst.mnemonic
        if name == "loop":
            self.loops.append([index, 0])
            self.stretches.close()
        elif name == "endl":
            return self.endl(index)
        elif name in ("setr", "addr", "flip"):
            self.set_register(inst)
        elif name == "wtab":
            self.stretches.table(index, inst)
        else:
            self.unit_work(index, inst)
            if name in SETTINGS:
                self.settings[name] = index
        return index + 1

    def endl(self, index: int) -> int:
        loop = self.loops[-1]
        loop[1] += 1
        self.stretches.close()
        if loop[1] < self.code.insts[loop[0]].count:
            return loop[0] + 1
        self.loops.pop()
        return index + 1

    def register(self, number: int) -> int:
        if number >= len(self.registers):
            raise BrokenRule(f"uses r{number}; fetch.address_registers is {len(self.registers)}, use a lower one")
        value = self.registers[number]
        if value is None:
            raise BrokenRule(f"uses r{number}, which was never set; put a setr before")
        return value

    def set_register(self, inst: Inst) -> None:
        if not 0 < inst.reg < len(self.registers):
            raise BrokenRule(f"sets r{inst.reg}; r1 to r{len(self.registers) - 1} can be set")
        if inst.mnemonic == "setr":
            self.registers[inst.reg] = inst.value
        elif inst.mnemonic == "flip":
            old = self.register(inst.reg)
            if old > inst.value:
                raise BrokenRule(f"flips r{inst.reg} = {old} by {inst.value}; the value must not be less")
            self.registers[inst.reg] = inst.value - old
        else:
            self.registers[inst.reg] = min(self.register(inst.reg) + inst.increment, inst.limit)

    def prepare(self, index: int, inst: Inst) -> Work:
        """Work of the instruction under the present state, checked once per state."""
        used = needs(inst)
        for name in used:
            if name not in self.settings:
                raise BrokenRule(f"needs {name} state, which was never set; put a {name} before")
        key = (index, *(self.settings[name] for name in used))
        if key not in self.works:
            settings = {name: self.code.insts[self.settings[name]] for name in used}
            self.works[key] = work(inst, settings, self.target, self.program.buffers)
        return self.works[key]

    def unit_work(self, index: int, inst: Inst) -> None:
        todo = self.prepare(index, inst)
        if inst.mnemonic in ("conv", "dwc") and inst.codec != "raw":
            self.stretches.weights(index, inst, self.code.insts[self.settings["ageo"]])
        event = self.order.begin(inst, todo.positions)
        starts: dict[str, int] = {}
        for access in todo.accesses:
            starts[access.operand] = start = access.offset + self.register(access.register)
            self.check_bounds(access, start)
        if inst.mnemonic == "post":
            shapes = {access.operand: access.shape for access in todo.accesses}
            check_in_place(inst, self.code.insts[self.settings["pgeo"]], starts, shapes)
        for access in todo.accesses:
            start = starts[access.operand]
            other = self.order.access(event, access.memory, start, access.shape, access.write, index)
            if other is not None:
                raise BrokenRule(self.race(access, start, other))
            if access.memory in self.written:
                mark(self.written[access.memory], start, access.shape)
        if todo.columns:
            self.check_columns(inst, todo)
        self.order.end(inst, event, todo.positions)

    def check_bounds(self, access: Access, start: int) -> None:
        size = self.sizes[access.memory]
        end = start + access.shape.span
        if end > size:
            raise BrokenRule(f"{access.operand} reaches {_name(access.memory)} {start} to {end}; the limit is {size}, "
                             "move or shrink it")

    def race(self, access: Access, start: int, other: int) -> str:
        verb = "writes" if access.write else "reads"
        return (f"{verb} {_name(access.memory)} {start} to {start + access.shape.span} ({access.operand}) while "
                f"{_where(self.program, self.code, other)} may still use them; make it wait for a token from "
                f"{self.code.insts[other].unit}")

    def check_columns(self, inst: Inst, todo: Work) -> None:
        """Accumulators hold defined values where they are read; conv and dwc define them."""
        entries = self.columns[inst.acc_base:inst.acc_base + todo.positions]
        if inst.mnemonic == "post":
            if inst.source_sram:
                return
        elif not inst.accumulate:
            np.maximum(entries, inst.columns, out=entries)
            return
        defined = int(entries.min())
        if defined < inst.columns:
            raise BrokenRule(f"reads {inst.columns} columns of accumulators {inst.acc_base} to "
                             f"{inst.acc_base + todo.positions}, of which only {defined} were written everywhere; "
                             "write them first")


def _name(memory: str | int) -> str:
    return {"sram": "SRAM bytes", "accumulators": "accumulators"}.get(memory, f"bytes of buffer {memory}")
