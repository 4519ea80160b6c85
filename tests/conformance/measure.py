"""What the node tests give: on TVM's host alone, and after partitioning.

Many modules are built as one, because a build costs more than a layer.
"""
from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

import byoc_accel.relay as ba
from byoc_accel.quantize.calibration import CalibrationWarning
from byoc_accel.relay.files.onnx_graph import importable
from byoc_accel.relay.host import TARGET
from byoc_accel.relay.report import PartitionReport

from .nodes import Case, cases, with_constants
from .qdq import quantized

HOST_RTOL, HOST_ATOL = 1e-3, 1e-6  # of the ONNX backend tests
STEPS = 2  # int8 steps of the expected result that an offloaded float layer may be off
BATCH = 24
VIEWS = ("qnn.quantize", "qnn.dequantize", "reshape", "nn.batch_flatten", "squeeze", "expand_dims", "transpose",
         "cast", "copy")
Outputs = Sequence[np.ndarray]


@dataclass(frozen=True)
class Row:
    """One test. host: it imports, builds and matches without us. regions: how many programs it became.

    steps: largest error of an offloaded float result, in int8 steps of the expected one. reason: why its op stays on
    the host. equal: whether every byte is the host's. None where a figure has no meaning.
    """

    name: str
    op: str
    host: bool
    regions: int = 0
    steps: float | None = None
    reason: str = ""
    equal: bool | None = None

    @property
    def passes(self) -> bool:
        """Whether what passes on the host passes after partitioning."""
        return bool(self.equal) or (self.steps is not None and self.steps <= STEPS)


def measure(variable: bool = False) -> list[Row]:
    """Every test with its weights as constants, or (`variable`) those with several inputs as they are."""
    logging.getLogger("te_compiler").setLevel(logging.ERROR)
    found = [c for c in cases() if len(c.inputs) > 1] if variable else [with_constants(c) for c in cases()]
    modules = {c.name: imported(c) for c in found}
    known = {c.name: m for c, m in ((c, modules[c.name]) for c in found) if m is not None}
    results = run_all(known, {c.name: c.inputs for c in found})
    passing = {c.name for c in found if c.name in results and _matches(results[c.name], c.outputs)}
    return _after_partition(found, {n: known[n] for n in known if n in passing}, results)


def measure_int8() -> list[Row]:
    """Every test that `quantized` has a form of; `host` says that TVM's own FakeQuantizationToInteger and build take
    it. What is offloaded of these must give the same bytes."""
    logging.getLogger("te_compiler").setLevel(logging.ERROR)
    found = [q for q in map(quantized, cases()) if q is not None]
    inputs = {c.name: c.inputs for c in found}
    modules = {c.name: m for c in found if (m := imported(c)) is not None}
    host = run_all({n: i for n, m in modules.items() if (i := _integer(m)) is not None}, inputs)
    parts = {n: ba.partition(modules[n], name=n) for n in host}
    results = run_all({n: module for n, (module, report) in parts.items() if report.regions}, inputs)
    return [_int8_row(c, parts[c.name][1], host[c.name], results.get(c.name)) if c.name in host
            else Row(c.name, c.op, False) for c in found]


def _integer(module: tvm.IRModule) -> tvm.IRModule | None:
    """TVM's own integer graph; None when its pass fails."""
    try:
        folded = relay.transform.FoldConstant()(module)
        return relay.transform.InferType()(relay.transform.FakeQuantizationToInteger()(folded))
    except Exception:
        return None


def _int8_row(case: Case, report: PartitionReport, host: Outputs, found: Outputs | None) -> Row:
    if not report.regions:
        return Row(case.name, case.op, True, reason=_reason(report), equal=True)
    equal = found is not None and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, host))
    return Row(case.name, case.op, True, len(report.regions), equal=equal)


def _after_partition(found: Sequence[Case], modules: Mapping[str, tvm.IRModule],
                     results: Mapping[str, Outputs]) -> list[Row]:
    parts: dict[str, tuple[tvm.IRModule, PartitionReport]] = {}
    for case in found:
        if case.name in modules:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                parts[case.name] = ba.partition(modules[case.name], calibration=[case.inputs], name=case.name)
    offloaded = run_all({n: m for n, (m, report) in parts.items() if report.regions}, {c.name: c.inputs for c in found})
    return [_row(c, parts[c.name][1], results[c.name], offloaded.get(c.name)) if c.name in parts
            else Row(c.name, c.op, False) for c in found]


