"""QuantReport: scale, zero point and signal-to-noise ratio of every layer, as text and JSON."""
from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..region.interpret import interpret as interpret_region
from ..region.region import Region
from . import fixedpoint
from .calibration import DeviceSample, stacked
from .equalize import Factors
from .interpret import interpret
from .qregion import QRegion

REPORT_SAMPLES = 16  # calibration samples that layer errors are measured on


@dataclass(frozen=True)
class LayerError:
    """One layer's result. sqnr_db compares with the float layer (same inputs of the region): decibels,
    infinite when equal, None when not measured. saturated is the share of values at -128 or 127."""

    name: str
    kind: str
    tensor: str
    scale: float
    zero_point: int
    sqnr_db: float | None
    saturated: float | None


@dataclass(frozen=True)
class QuantReport:
    """mode: "multiplier", "fixed_point" or "exact" (the region was int8 already). source: what ranges and errors
    come from, "calibration", "noise", "ranges" (measured earlier; no errors) or "model"."""

    region: str
    mode: str
    source: str
    samples: int
    layers: tuple[LayerError, ...]

    def to_text(self) -> str:
        """A table, one line per layer."""
        lines = [f"quantization of {self.region}: {self.mode}, ranges from {self.source}, "
                 f"errors on {self.samples} samples",
                 f"  {'layer':<32} {'kind':<8} {'scale':>12} {'zero':>5} {'SQNR dB':>8} {'at limits':>9}"]
        for layer in self.layers:
            sqnr = "-" if layer.sqnr_db is None else f"{layer.sqnr_db:.1f}"
            saturated = "-" if layer.saturated is None else f"{100 * layer.saturated:.2f}%"
            lines.append(f"  {layer.name:<32} {layer.kind:<8} {layer.scale:>12.6g} {layer.zero_point:>5} {sqnr:>8} "
                         f"{saturated:>9}")
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """Infinite ratios are written as the strings "inf" and "-inf"."""
        data = asdict(self)
        for layer in data["layers"]:
            if layer["sqnr_db"] is not None and math.isinf(layer["sqnr_db"]):
                layer["sqnr_db"] = str(layer["sqnr_db"])
        return json.dumps(data, indent=1)


def unmeasured(qregion: QRegion, mode: str, source: str) -> QuantReport:
    """A report without errors."""
    tensors = qregion.by_name()
    layers = tuple(LayerError(n.name, type(n).__name__[1:].lower(), n.y, tensors[n.y].scale, tensors[n.y].zero_point,
                              None, None) for n in qregion.nodes)
    return QuantReport(qregion.name, mode, source, 0, layers)


def measured(region: Region, qregion: QRegion, samples: Sequence[DeviceSample], mode: str, source: str,
             factors: Factors) -> QuantReport:
    """Compare every layer of `qregion` with the float `region` it was made from, on the first samples.

    factors: of `equalize`, which the tensors of `qregion` have and those of `region` do not.
    """
    samples = samples[:REPORT_SAMPLES]
    tensors = qregion.by_name()
    sums = {node.y: np.zeros(4) for node in qregion.nodes}  # signal, noise, values at the limits, values
    for _, batch in stacked(region, samples):
        reference = interpret_region(region, batch)
        quantized = [fixedpoint.quantize_real(batch[p.tensor], tensors[p.tensor].scale, tensors[p.tensor].zero_point)
                     for p in qregion.inputs]
        values = interpret(qregion, quantized)
        for name, total in sums.items():
            real = reference[name].astype(np.float64)
            found = tensors[name].scale * (values[name].astype(np.float64) - tensors[name].zero_point)
            noise = real - found / factors.get(name, 1.0)
            limits = np.count_nonzero((values[name] == -128) | (values[name] == 127))
            with np.errstate(under="ignore"):
                total += np.square(real).sum(), np.square(noise).sum(), limits, real.size
    layers = tuple(LayerError(n.name, type(n).__name__[1:].lower(), n.y, tensors[n.y].scale, tensors[n.y].zero_point,
                              _decibels(sums[n.y][0], sums[n.y][1]), float(sums[n.y][2] / sums[n.y][3]))
                   for n in qregion.nodes)
    return QuantReport(qregion.name, mode, source, len(samples), layers)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf
