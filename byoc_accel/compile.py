"""The pipeline as a list of calls, with verify after every stage."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .container.image import Image, pack
from .container.image import verify as verify_image
from .emit.emit import emit
from .emit.program import Layer, Program
from .emit.verify import verify as verify_program
from .quantize.prune import prune
from .quantize.qregion import QConv, QRegion
from .quantize.quantize import QuantReport, Ranges, quantize
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
                   ranges: Ranges | None = None, scale: str = "multiplier", codec: str = "auto") -> Compiled:
    """Compile `region` and keep every stage.

    calibration: samples, each a list of host arrays in port order (float regions); ranges: what
    `collect_ranges` found earlier, instead of calibration. scale: "multiplier" or "fixed_point". codec: "auto", or
    "raw" or "lanes" for all weights. Raises the AccelError of the stage that refuses.
    """
    target = load_target(target)
    qregion, report = quantize_region(region, calibration=calibration, ranges=ranges, scale=scale)
    return compile_qregion(qregion, report, target, codec)


def quantize_region(region: Region, *, calibration: Iterable | None = None, ranges: Ranges | None = None,
                    scale: str = "multiplier") -> tuple[QRegion, QuantReport]:
    """The first stages, which know no target; see `compile_stages`."""
    verify_region(region)
    qregion, report = quantize(region, calibration, scale=scale, ranges=ranges)
    verify_qregion(qregion)
    return qregion, report


def compile_qregion(qregion: QRegion, report: QuantReport, target: Target, codec: str = "auto") -> Compiled:
    """The stages after quantize. Channels that cannot change an output byte are not compiled."""
    pruned = prune(qregion)
    verify_qregion(pruned)
    plan = schedule(pruned, target)
    verify_plan(plan, target)
    program = _count_as_model(emit(plan, target, codec), qregion)
    verify_program(program, target)
    return Compiled(qregion, report, plan, program, pack_program(program, target))


def pack_program(program: Program, target: Target) -> Image:
    """The last stage: the image of a verified program."""
    image = pack(program, target)
    verify_image(image, target)
    return image


def _count_as_model(program: Program, qregion: QRegion) -> Program:
    """The source map counts the model's multiply-accumulates, those of removed channels too."""
    tensors = qregion.by_name()
    macs = {n.name: n.weight.size * tensors[n.y].shape[1] * tensors[n.y].shape[2]
            for n in qregion.nodes if isinstance(n, QConv)}
    def of_layer(layer: Layer) -> int:  # "#" names a batch item, "+" joins the members of a chain
        names = [layer.name] if layer.name in macs else layer.name.split("+")
        known = [macs[name.partition("#")[0]] for name in names if name.partition("#")[0] in macs]
        return sum(known) if known else layer.macs

    return replace(program, layers=tuple(replace(layer, macs=of_layer(layer)) for layer in program.layers))


def compile_region(region: Region, target: Target | str = "reference", *, calibration: Iterable | None = None,
                   ranges: Ranges | None = None, scale: str = "multiplier") -> Image:
    """Image of `region` for `target`; see `compile_stages`."""
    return compile_stages(region, target, calibration=calibration, ranges=ranges, scale=scale).image
