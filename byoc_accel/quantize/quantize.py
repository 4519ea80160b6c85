"""quantize: Region -> QRegion. Float regions by calibration, quantized regions exactly as TVM lowers them."""
from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace

from ..errors import QuantizeError
from ..region.region import Region
from ..region.text import digest
from ..region.verify import quantized
from . import bias, equalize, report, scales
from .activations import Ranges, measure
from .calibration import CalibrationWarning, DeviceSample, Sample, device_samples, noise_samples
from .checks import require_finite_constants
from .fold import fold
from .lower_float import lower_float
from .lower_int8 import lower_int8
from .methods import DEFAULT, GUESS, Method, parse_ranges
from .qregion import QRegion
from .report import QuantReport

SCALES = ("multiplier", "fixed_point")


def quantize(region: Region, calibration: Iterable[Sample] | None = None, scale: str = "multiplier",
             ranges: Ranges | None = None, method: Method = DEFAULT) -> tuple[QRegion, QuantReport]:
    """The int8 form of a verified `region`, and a report of what it costs.

    A quantized region is converted exactly and uses neither calibration nor ranges. A float region takes its
    activation ranges, factors and bias corrections from `ranges`, else from `calibration` (samples as in
    `collect_ranges`) by `method`, else, with a CalibrationWarning, from seeded noise inputs by GUESS. With
    scale="fixed_point" every scale is a power of two. Layer errors are in the report when there were samples. Raises
    QuantizeError.
    """
    _check_scale(scale)
    require_finite_constants(region)
    if quantized(region):
        qregion = lower_int8(region)
        return qregion, report.unmeasured(qregion, "exact", "model")
    samples = None if calibration is None else device_samples(region, calibration)
    if ranges is not None:
        ranges.check(region)
        folded = fold(region)
        factors = equalize.unpack(folded, ranges.factors)
        qregion = bias.correct(_lower(equalize.apply(folded, factors), ranges, scale), ranges.bias)
        if samples is None:
            return qregion, report.unmeasured(qregion, scale, "ranges")
        return qregion, report.measured(folded, qregion, samples, scale, "calibration", factors)
    if samples is not None:
        return _calibrated(region, samples, scale, method, "calibration")[1:]
    warnings.warn(f"{region.name}: no calibration inputs; activation ranges are guesses from Gaussian noise of mean 0 "
                  "and variance 1, which suits inputs within about -4 to 4 only; give calibration inputs",
                  CalibrationWarning, stacklevel=2)
    return _calibrated(region, noise_samples(region), scale, GUESS, "noise")[1:]


def calibrate_and_quantize(region: Region, calibration: Iterable[Sample], scale: str = "multiplier",
                           method: Method = DEFAULT) -> tuple[Ranges, QRegion, QuantReport]:
    """`quantize` of a float region, and the Ranges with which `quantize` gives the same QRegion without samples.

    Bias corrections belong to `scale`. Raises QuantizeError.
    """
    _check_scale(scale)
    require_finite_constants(region)
    return _calibrated(region, device_samples(region, calibration), scale, method, "calibration")


def _calibrated(region: Region, samples: list[DeviceSample], scale: str, method: Method,
                source: str) -> tuple[Ranges, QRegion, QuantReport]:
    folded = fold(region)
    kind, value = parse_ranges(method.ranges)
    count = value if kind == "extreme" else 2.0  # 2: what the samples reached
    factors = equalize.choose(folded, samples, count) if method.equalize else {}
    scaled = equalize.apply(folded, factors)
    ranges = Ranges(digest(region), measure(scaled, samples, method.ranges), factors=equalize.pack(folded, factors))
    qregion = _lower(scaled, ranges, scale)
    if method.correct_bias:
        ranges = replace(ranges, bias=bias.corrections(scaled, qregion, samples))
        qregion = bias.correct(qregion, ranges.bias)
    return ranges, qregion, report.measured(folded, qregion, samples, scale, source, factors)


def _lower(scaled: Region, ranges: Ranges, scale: str) -> QRegion:
    power_of_two = scale == "fixed_point"
    return lower_float(scaled, scales.choose(scaled, ranges.by_name(scaled), power_of_two), power_of_two)


def _check_scale(scale: str) -> None:
    if scale not in SCALES:
        raise QuantizeError(f"scale {scale!r} is unknown; use one of {', '.join(SCALES)}")
