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
from .checks import require_finite
from .histogram import Histogram, mse_range, percentile_range

RANGES_VERSION = 1
METHODS = "minmax, percentile:P (0 < P <= 100), mse"


@dataclass(frozen=True)
class Ranges:
    """(low, high) of every tensor in the order of `region.tensors`, and the digest of that region.

    Names do not count for the digest, only structure and constants.
    """

    digest: str
    bounds: tuple[tuple[float, float], ...]

    def to_json(self) -> str:
        """One line of ASCII; `from_json` gives the same Ranges, bit for bit."""
        return json.dumps({"version": RANGES_VERSION, "region": self.digest, "bounds": self.bounds},
                          separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Ranges:
        """Raises QuantizeError when `text` is no Ranges of this version."""
        try:
            data = json.loads(text)
            version, region = int(data["version"]), str(data["region"])
            bounds = tuple((float(low), float(high)) for low, high in data["bounds"])
        except (ValueError, KeyError, TypeError) as error:
            raise QuantizeError(f"ranges: no JSON of activation ranges ({error}); calibrate again") from error
        if version != RANGES_VERSION:
            raise QuantizeError(f"ranges: version {version}, this program reads {RANGES_VERSION}; calibrate again")
        return Ranges(region, bounds)

    def by_name(self, region: Region) -> dict[str, tuple[float, float]]:
        """Bounds by tensor name; raises QuantizeError when they were measured on another region."""
        if self.digest != digest(region) or len(self.bounds) != len(region.tensors):
            raise QuantizeError(f"{region.name}: ranges belong to region {self.digest}, this is {digest(region)}; "
                                "calibrate again after changing the model")
        for tensor, (low, high) in zip(region.tensors, self.bounds):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise QuantizeError(f"{region.name}: tensor {tensor.name!r}: range {low} to {high} is none; "
                                    "calibrate again")
        return {t.name: bounds for t, bounds in zip(region.tensors, self.bounds)}


def collect_ranges(region: Region, calibration: Iterable[Sample], method: str = "minmax") -> Ranges:
    """Run the float `region` on calibration samples (see `device_samples`) and return every tensor's range.

    method: "minmax", "percentile:P" (P percent of a tensor's values lie inside, the rest half below and half
    above) or "mse" (least expected squared error of 8 bits). Raises QuantizeError for an empty set, a wrong
    shape, values that are not finite, and an unknown method.
    """
    return measure(region, device_samples(region, calibration), method)


def measure(region: Region, samples: Sequence[DeviceSample], method: str = "minmax") -> Ranges:
    """`collect_ranges` for samples in device layout.

    Runs in float64 and rounds the bounds to float32, so that the summation order of one BLAS or another, or its
    number of threads, does not change a scale.
    """
    percent = _parse_method(method)
    bounds: dict[str, tuple[float, float]] = {}
    for first, batch in stacked(region, samples):
        for name, values in interpret(region, batch, np.float64).items():
            with np.errstate(over="ignore", under="ignore"):
                low, high = float(np.float32(values.min())), float(np.float32(values.max()))
            if not math.isfinite(high - low):
                where = f"{region.name}: {_producer(region, name)}, samples from {first}: activation"
                with np.errstate(over="ignore"):
                    require_finite(where, values.astype(np.float32))
            known = bounds.get(name, (low, high))
            bounds[name] = min(known[0], low), max(known[1], high)
    if method != "minmax":
        bounds = _refine(region, samples, bounds, percent)
    return Ranges(digest(region), tuple(bounds[t.name] for t in region.tensors))


def _parse_method(method: str) -> float | None:
    """The P of "percentile:P", None for the other methods."""
    if method in ("minmax", "mse"):
        return None
    name, _, value = method.partition(":")
    try:
        percent = float(value)
    except ValueError:
        percent = math.nan
    if name != "percentile" or not 0.0 < percent <= 100.0:
        raise QuantizeError(f"range method {method!r} is unknown; use one of {METHODS}")
    return percent


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
