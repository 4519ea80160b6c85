"""Arrays from .npz files become samples, or one line says why not."""
from __future__ import annotations

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
    ({"x": np.ones((1, 4)), "y": np.ones(2)}, "f: x is float64, the model's input is int8"),
])
def test_unusable_arrays(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ModelError) as error:
        split(arrays, TWO, "f")
    assert message in str(error.value)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "single.npy", np.ones(3))
    np.savez(tmp_path / "objects.npz", np.array([{}, None], dtype=object))
    for name in ("missing.npz", "text.npz", "single.npy", "objects.npz"):
        with pytest.raises(ModelError, match=name):
            load_npz(tmp_path / name)
