"""Small hand-made images for the tests of container and runtime, with their expected results in NumPy."""
from __future__ import annotations

import numpy as np

from byoc_accel.container.image import Image, pack
from byoc_accel.emit.program import Buffer, HostPort, Layer, Program
from byoc_accel.isa.encode import encode_all
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import parameters
from byoc_accel.isa.payload import pack_weights
from byoc_accel.region.region import Port
from byoc_accel.target import Target

PIXELS, CHANNELS, OUT = 6, 5, 3  # of the convolution: 1 x 2 x 3 x 5 -> 1 x 2 x 3 x 3


def port(name: str, shape: tuple[int, int, int, int], buffer: int, *, dtype: str = "int8",
         perm: tuple[int, int, int, int] = (0, 1, 2, 3), scale: float = 1.0, zero_point: int = 0) -> HostPort:
    """A port whose host shape is the transposed device shape."""
    host = tuple(shape[p] for p in perm)
    return HostPort(Port(name, host, dtype, perm), shape, scale, zero_point, buffer)


def program(target: Target, code: list[Inst] | bytes, buffers: tuple[Buffer, ...], ports: tuple[HostPort, ...],
            name: str = "region") -> Program:
    """A program of one layer."""
    data = code if isinstance(code, bytes) else encode_all(code)
    return Program(name, data, buffers, ports, (Layer("layer", "test", 0, len(data), 0, 0),), target.digest)


def copy_code(size: int = 64) -> list[Inst]:
    """input 0 -> SRAM -> scratch 2 -> SRAM -> output 1, so that every kind of buffer is used."""
    return [
        inst("load", binding=0, row_bytes=size, signal=("dma_out",)),
        inst("store", binding=2, row_bytes=size, wait=("dma_in",), signal=("dma_in",)),
        inst("sync_out", signal=("dma_in",)),
        inst("load", binding=2, row_bytes=size, sram_address=size, wait=("dma_out",), signal=("dma_out",)),
        inst("sync_in", wait=("dma_out",)),
        inst("store", binding=1, row_bytes=size, sram_address=size, wait=("dma_in",)),
        inst("halt"),
    ]


def copy_image(target: Target, name: str = "copy") -> Image:
    """y = x: 64 bytes, through scratch."""
    buffers = (Buffer("x", "input", 64), Buffer("y", "output", 64), Buffer("s", "scratch", 64))
    ports = (port("x", (1, 4, 4, 4), 0), port("y", (1, 4, 4, 4), 1))
    return pack(program(target, copy_code(), buffers, ports, name), target)


def twins_image(target: Target) -> Image:
    """Two inputs of 16 and 32 bytes; outputs a = second, b = first, c = b (the same buffer)."""
    code = [
        inst("load", binding=0, row_bytes=16),
        inst("load", binding=2, row_bytes=32, sram_address=16, signal=("dma_out",)),
        inst("store", binding=1, row_bytes=32, sram_address=16, wait=("dma_in",)),
        inst("store", binding=3, row_bytes=16),
        inst("halt"),
    ]
    buffers = (Buffer("first", "input", 16), Buffer("a", "output", 32), Buffer("second", "input", 32),
               Buffer("b", "output", 16))
    ports = (port("first", (1, 1, 2, 8), 0), port("second", (1, 2, 4, 4), 2), port("a", (1, 2, 4, 4), 1),
             port("b", (1, 1, 2, 8), 3), port("c", (1, 1, 2, 8), 3))
    return pack(program(target, code, buffers, ports, "twins"), target)


def conv_weights(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weights (OUT, CHANNELS), bias, multiplier and shift of a pointwise convolution."""
    random = np.random.default_rng(seed)
    return (random.integers(-128, 128, (OUT, CHANNELS)).astype(np.int8), random.integers(-5000, 5000, OUT),
            random.integers(1 << 30, 1 << 31, OUT), random.integers(36, 40, OUT))


def conv_image(target: Target, seed: int = 1, *, dtype: str = "int8", nchw: bool = False, name: str = "conv") -> Image:
    """A pointwise convolution over 2 x 3 pixels; for any target with at least 3 columns."""
    weights, bias, multiplier, shift = conv_weights(seed)
    payload = pack_weights(weights.T.reshape(1, 1, CHANNELS, OUT), target.array_rows)
    code = [
        inst("load", binding=0, row_bytes=PIXELS * CHANNELS, signal=("array",)),
        inst("ageo", width=3, height=2, x_step=CHANNELS, y_step=3 * CHANNELS, run_bytes=CHANNELS),
        inst("conv", columns=OUT, wait=("dma_in",), signal=("post",), payload=payload),
        inst("par", zero_point=3, clamp_low=-100, clamp_high=110, rounding="nearest",
             **parameters(bias, multiplier, shift)),
        inst("pgeo", width=3, height=2, out_x_step=OUT, out_y_step=3 * OUT),
        inst("post", columns=OUT, out_address=64, wait=("array",), signal=("dma_out",)),
        inst("store", binding=1, row_bytes=PIXELS * OUT, sram_address=64, wait=("post",)),
        inst("halt"),
    ]
    perm = (0, 3, 1, 2) if nchw else (0, 1, 2, 3)
    buffers = (Buffer("x", "input", PIXELS * CHANNELS), Buffer("y", "output", PIXELS * OUT))
    ports = (port("x", (1, 2, 3, CHANNELS), 0, dtype=dtype, perm=perm, scale=0.05, zero_point=-7),
             port("y", (1, 2, 3, OUT), 1, dtype=dtype, perm=perm, scale=0.1, zero_point=3))
    return pack(program(target, code, buffers, ports, name), target)


def conv_result(x: np.ndarray, seed: int = 1) -> np.ndarray:
    """The convolution of `conv_image` in int64: x int8 (1, 2, 3, CHANNELS) -> int8 (1, 2, 3, OUT)."""
    weights, bias, multiplier, shift = conv_weights(seed)
    acc = x.astype(np.int64) @ weights.T.astype(np.int64) + bias
    product = np.abs(acc) * multiplier + (np.int64(1) << (shift - 1))
    return np.clip(np.sign(acc) * (product >> shift) + 3, -100, 110).astype(np.int8)
