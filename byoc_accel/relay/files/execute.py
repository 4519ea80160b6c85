"""A compiled library under TVM's graph executor: named inputs, numbered outputs, our counters."""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.contrib import graph_executor

from ...errors import HostError, RunError
from ...samples import TensorInfo
from .elf import check_library

STATS_FUNCTION = "wia_tvm_stats"


class Executor:
    """Runs an exported library on this machine's CPU, with its regions on the simulator.

    `inputs` maps the model's input names to shape and dtype.
    """

    def __init__(self, path: str | Path):
        """Load a library; raises HostError when it is none, or was not made for the graph executor."""
        if not Path(path).is_file():
            raise HostError(f"{path}: no such file")
        if Path(path).suffix != ".so":
            raise HostError(f"{path}: a library's name ends with .so; give one made by byoc-accel compile")
        check_library(Path(path))
        try:
            self._library = tvm.runtime.load_module(str(Path(path).resolve()))
            self._module = graph_executor.GraphModule(self._library["default"](tvm.cpu()))
            parameters = set(self._library["get_graph_params"]())
        except (tvm.TVMError, AttributeError, RuntimeError, OSError) as error:
            raise HostError(f"{path}: no library of the graph executor ({_last_line(error)}); make it with "
                            "byoc-accel compile, or relay.build and export_library") from error
        shapes, dtypes = self._module.get_input_info()
        self.inputs = {str(name): TensorInfo(tuple(int(n) for n in shape), str(dtypes[name]))
                       for name, shape in sorted(shapes.items()) if name not in parameters}

    def run(self, sample: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs for one sample, an array of the input's shape for every name in `inputs`; TVM converts other dtypes.

        Raises RunError for names and shapes that do not fit, and when the run fails.
        """
        given = {name: np.shape(array) for name, array in sample.items()}
        expected = {name: info.shape for name, info in self.inputs.items()}
        if given != expected:
            raise RunError(f"the sample holds {_shapes(given)}; give {_shapes(expected)}")
        try:
            for name, array in sample.items():
                self._module.set_input(name, np.ascontiguousarray(array))
            self._module.run()
            return [self._module.get_output(i).numpy() for i in range(self._module.get_num_outputs())]
        except (tvm.TVMError, RuntimeError) as error:
            raise RunError(_last_line(error)) from error

    def stats(self) -> dict[str, Any]:
        """Counters of all regions since the library was loaded; empty for a library without regions."""
        try:
            function = self._library.get_function(STATS_FUNCTION, query_imports=True)
        except AttributeError:
            return {}
        return dict(json.loads(str(function())))


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name!r} {list(shape)}" for name, shape in shapes.items()) or "nothing"


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
