"""Inline data of conv, dwc and lut: NumPy arrays <-> bytes."""
from __future__ import annotations

import numpy as np

from ..errors import EncodeError
from .encode import TABLE_BYTES
from .lane_layout import Work, conv_work


def tile_count(runs: int, run_bytes: int, rows: int) -> int:
    """Weight tiles of a conv: every run in slices of `rows` lanes (array.rows)."""
    return runs * -(-run_bytes // rows)


def pack_weights(weights: np.ndarray, rows: int) -> bytes:
    """Codec raw of a conv: `weights` int8 (runs_y, runs_x, run_bytes, columns), `rows` = array.rows.

    Tile order: run_y, run_x, slice of `rows` lanes. Result: a present-mask of one bit per tile, padded to
    words; then every tile that is not all zero, lane by lane; padded to words.
    """
    if weights.ndim != 4 or weights.dtype != np.int8:
        raise EncodeError(f"conv weights are {weights.dtype} of shape {weights.shape}; "
                          "give int8 (runs_y, runs_x, run_bytes, columns)")
    return pack_work(conv_work(weights, rows))


def pack_work(work: Work) -> bytes:
    """Codec raw of rows in tiles."""
    starts = np.cumsum((0, *work.tiles[:-1]))
    present = np.logical_or.reduceat(work.values.any(axis=1), starts)
    stored = work.values if present.all() else work.values[np.repeat(present, work.tiles)]
    return _pad(np.packbits(present, bitorder="little").tobytes()) + _pad(stored.tobytes())


def unpack_weights(payload: bytes, runs_y: int, runs_x: int, run_bytes: int, columns: int,
                   rows: int) -> np.ndarray:
    """Inverse of `pack_weights`; raises EncodeError when the bytes are not exactly such a payload."""
    lanes = _used_lanes(runs_y * runs_x, run_bytes, rows)
    present, body = _read_mask(payload, len(lanes))
    stored = present[:, None] & lanes
    tiles = np.zeros((len(lanes), rows, columns), np.int8)
    tiles[stored] = _read_body(body, int(stored.sum()) * columns).reshape(-1, columns)
    return tiles.reshape(runs_y, runs_x, -1, columns)[:, :, :run_bytes]


def pack_taps(weights: np.ndarray) -> bytes:
    """Codec raw of a dwc: `weights` int8 (runs_y, runs_x, columns); one tile with a lane per tap."""
    if weights.ndim != 3 or weights.dtype != np.int8:
        raise EncodeError(f"dwc weights are {weights.dtype} of shape {weights.shape}; "
                          "give int8 (runs_y, runs_x, columns)")
    runs_y, runs_x, columns = weights.shape
    return pack_weights(weights.reshape(1, 1, runs_y * runs_x, columns), runs_y * runs_x)


def unpack_taps(payload: bytes, runs_y: int, runs_x: int, columns: int) -> np.ndarray:
    """Inverse of `pack_taps`; raises EncodeError when the bytes are not exactly such a payload."""
    taps = runs_y * runs_x
    return unpack_weights(payload, 1, 1, taps, columns, taps).reshape(runs_y, runs_x, columns)


def present_tiles(payload: bytes, tiles: int) -> np.ndarray:
    """Which of `tiles` weight tiles follow the mask: bool (tiles,)."""
    return _read_mask(payload, tiles)[0]


def pack_table(table: np.ndarray) -> bytes:
    """Payload of lut: int8 (256,); entry i is the result for value i - 128."""
    if table.dtype != np.int8 or table.shape != (TABLE_BYTES,):
        raise EncodeError(f"lut: table is {table.dtype} of shape {table.shape}; give int8 ({TABLE_BYTES},)")
    return table.tobytes()


def _used_lanes(runs: int, run_bytes: int, rows: int) -> np.ndarray:
    """bool (runs * slices, rows): lanes that hold bytes of the run; only a run's last slice may be short."""
    slices = -(-run_bytes // rows)
    return np.tile((np.arange(slices * rows) < run_bytes).reshape(slices, rows), (runs, 1))


def _read_mask(payload: bytes, tiles: int) -> tuple[np.ndarray, bytes]:
    mask_bytes = -(-tiles // 32) * 4
    if len(payload) < mask_bytes:
        raise EncodeError(f"weights: payload of {len(payload)} bytes; "
                          f"the mask of {tiles} tiles takes {mask_bytes}")
    bits = np.unpackbits(np.frombuffer(payload, np.uint8, mask_bytes), bitorder="little")
    if bits[tiles:].any():
        raise EncodeError(f"weights: the mask names tiles beyond the {tiles} of this geometry")
    return bits[:tiles].astype(bool), payload[mask_bytes:]


def _read_body(body: bytes, used_bytes: int) -> np.ndarray:
    if len(body) != -(-used_bytes // 4) * 4:
        raise EncodeError(f"weights: {len(body)} bytes of tiles; mask and geometry ask for {used_bytes}, "
                          "padded to words")
    if any(body[used_bytes:]):
        raise EncodeError("weights: padding after the last tile is not zero")
    return np.frombuffer(body, np.int8, used_bytes)


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
