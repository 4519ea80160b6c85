"""One function of a module -> its regions: match, group, import, compile, and again without what did not work."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relay

from ...compile import compile_qregion
from ...errors import EncodeError, ProgramError, QuantizeError, ScheduleError
from ...quantize.activations import Ranges
from ...quantize.checks import require_finite_constants
from ...quantize.fold import fold
from ...quantize.methods import GUESS, Method
from ...quantize.qregion import QAdd, QConv, QConvTranspose, QPool, QRegion, alone
from ...quantize.quantize import calibrate_and_quantize, quantize
from ...quantize.report import QuantReport
from ...quantize.scales import coarser_steps
from ...quantize.verify import verify as verify_qregion
from ...region.region import Concat
from ...region.verify import quantized
from ...region.verify import verify as verify_region
from ...schedule.schedule import schedule
from ...support.build import Built, Conflict, ConflictError
from ...support.ops import unsupported
from ...target import Target
from ..importer import import_body
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph, build_graph
from ..match.layers import Layer, find_layers
from ..options import Options
from ..programs import PROGRAMS
from . import calibrate
from .functions import Draft, draft_functions
from .groups import group_layers
from .rows import source_name

DOES_NOT_FIT = (ScheduleError, EncodeError, ProgramError)


@dataclass(frozen=True)
class CompiledRegion:
    """A draft that compiles. ranges: None for a region that was int8 already."""

    draft: Draft
    built: Built
    ranges: Ranges | None
    report: QuantReport


@dataclass(frozen=True)
class Found:
    """The regions of function `name`, a reason for every node that stays on the host, and whether activation
    ranges were guessed."""

    name: str
    function: relay.Function
    graph: Graph
    regions: tuple[CompiledRegion, ...]
    reasons: Mapping[int, str]
    guessed: bool


@dataclass
class _Refusals:
    """What is known not to work: anchors with the reason, and pairs (value, result of its reader) to keep apart, with
    the last reason by reader."""

    anchors: dict[int, str]
    cuts: set[tuple[int, int]]
    apart: dict[int, str]

    def __len__(self) -> int:
        return len(self.anchors) + len(self.cuts)


def find_regions(module: tvm.IRModule, name: str, options: Options,
                 calibration: Iterable[Mapping[str, np.ndarray]] | None) -> Found:
    """Regions of function `name` of a prepared module.

    Every round that refuses a layer or keeps two apart is followed by another, so the last one has only regions
    that compile. Raises QuantizeError and HostError.
    """
    function = module[name]
    graph, evaluate = build_graph(function), ConstantEvaluator()
    samples = _Samples(module, function, graph, calibration)
    refusals = _Refusals({}, set(), {})
    while True:
        before = len(refusals)
        layers = find_layers(graph, evaluate, options.target, refusals.anchors)
        groups, dropped = group_layers(layers, refusals.cuts)
        built = _build(draft_functions(graph, groups, evaluate), options, refusals)
        if len(refusals) > before:
            continue  # grouping changes, so that calibration would be for nothing
        regions = _compile(built, options, samples, refusals)
        if len(refusals) == before:
            break
    by_result = {f.result: f for f in layers.found}
    lonely = {i: _lonely(reason, refusals.apart.get(result)) for result, reason in dropped.items()
              for i in by_result[result].match.nodes}
    return Found(name, function, graph, tuple(regions), {**layers.reasons, **lonely}, samples.guessed)


def _lonely(reason: str, apart: str | None) -> str:
    """Why a layer without a region stays on the host; `apart` is why it was cut off from its neighbours."""
    return reason if apart is None else f"it does not fit its neighbours ({apart}), and {reason}"


class _Samples:
    """Calibration inputs, checked at once; noise instead of them, drawn when the first float region needs it."""

    def __init__(self, module: tvm.IRModule, function: relay.Function, graph: Graph,
                 calibration: Iterable[Mapping[str, np.ndarray]] | None):
        self.module, self.function, self.graph = module, function, graph
        self.given = None if calibration is None else calibrate.check_samples(function, calibration)
        self.guessed = False

    def trace(self) -> calibrate.Trace:
        if self.given is None:
            self.given, self.guessed = calibrate.noise(self.function), True
        return calibrate.Trace(self.module, self.graph, self.given)


def _build(drafts: Sequence[Draft], options: Options, refusals: _Refusals) -> list[tuple[Draft, Built]]:
    """Drafts that are single regions; `refusals` gets an entry for the others."""
    out = []
    for draft in drafts:
        try:
            out.append((draft, import_body(draft.function, options)))
        except ConflictError as error:
            first = {(c.reader, c.value): c for c in reversed(error.conflicts)}
            for conflict in first.values():
                _keep_apart(draft, conflict, refusals)
    return out


def _keep_apart(draft: Draft, conflict: Conflict, refusals: _Refusals) -> None:
    reader, value = draft.origin[int(conflict.reader)], draft.origin[int(conflict.value)]
    layer = next(f for f in draft.group.layers if reader in f.match.nodes)
    others = {f.result for f in draft.group.layers} - {layer.result}
    apart = {value} & others or others & set(layer.operands)  # an input's readers disagree: a region of its own
    cuts = {(u, layer.result) for u in apart} - refusals.cuts
    if cuts:
        refusals.cuts.update(cuts)
        refusals.apart[layer.result] = conflict.reason
    else:
        refusals.anchors[layer.match.anchor] = f"it does not fit its neighbours: {conflict.reason}"


def _compile(built: Sequence[tuple[Draft, Built]], options: Options, samples: _Samples,
             refusals: _Refusals) -> list[CompiledRegion]:
    """Regions that the target can run; `refusals` gets the layers that it cannot."""
    last_float = max((i for i, (_, each) in enumerate(built) if not quantized(each.region)), default=-1)
    trace = samples.trace() if last_float >= 0 else None
    out = []
    for index, (draft, each) in enumerate(built):
        verify_region(each.region)
        integer = quantized(each.region)
        needed = trace is not None and (not integer or index < last_float)
        inputs = trace.inputs(draft.group) if needed else []
        ranges, qregion, report = _quantize(draft, each, None if integer else inputs, options.scale,
                                            GUESS if samples.guessed else options.method, samples.graph)
        if ranges is not None and (refused := _unlike_concats(draft, each, ranges, options.target)):
            refusals.anchors.update(refused)
        if index < last_float:
            trace.record(draft.group, calibrate.integer_outputs(qregion, inputs) if integer
                         else calibrate.float_outputs(each.region, inputs))
        try:
            PROGRAMS.keep(qregion, options.target, compile_qregion(qregion, report, options.target).program)
        except DOES_NOT_FIT as error:
            found = [str(error), *_too_large(qregion, options.target)]
            refusals.anchors.update({_named_anchor(draft, each, text): text for text in found})
            continue
        if samples.guessed and not integer:
            report = replace(report, source="noise")
        out.append(CompiledRegion(draft, each, ranges, report))
    return out


def _unlike_concats(draft: Draft, built: Built, ranges: Ranges, target: Target) -> dict[int, str]:
    """Anchors of concatenations at the end of a float region that cost precision, and the rule that they break."""
    outputs = {port.tensor for port in built.region.outputs}
    if not any(isinstance(node, Concat) and node.y in outputs for node in built.region.nodes):
        return {}  # folding takes time
    folded = fold(built.region)
    refused = {}
    for name, coarser in coarser_steps(folded, ranges.by_name(folded)).items():
        layer = _layer(draft, built, name)
        reason = unsupported(replace(layer.candidate, coarser=coarser), target)
        if reason is not None:
            refused[layer.match.anchor] = reason
    return refused


def _too_large(qregion: QRegion, target: Target) -> Iterator[str]:
    """Why layers do not fit even alone, so that one round finds them all."""
    for node in qregion.nodes:
        if not isinstance(node, (QConv, QConvTranspose, QPool, QAdd)):
            continue
        try:
            schedule(alone(qregion, node), target)
        except DOES_NOT_FIT as error:
            yield str(error)


def _quantize(draft: Draft, built: Built, inputs: list[list[np.ndarray]] | None, scale: str,
              method: Method, graph: Graph) -> tuple[Ranges | None, QRegion, QuantReport]:
    """Quantize one region on the host arrays of its inputs (None for one that is int8 already).

    An error names the op of the model.
    """
    try:
        require_finite_constants(built.region)
        if inputs is None:
            ranges, (qregion, report) = None, quantize(built.region)
        else:
            ranges, qregion, report = calibrate_and_quantize(built.region, inputs, scale, method)
    except QuantizeError as error:
        node = graph.nodes[_named_anchor(draft, built, str(error))]
        text = str(error).removeprefix(f"{QuantizeError.stage}: ")
        raise QuantizeError(f"{text} (the layer of {' '.join([node.op, source_name(node.expr)]).strip()})") from error
    verify_qregion(qregion)
    return ranges, qregion, report


def _named_anchor(draft: Draft, built: Built, message: str) -> int:
    """The anchor of the layer that an error names, else the first layer that is more than a view."""
    match = re.search(r"'([^'@#]+)", message)
    named = _layer(draft, built, match.group(1)) if match else None
    return (named or next(f for f in draft.group.layers if f.is_anchor)).match.anchor


def _layer(draft: Draft, built: Built, node: str) -> Layer | None:
    """The layer that the region's node of this name came from."""
    origin = built.layers.get(node)
    result = None if origin is None else draft.origin[int(origin)]
    return next((f for f in draft.group.layers if f.result == result), None)
