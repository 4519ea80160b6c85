"""Weights of a finished instruction list: a format for each layer, tables, and payloads in program order.

The lanes of the decoder go on from one instruction to the next, so payloads of codec lanes are made when the order of
all instructions is known. A stretch ends at every loop and endl, and where its encoder would take much memory.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..isa.inst import Inst, inst
from ..isa.lane_layout import LaneShape, Work
from ..isa.lanes import Encoded, encode_steps, plan_tables
from ..isa.payload import pack_work
from ..target import Target
from .builder import Draft
from .limits import window_inputs

CODEC_CHOICES = ("auto", "raw", "lanes")
STRETCH_WEIGHTS = 1 << 20  # the encoder takes about 60 B per weight
WTAB_BYTES = 20
ACCURACY = 0.05  # of the cycles that are estimated for a layer

#: Codec and payload of a conv or dwc, by its number.
Payloads = dict[int, tuple[str, bytes]]


@dataclass(frozen=True)
class _Item:
    """A conv or dwc: its number in the list, its layer, and the cycles of a pass with one of its tiles."""

    number: int
    layer: int
    work: Work
    pass_cycles: int


def encode_weights(drafts: Sequence[Draft], target: Target, codec: str) -> list[tuple[Inst, int]]:
    """All instructions, with payloads and the wtabs that they take, each with its source-map entry.

    codec: "raw", "lanes", or "auto" for what takes fewer cycles in each layer, then fewer bytes.
    """
    payloads: Payloads = {}
    tables: dict[int, Inst] = {}  # wtab in front of a conv or dwc
    for layers in _stretches(drafts, target):
        if codec == "raw":
            _encode_raw(layers, payloads)
        else:
            _encode_stretch(layers, target, codec == "auto", payloads, tables)
    out: list[tuple[Inst, int]] = []
    for number, draft in enumerate(drafts):
        if number in tables:
            out.append((tables[number], draft.layer))
        if number in payloads:
            codec_used, payload = payloads[number]
            out.append((draft.instruction(payload, codec=codec_used), draft.layer))
        else:
            out.append((draft.instruction(draft.payload), draft.layer))
    return out


def _stretches(drafts: Sequence[Draft], target: Target) -> Iterator[list[list[_Item]]]:
    """Conv and dwc of each stretch, by layer."""
    layers: list[list[_Item]] = []
    geometry: Draft | None = None
    weights = 0
    for number, draft in enumerate(drafts):
        if draft.mnemonic == "ageo":
            geometry = draft
        if layers and (draft.mnemonic in ("loop", "endl") or weights > STRETCH_WEIGHTS):
            yield layers
            layers, weights = [], 0
        if draft.work is not None:
            assert geometry is not None
            item = _Item(number, draft.layer, draft.work, _pass_cycles(draft.mnemonic, geometry))
            if not layers or layers[-1][0].layer != draft.layer:
                layers.append([])
            layers[-1].append(item)
            weights += draft.work.values.size
    if layers:
        yield layers


def _pass_cycles(mnemonic: str, geometry: Draft) -> int:
    """docs/ISA.md, Start of work."""
    g = geometry.fields
    if mnemonic == "conv":
        return g["width"] * g["height"]
    inputs = [window_inputs(g[size], g[f"runs_{axis}"], g[f"{axis}_step"], g[f"run_{axis}_stride"])
              for axis, size in (("x", "width"), ("y", "height"))]
    return max(g["width"] * g["height"], inputs[0] * inputs[1])


def _encode_raw(layers: list[list[_Item]], payloads: Payloads) -> None:
    payloads.update((item.number, ("raw", pack_work(item.work))) for layer in layers for item in layer)


def _encode_stretch(layers: list[list[_Item]], target: Target, may_be_raw: bool, payloads: Payloads,
                    tables: dict[int, Inst]) -> None:
    """Payloads and tables of one stretch."""
    lanes = _encode_lanes(layers, target)
    may = [may_be_raw and _may_be_raw(position, layers, lanes, target) for position in range(len(layers))]
    raw = [layer for layer, yes in zip(layers, may) if yes]
    if raw:
        others = [layer for layer, yes in zip(layers, may) if not yes]
        rest = _encode_lanes(others, target)
        before = [_lane_cost(layer, lanes, target) for layer in layers]
        after = [*(_raw_cost(layer, target) for layer in raw), *(_lane_cost(layer, rest, target) for layer in others)]
        if _less(_total(after), _total(before)):  # what a layer saves, another may have to pay: tables, first words
            lanes = rest
            _encode_raw(raw, payloads)
    tables.update(lanes.tables)
    payloads.update((number, ("lanes", e.payload)) for number, e in lanes.works.items())


@dataclass(frozen=True)
class _Lanes:
    """A stretch of codec lanes: works by number, and the wtabs by the number of the instruction that follows."""

    works: dict[int, Encoded]
    tables: dict[int, Inst]


def _encode_lanes(layers: list[list[_Item]], target: Target) -> _Lanes:
    if not layers:
        return _Lanes({}, {})
    shape = LaneShape(target.array_columns, target.decoder_rows_per_cycle)
    parts, batches, first = [], [], 0
    for table, count, batch in plan_tables([[item.work for item in layer] for layer in layers], shape):
        parts.append((table, [item for layer in layers[first:first + count] for item in layer]))
        batches.append(batch)
        first += count
    encoded = encode_steps([(table, [item.work for item in items]) for table, items in parts], shape, batches)
    tables = {items[0].number: inst("wtab", fresh=int(not index), masks=int(table.masks), centre=table.centre,
                                    payload=table.pack()) for index, (table, items) in enumerate(parts)}
    works = {item.number: e for (_, items), part in zip(parts, encoded) for item, e in zip(items, part)}
    return _Lanes(works, tables)


_Cost = tuple[float, int]  # estimated cycles, bytes


def _less(a: _Cost, b: _Cost) -> bool:
    """Fewer cycles, or as many as far as the estimate can tell and fewer bytes."""
    return a[0] < b[0] / (1 + ACCURACY) or (a[0] <= b[0] * (1 + ACCURACY) and a[1] < b[1])


def _may_be_raw(position: int, layers: list[list[_Item]], lanes: _Lanes, target: Target) -> bool:
    """Whether raw costs less than lanes does, without what a neighbour would have to pay instead."""
    layer, following = layers[position], layers[position + 1:position + 2]
    cycles, size = _lane_cost(layer, lanes, target)
    if position == 0 and following:  # the lanes' first two words
        size -= 4 * target.array_columns * target.decoder_rows_per_cycle
    if layer[0].number in lanes.tables and following and following[0][0].number not in lanes.tables:
        size -= WTAB_BYTES
    return _less(_raw_cost(layer, target), (cycles, size))


def _total(costs: Sequence[_Cost]) -> _Cost:
    return sum(cycles for cycles, _ in costs), sum(size for _, size in costs)


def _raw_cost(layer: list[_Item], target: Target) -> _Cost:
    cycles, total = 0.0, 0
    for item in layer:
        tiles, stored = item.work.stored
        total += -(-len(item.work.tiles) // 32) * 4 + -(-stored * item.work.values.shape[1] // 4) * 4
        cycles += _array_cycles(item, tiles, stored / target.decoder_rows_per_cycle, target)
    return max(cycles, total / target.fetch_bytes_per_cycle), total


def _lane_cost(layer: list[_Item], lanes: _Lanes, target: Target) -> _Cost:
    cycles, total = 0.0, 0
    words = target.decoder_lane_bytes_per_cycle // 2
    for item in layer:
        encoded = lanes.works[item.number]
        total += len(encoded.payload) + WTAB_BYTES * (item.number in lanes.tables)
        cycles += _array_cycles(item, item.work.stored[0], float(np.maximum(1, -(-encoded.words // words)).sum()),
                                target)
    return max(cycles, total / target.fetch_bytes_per_cycle), total


def _array_cycles(item: _Item, tiles: int, decode_cycles: float, target: Target) -> float:
    """Estimate for `tiles` passes: each takes its time, or that of decoding the next tile."""
    return max(tiles * item.pass_cycles, decode_cycles + tiles * target.decoder_latency_cycles)
