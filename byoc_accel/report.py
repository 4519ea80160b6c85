"""Cycles of a compiled library, layer by layer, beside the least that the machine allows.

Cycles come from the simulator in counts-only mode: they do not depend on the data. The lower bound is
max(MACs / multipliers, program bytes / fetch width, input and output bytes / DMA width), in whole cycles.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .container.image import Image
from .emit.program import Layer, Program
from .isa.byte_kinds import KINDS, byte_kinds
from .modelinfo import ModelInfo
from .sim import simulate_program
from .sim_result import Counters
from .target import Target


@dataclass(frozen=True)
class LayerReport:
    """One layer of a region; `stalls` are cycles in which the array waited, by reason, and `program_bytes_by_kind`
    has an entry for each of isa.byte_kinds.KINDS.

    `cycles` is how far the layer moved the end of the run, so a region's layers sum up to its cycles. Units
    work ahead into the next layer: a single layer may take less than its own bound, a region cannot.
    """

    name: str
    kind: str
    macs: int
    cycles: int
    bound_cycles: int
    utilisation: float
    program_bytes: int
    weight_bytes: int
    program_bytes_by_kind: Mapping[str, int]
    stalls: Mapping[str, int]


@dataclass(frozen=True)
class RegionReport:
    """One region; everything but `calls`, how often the model runs it, is about a single run."""

    name: str
    calls: int
    target: str
    macs_per_cycle: int
    macs: int
    cycles: int
    bound_cycles: int
    utilisation: float
    program_bytes: int
    program_bytes_by_kind: Mapping[str, int]
    image_bytes: int
    stalls: Mapping[str, int]
    layers: tuple[LayerReport, ...]


def bound_cycles(target: Target, macs: int, program_bytes: int, io_bytes: int) -> int:
    """No schedule takes fewer cycles than this."""
    return max(_divide_up(macs, target.macs_per_cycle), _divide_up(program_bytes, target.fetch_bytes_per_cycle),
               _divide_up(io_bytes, target.dma_bytes_per_cycle))


def report_image(image: Image, calls: int = 1) -> RegionReport:
    """Simulate one region without arithmetic; raises ImageError or RunError for a damaged one."""
    program, target = image.program, image.target
    nothing = {b.name: np.zeros(b.bytes, np.int8) for b in program.buffers if b.kind == "input"}
    _, run = simulate_program(program, target, nothing, mode="counts")
    layers = tuple(_layer_report(layer, stats.counters, target, program.code)
                   for layer, stats in zip(program.layers, run.layers))
    macs = sum(layer.macs for layer in program.layers)
    return RegionReport(program.name, calls, target.name, target.macs_per_cycle, macs, run.cycles,
                        bound_cycles(target, macs, len(program.code), io_bytes(program)),
                        _utilisation(target, macs, run.cycles), len(program.code),
                        _sum_kinds(layer.program_bytes_by_kind for layer in layers), len(image.data),
                        _array_stalls(run.total), layers)


def report_library(images: Iterable[Image], info: ModelInfo | None = None) -> tuple[RegionReport, ...]:
    """Every region of a library, in file order; its model record tells which are called more than once."""
    calls = Counter(image for _, image in info.regions) if info is not None else Counter()
    return tuple(report_image(image, calls.get(image.name, 1)) for image in images)


def totals(regions: Sequence[RegionReport], macs: int | None = None) -> dict[str, Any]:
    """One run of the model, its regions one after the other; `macs` are those of the whole model, if known."""
    offloaded = sum(region.macs * region.calls for region in regions)
    slots = sum(region.cycles * region.macs_per_cycle * region.calls for region in regions)
    return {
        "macs": offloaded if macs is None else macs,
        "macs_offloaded": offloaded,
        "cycles": sum(region.cycles * region.calls for region in regions),
        "bound_cycles": sum(region.bound_cycles * region.calls for region in regions),
        "utilisation": offloaded / slots if slots else 0.0,
        "program_bytes": sum(region.program_bytes for region in regions),
        "program_bytes_by_kind": _sum_kinds(region.program_bytes_by_kind for region in regions),
        "image_bytes": sum(region.image_bytes for region in regions),
    }


def to_json(regions: Sequence[RegionReport], macs: int | None = None) -> dict[str, Any]:
    """Totals and all regions as plain values."""
    return {**totals(regions, macs), "regions": [asdict(region) for region in regions]}


def io_bytes(program: Program) -> int:
    """Bytes of a region's inputs and outputs on the device's side."""
    return sum(buffer.bytes for buffer in program.buffers if buffer.kind != "scratch")


def _sum_kinds(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = dict.fromkeys(KINDS, 0)
    for part in parts:
        for kind, size_bytes in part.items():
            total[kind] += size_bytes
    return total


def _layer_report(layer: Layer, counters: Counters, target: Target, code: bytes) -> LayerReport:
    program_bytes = layer.end - layer.start
    return LayerReport(layer.name, layer.kind, layer.macs, counters.cycles,
                       bound_cycles(target, layer.macs, program_bytes, 0),
                       _utilisation(target, layer.macs, counters.cycles), program_bytes, layer.weight_bytes,
                       byte_kinds(code, layer.start, layer.end), _array_stalls(counters))


def _array_stalls(counters: Counters) -> dict[str, int]:
    return dict(counters.unit("array").stalls)


def _utilisation(target: Target, macs: int, cycles: int) -> float:
    return macs / (cycles * target.macs_per_cycle) if cycles else 0.0


def _divide_up(amount: int, width: int) -> int:
    return -(-amount // width)
