"""Python face of the simulator: programs with named buffers, results, layers, counters, determinism."""
from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel import sim
from byoc_accel.emit.program import Buffer, HostPort, Layer, Program
from byoc_accel.errors import RunError
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.region.region import Port
from byoc_accel.target import load_target
from tests.hw_sim import hostile
from tests.strategies_isa import programs

TINY = load_target("tiny")
HALT = encode(inst("halt"))


def copy_program() -> Program:
    """Input x of 8 bytes to output y, through the SRAM; two layers of 8 and 16 bytes."""
    code = (encode(inst("load", binding=0, row_bytes=8, signal=("dma_out",)))
            + encode(inst("store", wait=("dma_in",), binding=1, row_bytes=8)) + HALT)
    x, y = (Port(name, (1, 2, 2, 2), "int8", (0, 1, 2, 3)) for name in "xy")
    ports = (HostPort(x, (1, 2, 2, 2), 1.0, 0, 0), HostPort(y, (1, 2, 2, 2), 1.0, 0, 1))
    layers = (Layer("in", "load", 0, 8, 0, 0), Layer("out", "store", 8, len(code), 0, 0))
    return Program("copy", code, (Buffer("x", "input", 8), Buffer("y", "output", 8)), ports, layers, TINY.digest)


def test_program_by_names() -> None:
    x = np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2)
    outputs, result = sim.simulate_program(copy_program(), TINY, {"x": x})
    assert list(outputs) == ["y"] and outputs["y"].shape == (1, 2, 2, 2)
    assert np.array_equal(outputs["y"], x)
    # load: D = 34, 35..37, visible 101; store: words 2..4, D = 37, 101..103, visible 167; halt at 167.
    assert result.cycles == 168
    assert [(s.name, s.counters.cycles) for s in result.layers] == [("in", 101), ("out", 67)]
    assert result.layers[0].counters.stream_bytes("external_read") == 8
    assert result.layers[1].counters.stream_bytes("external_read") == 0
    assert result.layers[1].counters.stream_bytes("external_write") == 8


def test_program_refusals() -> None:
    program, x = copy_program(), np.zeros(8, np.int8)
    with pytest.raises(RunError, match="compiled for target"):
        sim.simulate_program(program, load_target("reference"), {"x": x})
    with pytest.raises(RunError, match="input 'x' is missing"):
        sim.simulate_program(program, TINY, {})
    with pytest.raises(RunError, match="no input is called 'z'"):
        sim.simulate_program(program, TINY, {"x": x, "z": x})
    with pytest.raises(RunError, match="with 9 values; give int8 with 8"):
        sim.simulate_program(program, TINY, {"x": np.zeros(9, np.int8)})
    with pytest.raises(RunError, match="uint8"):
        sim.simulate_program(program, TINY, {"x": np.zeros(8, np.uint8)})


def test_texts_are_deterministic_and_complete() -> None:
    program, x = copy_program(), np.zeros(8, np.int8)
    _, a = sim.simulate_program(program, TINY, {"x": x}, trace=True)
    _, b = sim.simulate_program(program, TINY, {"x": x}, trace=True, fill="noise")
    assert (a.to_text(), a.to_json(), a.trace) == (b.to_text(), b.to_json(), b.trace)
    data = json.loads(a.to_json())
    assert data["cycles"] == 168 and data["total"]["units"]["dma_in"]["busy"] == 2
    assert data["layers"][1]["bytes"]["external_write"] == 8
    assert "token:dma_in" in a.to_text() and len(a.trace) == 3 and a.trace_lost == 0
    assert a.trace[1].startswith("at 00000008 unit dma_out op store dispatch 37 start 101 end 103 visible 167")


@pytest.mark.case("B34")
def test_counters_have_64_bits() -> None:
    # 2^16 planes x 2^16 rows x 4 B: 2^32 cycles each, four times; counts need no host time for it.
    fill = encode(inst("fill", rows=65536, planes=65536, row_bytes=4))
    code = encode(inst("loop", count=4)) + fill + encode(inst("endl")) + HALT
    result = sim.simulate(code, TINY, [], writable=[], mode="counts")
    assert result.total.unit("dma_in").busy_cycles == 4 << 32
    assert result.cycles > 4 << 32
    assert result.total.stream_bytes("dma_write") == 16 << 32


