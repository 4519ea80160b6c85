"""A model file in, a library out: what byoc-accel compile and explain do."""
from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from ...errors import HostError
from ...modelinfo import ModelInfo, pack
from ...quantize.calibration import CalibrationWarning
from ...quantize.methods import DEFAULT_RANGES
from ...samples import split
from ...target import Target, load_target
from .. import host
from ..codegen.compiler import first_error
from ..partition import partition
from ..report import PartitionReport
from .model_file import ImportedModel, import_model

#: No names of internal functions, no empty space up to the next page between code and data: 10 KB of every library.
LINK_OPTIONS = ["-Wl,--strip-all", "-Wl,-z,noseparate-code"]


def build_model(path: str | Path, *, target: str | Target = "reference",
                calibration: Mapping[str, np.ndarray] | None = None, scale: str = "multiplier",
                rounding: str = "tvm", ranges: str = DEFAULT_RANGES, correct_bias: bool = True,
                equalize: bool = False, shapes: Mapping[str, tuple[int, ...]] | None = None, out: str | Path,
                progress: Callable[[str], None] = lambda text: None) -> PartitionReport:
    """Compile the model in `path` (.onnx, .tflite) into the library `out` (.so), with a model record at its end.

    calibration: arrays by input name, each of the input's shape or with one more leading axis for the samples.
    shapes: sizes of inputs by name, where the file leaves them open. The other options are those of `partition`.
    progress is told what is being done. Raises the AccelError of the stage that refuses; `out` may then exist
    half-written, so give a temporary name.
    """
    target = load_target(target)
    progress(f"importing {Path(path).name}")
    model = import_model(path, shapes)
    samples = None if calibration is None else split(calibration, model.inputs, "calibration").inputs
    progress("partitioning and compiling regions")
    module, report = partition(model.module, model.params, target=target, calibration=samples, scale=scale,
                               rounding=rounding, ranges=ranges, correct_bias=correct_bias, equalize=equalize,
                               name=model.name)
    progress("building the rest with TVM")
    try:
        with _quiet(), tvm.transform.PassContext(opt_level=3):
            library = relay.build(module, target=host.TARGET)
        progress("linking")
        library.export_library(str(out), options=LINK_OPTIONS)
    except (tvm.TVMError, RuntimeError, OSError) as error:
        raise HostError(f"{model.name}: TVM cannot build or link the partitioned model: {_reason(error)}") from error
    with Path(out).open("ab") as file:
        file.write(pack(model_record(report)))
    return report


def explain_model(path: str | Path, *, target: str | Target = "reference",
                  shapes: Mapping[str, tuple[int, ...]] | None = None) -> PartitionReport:
    """What `build_model` would offload, without building. Ranges are guessed: they do not decide that."""
    model: ImportedModel = import_model(path, shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return partition(model.module, model.params, target=target, name=model.name)[1]


def model_record(report: PartitionReport) -> ModelInfo:
    """The record that a library carries, with the image that each region runs."""
    return replace(report.model_info(), regions=tuple((region.symbol, region.name) for region in report.regions))


def _reason(error: Exception) -> str:
    """The linker's words, or else the last line, in which TVM says what its traceback is about."""
    if "Command line:" in str(error):
        return first_error(str(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without TVM's advice to tune the host's operators."""
    loggers = [logging.getLogger(name) for name in ("te_compiler", "autotvm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
