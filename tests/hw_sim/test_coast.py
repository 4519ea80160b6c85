"""Tiles and iterations that are taken together count as they do one by one.

With a trace every step is an event of its own, which test_clocked.py compares with the clocked model; without one,
tiles that wait for nothing but the array go in one step (hw_sim/src/coast.c), and iterations of a loop that repeat in
time are not stepped through (laps.c). Both must agree in every counter of every layer.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel import sim
from byoc_accel._wia_sim import ffi, lib
from byoc_accel.emit.program import Layer
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.lane_layout import LaneShape, Work, conv_tiles
from byoc_accel.isa.lane_table import CLASSES, Table, code_lengths
from byoc_accel.isa.lanes import encode as encode_lanes
from byoc_accel.isa.payload import pack_work
from byoc_accel.target import Target, load_target
from tests.hw_sim.clocked import Clocked
from tests.strategies_isa import programs

REFERENCE = load_target("reference")
TINY = load_target("tiny")
SRAM_BYTES = 1 << 14
INPUT = [np.zeros(500, np.int8)]


def machines(rng: np.random.Generator) -> Target:
    """Sizes and widths at random; mostly a FIFO that holds some tiles, as trains of tiles ask for that."""
    rows, columns, groups = (int(rng.choice([4, 5, 16])), int(rng.choice([4, 7, 16])), int(rng.choice([1, 2, 3])))
    width = int(rng.choice([1, 2, 4, 8, 12, 16, 32]))
    return replace(REFERENCE, name="drawn", array_rows=rows, array_columns=columns, sram_bytes=SRAM_BYTES,
                   decoder_rows_per_cycle=groups, decoder_lane_bytes_per_cycle=int(rng.choice([2, 8, 32])),
                   decoder_latency_cycles=int(rng.integers(0, 6)), fetch_bytes_per_cycle=width,
                   fetch_latency_cycles=int(rng.choice([0, 7, 32])), array_latency_cycles=int(rng.integers(1, 9)),
                   fetch_fifo_bytes=max(64, width * int(rng.integers(1, 160))),
                   fetch_queue_depth=int(rng.integers(1, 9)))


def weights(rng: np.random.Generator, rows: int, columns: int, tiles: tuple[int, ...]) -> np.ndarray:
    """Values of a spread of their own for each layer; sometimes with tiles, rows or columns of zeros."""
    values = np.clip(rng.normal(0, rng.choice([0.7, 4, 40, 90]), (rows, columns)), -127, 127).astype(np.int8)
    for zeros in rng.choice(["tiles", "rows", "columns", "none", "none", "none"], 1):
        if zeros == "tiles":
            values[np.repeat(rng.random(len(tiles)) < 0.1, tiles)] = 0
        elif zeros == "rows":
            values[rng.random(rows) < 0.2] = 0
        elif zeros == "columns":
            values[:, rng.random(columns) < 0.3] = 0
    return values


def others(rng: np.random.Generator) -> list[Inst]:
    """Work of the other units, also behind each other."""
    fill = inst("fill", sram_address=0, row_bytes=int(rng.integers(1, 900)), rows=int(rng.integers(1, 4)))
    choices: list[list[Inst]] = [
        [], [fill], [fill, fill.replace(signal=("array",)), inst("sync_array", wait=("dma_in",))],
        [inst("load", row_bytes=int(rng.integers(1, 500)), signal=("dma_out",)), inst("sync_out", wait=("dma_in",))],
        [inst("sync_out", signal=("array", "dma_in")), inst("sync_array", wait=("dma_out",)),
         inst("sync_in", wait=("dma_out",))],
        [inst("lut", payload=bytes(256))] * int(rng.integers(1, 3))]
    return choices[int(rng.integers(len(choices)))]


def program(rng: np.random.Generator, target: Target) -> tuple[bytes, tuple[Layer, ...]]:
    """Some layers of many tiles with a `post` unit that only waits, each layer one raw conv or a stretch of two."""
    code, layers = b"", []
    shape = LaneShape(target.array_columns, target.decoder_rows_per_cycle)
    for number in range(int(rng.integers(1, 5))):
        runs, run_rows = int(rng.integers(1, 12)), int(rng.integers(1, 5 * target.array_rows))
        run_rows = -(-run_rows // target.array_rows) * target.array_rows if rng.random() < 0.6 else run_rows
        columns = target.array_columns if rng.random() < 0.6 else int(rng.integers(1, target.array_columns + 1))
        tiles = conv_tiles(runs, run_rows, target.array_rows)
        works = [Work(weights(rng, runs * run_rows, columns, tiles), tiles) for _ in range(2)]
        fields = {"columns": columns, "acc_base": 0, "accumulate": int(rng.integers(2)), "chain": int(rng.integers(2)),
                  "signal": ("post",)}
        body: list[Inst] = [inst("ageo", width=int(rng.choice([1, 3, 8, 14])), height=int(rng.choice([1, 2, 5, 8, 14])),
                                 run_bytes=run_rows, runs_x=runs)]
        if rng.random() < 0.4:
            body.append(inst("conv", payload=pack_work(works[0]), **fields))
        else:
            lengths = code_lengths(1 + rng.integers(0, 1 << rng.integers(1, 10), CLASSES))
            table = Table(lengths, int(rng.integers(-3, 4)), bool(rng.integers(2)))
            (payloads,) = encode_lanes([(table, works)], shape)
            body.append(inst("wtab", fresh=1, masks=int(table.masks), centre=table.centre, payload=table.pack()))
            body += [inst("conv", codec="lanes", payload=p, **fields) for p in payloads]
        body += [inst("sync_post", wait=("array",))] * sum(i.mnemonic == "conv" for i in body)
        body = others(rng) + body + others(rng)
        if rng.random() < 0.4:
            body = [inst("loop", count=int(rng.integers(2, 12))), *body, inst("endl")]
        start, code = len(code), code + b"".join(map(encode, body))
        layers.append(Layer(f"l{number}", "conv", start, len(code), 0, 0))
    return code + encode(inst("halt")), tuple(layers)


@pytest.mark.parametrize("seed", range(4))
@settings(max_examples=60)
@given(draw=st.integers(0, 2**32 - 1))
def test_together_as_one_by_one(seed: int, draw: int) -> None:
    rng = np.random.default_rng([seed, draw])
    target = machines(rng)
    code, layers = program(rng, target)
    one_by_one = sim.simulate(code, target, INPUT, writable=[False], layers=layers, trace=True)
    for mode in ("full", "counts"):
        together = sim.simulate(code, target, INPUT, writable=[False], layers=layers, mode=mode)
        assert together.total == one_by_one.total
        assert together.layers == one_by_one.layers
    if one_by_one.cycles < 3000:
        assert Clocked(code, target).run() == one_by_one.cycles


@pytest.mark.parametrize("limit", range(1, 12))
def test_the_work_limit_stops_at_the_same_cycle(limit: int) -> None:
    rng = np.random.default_rng(limit)
    while True:
        target = machines(rng)
        code, layers = program(rng, target)
        whole = sim.simulate(code, target, INPUT, writable=[False], layers=layers, trace=True)
        if whole.total.tiles > 40:
            break
    faults = set()
    for trace, mode in ((True, "full"), (False, "full"), (False, "counts")):
        with pytest.raises(sim.RunError) as caught:
            sim.simulate(code, target, INPUT, writable=[False], layers=layers, trace=trace, mode=mode,
                         work_limit_cycles=whole.total.unit("array").busy_cycles * limit // 12)
        faults.add(str(caught.value))
    assert len(faults) == 1


@settings(max_examples=100)
@given(data=st.data())
def test_any_program(data: st.DataObject) -> None:
    case = data.draw(programs(TINY, steps=20))
    writable = [b.kind != "input" for b in case.program.buffers]
    results = [sim.simulate(case.program.code, TINY, [c.copy() for c in case.contents], writable=writable,
                            layers=case.program.layers, trace=trace, mode=mode)
               for trace, mode in ((True, "full"), (False, "full"), (False, "counts"))]
    assert results[0].total == results[1].total == results[2].total
    assert results[0].layers == results[1].layers == results[2].layers


@pytest.mark.parametrize("last", [5, 23, 24, 25])
def test_a_fault_in_an_iteration_that_was_not_stepped_through(last: int) -> None:
    """The address leaves the SRAM in iteration `last` of 30: counters are those of the iterations before."""
    step = SRAM_BYTES // last // 4 * 4
    target = replace(REFERENCE, name="small", sram_bytes=SRAM_BYTES)
    body = (inst("setr", reg=1, value=0), inst("loop", count=30), inst("fill", sram_reg=1, row_bytes=step - 1),
            inst("addr", reg=1, increment=step, limit=0xffffffff), inst("sync_in", signal=("array",)),
            inst("sync_array", wait=("dma_in",)), inst("endl"), inst("halt"))
    code = b"".join(map(encode, body))
    found = set()
    for mode, trace in (("full", True), ("full", False), ("counts", False)):
        machine = sim.Machine(target, mode=mode, trace=trace)
        with pytest.raises(sim.RunError, match="out of range") as caught:
            machine.run(code, [], [])
        stats = ffi.new("wia_sim_stats_t *")
        lib.wia_sim_stats(machine._sim, stats)
        assert stats.total.instructions > 20
        found.add((str(caught.value), stats.work_cycles, bytes(ffi.buffer(ffi.addressof(stats, "total")))))
    assert len(found) == 1
