"""The TVM host on this machine: its target string, and running a module on arrays."""
from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from ..errors import HostError

#: Never plain "llvm": in hhb-tvm that generates RISC-V vector code.
TARGET = f"llvm -mtriple={platform.machine()}-linux-gnu"


def run(function: relay.Function, module: tvm.IRModule,
        samples: Iterable[Mapping[str, np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """Outputs of `function` (which may call functions of `module`) for every sample. Raises HostError."""
    whole = tvm.IRModule(module.functions, module.type_definitions)
    whole["main"] = function
    try:
        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(relay.transform.InferType()(whole), target=TARGET)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    except tvm.TVMError as error:
        raise HostError(f"TVM cannot build the model for calibration: {str(error).strip().splitlines()[-1]}") from error
    for sample in samples:
        executor.set_input(**sample)
        executor.run()
        yield [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
