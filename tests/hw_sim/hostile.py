"""Hostile programs: deterministic byte strings that no compiler would emit, for the simulator and its fuzz target."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from byoc_accel.isa.encode import encode, parameter_bytes
from byoc_accel.isa.fields import OPERANDS, limits
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.lane_layout import LaneShape, conv_work, dwc_work
from byoc_accel.isa.lane_table import CLASSES, Table, code_lengths
from byoc_accel.isa.lanes import choose_table
from byoc_accel.isa.lanes import encode as encode_lanes
from byoc_accel.isa.parameters import pack_planes, parameters
from byoc_accel.isa.payload import pack_taps, pack_weights
from byoc_accel.isa.table import BY_MNEMONIC, INSTRUCTIONS, UNITS


def valid_program() -> list[Inst]:
    """Uses every instruction of the table; runs on a 4 x 4 array with 1 KiB of SRAM, inputs 0 and outputs 1."""
    rng = np.random.default_rng(0)
    scale = parameters(rng.integers(-99, 99, 4), (1 << 30) + rng.integers(0, 1 << 30, 4), np.array([34, 34, 35, 34]))
    conv = pack_weights(rng.integers(-128, 128, (2, 2, 9, 4)).astype(np.int8), 4)
    table = bytes(range(256))
    sparse = (rng.integers(-9, 9, (2, 2, 9, 4)) * (rng.random((2, 2, 9, 1)) < 0.4)).astype(np.int8)
    taps = rng.integers(-128, 128, (2, 2, 4)).astype(np.int8)
    # Two words a row at most, and one row a cycle: targets of the fuzz target with two rows decode other weights.
    shape, works = LaneShape(4, 1), (conv_work(sparse, 4), dwc_work(taps))
    tables = [choose_table([work], shape)[0] for work in works]
    (lane_conv,), (lane_taps,) = encode_lanes([(t, [work]) for t, work in zip(tables, works)], shape)
    return [
        inst("load", binding=0, row_bytes=64, rows=8, external_row_stride=64, sram_row_stride=64, signal=("array",)),
        inst("fill", value=-3, sram_address=256, row_bytes=20),
        inst("ageo", width=3, height=2, x_step=2, y_step=32, run_bytes=9, runs_x=2, runs_y=2, run_x_stride=3,
             run_y_stride=16),
        inst("conv", wait=("dma_in",), columns=4, ifm_address=8, payload=conv),
        inst("conv", columns=4, accumulate=1, chain=1, signal=("post",), payload=conv),
        inst("par", clamp_low=-100, clamp_high=100, rounding="nearest", **scale),
        inst("lut", payload=table),
        inst("addp", multiplier_a=1 << 30, multiplier_b=1 << 29, multiplier_out=1 << 30, shift_a=31, shift_b=31,
             shift_out=20, left_shift=20, clamp_low=-128, clamp_high=127),
        inst("pgeo", width=3, height=2, out_x_step=4, out_y_step=12, r_x_step=4, r_y_step=12, a_x_step=4,
             a_y_step=12, window_x=2, window_x_stride=1),
        inst("post", wait=("array",), columns=4, out_address=300, residual=1, r_address=256, table=1),
        inst("setr", reg=1, value=0),
        inst("loop", count=3),
        inst("post", columns=4, source_sram=1, a_address=300, out_address=400, out_reg=1),
        inst("addr", reg=1, increment=10, limit=24),
        inst("flip", reg=1, value=24),
        inst("endl"),
        inst("loop", count=2),
        inst("ageo", width=2, height=2, x_step=2, y_step=32, run_bytes=9, runs_x=2, runs_y=2, run_x_stride=3,
             run_y_stride=16),
        wtab(tables[0], 1),
        inst("conv", columns=4, ifm_address=8, codec="lanes", payload=lane_conv),
        inst("ageo", width=2, height=2, x_step=4, y_step=16, runs_x=2, runs_y=2, run_x_stride=4, run_y_stride=16),
        wtab(tables[1], 0),
        inst("dwc", columns=4, acc_base=8, codec="lanes", payload=lane_taps),
        inst("endl"),
        inst("sync_post", signal=("array", "dma_out")),
        inst("sync_array", wait=("post",), signal=("dma_in",)),
        inst("sync_in", wait=("array",)),
        inst("ageo", width=3, height=2, x_step=4, y_step=16, runs_x=2, runs_y=2, run_x_stride=4, run_y_stride=16),
        inst("dwc", columns=4, acc_base=8, payload=pack_taps(rng.integers(-128, 128, (2, 2, 4)).astype(np.int8))),
        inst("store", wait=("post",), binding=1, sram_address=300, row_bytes=150),
        inst("sync_out"),
        inst("halt"),
    ]


def wtab(table: Table, fresh: int) -> Inst:
    return inst("wtab", fresh=fresh, masks=int(table.masks), centre=table.centre, payload=table.pack())


def any_instruction(rng: np.random.Generator) -> bytes:
    """Fields small, at their limits or anywhere; the payload has the length that the fields ask for, or not."""
    mnemonic = INSTRUCTIONS[rng.integers(len(INSTRUCTIONS))].mnemonic
    fields: dict[str, object] = {}
    for slot in OPERANDS[mnemonic]:
        field = slot.field
        if field.kind == "mask":
            others = [u for u in UNITS if u != BY_MNEMONIC[mnemonic].unit]
            fields[field.name] = tuple(u for u in others if rng.random() < 0.15)
        elif field.kind == "enum":
            fields[field.name] = field.choices[rng.integers(len(field.choices))]
        elif field.name == "payload_bytes":
            fields[field.name] = 4 * int(rng.integers(0, 40))
        else:
            fields[field.name] = any_value(rng, *limits(field))
    bare = Inst(mnemonic, inst(mnemonic, **fields).values)
    return encode_loosely(bare, rng)


def any_value(rng: np.random.Generator, low: int, high: int) -> int:
    kind = rng.random()
    if kind < 0.7:
        return int(rng.integers(low, min(high, low + 8) + 1)) if low >= 0 else int(rng.integers(low, high + 1))
    if kind < 0.85:
        return (low, high)[rng.integers(2)]
    return int(rng.integers(low, high + 1))


def encode_loosely(bare: Inst, rng: np.random.Generator) -> bytes:
    kind = BY_MNEMONIC[bare.mnemonic].payload
    if kind == "weights":
        size = bare.payload_bytes
        mask = np.array([rng.integers(0, 256)] + [0] * 3, np.uint8).tobytes()
        return encode(Inst(bare.mnemonic, bare.values, (mask + rng.bytes(size))[:size]))
    if kind == "parameters":
        base = bare.shift_base if rng.random() < 0.3 else int(rng.integers(1, 60))
        par = bare.replace(shift_base=base, shift_bits=min(bare.shift_bits, int(rng.integers(0, 5))))
        bits = int(rng.integers(0, 256)) if rng.random() < 0.1 else 0  # of the last byte, which may be padding
        size = parameter_bytes(par)
        used = par.columns * par.bias_bits  # biases only: multipliers 0 or 2^30, shifts as the base
        planes = pack_planes((rng.integers(0, 2, used),), (1,)) + bytes(size)
        return encode(par.replace(payload=planes[:size - 1] + bytes([planes[size - 1] | bits]) if size else b""))
    if kind == "classes":
        lengths = code_lengths(rng.integers(0, 1 << rng.integers(1, 12), CLASSES))
        return encode(Inst(bare.mnemonic, bare.values, Table(lengths).pack() if rng.random() < 0.9 else rng.bytes(16)))
    return encode(Inst(bare.mnemonic, bare.values, rng.bytes(256) if kind == "table" else b""))


def mutate(code: bytes, rng: np.random.Generator) -> bytes:
    """Some bits flipped, a stretch removed, doubled or overwritten, or the end cut off."""
    data = bytearray(code)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(data)))
        size = int(rng.integers(1, 32))
        kind = rng.integers(6)
        if kind <= 2:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 3:
            del data[at:at + 4 * size]
        elif kind == 4:
            data[at:at] = data[at:at + 4 * size]
        else:
            data[at:at + size] = rng.bytes(size)
        if not data:
            return b""
    return bytes(data[:int(rng.integers(len(data) + 1))] if rng.random() < 0.1 else data)


def programs(seed: int, count: int) -> Iterator[bytes]:
    """`count` hostile programs: mutants, random instructions, random bytes, truncations."""
    rng = np.random.default_rng(seed)
    valid = [encode(i) for i in valid_program()]
    whole = b"".join(valid)
    for number in range(count):
        kind = number % 8
        if kind < 4:
            yield mutate(whole, rng)
        elif kind < 6:  # random instructions between those of a valid program
            cut = int(rng.integers(len(valid)))
            parts = valid[:cut] + [any_instruction(rng) for _ in range(int(rng.integers(1, 9)))] + valid[cut:]
            yield b"".join(parts)
        elif kind == 6:
            yield rng.bytes(int(rng.integers(0, 400)))
        else:
            yield whole[:int(rng.integers(len(whole)))]


def fuzz_inputs(seed: int, count: int) -> Iterator[bytes]:
    """Inputs of tests/fuzz/fuzz_program.c: three choices, then a program."""
    rng = np.random.default_rng(seed)
    for code in programs(seed, count):
        yield rng.bytes(3) + code
