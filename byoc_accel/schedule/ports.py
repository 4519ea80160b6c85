"""External buffers of a region and the host's side of its inputs and outputs."""
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
