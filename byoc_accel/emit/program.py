"""Program: the machine code of one region with its buffers and its source map."""
from __future__ import annotations

from dataclasses import dataclass

from ..region.region import Port

#: Kinds of external buffers; the index is the number in the image.
BUFFER_KINDS: tuple[str, ...] = ("input", "output", "scratch")


@dataclass(frozen=True)
class Buffer:
    """External memory that load and store address by its index (the instruction's `binding`).

    `name` is the tensor's name; bytes is N * H * W * C for inputs and outputs.
    """

    name: str
    kind: str
    bytes: int


@dataclass(frozen=True)
class HostPort:
    """A region input or output as the host sees it; `buffer` is the index of its Buffer.

    Inputs come first, then outputs, each in host argument order. device_shape is NHWC. scale and zero_point
    convert float32 hosts: q = clamp(round_half_away(x / scale) + zero_point), x = (q - zero_point) * scale.
    """

    port: Port
    device_shape: tuple[int, int, int, int]
    scale: float
    zero_point: int
    buffer: int


@dataclass(frozen=True)
class Layer:
    """Source map entry: the bytes [start, end) of the program that belong to one layer; spans tile the program.

    macs counts the model's multiply-accumulates of the whole layer per run; weight_bytes the inline weight
    payloads of the span.
    """

    name: str
    kind: str
    start: int
    end: int
    macs: int
    weight_bytes: int


@dataclass(frozen=True)
class Program:
    """`code` is the instruction stream; `target_digest` names the target it was scheduled for."""

    name: str
    code: bytes
    buffers: tuple[Buffer, ...]
    ports: tuple[HostPort, ...]
    layers: tuple[Layer, ...]
    target_digest: bytes
