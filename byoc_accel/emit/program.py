"""Program: the machine code of one region with its buffers and its source map."""
from __future__ import annotations

from dataclasses import dataclass

from ..schedule.ports import BUFFER_KINDS, Buffer, HostPort

__all__ = ["BUFFER_KINDS", "Buffer", "HostPort", "Layer", "Program"]


@dataclass(frozen=True)
class Layer:
    """Source map entry: the bytes [start, end) of the program that belong to one layer; spans tile the program.

    macs counts the model's multiply-accumulates of the whole layer per run. weight_bytes is the weight stream of the
    span, everything that is there to bring weights: all bytes of conv, dwc and wtab, which are payloads with their
    masks and padding, tables, and the fields of these instructions. Other instructions are the command stream.
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
