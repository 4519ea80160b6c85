"""The node tests that the package onnx ships: one op each, with inputs and expected outputs."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
       "Add", "Concat", "Pad", "Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "BatchNormalization", "Flatten",
       "Reshape")
FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")  # their second input is a weight


@dataclass(frozen=True)
class Case:
    """One test: its graph has the inputs of `inputs` only, all else is constant."""

    name: str
    op: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    outputs: tuple[np.ndarray, ...]


def cases() -> Iterator[Case]:
    """Every test of a single op of `OPS`, all inputs variable, by op and name."""
    found = []
    for folder in sorted(FOLDER.iterdir()):
        model = onnx.load(str(folder / "model.onnx"))
        if len(model.graph.node) == 1 and model.graph.node[0].op_type in OPS:
            arrays = _arrays(folder, "input")
            inputs = {value.name: a for value, a in zip(model.graph.input, arrays)}
            found.append(Case(folder.name.removeprefix("test_"), model.graph.node[0].op_type, model, inputs,
                              tuple(_arrays(folder, "output"))))
    yield from sorted(found, key=lambda c: (OPS.index(c.op), c.name))


def _arrays(folder: Path, kind: str) -> list[np.ndarray]:
    paths = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in paths]


def with_constants(case: Case) -> Case:
    """Every input but the first as a constant of the graph."""
    first, *others = case.inputs
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.initializer.extend(numpy_helper.from_array(case.inputs[name], name) for name in others)
    kept = [value for value in model.graph.input if value.name == first]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return replace(case, model=model, inputs={first: case.inputs[first]})
