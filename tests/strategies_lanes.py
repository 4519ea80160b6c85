"""Random programs with codec lanes, made from programs whose weights are raw."""
from __future__ import annotations

import numpy as np

from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.lane_layout import LaneShape, Work, conv_work, dwc_work
from byoc_accel.isa.lane_table import Table, code_lengths
from byoc_accel.isa.lanes import analyse, encode
from byoc_accel.isa.payload import unpack_taps, unpack_weights
from byoc_accel.target import Target


def with_lanes(program: list[Inst], target: Target, random: np.random.Generator) -> list[Inst]:
    """The same program with some of its weights as codec lanes, and the wtabs that this takes."""
    shape = LaneShape(target.array_columns, target.decoder_rows_per_cycle)
    out: list[Inst] = []
    parts: list[list[int]] = []  # places in `out` of the conv and dwc under each table of the stretch
    works: dict[int, Work] = {}
    share = random.choice((0.0, 0.5, 1.0), p=(0.2, 0.4, 0.4))

    def close() -> None:
        """Fill in the tables and payloads of the stretch."""
        made = [(_some_table([works[i] for i in part], shape, random), [works[i] for i in part]) for part in parts]
        for (table, _), part, payloads in zip(made, parts, encode(made, shape) if made else ()):
            place = part[0] - 1
            out[place] = out[place].replace(centre=table.centre, masks=int(table.masks), payload=table.pack())
            for i, payload in zip(part, payloads):
                out[i] = out[i].replace(codec="lanes", payload=payload)
        parts.clear()

    geometry = None
    for instruction in program:
        if instruction.mnemonic in ("loop", "endl", "halt"):
            close()
        geometry = instruction if instruction.mnemonic == "ageo" else geometry
        if instruction.mnemonic in ("conv", "dwc") and random.random() < share:
            if parts and random.random() < 0.1:
                close()
            if not parts or random.random() < 0.3:
                out.append(inst("wtab", fresh=int(not parts), payload=bytes(16)))
                parts.append([])
            parts[-1].append(len(out))
            works[len(out)] = _work(instruction, geometry, target)
        out.append(instruction)
    return out


def _work(instruction: Inst, g: Inst, target: Target) -> Work:
    if instruction.mnemonic == "dwc":
        return dwc_work(unpack_taps(instruction.payload, g.runs_y, g.runs_x, instruction.columns))
    return conv_work(unpack_weights(instruction.payload, g.runs_y, g.runs_x, g.run_bytes, instruction.columns,
                                    target.array_rows), target.array_rows)


def _some_table(works: list[Work], shape: LaneShape, random: np.random.Generator) -> Table:
    """A table that can express the works, made for them or for nothing in particular."""
    masks = bool(random.integers(2))
    centre = 0 if masks or random.integers(2) else int(random.integers(-128, 128))
    counts = analyse(works, shape, centre, masks).counts
    if random.integers(2):
        counts = (counts > 0) * random.integers(1, 1 << random.integers(1, 12), len(counts))
    return Table(code_lengths(counts), centre, masks)
