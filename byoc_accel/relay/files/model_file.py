"""Model files -> Relay modules, through TVM's own importers."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relay

from ...errors import ModelError
from ...samples import TensorInfo


@dataclass(frozen=True)
class ImportedModel:
    """`inputs` are main's parameters in order; every weight is a constant in `module` or stands in `params`."""

    name: str
    module: tvm.IRModule
    params: dict[str, tvm.nd.NDArray]
    inputs: dict[str, TensorInfo]


def import_model(path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ImportedModel:
    """Read a .onnx or .tflite file. shapes: sizes of inputs by name, where the file leaves them open.

    An unknown size of an ONNX input's first axis becomes 1 where `shapes` does not give it. Raises ModelError for a
    missing, damaged or unknown file, an op that TVM cannot import, an unknown size elsewhere, and shapes that the file
    contradicts.
    """
    path = Path(path)
    readers = {".onnx": _onnx, ".tflite": _tflite}
    if path.suffix not in readers:
        raise ModelError(f"{path}: cannot import {path.suffix or 'a file without suffix'}; give one of "
                         + ", ".join(readers))
    if not path.is_file():
        raise ModelError(f"{path}: {'is no file' if path.exists() else 'no such file'}")
    module, params = readers[path.suffix](path, shapes or {})
    main = module["main"]
    inputs = {v.name_hint: TensorInfo(tuple(int(d) for d in v.checked_type.shape), str(v.checked_type.dtype))
              for v in main.params if v.name_hint not in params}
    for name, shape in (shapes or {}).items():
        if name not in inputs or inputs[name].shape != tuple(shape):
            raise ModelError(f"{path}: {name!r} cannot have the shape {_sizes(shape)}; its inputs are "
                             + ", ".join(f"{n!r} {_sizes(info.shape)}" for n, info in inputs.items()))
    return ImportedModel(path.stem, module, params, inputs)


def _onnx(path: Path, given: Mapping[str, tuple[int, ...]]) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    import onnx
    from google.protobuf.message import DecodeError

    from .onnx_graph import importable

    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError, OSError, ValueError) as error:
        raise ModelError(f"{path}: no valid ONNX model ({_reason(error)}); export it again") from error
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = {value.name: _onnx_shape(path, value, given) for value in model.graph.input if value.name not in weights}
    model = importable(model, shapes, str(path))
    # The importer meets arbitrary graphs and raises whatever Python raises there.
    try:
        module, params = relay.frontend.from_onnx(model, shapes, freeze_params=True)
        return relay.transform.InferType()(module), params
    except Exception as error:
        raise ModelError(f"{path}: TVM cannot import it ({_reason(error)}); replace that op") from error


def _onnx_shape(path: Path, value: object, given: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Sizes of an input: the file's, then the given ones, then 1 for the first axis."""
    sizes = [int(d.dim_value) for d in value.type.tensor_type.shape.dim]
    if len(given.get(value.name, ())) == len(sizes):
        sizes = [size if size > 0 else int(g) for size, g in zip(sizes, given[value.name])]
    if sizes and sizes[0] <= 0:
        sizes[0] = 1
    if any(size <= 0 for size in sizes):
        example = _sizes(size if size > 0 else 224 for size in sizes)
        raise ModelError(f"{path}: input {value.name!r} has unknown sizes in {sizes}; give them, for example with "
                         f"--shape {value.name}={example}, or export it with fixed ones")
    return tuple(sizes)


def _sizes(shape: Iterable[int]) -> str:
    return ",".join(map(str, shape))


def _tflite(path: Path, _: Mapping[str, tuple[int, ...]]) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    from tflite.Model import Model

    blob = path.read_bytes()
    if len(blob) < 8 or not Model.ModelBufferHasIdentifier(blob, 0):
        raise ModelError(f"{path}: no TFLite model (its bytes 4 to 8 are not TFL3); convert it again")
    # A damaged flatbuffer makes its reader fail in any way that Python knows.
    try:
        module, params = relay.frontend.from_tflite(Model.GetRootAsModel(blob, 0))
        return relay.transform.InferType()(module), params
    except Exception as error:
        raise ModelError(f"{path}: TVM cannot import it ({_reason(error)}); convert it again, or replace that "
                         "op") from error


def _reason(error: Exception) -> str:
    """What an importer's error says, in one line without the traceback that TVM prepends."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    stated = [line for line in lines if "rror:" in line or "not supported" in line or "not implemented" in line]
    text = (stated or lines or [type(error).__name__])[-1]
    return text if len(text) <= 300 else text[:300] + "..."
