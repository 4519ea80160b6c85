"""Hypothesis strategies: any encodable instruction, and small programs that obey every rule of the machine.

`programs(target)` draws a Case: a program with its buffers and their contents. Every byte of the SRAM that a
program touches is loaded first and the last instructions store all of it, so the output shows the whole state
and does not depend on what the memories held before. Tokens are placed by brute force: byte masks of every
access, and clocks along program order.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from byoc_accel.emit.program import Buffer, Layer, Program
from byoc_accel.isa.encode import encode, payload_length
from byoc_accel.isa.fields import OPERANDS, limits
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_table, pack_taps, pack_weights
from byoc_accel.isa.table import BY_MNEMONIC, INSTRUCTIONS, ROUNDINGS, UNITS
from byoc_accel.target import Target
from tests.strategies_lanes import with_lanes

SYNCS = {"dma_in": "sync_in", "array": "sync_array", "post": "sync_post", "dma_out": "sync_out"}
REGION_BYTES = 512  # SRAM in use, and size of the input and output
SCRATCH_BYTES = 192


@st.composite
def instructions(draw, mnemonic: str | None = None) -> Inst:
    """Any instruction that can be encoded, of one mnemonic or of all; fields at their limits are likely."""
    mnemonic = mnemonic or draw(st.sampled_from([row.mnemonic for row in INSTRUCTIONS]))
    others = [u for u in UNITS if u != BY_MNEMONIC[mnemonic].unit]
    fields: dict[str, object] = {}
    for slot in OPERANDS[mnemonic]:
        field = slot.field
        if field.kind == "mask":
            fields[field.name] = tuple(draw(st.sets(st.sampled_from(others))))
        elif field.kind == "enum":
            fields[field.name] = draw(st.sampled_from(field.choices))
        elif field.name == "payload_bytes":
            fields[field.name] = 4 * draw(st.integers(0, 20))
        else:
            low, high = limits(field)
            fields[field.name] = draw(st.sampled_from((low, high)) | st.integers(low, high))
    size = payload_length(Inst(mnemonic, inst(mnemonic, **fields).values))
    return inst(mnemonic, payload=draw(st.binary(min_size=size, max_size=size)), **fields)


@dataclass(frozen=True)
class Case:
    """A valid program and the contents of its buffers before the run, int8 by binding."""

    program: Program
    contents: tuple[np.ndarray, ...]


@st.composite
def programs(draw, target: Target, steps: int = 16, loops: bool = True) -> Case:
    """A valid program for `target` of about `steps` random actions, some of them loops."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    builder = _Builder(draw, target, random)
    builder.load_everything()
    for _ in range(draw(st.integers(2, steps))):
        if loops and draw(st.integers(0, 9)) == 9:
            builder.loop(draw(st.integers(1, 3)), depth=1)
        else:
            builder.action()
    builder.store_everything()
    return builder.case()


@dataclass
class _Access:
    """Byte masks (points, size) by memory; a point is one iteration of the enclosing loops."""

    reads: dict[object, np.ndarray]
    writes: dict[object, np.ndarray]

    def conflicts(self, other: _Access, without: object = None) -> bool:
        pairs = ((self.writes, other.writes), (self.writes, other.reads), (self.reads, other.writes))
        return any(m != without and m in b and bool((a[m] & b[m]).any()) for a, b in pairs for m in a)


@dataclass
class _Done:
    """One instruction of the current stretch: its position, and what is proven at its start and end."""

    position: int
    access: _Access
    start: dict[str, int]
    end: dict[str, int]


