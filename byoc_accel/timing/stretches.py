"""Events of conv and dwc with weight tiles in the codec that a layer's bytes show, and the tables before them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..emit.builder import Draft
from ..isa.encode import CLASSES_BYTES
from ..isa.fields import SIZES
from ..target import Target
from .events import Event
from .tiles import AHEAD_WORDS, LANE_WORD_BYTES, LaneTiles, Weights, layer_weights, raw_tiles

TABLE_BYTES = SIZES["wtab"] + CLASSES_BYTES


@dataclass(frozen=True)
class LayerBytes:
    """What an encoder made of a layer's weights: all bytes of conv, dwc and wtab, and those of wtab among them."""

    weights: int
    tables: int = 0


@dataclass(frozen=True)
class _Item:
    """One conv or dwc: its number in the program, its event without tiles, and its weights."""

    number: int
    event: Event
    weights: Weights

    @property
    def lanes_header(self) -> int:
        """Bytes of the instruction itself in codec lanes; equal weights hardly ever need a payload."""
        return self.event.least_header if self.weights.uniform else self.event.header


@dataclass
class _Segment:
    """The conv and dwc of a layer that lie in one stretch of lanes, and whether that begins or ends with them."""

    begins: bool
    ends: bool = False
    items: list[_Item] = field(default_factory=list)

    @property
    def bits(self) -> float:
        return sum(sum(item.weights.bits) for item in self.items)

    def moved_bytes(self, target: Target) -> int:
        """Bytes that are for this layer but come in the time of another one, less those of the other kind: lanes take
        words ahead when a stretch begins, and none any more at its end."""
        columns = max(item.weights.columns for item in self.items)
        return (self.ends - self.begins) * AHEAD_WORDS * LANE_WORD_BYTES * target.decoder_rows_per_cycle * columns


def with_weights(drafts: Sequence[Draft], events: Sequence[Event], sizes: Sequence[LayerBytes] | None,
                 target: Target) -> list[Event]:
    """The events with tables and weight tiles. sizes: of every layer; codec raw without them."""
    layers = _layers(drafts, events, target)
    lanes = {layer for layer, items in layers.items() if sizes is not None and sizes[layer] != _raw_bytes(items)}
    done: dict[int, list[Event]] = {}
    for layer, items in layers.items():
        if layer not in lanes:
            done.update((i.number, [replace(i.event, mask=i.weights.mask_bytes,
                                            tiles=raw_tiles(i.weights, i.event, target))]) for i in items)
    if sizes is not None:
        for layer, segments in _segments(events, layers, lanes).items():
            _add_lanes(segments, sizes[layer], target, done)
    return [event for number, plain in enumerate(events) for event in done.get(number, [plain])]


def _layers(drafts: Sequence[Draft], events: Sequence[Event], target: Target) -> dict[int, list[_Item]]:
    """Every conv and dwc by layer."""
    numbers: dict[int, list[int]] = {}
    for number, draft in enumerate(drafts):
        if draft.work is not None:
            numbers.setdefault(draft.layer, []).append(number)
    out = {}
    for layer, found in numbers.items():
        weights = layer_weights([work for n in found if (work := drafts[n].work) is not None], target)
        out[layer] = [_Item(n, events[n], w) for n, w in zip(found, weights)]
    return out


def _raw_bytes(items: list[_Item]) -> LayerBytes:
    return LayerBytes(sum(item.event.header + item.weights.mask_bytes + sum(item.weights.raw_tile_bytes)
                          for item in items))


def _segments(events: Sequence[Event], layers: dict[int, list[_Item]], lanes: set[int]) -> dict[int, list[_Segment]]:
    """Stretches of lanes by layer: they go on from one layer to the next, but not around a loop."""
    items = {item.number: item for layer in lanes for item in layers[layer]}
    out: dict[int, list[_Segment]] = {layer: [] for layer in lanes}
    last: tuple[int, _Segment] | None = None  # layer and segment, while a stretch is open
    for number, event in enumerate(events):
        if number in items:
            if last is None or last[0] != event.layer:
                last = event.layer, _Segment(last is None)
                out[event.layer].append(last[1])
            last[1].items.append(items[number])
        elif last is not None and event.mnemonic in ("loop", "endl", "halt"):
            last[1].ends, last = True, None
    return out


def _add_lanes(segments: list[_Segment], size: LayerBytes, target: Target, done: dict[int, list[Event]]) -> None:
    """Put the events of a layer of codec lanes into `done`, by number; its bytes are shared by bits."""
    left = max(0, size.weights - size.tables - sum(item.lanes_header for s in segments for item in s.items))
    moved = [max(-left, segment.moved_bytes(target)) for segment in segments]
    scale = max(0.0, left + sum(moved)) / (sum(segment.bits for segment in segments) or 1)
    changes = size.tables // TABLE_BYTES > sum(segment.begins for segment in segments)  # table without a new stretch
    for segment, elsewhere in zip(segments, moved):
        lanes = LaneTiles(target, scale, 0 if segment.begins else target.array_columns,
                          segment.bits * scale - elsewhere)
        for item in segment.items:
            tiles = lanes.tiles(item.weights, item.event, item is segment.items[-1])
            done[item.number] = [replace(item.event, header=item.lanes_header, tiles=tiles)]
        if segment.begins or changes:
            table = Event("wtab", "", segment.items[0].event.layer, SIZES["wtab"], CLASSES_BYTES)
            done[segment.items[0].number].insert(0, table)
            changes = changes and segment.begins
