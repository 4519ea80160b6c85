"""Hand-made programs for tests of the verifier: building blocks, `accepted` and `refused`."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from byoc_accel.emit.program import Buffer, Layer, Program
from byoc_accel.emit.verify import verify
from byoc_accel.errors import ProgramError
from byoc_accel.isa.encode import encode_all
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_taps, pack_weights
from byoc_accel.target import Target, load_target

TINY = load_target("tiny")  # 4 x 4, 8 KiB SRAM, 64 accumulators, loops 4 deep
REFERENCE = load_target("reference")
HALT = inst("halt")
BUFFERS = (Buffer("x", "input", 64), Buffer("y", "output", 64), Buffer("s", "scratch", 64))


def program(*insts: Inst, buffers: tuple[Buffer, ...] = BUFFERS, target: Target = TINY, **changes: object) -> Program:
    code = encode_all(insts)
    whole = Program("p", code, buffers, (), (Layer("only", "conv", 0, len(code), 0, 0),), target.digest)
    return dataclasses.replace(whole, **changes)


def refusal(broken: Program, target: Target = TINY) -> str:
    with pytest.raises(ProgramError) as error:
        verify(broken, target)
    assert "\n" not in str(error.value)
    return str(error.value)


def finish(*insts: Inst) -> list[Inst]:
    """`insts`, then a full barrier and a store of the whole output."""
    units = {"dma_in": "sync_in", "array": "sync_array", "post": "sync_post", "dma_out": "sync_out"}
    barrier = [inst(sync, **{key: tuple(u for u in units if u != unit)})
               for key in ("signal", "wait") for unit, sync in units.items()]
    return [*insts, *barrier, inst("store", binding=1, row_bytes=64), HALT]


def accepted(*insts: Inst, target: Target = TINY) -> None:
    verify(program(*finish(*insts), target=target), target)


def refused(*insts: Inst, target: Target = TINY) -> str:
    return refusal(program(*finish(*insts), target=target), target)


def weights(g: Inst, columns: int = 1, target: Target = TINY) -> bytes:
    return pack_weights(np.ones((g.runs_y, g.runs_x, g.run_bytes, columns), np.int8), target.array_rows)


def par(columns: int = 1, multiplier: int = 1 << 30, shift: int = 30, **fields: object) -> Inst:
    scale = parameters(np.zeros(columns, int), np.array([multiplier]), np.array([shift]), uniform=True)
    return inst("par", **scale, **{"clamp_low": -128, "clamp_high": 127, **fields})


def conv(g: Inst, columns: int = 1, **fields: object) -> Inst:
    return inst("conv", columns=columns, payload=weights(g, columns), **fields)


LINE = inst("ageo", width=8, x_step=1)  # 8 positions of one byte
LINE_OUT = inst("pgeo", width=8, out_x_step=1, a_x_step=1, r_x_step=1)
LOAD = inst("load", binding=0, row_bytes=64)


def dwc(g: Inst, **fields: object) -> tuple[Inst, Inst]:
    return g, inst("dwc", payload=pack_taps(np.ones((g.runs_y, g.runs_x, 1), np.int8)), **fields)
