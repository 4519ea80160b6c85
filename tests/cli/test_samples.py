"""Arrays from .npz files become samples, or one line says why not."""
from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.errors import ModelError
from byoc_accel.samples import TensorInfo, load_npz, split

ONE = {"x": TensorInfo((1, 4), "float32")}
TWO = {"x": TensorInfo((1, 4), "int8"), "y": TensorInfo((2,), "float32")}


def test_single_input_takes_any_name() -> None:
    samples = split({"anything": np.ones((1, 4), np.float32)}, ONE, "f")
    assert not samples.stacked
    assert [list(s) for s in samples.inputs] == [["x"]]


def test_leading_axis_makes_samples() -> None:
    array = np.arange(12, dtype=np.float64).reshape(3, 1, 4)
    samples = split({"x": array}, ONE, "f")
    assert samples.stacked and len(samples.inputs) == 3
    assert samples.inputs[2]["x"].dtype == np.float32
    assert samples.inputs[2]["x"].tolist() == [[8, 9, 10, 11]]


def test_one_stacked_sample_stays_stacked() -> None:
    assert split({"x": np.ones((1, 1, 4), np.float32)}, ONE, "f").stacked


@pytest.mark.parametrize("arrays, message", [
    ({"x": np.ones((1, 5), np.int8), "y": np.ones(2)}, "f: x has shape [1, 5], the model's input has [1, 4]"),
    ({"x": np.ones((0, 1, 4), np.int8), "y": np.ones((0, 2))}, "f: x holds no samples"),
    ({"x": np.ones((3, 1, 4), np.int8), "y": np.ones((2, 2))}, "different numbers of samples: x 3, y 2"),
    ({"x": np.ones((1, 4), np.int8)}, "f: holds 'x', the model's inputs are 'x' int8 [1, 4], 'y' float32 [2]"),
    ({"x": np.full((1, 4), 200), "y": np.ones(2)}, "x has values from 200 to 200, the model's input is int8"),
    ({"x": np.full((1, 4), 128), "y": np.ones(2)}, "x has values from 128 to 128, the model's input is int8"),
    ({"x": np.full((1, 4), -129), "y": np.ones(2)}, "x has values from -129 to -129, the model's input is int8"),
    ({"x": np.ones((1, 4)), "y": np.ones(2)}, "f: x is float64, the model's input is int8"),
])
def test_unusable_arrays(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ModelError) as error:
        split(arrays, TWO, "f")
    assert message in str(error.value)


def test_integers_of_another_width_that_fit() -> None:
    (sample,) = split({"x": np.array([[127, -128, 0, 5]]), "y": np.ones(2, np.int8)}, TWO, "f").inputs
    assert sample["x"].dtype == np.int8 and sample["x"].tolist() == [[127, -128, 0, 5]]
    assert sample["y"].dtype == np.float32 and sample["y"].tolist() == [1.0, 1.0]


def test_float_values_beyond_the_type() -> None:
    huge = np.array([[1.0, -1e39, np.inf, np.nan]])
    with pytest.raises(ModelError, match=r"f: x has values of up to 1e\+39, the model's input is float32; bring them"):
        split({"x": huge}, ONE, "f")
    (sample,) = split({"x": np.array([[1.0, -3e38, np.inf, np.nan]])}, ONE, "f").inputs  # what it held before
    np.testing.assert_array_equal(sample["x"], np.array([[1.0, -3e38, np.inf, np.nan]], np.float32))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_damaged_byte(save: Callable[..., None], tmp_path: Path) -> None:
    """The archive's arrays, or one line; never another kind of error, of which the reader has some ten."""
    path = tmp_path / "damaged.npz"
    arrays = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "y": np.ones((2, 2), np.int8)}
    save(path, **arrays)
    blob = path.read_bytes()
    refused = 0
    for at in range(len(blob)):
        for value in (blob[at] ^ 1, blob[at] ^ 0x80, 0, 255):
            path.write_bytes(blob[:at] + bytes([value]) + blob[at + 1:])
            try:
                load_npz(path)
            except ModelError as error:
                refused += 1
                assert "\n" not in str(error) and "damaged.npz: no readable .npz file" in str(error)
    assert refused > len(blob)


def test_an_array_larger_than_memory(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(40))
    with pytest.raises(ModelError, match="huge.npz: no readable .npz file"):
        load_npz(tmp_path / "huge.npz")


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "single.npy", np.ones(3))
    np.savez(tmp_path / "objects.npz", np.array([{}, None], dtype=object))
    for name in ("missing.npz", "text.npz", "single.npy", "objects.npz"):
        with pytest.raises(ModelError, match=name):
            load_npz(tmp_path / name)
