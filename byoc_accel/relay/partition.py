"""partition: a Relay module in, the same module out with its accelerator regions as external functions."""
from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relay

from ..compile import compile_qregion
from ..errors import EncodeError, ProgramError, QuantizeError, ScheduleError
from ..quantize.activations import Ranges, collect_ranges
from ..quantize.calibration import CalibrationWarning
from ..quantize.checks import require_finite_constants
from ..quantize.qregion import QRegion
from ..quantize.quantize import quantize
from ..quantize.report import QuantReport
from ..quantize.verify import verify as verify_qregion
from ..region.text import digest
from ..region.verify import quantized
from ..region.verify import verify as verify_region
from ..support.build import Built, Conflict, ConflictError
from ..target import Target, load_target
from . import calibrate
from .constants import ConstantEvaluator
from .functions import Draft, call_regions, draft_functions, external
from .graph import Graph, build_graph
from .importer import import_body
from .layers import Layers, find_layers
from .options import Options, to_attrs
from .preprocess import is_plain, prepare
from .regions import group_layers
from .report import PartitionReport, RegionRow
from .rows import op_rows, source_name

SYMBOL_LIMIT = 80
DOES_NOT_FIT = (ScheduleError, EncodeError, ProgramError)


@dataclass(frozen=True)
class _Region:
    """A draft that compiles. ranges: None for a region that was int8 already."""

    draft: Draft
    built: Built
    ranges: Ranges | None
    report: QuantReport


def partition(mod: tvm.IRModule, params: Mapping[str, object] | None = None, *, target: str | Target = "reference",
              calibration: Iterable[Mapping[str, np.ndarray]] | None = None, scale: str = "multiplier",
              rounding: str = "tvm", name: str = "model") -> tuple[tvm.IRModule, PartitionReport]:
    """Move everything that `target` can compute into external functions; build the result with relay.build.

    params: values of main's parameters, bound as constants. calibration: dicts of model inputs in the host's
    layout, for float models; without it activation ranges come from noise, with a CalibrationWarning. scale:
    "multiplier" or "fixed_point". rounding: "tvm" for TVM's own results of quantized ops, "tflite" for those of
    TFLite's reference kernels. name: of the model, part of every symbol. A module without anything to offload
    comes back as it is, with its parameters bound; so does one that was partitioned already.

    Raises ModelError (no usable module), TargetError, QuantizeError (weights or calibration inputs that are not
    finite, calibration inputs that do not fit the model), HostError.
    """
    options = Options(load_target(target), scale, rounding)
    module = prepare(mod, params)
    roots = sorted((v for v, f in module.functions.items() if is_plain(f)), key=lambda v: v.name_hint)
    work = [_Root(module, var.name_hint, options, calibration if var.name_hint == "main" else None)
            for var in roots]
    regions = [r for root in work for r in root.regions]
    symbols = _symbols(name, regions, options, {v.name_hint for v in module.get_global_vars()})
    result = tvm.IRModule(module.functions, module.type_definitions, attrs=module.attrs)
    first = 0
    for root in work:
        mine = slice(first, first + len(root.regions))
        first += len(root.regions)
        callees = [relay.GlobalVar(symbol) for symbol, _ in symbols[mine]]
        for region, callee, (symbol, region_options) in zip(root.regions, callees, symbols[mine]):
            result[callee] = external(region.draft, symbol, to_attrs(region_options))
        if root.regions:
            groups = [r.draft.group for r in root.regions]
            result[root.name] = call_regions(root.function, root.graph, groups, callees)
    return relay.transform.InferType()(result), _report(name, work, symbols)


