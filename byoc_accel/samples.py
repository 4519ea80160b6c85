"""Arrays from .npz files as samples: one dict of model inputs per sample."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import ModelError


@dataclass(frozen=True)
class TensorInfo:
    """Shape and NumPy dtype name of a model input, as the host sees it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Samples:
    """`stacked` says that the arrays had a leading axis for the samples, so results get one too."""

    inputs: tuple[dict[str, np.ndarray], ...]
    stacked: bool


def load_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of a .npz file; raises ModelError when it is missing, damaged or holds objects."""
    try:
        content = np.load(path, allow_pickle=False)
        arrays = None if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file") from error
    except Exception as error:  # zipfile, zlib and NumPy meet any damage, and raise some ten kinds of errors there
        raise ModelError(f"{path}: no readable .npz file of numeric arrays ({_first_line(error)}); write it with "
                         "numpy.savez") from error
    if arrays is None:
        raise ModelError(f"{path}: a single array, not an .npz file; write it with numpy.savez")
    return arrays


def split(arrays: Mapping[str, np.ndarray], inputs: Mapping[str, TensorInfo], where: str) -> Samples:
    """Samples for a model with `inputs`, from arrays of the inputs' shapes or with one more leading axis.

    With a single input and a single array the array's name does not matter. Values are converted to the
    input's dtype when that loses nothing but float precision. Raises ModelError with array, shape and dtype.
    """
    named = _by_input(arrays, inputs, where)
    counts = {name: _sample_count(name, array, inputs[name], where) for name, array in named.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {'one sample' if n is None else n}" for name, n in counts.items())
        raise ModelError(f"{where}: arrays hold different numbers of samples: {text}")
    count = next(iter(counts.values()))
    typed = {name: _convert(name, array, inputs[name].dtype, where) for name, array in named.items()}
    if count is None:
        return Samples((typed,), False)
    return Samples(tuple({name: array[i] for name, array in typed.items()} for i in range(count)), True)


def _by_input(arrays: Mapping[str, np.ndarray], inputs: Mapping[str, TensorInfo],
              where: str) -> dict[str, np.ndarray]:
    if len(inputs) == 1 and len(arrays) == 1:
        return {name: array for name, array in zip(inputs, arrays.values())}
    missing = [name for name in inputs if name not in arrays]
    unknown = [name for name in arrays if name not in inputs]
    if missing or unknown:
        raise ModelError(f"{where}: holds {_names(arrays)}, the model's inputs are {_expected(inputs)}")
    return {name: arrays[name] for name in inputs}


def _sample_count(name: str, array: np.ndarray, info: TensorInfo, where: str) -> int | None:
    if array.shape == info.shape:
        return None
    if array.ndim == len(info.shape) + 1 and array.shape[1:] == info.shape:
        if not len(array):
            raise ModelError(f"{where}: {name} holds no samples")
        return len(array)
    raise ModelError(f"{where}: {name} has shape {list(array.shape)}, the model's input has "
                     f"{list(info.shape)}; give that, or one more leading axis for the samples")


def _convert(name: str, array: np.ndarray, dtype: str, where: str) -> np.ndarray:
    goal = np.dtype(dtype)
    if array.dtype == goal:
        return array
    if goal.kind == "f" and array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):
            converted = array.astype(goal)
        if (np.isinf(converted) & np.isfinite(array)).any():
            raise ModelError(f"{where}: {name} has values of up to {np.abs(array[np.isfinite(array)]).max():g}, the "
                             f"model's input is {dtype}; bring them into its range")
        return converted
    if goal.kind in "iu" and array.dtype.kind in "iu":
        limits = np.iinfo(goal)
        if array.min() >= limits.min and array.max() <= limits.max:
            return array.astype(goal)
        raise ModelError(f"{where}: {name} has values from {array.min()} to {array.max()}, the model's input "
                         f"is {dtype}; bring them into its range")
    raise ModelError(f"{where}: {name} is {array.dtype}, the model's input is {dtype}; convert it")


def _names(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _expected(inputs: Mapping[str, TensorInfo]) -> str:
    return ", ".join(f"{name!r} {info.dtype} {list(info.shape)}" for name, info in inputs.items())


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
