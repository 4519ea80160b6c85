"""The pipeline as a list of calls, with verify after every stage."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .container.image import Image, pack
from .container.image import verify as verify_image
from .emit.emit import emit
from .emit.program import Program
from .emit.verify import verify as verify_program
from .quantize.qregion import QRegion
from .quantize.quantize import Ranges, QuantReport, quantize
from .quantize.verify import verify as verify_qregion
from .region.region import Region
from .region.verify import verify as verify_region
from .schedule.plan import Plan
from .schedule.schedule import schedule
from .schedule.verify import verify as verify_plan
from .target import Target, load_target


@dataclass(frozen=True)
class Compiled:
    """Every stage of one compiled region, for reports and tests."""

    qregion: QRegion
    report: QuantReport
    plan: Plan
    program: Program
    image: Image


def compile_stages(region: Region, target: Target | str, *, calibration: Iterable | None = None,
                   ranges: Ranges | None = None, scale: str = "multiplier") -> Compiled:
    """Compile `region` and keep every stage.

    calibration: samples, each a list of host arrays in port order (float regions); ranges: what
    `collect_ranges` found earlier, instead of calibration. scale: "multiplier" or "fixed_point". Raises the
    AccelError of the stage that refuses.
    """
    target = load_target(target)
    verify_region(region)
    qregion, report = quantize(region, calibration, scale=scale, ranges=ranges)
    verify_qregion(qregion)
    return compile_qregion(qregion, report, target)


def compile_qregion(qregion: QRegion, report: QuantReport, target: Target) -> Compiled:
    """The stages after quantize."""
    plan = schedule(qregion, target)
    verify_plan(plan, target)
    program = emit(plan, target)
    verify_program(program, target)
    image = pack(program, target)
    verify_image(image, target)
    return Compiled(qregion, report, plan, program, image)


def compile_region(region: Region, target: Target | str = "reference", *, calibration: Iterable | None = None,
                   ranges: Ranges | None = None, scale: str = "multiplier") -> Image:
    """Image of `region` for `target`; see `compile_stages`."""
    return compile_stages(region, target, calibration=calibration, ranges=ranges, scale=scale).image
