"""Activation ranges: measured on samples, and kept as `Ranges` that travel with an offloaded function."""
from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import QuantizeError
from ..region.interpret import interpret
from ..region.region import Region
from ..region.text import digest
from .calibration import DeviceSample, Sample, device_samples, stacked
from .checks import require_finite, require_finite_constants
from .extremes import attainable, extreme_range
from .fold import fold
from .histogram import Histogram, mse_range, percentile_range
from .methods import DEFAULT_RANGES, parse_ranges

RANGES_VERSION = 2


@dataclass(frozen=True)
class Ranges:
    """What calibration found: (low, high) of every tensor of the folded region in order, and the digest of the region.

    bias: what `bias.corrections` found, for every channel of every layer with weights, in order and in units of its
    result; empty when biases stay as they are. factors: those of `equalize.choose` for each of `equalize.groups`,
    nothing where a group has none; bounds and bias are those of the region with these factors. Names do not count for
    the digest, only structure and constants.
    """

    digest: str
    bounds: tuple[tuple[float, float], ...]
    bias: tuple[tuple[float, ...], ...] = ()
    factors: tuple[tuple[float, ...], ...] = ()

    def to_json(self) -> str:
        """One line of ASCII; `from_json` gives the same Ranges, bit for bit."""
        return json.dumps({"version": RANGES_VERSION, "region": self.digest, "bounds": self.bounds, "bias": self.bias,
                           "factors": self.factors}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Ranges:
        """Raises QuantizeError when `text` is no Ranges of this version."""
        try:
            data = json.loads(text)
            version, region = int(data["version"]), str(data["region"])
            bounds = tuple((float(low), float(high)) for low, high in data["bounds"])
            bias, factors = (tuple(tuple(float(value) for value in row) for row in data.get(name, ()))
                             for name in ("bias", "factors"))
        except (ValueError, KeyError, TypeError) as error:
            raise QuantizeError(f"ranges: no JSON of activation ranges ({error}); calibrate again") from error
        if version != RANGES_VERSION:
            raise QuantizeError(f"ranges: version {version}, this program reads {RANGES_VERSION}; calibrate again")
        return Ranges(region, bounds, bias, factors)

    def check(self, region: Region) -> None:
        """Raise QuantizeError when they were measured on another region than `region`."""
        if self.digest != digest(region):
            raise QuantizeError(f"{region.name}: ranges belong to region {self.digest}, this is {digest(region)}; "
                                "calibrate again after changing the model")

    def by_name(self, folded: Region) -> dict[str, tuple[float, float]]:
        """Bounds by tensor name of the folded region; raises QuantizeError when they do not fit."""
        if len(self.bounds) != len(folded.tensors):
            raise QuantizeError(f"{folded.name}: {len(self.bounds)} ranges for {len(folded.tensors)} tensors; "
                                "calibrate again after changing the model")
        for tensor, (low, high) in zip(folded.tensors, self.bounds):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise QuantizeError(f"{folded.name}: tensor {tensor.name!r}: range {low} to {high} is none; "
                                    "calibrate again")
        return {t.name: bounds for t, bounds in zip(folded.tensors, self.bounds)}


def collect_ranges(region: Region, calibration: Iterable[Sample], method: str = DEFAULT_RANGES) -> Ranges:
    """Run the float `region`, folded, on calibration samples (see `device_samples`): the range of every tensor.

    method: "minmax"; "extreme:M" (what about one of M samples leaves, estimated from the samples' extremes);
    "percentile:P" (P percent of a tensor's values lie inside, the rest half below and half above); "mse" (least
    expected squared error of 8 bits). Raises QuantizeError for an empty set, a wrong shape, values that are not
    finite, and an unknown method.
    """
    require_finite_constants(region)
    return Ranges(digest(region), measure(fold(region), device_samples(region, calibration), method))


def measure(region: Region, samples: Sequence[DeviceSample],
            method: str = DEFAULT_RANGES) -> tuple[tuple[float, float], ...]:
    """(low, high) of every tensor of the float `region` in order, for samples in device layout.

    Runs in float64 and rounds the bounds to float32, so that the summation order of one BLAS or another, or its
    number of threads, does not change a scale.
    """
    kind, value = parse_ranges(method)
    extremes = _extremes(region, samples)
    bounds = {name: (float(e[:, 0].min()), float(e[:, 1].max())) for name, e in extremes.items()}
    if kind == "extreme":
        bounds = _extrapolated(region, extremes, value)
    elif kind != "minmax":
        bounds = _refine(region, samples, bounds, value if kind == "percentile" else None)
    return tuple(bounds[t.name] for t in region.tensors)


def _extremes(region: Region, samples: Sequence[DeviceSample]) -> dict[str, np.ndarray]:
    """float64 (N, 2) by tensor: minimum and maximum of every sample, rounded to float32."""
    found: dict[str, list[np.ndarray]] = {}
    for first, batch in stacked(region, samples):
        for name, values in interpret(region, batch, np.float64).items():
            flat = values.reshape(len(values), -1)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                part = np.stack([flat.min(1), flat.max(1)], 1).astype(np.float32)
                width = part.max() - part.min()
            if not np.isfinite(width):
                where = f"{region.name}: {_producer(region, name)}, samples from {first}: activation"
                with np.errstate(over="ignore"):
                    require_finite(where, values.astype(np.float32))
            found.setdefault(name, []).append(part.astype(np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _extrapolated(region: Region, extremes: dict[str, np.ndarray], count: float) -> dict[str, tuple[float, float]]:
    """`extreme_range` of every tensor, inside of what its node can give, rounded to float32."""
    limits = {node.y: attainable(node) for node in region.nodes}
    bounds = {}
    for name, found in extremes.items():
        low, high = map(float, extreme_range(found[:, 0], found[:, 1], count))
        least, most = limits.get(name, (-math.inf, math.inf))
        bounds[name] = float(np.float32(max(low, least))), float(np.float32(min(high, most)))
    return bounds


def _producer(region: Region, tensor: str) -> str:
    for node in region.nodes:
        if node.y == tensor:
            return f"{type(node).__name__.lower()} {node.name!r}"
    return f"input {tensor!r}"


def _refine(region: Region, samples: Sequence[DeviceSample], bounds: dict[str, tuple[float, float]],
            percent: float | None) -> dict[str, tuple[float, float]]:
    """Second pass: histograms inside the measured bounds, then the tighter range of each tensor."""
    histograms = {name: Histogram.empty(*bound) for name, bound in bounds.items()}
    for _, batch in stacked(region, samples):
        for name, values in interpret(region, batch, np.float64).items():
            histograms[name] = histograms[name].add(values)
    return {name: mse_range(h) if percent is None else percentile_range(h, percent)
            for name, h in histograms.items()}