def test_memories_keep_their_content_between_runs() -> None:
    # The second program reads what the first one wrote; a fresh machine has only its fill.
    write = encode(inst("fill", value=77, row_bytes=4)) + HALT
    read = encode(inst("store", binding=0, row_bytes=4)) + HALT
    machine, out = sim.Machine(TINY, fill="ones"), np.zeros(4, np.int8)
    machine.run(read, [out], [True])
    assert out.tolist() == [-1] * 4
    machine.run(write, [], [])
    machine.run(read, [out], [True])
    assert out.tolist() == [77] * 4
    sim.simulate(read, TINY, [out], writable=[True], fill="zero")
    assert out.tolist() == [0] * 4


@pytest.mark.case("B34")
def test_trace_is_bounded() -> None:
    code = encode(inst("loop", count=200_000)) + encode(inst("sync_in")) + encode(inst("endl")) + HALT
    result = sim.simulate(code, TINY, [], writable=[], trace=True)
    assert len(result.trace) + result.trace_lost == result.total.instructions == 400_002
    assert result.trace_lost > 0 and sum(map(len, result.trace)) < sim.TRACE_BYTES
    assert all(line.startswith("at ") for line in result.trace)


def test_layers_need_not_cover_the_program() -> None:
    program, buffers = copy_program(), [np.zeros(8, np.int8), np.zeros(8, np.int8)]
    writable = [False, True]
    whole = sim.simulate(program.code, TINY, buffers, writable=writable)
    part = sim.simulate(program.code, TINY, buffers, writable=writable, layers=program.layers[1:])
    assert part.total == whole.total and part.layers[0].counters.cycles == 67
    for spans in (program.layers[::-1], (replace(program.layers[0], end=12), program.layers[1])):
        with pytest.raises(RunError, match="sorted and apart"):
            sim.simulate(program.code, TINY, buffers, writable=writable, layers=spans)


def run_hostile_base(program: list[Inst], mode: str = "full") -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(0)
    out = np.zeros(300, np.int8)
    code = b"".join(map(encode, program))
    result = sim.simulate(code, TINY, [rng.integers(-128, 128, 700).astype(np.int8), out], writable=[False, True],
                          mode=mode)
    return out, result.cycles


def test_every_instruction_in_every_mode() -> None:
    out, cycles = run_hostile_base(hostile.valid_program())
    assert np.unique(out).size > 10
    assert np.array_equal(run_hostile_base(hostile.valid_program(), "functional")[0], out)
    silent, counted = run_hostile_base(hostile.valid_program(), "counts")
    assert counted == cycles and not silent.any()


@pytest.mark.case("B34")
@settings(max_examples=30)
@given(data=st.data())
def test_a_then_b_takes_at_least_either(data: st.DataObject) -> None:
    a, b = (data.draw(programs(TINY, steps=6)) for _ in "ab")

    def cycles(code: bytes) -> int:
        writable = [buffer.kind != "input" for buffer in a.program.buffers]
        return sim.simulate(code, TINY, [c.copy() for c in a.contents], writable=writable, mode="counts").cycles

    together = cycles(a.program.code[:-len(HALT)] + b.program.code)
    assert max(cycles(a.program.code), cycles(b.program.code)) <= together


@pytest.mark.parametrize("mode", ["full", "counts"])
def test_cycles_are_taken_from_an_earlier_run_of_the_same_program_only(mode: str) -> None:
    program, machine = copy_program(), sim.Machine(TINY, mode=mode)
    other = encode(inst("fill", row_bytes=4)) + program.code
    short = [np.ones(7, np.int8), np.zeros(8, np.int8)]  # of which the program reads 8 bytes
    for _ in range(3):
        for code, layers in ((program.code, program.layers), (program.code, ()), (other, ()), (program.code, ())):
            for value in (1, 2):
                buffers = [np.full(8, value, np.int8), np.zeros(8, np.int8)]
                result = machine.run(code, buffers, [False, True], layers)
                fresh = sim.simulate(code, TINY, [b.copy() for b in buffers], writable=[False, True], layers=layers)
                assert (result.total, result.layers) == (fresh.total, fresh.layers)
                assert np.array_equal(buffers[1], buffers[0]) == (mode == "full")
        for _ in range(2):
            with pytest.raises(RunError, match="external buffer"):
                machine.run(program.code, short, [False, True])
