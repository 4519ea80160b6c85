"""quantize: Region -> QRegion. Float regions by calibration, quantized regions exactly as TVM lowers them."""
from __future__ import annotations

import warnings
from collections.abc import Iterable

from ..errors import QuantizeError
from ..region.region import Region
from ..region.verify import quantized
from . import report, scales
from .activations import Ranges, measure
from .calibration import CalibrationWarning, DeviceSample, Sample, device_samples, noise_samples
from .checks import require_finite_constants
from .fold import fold
from .lower_float import lower_float
from .lower_int8 import lower_int8
from .qregion import QRegion
from .report import QuantReport

SCALES = ("multiplier", "fixed_point")


def quantize(region: Region, calibration: Iterable[Sample] | None = None, scale: str = "multiplier",
             ranges: Ranges | None = None, method: str = "minmax") -> tuple[QRegion, QuantReport]:
    """The int8 form of a verified `region`, and a report of what it costs.

    A quantized region is converted exactly and uses neither calibration nor ranges. A float region takes its
    activation ranges from `ranges`, else from `calibration` (samples and method as in `collect_ranges`), else,
    with a CalibrationWarning, from seeded noise inputs. With scale="fixed_point" every scale is a power of two.
    Layer errors are in the report when there were samples. Raises QuantizeError.
    """
    if scale not in SCALES:
        raise QuantizeError(f"scale {scale!r} is unknown; use one of {', '.join(SCALES)}")
    require_finite_constants(region)
    if quantized(region):
        qregion = lower_int8(region)
        return qregion, report.unmeasured(qregion, "exact", "model")
    samples, source = _samples(region, calibration, ranges)
    if ranges is None:
        ranges = measure(region, samples, method)
    folded = fold(region)
    power_of_two = scale == "fixed_point"
    parameters = scales.choose(folded, ranges.by_name(region), power_of_two)
    qregion = lower_float(folded, parameters, power_of_two)
    if not samples:
        return qregion, report.unmeasured(qregion, scale, source)
    return qregion, report.measured(folded, qregion, samples, scale, source)


def _samples(region: Region, calibration: Iterable[Sample] | None,
             ranges: Ranges | None) -> tuple[list[DeviceSample], str]:
    """Samples to measure on, and where they come from."""
    if calibration is not None:
        return device_samples(region, calibration), "calibration"
    if ranges is not None:
        return [], "ranges"
    warnings.warn(f"{region.name}: no calibration inputs; activation ranges are guesses from Gaussian noise of mean 0 "
                  "and variance 1, which suits inputs within about -4 to 4 only; give calibration inputs",
                  CalibrationWarning, stacklevel=3)
    return noise_samples(region), "noise"
