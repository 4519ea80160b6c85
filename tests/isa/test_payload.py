"""Weight, parameter and table payloads: bytes worked out by hand, round trips, refusals."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.errors import EncodeError
from byoc_accel.isa.payload import (
    pack_table,
    pack_taps,
    pack_weights,
    present_tiles,
    unpack_taps,
    unpack_weights,
)


def test_conv_weights_by_hand() -> None:
    # Two runs of 3 bytes, 2 channels, arrays of 2 rows: tiles (run 0: lanes 0-1, lane 2), (run 1: ...).
    weights = np.array([[[1, 2], [3, 4], [0, 0]], [[0, 0], [0, 0], [-1, 5]]], np.int8).reshape(2, 1, 3, 2)
    # Tiles 0 and 3 are present: mask 0b1001. Tile 0 has two lanes, tile 3 one.
    assert pack_weights(weights, 2).hex() == "09000000" "01020304" "ff050000"


def test_dwc_weights_by_hand() -> None:
    weights = np.arange(1, 13, dtype=np.int8).reshape(2, 3, 2)
    assert pack_taps(weights).hex() == "01000000" + bytes(range(1, 13)).hex()
    assert pack_taps(np.zeros((1, 3, 2), np.int8)).hex() == "00000000"


def test_mask_of_many_tiles() -> None:
    weights = np.zeros((1, 1, 70, 1), np.int8)
    weights[0, 0, [0, 9, 69]] = 7
    payload = pack_weights(weights, 2)  # 35 tiles: two words of mask; tiles 0, 4 and 34
    assert payload.hex() == "11000000" "04000000" "0700" "0007" "0007" "0000"
    assert np.flatnonzero(present_tiles(payload, 35)).tolist() == [0, 4, 34]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 40), st.integers(1, 17), st.integers(1, 17),
       st.integers(0, 2**32 - 1))
def test_conv_weights_round_trip(runs_y: int, runs_x: int, run_bytes: int, columns: int, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (runs_y, runs_x, run_bytes, columns)).astype(np.int8)
    weights *= random.integers(0, 2, (runs_y, runs_x, run_bytes, 1), np.int8)
    payload = pack_weights(weights, rows)
    assert len(payload) % 4 == 0
    assert np.array_equal(unpack_weights(payload, runs_y, runs_x, run_bytes, columns, rows), weights)
    taps = np.ascontiguousarray(weights[:, :, 0])
    assert np.array_equal(unpack_taps(pack_taps(taps), runs_y, runs_x, columns), taps)


def test_bad_payloads_are_refused() -> None:
    good = pack_weights(np.ones((1, 1, 3, 1), np.int8), 2)
    for payload, message in ((good[:-4], "padded to words"), (good + bytes(4), "padded to words"),
                             (b"", "the mask of 2 tiles takes 4"), (b"\x07" + good[1:], "beyond the 2"),
                             (good[:-1] + b"\x01", "padding after the last tile is not zero")):
        with pytest.raises(EncodeError, match=message):
            unpack_weights(payload, 1, 1, 3, 1, 2)


def test_bad_arrays_are_refused() -> None:
    with pytest.raises(EncodeError, match="conv weights are int16"):
        pack_weights(np.zeros((1, 1, 3, 1), np.int16), 2)
    with pytest.raises(EncodeError, match="dwc weights are int8 of shape"):
        pack_taps(np.zeros((1, 3), np.int8))
    with pytest.raises(EncodeError, match="lut: table is int8 of shape"):
        pack_table(np.zeros(255, np.int8))
