"""partition: a Relay module in, the same module out with its accelerator regions as external functions."""
from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relay

from ..errors import ModelError
from ..quantize.calibration import CalibrationWarning
from ..quantize.methods import DEFAULT_RANGES, Method
from ..region.text import digest
from ..target import Target, load_target
from .options import Options, attach, to_attrs
from .prepare.preprocess import is_plain, prepare
from .regions.functions import call_regions, external
from .regions.rows import op_rows
from .regions.search import CompiledRegion, Found, find_regions
from .report import PartitionReport, RegionRow

SYMBOL_LIMIT = 80


@dataclass(frozen=True)
class _Named:
    """A region with its symbol and the options that its function will carry."""

    region: CompiledRegion
    symbol: str
    options: Options


def partition(mod: tvm.IRModule, params: Mapping[str, object] | None = None, *, target: str | Target = "reference",
              calibration: Iterable[Mapping[str, np.ndarray]] | None = None, scale: str = "multiplier",
              rounding: str = "tvm", ranges: str = DEFAULT_RANGES, correct_bias: bool = True,
              equalize: bool = False, name: str = "model") -> tuple[tvm.IRModule, PartitionReport]:
    """Move everything that `target` can compute into external functions; build the result with relay.build.

    params: values of main's parameters, bound as constants. calibration: dicts of model inputs in the host's
    layout, for float models; without it activation ranges come from noise, with a CalibrationWarning. scale:
    "multiplier" or "fixed_point". rounding: "tvm" for TVM's own results of quantized ops, "tflite" for those of
    TFLite's reference kernels. ranges, correct_bias and equalize: how float models are calibrated, a method of
    quantize.activations.collect_ranges, quantize.bias and quantize.equalize (docs/accuracy.md has what each gains).
    name: of the model, part of every symbol. A module without anything to offload comes back as it is, with its
    parameters bound; so does one that was partitioned already.

    Layers between dequantize and quantize (ONNX QDQ) become integer layers through FakeQuantizationToInteger, uint8
    becomes int8 (docs/numerics.md).

    Raises ModelError (no usable module, parameters or name), TargetError, QuantizeError (weights or calibration inputs
    that are not finite, calibration inputs that do not fit the model), HostError.
    """
    if not isinstance(name, str):
        raise ModelError(f"name is {name!r}; give the model's name as text")
    options = Options(load_target(target), scale, rounding, method=Method(ranges, correct_bias, equalize))
    module = prepare(mod, params)
    roots = sorted(var.name_hint for var, function in module.functions.items() if is_plain(function))
    found = [find_regions(module, root, options, calibration if root == "main" else None) for root in roots]
    if any(f.guessed for f in found):
        warnings.warn("no calibration inputs; activation ranges are guesses from noise of mean 0 and variance 1 at "
                      "the model's inputs; give calibration inputs", CalibrationWarning, stacklevel=2)
    taken = {var.name_hint for var in module.get_global_vars()}
    named = _named(name, found, options, taken)
    return _rewrite(module, found, named), _report(name, found, named)


def _named(model: str, found: Sequence[Found], options: Options, taken: set[str]) -> list[list[_Named]]:
    """Symbols of all regions: model name, number, and 64 bits of SHA-256 over region, options and model name.

    The name inside the image has no number: equal regions have equal images.
    """
    number = iter(range(sum(len(f.regions) for f in found)))
    return [[_name(model, next(number), region, options, taken) for region in f.regions] for f in found]


def _name(model: str, number: int, region: CompiledRegion, options: Options, taken: set[str]) -> _Named:
    content = replace(options, ranges=region.ranges)
    text = "\n".join([digest(region.built.region), *to_attrs(content).values()])
    symbol = make_symbol(model, number, _hex64(f"{model}\n{text}"))
    while symbol in taken:  # the module was partitioned under this name before, and changed since
        number += len(taken)
        symbol = make_symbol(model, number, symbol[-16:])
    return _Named(region, symbol, replace(content, region_name=f"region_{_hex64(text)}"))


def _hex64(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_symbol(model: str, number: int, digest16: str) -> str:
    """A C identifier of at most SYMBOL_LIMIT characters that carries the model's name."""
    suffix = f"_{number}_{digest16}"
    word = re.sub(r"[^A-Za-z0-9_]", "_", model)
    return f"wia_{word}"[:SYMBOL_LIMIT - len(suffix)] + suffix


def _rewrite(module: tvm.IRModule, found: Sequence[Found], named: Sequence[Sequence[_Named]]) -> tvm.IRModule:
    """`module` with calls of external functions in place of the regions."""
    result = tvm.IRModule(module.functions, module.type_definitions, attrs=module.attrs)
    for root, regions in zip(found, named):
        callees = [relay.GlobalVar(n.symbol) for n in regions]
        for callee, n in zip(callees, regions):
            result[callee] = attach(external(n.region.draft, n.symbol), n.options)
        if regions:
            groups = [n.region.draft.group for n in regions]
            result[root.name] = call_regions(root.function, root.graph, groups, callees)
    return relay.transform.InferType()(result)


def _report(model: str, found: Sequence[Found], named: Sequence[Sequence[_Named]]) -> PartitionReport:
    rows = []
    for root, regions in zip(found, named):
        owner = {i: n.symbol for n in regions for i in _nodes(n)}
        scales = {f.match.anchor for n in regions for f in n.region.draft.group.layers if f.is_scale}
        rows += op_rows(root.graph, owner, root.reasons, scales)
    everything = [n for regions in named for n in regions]
    macs = {n.symbol: sum(row.macs for row in rows if row.region == n.symbol) for n in everything}
    return PartitionReport(
        model, tuple(rows),
        tuple(RegionRow(n.symbol, n.options.region_name, len(list(_nodes(n))), len(n.region.draft.group.inputs),
                        len(n.region.draft.group.outputs), macs[n.symbol]) for n in everything),
        sum(row.macs for row in rows), sum(row.macs for row in rows if row.region),
        tuple(replace(n.region.report, region=n.options.region_name) for n in everything))


def _nodes(named: _Named) -> Iterator[int]:
    return (i for layer in named.region.draft.group.layers for i in layer.match.nodes)