class _Builder:
    """Emits instructions with the tokens they need. A stretch ends at a barrier, which orders everything."""

    def __init__(self, draw, target: Target, random: np.random.Generator):
        self.draw, self.target, self.random = draw, target, random
        self.program: list[Inst] = []
        self.buffers = (Buffer("x", "input", REGION_BYTES), Buffer("y", "output", REGION_BYTES),
                        Buffer("s", "scratch", SCRATCH_BYTES))
        self.registers: dict[int, np.ndarray] = {0: np.zeros(1, np.int64)}  # values at each point
        self.points = 1
        self.settings: dict[str, Inst] = {}
        self.geometries: dict[int, Inst] = {}  # ageo of each conv and dwc by position
        self.results: list[tuple[Inst, Inst]] = []  # conv or dwc with its ageo
        self.defined = np.zeros(target.accumulator_entries, np.int64)  # columns written
        self.new_stretch()

    def pick(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    # --- stretches, loops -------------------------------------------------------------------------------

    def new_stretch(self) -> None:
        self.units: dict[str, list[_Done]] = {u: [] for u in UNITS}
        self.known = {u: dict.fromkeys(UNITS, -1) for u in UNITS}  # what a unit's next instruction knows
        self.given = {(v, u): -1 for v in UNITS for u in UNITS}
        self.frozen: set[int] = set()  # positions whose signal field must stay

    def barrier(self) -> None:
        for key in ("signal", "wait"):
            for unit in UNITS:
                self.program.append(inst(SYNCS[unit], **{key: tuple(u for u in UNITS if u != unit)}))
        self.new_stretch()

    def load_everything(self) -> None:
        self.emit(inst("load", binding=0, row_bytes=REGION_BYTES))

    def store_everything(self) -> None:
        self.emit(inst("store", binding=1, row_bytes=REGION_BYTES))
        self.program.append(inst("halt"))

    def loop(self, count: int, depth: int) -> None:
        register = depth
        if register >= self.target.fetch_address_registers:
            return
        value, increment = self.pick(0, 20), self.pick(0, 20)
        limit = self.pick(value, value + 40)
        values = [value]
        flips = self.flag()
        for _ in range(count - 1):
            values.append(limit - values[-1] if flips else min(values[-1] + increment, limit))
        outer, outer_points = dict(self.registers), self.points
        self.barrier()
        self.program.append(inst("setr", reg=register, value=value))
        self.program.append(inst("loop", count=count))
        self.registers = {r: np.repeat(v, count) for r, v in outer.items()}
        self.registers[register] = np.tile(np.array(values), outer_points)
        self.points = outer_points * count
        self.settings = {}  # what a later iteration finds is what the body left
        self.new_stretch()
        for _ in range(self.pick(1, 4)):
            if depth < min(2, self.target.fetch_loop_depth) and self.pick(0, 6) == 0:
                self.loop(self.pick(1, 2), depth + 1)
            else:
                self.action()
        self.barrier()
        self.program.append(inst("flip", reg=register, value=limit) if flips else
                            inst("addr", reg=register, increment=increment, limit=limit))
        self.program.append(inst("endl"))
        self.registers, self.points = outer, outer_points

    def case(self) -> Case:
        code = [encode(i) for i in with_lanes(self.program, self.target, self.random)]
        cut = self.pick(0, len(code) - 1)
        middle, end = sum(map(len, code[:cut])), sum(map(len, code))
        spans = [("a", 0, middle), ("b", middle, end)] if middle else [("b", 0, end)]
        layers = tuple(Layer(name, "conv", start, stop, 0, 0) for name, start, stop in spans)
        program = Program("random", b"".join(code), self.buffers, (), layers, self.target.digest)
        contents = [self.random.integers(-128, 128, self.buffers[0].bytes).astype(np.int8)]
        contents += [np.zeros(b.bytes, np.int8) for b in self.buffers[1:]]
        return Case(program, tuple(contents))

    # --- tokens -----------------------------------------------------------------------------------------

    def emit(self, instruction: Inst, access: _Access | None = None) -> None:
        """Append the instruction; it waits for conflicting ones of other units not known to be done."""
        unit = instruction.unit
        access = access or self.access(instruction)
        known, chained, wait = dict(self.known[unit]), None, []
        for giver in self.random.permutation([u for u in UNITS if u != unit]).tolist():
            conflicts = [i for i, d in enumerate(self.units[giver]) if access.conflicts(d.access)]
            needed = max(conflicts, default=-1)
            if needed <= known[giver]:
                continue
            if giver == "array" and self.flag() and self.chain(instruction, access, needed):
                chained = needed
                known = _join(known, {**self.units[giver][needed].start, "array": needed - 1})
            else:
                known = _join(known, self.take(giver, unit, needed))
            wait.append(giver)
        self.extra_token(unit, known, wait)
        position = len(self.program)
        self.program.append(instruction.replace(wait=tuple(wait)) if wait else instruction)
        end = {**known, unit: len(self.units[unit])}
        if chained is not None:
            end["array"] = max(end["array"], chained)
        self.units[unit].append(_Done(position, access, known, end))
        self.known[unit] = {**end}

    def take(self, giver: str, taker: str, needed: int) -> dict[str, int]:
        """Let instruction `needed` of `giver`, or a later one, signal `taker`; returns what that proves."""
        able = [i for i in range(max(needed, self.given[giver, taker] + 1), len(self.units[giver]))
                if self.units[giver][i].position not in self.frozen]
        if not able:
            self.emit(inst(SYNCS[giver]), _Access({}, {}))
            able = [len(self.units[giver]) - 1]
        index = able[self.random.integers(len(able))]
        self.signal(giver, taker, index)
        return self.units[giver][index].end

    def signal(self, giver: str, taker: str, index: int, **changes: object) -> None:
        position = self.units[giver][index].position
        old = self.program[position]
        self.program[position] = old.replace(signal=(*old.signal_units, taker), **changes)
        self.given[giver, taker] = index

    def extra_token(self, unit: str, known: dict[str, int], wait: list[str]) -> None:
        """Now and then a token that is not needed."""
        giver = UNITS[self.random.integers(len(UNITS))]
        index = len(self.units[giver]) - 1
        if (giver == unit or giver in wait or index <= self.given[giver, unit]
                or self.units[giver][index].position in self.frozen
                or self.random.integers(4)):
            return
        self.signal(giver, unit, index)
        wait.append(giver)
        known.update(_join(known, self.units[giver][index].end))

    def chain(self, instruction: Inst, access: _Access, index: int) -> bool:
        """Make array instruction `index` give a chain token to `instruction` if the rule allows it."""
        done = self.units["array"][index]
        giver = self.program[done.position]
        if (instruction.mnemonic != "post" or instruction.source_sram or giver.mnemonic not in ("conv", "dwc")
                or giver.acc_base != instruction.acc_base or giver.signal_units
                or index <= self.given["array", "post"]):
            return False
        a, p = self.geometries[done.position], self.settings["pgeo"]
        if a.width * a.height != p.width * p.height or access.conflicts(done.access, without="acc"):
            return False
        self.signal("array", "post", index, chain=1)
        self.frozen.add(done.position)
        return True

    # --- actions ----------------------------------------------------------------------------------------

    def action(self) -> None:
        kinds = ("conv", "post", "dwc", "post", "pool", "load", "store", "fill", "sync")
        kind = self.draw(st.sampled_from(kinds))
        if kind == "sync":
            self.emit(inst(self.draw(st.sampled_from(sorted(SYNCS.values())))), _Access({}, {}))
        elif kind in ("load", "store", "fill"):
            self.transfer(kind)
        elif kind in ("conv", "dwc"):
            self.tile_work(kind)
        else:
            self.post(from_sram=kind == "pool")

    def place(self, size: int, *axes: tuple[int, int]) -> tuple[int, int]:
        """Address field and register so that the access (axes of count and stride) fits at every point."""
        register = self.draw(st.sampled_from(sorted(self.registers)))
        last = sum((count - 1) * stride for count, stride in axes) + int(self.registers[register].max())
        return (self.pick(0, size - 1 - last), register) if last < size else (-1, 0)

    def transfer(self, kind: str) -> None:
        row_bytes, rows, planes = self.pick(1, 12), self.pick(1, 3), self.pick(1, 2)
        s_row, s_plane, x_row, x_plane = (self.pick(0, 20) for _ in range(4))
        axes = (planes, s_plane), (rows, s_row), (row_bytes, 1)
        address, register = self.place(REGION_BYTES, *axes)
        common = dict(sram_address=address, sram_reg=register, row_bytes=row_bytes, rows=rows, planes=planes,
                      sram_row_stride=s_row, sram_plane_stride=s_plane)
        if kind == "fill":
            self.emit(inst("fill", value=self.pick(-128, 127), **common))
            return
        binding = self.draw(st.sampled_from((0, 2) if kind == "load" else (1, 2)))
        offset, external = self.place(self.buffers[binding].bytes, (planes, x_plane), (rows, x_row),
                                      (row_bytes, 1))
        self.emit(inst(kind, binding=binding, external_offset=offset, external_reg=external,
                       external_row_stride=x_row, external_plane_stride=x_plane, **common))

    def set(self, instruction: Inst) -> Inst:
        """Emit an instruction that only sets state."""
        self.program.append(instruction)
        self.settings[instruction.mnemonic] = instruction
        return instruction

    def array_geometry(self, kind: str) -> Inst | None:
        """Emit an ageo for conv or dwc; None if the target has no room for the drawn one."""
        t = self.target
        width, height = self.pick(1, 4), self.pick(1, 4)
        if kind == "conv":
            g = inst("ageo", width=width, height=height, x_step=self.pick(0, 12), y_step=self.pick(0, 30),
                     run_bytes=self.pick(1, 2 * t.array_rows + 3),
                     runs_x=self.pick(1, 3), runs_y=self.pick(1, 3),
                     run_x_stride=self.pick(0, 20), run_y_stride=self.pick(0, 20))
        else:
            runs_x = self.pick(1, min(3, t.array_rows))
            runs_y = self.pick(1, min(3, t.array_rows // runs_x, t.line_buffer_rows + 1))
            tap_x, tap_y = self.pick(1, 8), self.pick(1, 16)
            g = inst("ageo", width=width, height=height, runs_x=runs_x, runs_y=runs_y,
                     x_step=self.pick(0, 2) * tap_x, y_step=self.pick(0, 2) * tap_y,
                     run_x_stride=tap_x, run_y_stride=tap_y)
            if runs_y > 1 and width * runs_x > t.line_buffer_positions:
                return None
        return self.set(g) if width * height <= t.accumulator_entries else None

    def tile_work(self, kind: str) -> None:
        g = self.array_geometry(kind)
        if g is None:
            return
        columns = self.pick(1, self.target.array_columns)
        inner = g.run_bytes if kind == "conv" else columns
        address, register = self.place(REGION_BYTES, (g.height, g.y_step), (g.width, g.x_step),
                                       (g.runs_y, g.run_y_stride), (g.runs_x, g.run_x_stride), (inner, 1))
        if address < 0:
            return
        positions = g.width * g.height
        base = self.pick(0, min(self.target.accumulator_entries, 1 << 16) - positions)
        entries = slice(base, base + positions)
        work = inst(kind, payload=self.weights(kind, g, columns), ifm_address=address, ifm_reg=register,
                    columns=columns, acc_base=base,
                    accumulate=bool(self.defined[entries].min() >= columns) and self.flag())
        self.defined[entries] = np.maximum(self.defined[entries], columns)
        self.emit(work)
        self.geometries[len(self.program) - 1] = g
        self.results.append((work, g))

    def weights(self, kind: str, g: Inst, columns: int) -> bytes:
        if kind == "dwc":
            return pack_taps(self.values((g.runs_y, g.runs_x, columns)) * np.int8(self.random.random() > 0.1))
        shape = (g.runs_y, g.runs_x, g.run_bytes, columns)
        weights = self.values(shape)
        for tile in range(0, g.run_bytes, self.target.array_rows):
            zero = self.random.random(shape[:2]) < 0.3
            weights[zero, tile:tile + self.target.array_rows] = 0
        return pack_weights(weights, self.target.array_rows)

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Weights of all sizes or small ones, some of them with zeros in places, rows (taps) and columns."""
        largest = (128, 128, 3, 20)[self.random.integers(4)]
        values = self.random.integers(-largest, largest, shape).astype(np.int8)
        if self.random.integers(2):
            share = self.random.random(3)
            values[self.random.random(shape) < share[0]] = 0
            values[self.random.random((*shape[:-1], 1)).repeat(shape[-1], -1) < share[1] / 2] = 0
            values[..., self.random.random(shape[-1]) < share[2] / 2] = 0
        return values

    def parameters(self) -> None:
        """Emit whichever of par, addp and lut are missing, and sometimes new ones."""
        rounding = self.draw(st.sampled_from(ROUNDINGS))
        low, high = sorted((self.pick(-128, 127), self.pick(-128, 127)))
        if "par" not in self.settings or self.flag():
            columns, uniform = self.pick(1, self.target.array_columns), self.flag()
            count = 1 if uniform else columns
            low_shift, high_shift = (30, 46) if self.flag() else (1, 63)
            shifts = self.random.integers(low_shift, high_shift, count)
            multipliers = self.random.integers(self.pick(0, 1) << 30, 1 << 31, count) & -1 << self.pick(0, 30)
            fields = parameters(self.random.integers(-3000, 3000, columns) << self.pick(0, 19), multipliers, shifts,
                                uniform)
            self.set(inst("par", rounding=rounding, clamp_low=low, clamp_high=high, zero_point=self.pick(-128, 127),
                          **fields))
        if "addp" not in self.settings or not self.random.integers(4):
            multipliers = self.random.integers(0, 1 << 31, 3).tolist()
            shifts = self.random.integers(28, 34, 3).tolist()
            names = ("a", "b", "out")
            self.set(inst("addp", rounding=rounding, zero_point_a=self.pick(-128, 127),
                          zero_point_b=self.pick(-128, 127), zero_point_out=self.pick(-128, 127),
                          left_shift=self.pick(0, 20), clamp_low=low, clamp_high=high,
                          **{f"multiplier_{n}": m for n, m in zip(names, multipliers)},
                          **{f"shift_{n}": s for n, s in zip(names, shifts)}))
        if "lut" not in self.settings or not self.random.integers(6):
            self.set(inst("lut", payload=pack_table(self.random.integers(-128, 128, 256).astype(np.int8))))

    def post(self, from_sram: bool) -> None:
        if not from_sram and not self.results:
            return
        self.parameters()
        columns = self.settings["par"].columns
        width, height, base = self.pick(1, 4), self.pick(1, 4), 0
        if not from_sram:
            work, g = self.results[-1 - self.pick(0, min(2, len(self.results) - 1))]
            width, height, base = g.width, g.height, work.acc_base
            columns = min(columns, int(self.defined[base:base + width * height].min()))
        columns = self.pick(1, columns)
        steps = {f"{o}_{axis}_step": self.pick(0, 12) for o in ("a", "r", "out") for axis in "xy"}
        in_place = self.flag()
        if in_place:  # the residual operand is overwritten by the result
            steps["out_x_step"] = steps["r_x_step"] = columns + self.pick(0, 3)
            steps["out_y_step"] = steps["r_y_step"] = width * steps["out_x_step"] + self.pick(0, 3)
        g = self.set(inst("pgeo", width=width, height=height,
                          window_x=self.pick(1, 3), window_y=self.pick(1, 3),
                          window_x_stride=self.pick(0, 12), window_y_stride=self.pick(0, 12), **steps))
        fields: dict[str, object] = {"source_sram": from_sram, "residual": in_place or self.flag(),
                                     "table": self.flag(), "columns": columns, "acc_base": base}
        for operand in ("a", "r", "out"):
            axes = [(height, steps[f"{operand}_y_step"]), (width, steps[f"{operand}_x_step"]), (columns, 1)]
            if operand == "a":
                axes += [(g.window_y, g.window_y_stride), (g.window_x, g.window_x_stride)]
            if operand == "out" and in_place:
                fields["out_address"], fields["out_reg"] = fields["r_address"], fields["r_reg"]
            else:
                fields[f"{operand}_address"], fields[f"{operand}_reg"] = self.place(REGION_BYTES, *axes)
        self.emit_post(inst("post", **fields), in_place)

    def emit_post(self, work: Inst, in_place: bool) -> None:
        """Emit unless the result overlaps an operand other than in place."""
        operand = self.access(work.replace(residual=0) if in_place else work)
        if "sram" not in operand.reads or not (operand.reads["sram"] & operand.writes["sram"]).any():
            self.emit(work)

    # --- accesses ---------------------------------------------------------------------------------------

    def mask(self, size: int, field: int, register: int, *axes: tuple[int, int]) -> np.ndarray:
        index = np.zeros(1, np.int64)
        for count, stride in axes:
            index = (index[:, None] + np.arange(count) * stride).reshape(-1)
        result = np.zeros((self.points, size), bool)
        for point, value in enumerate(self.registers[register].tolist()):
            result[point, field + value + index] = True
        return result

    def access(self, i: Inst) -> _Access:
        """Byte masks of everything the instruction reads and writes."""
        if i.mnemonic in ("load", "store", "fill"):
            row = (i.row_bytes, 1)
            sram = {"sram": self.mask(self.target.sram_bytes, i.sram_address, i.sram_reg,
                                      (i.planes, i.sram_plane_stride), (i.rows, i.sram_row_stride), row)}
            if i.mnemonic == "fill":
                return _Access({}, sram)
            size, axes = self.buffers[i.binding].bytes, ((i.planes, i.external_plane_stride),
                                                         (i.rows, i.external_row_stride), row)
            external = {i.binding: self.mask(size, i.external_offset, i.external_reg, *axes)}
            return _Access(external, sram) if i.mnemonic == "load" else _Access(sram, external)
        if i.mnemonic in ("conv", "dwc"):
            g = self.settings["ageo"]
            inner = g.run_bytes if i.mnemonic == "conv" else i.columns
            ifm = self.mask(self.target.sram_bytes, i.ifm_address, i.ifm_reg,
                            (g.height, g.y_step), (g.width, g.x_step),
                            (g.runs_y, g.run_y_stride), (g.runs_x, g.run_x_stride), (inner, 1))
            return _Access({"sram": ifm}, {"acc": self.entries(i, g)})
        return self.post_access(i, self.settings["pgeo"])

    def entries(self, i: Inst, g: Inst) -> np.ndarray:
        return self.mask(self.target.accumulator_entries, i.acc_base, 0, (g.width * g.height, 1))[:1]

    def post_access(self, i: Inst, g: Inst) -> _Access:
        reads: dict[object, np.ndarray] = {}
        size = self.target.sram_bytes
        columns = (i.columns, 1)
        if i.source_sram:
            reads["sram"] = self.mask(size, i.a_address, i.a_reg,
                                      (g.height, g.a_y_step), (g.width, g.a_x_step),
                                      (g.window_y, g.window_y_stride), (g.window_x, g.window_x_stride), columns)
        else:
            reads["acc"] = self.entries(i, g)
        if i.residual:
            r = self.mask(size, i.r_address, i.r_reg, (g.height, g.r_y_step), (g.width, g.r_x_step), columns)
            reads["sram"] = reads["sram"] | r if "sram" in reads else r
        return _Access(reads, {"sram": self.mask(size, i.out_address, i.out_reg, (g.height, g.out_y_step),
                                                 (g.width, g.out_x_step), columns)})


def _join(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {unit: max(a[unit], b[unit]) for unit in UNITS}