def _row(case: Case, report: PartitionReport, host: Outputs, found: Outputs | None) -> Row:
    if not report.regions:
        return Row(case.name, case.op, True, reason=_reason(report), equal=True)  # nothing but host ops is left
    if found is None:
        return Row(case.name, case.op, True, len(report.regions), steps=float("inf"), equal=False)
    equal = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, host))
    integer = all(region.mode == "exact" for region in report.quantization)
    steps = None if integer else max(_steps(a, b) for a, b in zip(found, case.outputs))
    return Row(case.name, case.op, True, len(report.regions), steps, equal=equal)


def _reason(report: PartitionReport) -> str:
    left = [r for r in report.ops if not r.region]
    named = [r.reason for r in left if r.op not in VIEWS] or [r.reason for r in left]
    return named[0] if named else "nothing is left of it at run time"


def _steps(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest error in 1/255 of the range of the expected values: a step of an int8 tensor that holds them."""
    low, high = min(0.0, float(expected.min())), max(0.0, float(expected.max()))
    return float(np.abs(found.astype(np.float64) - expected).max()) / ((high - low) / 255 or 1.0)


def imported(case: Case) -> tvm.IRModule | None:
    """The test's module; None when TVM cannot import it, in whatever way the importer fails."""
    shapes = {name: a.shape for name, a in case.inputs.items()}
    try:
        model = importable(case.model, shapes, case.name)
        module, params = relay.frontend.from_onnx(model, shapes, freeze_params=True)
        return relay.transform.InferType()(relay.transform.DynamicToStatic()(module)) if not params else None
    except Exception:
        return None


def _matches(found: Outputs, expected: Outputs) -> bool:
    return len(found) >= len(expected) and all(
        a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, HOST_RTOL, HOST_ATOL, equal_nan=True)
        for a, b in zip(found, expected))


def run_all(modules: Mapping[str, tvm.IRModule], inputs: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Outputs]:
    """Outputs by name; a module that TVM cannot build or run is not in the result."""
    names = list(modules)
    out: dict[str, Outputs] = {}
    for first in range(0, len(names), BATCH):
        out.update(_run_batch(names[first:first + BATCH], modules, inputs))
    return out


def _run_batch(names: Sequence[str], modules: Mapping[str, tvm.IRModule],
               inputs: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Outputs]:
    try:
        whole, counts = _joined(names, modules)
        with tvm.transform.PassContext(opt_level=2):
            library = relay.build(whole, target=TARGET)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.set_input(**{f"{n}__{i}": a for n in names for i, a in zip(_inputs(modules[n]), inputs[n].values())})
        executor.run()
    except Exception:
        half = len(names) // 2
        return {} if not half else {**_run_batch(names[:half], modules, inputs),
                                    **_run_batch(names[half:], modules, inputs)}
    outputs = iter([executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
    return {name: [next(outputs) for _ in range(counts[name])] for name in names}


def _inputs(module: tvm.IRModule) -> list[str]:
    return [v.name_hint for v in module["main"].params]


def _joined(names: Sequence[str], modules: Mapping[str, tvm.IRModule]) -> tuple[tvm.IRModule, dict[str, int]]:
    """One module that computes all of them, and the number of outputs of each."""
    whole, params, outputs, counts = tvm.IRModule(), [], [], {}
    for name in names:
        main = modules[name]["main"]
        mine = [relay.Var(f"{name}__{v.name_hint}", v.checked_type) for v in main.params]
        body = relay.bind(main.body, dict(zip(main.params, mine)))
        kind = main.body.checked_type
        fields = [relay.TupleGetItem(body, i) for i in range(len(kind.fields))] if isinstance(
            kind, relay.TupleType) else [body]
        params += mine
        outputs += fields
        counts[name] = len(fields)
        for variable, function in modules[name].functions.items():
            if variable.name_hint != "main":
                whole[variable] = function
    whole["main"] = relay.Function(params, relay.Tuple(outputs))
    return relay.transform.InferType()(whole), counts