class _Root:
    """One function of the module and its regions."""

    def __init__(self, module: tvm.IRModule, name: str, options: Options,
                 calibration: Iterable[Mapping[str, np.ndarray]] | None):
        self.module, self.name, self.options = module, name, options
        self.function = module[name]
        self.graph: Graph = build_graph(self.function)
        self.samples = None if calibration is None else calibrate.check_samples(self.function, calibration)
        self.guessed = False
        evaluate = ConstantEvaluator()
        refused: dict[int, str] = {}
        cuts: set[tuple[int, int]] = set()
        while True:
            before = len(refused) + len(cuts)
            self.layers: Layers = find_layers(self.graph, evaluate, options.target, refused)
            groups, self.dropped = group_layers(self.layers, cuts)
            drafts = draft_functions(self.graph, groups, evaluate)
            self.regions = self._compile(self._build(drafts, refused, cuts), refused)
            if len(refused) + len(cuts) == before:
                break
        if self.guessed:
            warnings.warn("no calibration inputs; activation ranges are guesses from noise of mean 0 and variance 1 "
                          "at the model's inputs; give calibration inputs", CalibrationWarning, stacklevel=3)

    def _build(self, drafts: list[Draft], refused: dict[int, str],
               cuts: set[tuple[int, int]]) -> list[tuple[Draft, Built]]:
        """Drafts that are single regions; for the others, `refused` or `cuts` get an entry."""
        out = []
        for draft in drafts:
            try:
                out.append((draft, import_body(draft.function, self.options)))
            except ConflictError as error:
                for conflict in error.conflicts:
                    self._resolve(draft, conflict, refused, cuts)
        return out

    def _resolve(self, draft: Draft, conflict: Conflict, refused: dict[int, str], cuts: set[tuple[int, int]]) -> None:
        reader, value = draft.origin[int(conflict.reader)], draft.origin[int(conflict.value)]
        layer = next(f for f in draft.group.layers if f.result == reader)
        results = {f.result for f in draft.group.layers} - {reader}
        apart = {value} & results or results & set(layer.operands)  # an input's readers disagree: a region of its own
        if apart:
            cuts.update((u, reader) for u in apart)
        else:
            refused[layer.match.anchor] = f"it does not fit its neighbours: {conflict.reason}"

    def _compile(self, candidates: list[tuple[Draft, Built]], refused: dict[int, str]) -> list[_Region]:
        """Regions that the target can run; `refused` gets the layers that it cannot."""
        floats = [draft.group for draft, built in candidates if not quantized(built.region)]
        samples = iter(self._float_samples(floats) if floats else [])
        out = []
        for draft, built in candidates:
            verify_region(built.region)
            inputs = None if quantized(built.region) else next(samples)
            ranges, qregion, report = self._quantize(draft, built, inputs)
            try:
                compile_qregion(qregion, report, self.options.target)
            except DOES_NOT_FIT as error:
                layer = _named_layer(draft, built, str(error))
                refused[layer] = str(error)
                continue
            if self.guessed and inputs is not None:
                report = replace(report, source="noise")
            out.append(_Region(draft, built, ranges, report))
        return out

    def _quantize(self, draft: Draft, built: Built, inputs: list[list[np.ndarray]] | None,
                  ) -> tuple[Ranges | None, QRegion, QuantReport]:
        try:
            require_finite_constants(built.region)
            ranges = None if inputs is None else collect_ranges(built.region, inputs)
            qregion, report = quantize(built.region, inputs, scale=self.options.scale, ranges=ranges)
        except QuantizeError as error:
            node = self.graph.nodes[_named_layer(draft, built, str(error))]
            text = str(error).removeprefix(f"{QuantizeError.stage}: ")
            raise QuantizeError(f"{text} (the layer of {node.op} {source_name(node.expr)})") from error
        verify_qregion(qregion)
        return ranges, qregion, report

    def _float_samples(self, groups: list) -> list[list[list[np.ndarray]]]:
        if self.samples is None:
            self.samples, self.guessed = calibrate.noise(self.function), True
        return calibrate.region_samples(self.module, self.function, self.graph, groups, self.samples)


def _named_layer(draft: Draft, built: Built, message: str) -> int:
    """The anchor of the layer that an error names, else the first anchor of the region."""
    match = re.search(r"'([^'@#]+)", message)
    origin = built.layers.get(match.group(1)) if match else None
    result = None if origin is None else draft.origin[int(origin)]
    anchors = [f for f in draft.group.layers if f.is_anchor]
    return next((f.match.anchor for f in draft.group.layers if f.result == result), anchors[0].match.anchor)


def _symbols(model: str, regions: list[_Region], options: Options, used: set[str]) -> list[tuple[str, Options]]:
    """Symbol and full options of every region: model name, region number and 64 bits of SHA-256."""
    out = []
    for index, region in enumerate(regions):
        content = replace(options, ranges=region.ranges)
        text = "\n".join([digest(region.built.region), *to_attrs(content).values()])
        identity = hashlib.sha256(text.encode()).hexdigest()[:16]
        symbol = make_symbol(model, index, hashlib.sha256(f"{model}\n{text}".encode()).hexdigest()[:16])
        if symbol in used:  # a module that was partitioned under this name before, and changed since
            symbol = make_symbol(model, index + len(used), symbol[-16:])
        out.append((symbol, replace(content, region_name=f"region_{identity}")))
    return out


def make_symbol(model: str, index: int, digest16: str) -> str:
    """A C identifier of at most 80 characters that carries the model's name."""
    suffix = f"_{index}_{digest16}"
    word = re.sub(r"[^A-Za-z0-9_]", "_", model)
    return f"wia_{word}"[:SYMBOL_LIMIT - len(suffix)] + suffix


def _report(model: str, work: list[_Root], symbols: list[tuple[str, Options]]) -> PartitionReport:
    rows, regions, quantization = [], [], []
    first = 0
    for root in work:
        mine = symbols[first:first + len(root.regions)]
        first += len(root.regions)
        owner = {i: symbol for region, (symbol, _) in zip(root.regions, mine)
                 for f in region.draft.group.layers for i in f.match.nodes}
        root_rows = op_rows(root.graph, owner, {**root.layers.reasons, **_dropped_nodes(root)})
        rows += root_rows
        for region, (symbol, options) in zip(root.regions, mine):
            group, macs = region.draft.group, sum(r.macs for r in root_rows if r.region == symbol)
            regions.append(RegionRow(symbol, options.region_name, sum(len(f.match.nodes) for f in group.layers),
                                     len(group.inputs), len(group.outputs), macs))
            quantization.append(replace(region.report, region=options.region_name))
    return PartitionReport(model, tuple(rows), tuple(regions), sum(r.macs for r in rows),
                           sum(r.macs for r in rows if r.region), tuple(quantization))


def _dropped_nodes(root: _Root) -> dict[int, str]:
    layers = {f.result: f for f in root.layers.found}
    return {i: reason for result, reason in root.dropped.items() for i in layers[result].match.nodes}


