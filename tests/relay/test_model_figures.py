"""Cycles, program bytes and weight-stream bytes of whole models at 8 B/cycle: exact, changed on purpose only.

After a change that is meant to move them, run with --update-golden and say in docs/performance.md what moved.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.compile import compile_region  # noqa: E402
from byoc_accel.demo.data import load_digits  # noqa: E402
from byoc_accel.demo.driver import CALIBRATION_IMAGES  # noqa: E402
from byoc_accel.demo.network import MODEL_FILE  # noqa: E402
from byoc_accel.relay.files.model_file import ImportedModel, import_model  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from byoc_accel.report import report_image  # noqa: E402

# Vela 5.2.0's weight bytes for an Ethos-U55-256, and the least of the formats that were computed for the same weights.
VELA_AND_BEST_BYTES = {
    "ad01_int8": (184464, 182349),
    "kws_ref_model": (24016, 22501),
    "pretrainedResnet_quant": (74576, 74349),
    "vww_96_int8": (47328, 47300),
    "str_ww_ref_model": (47424, 46404),
    "pretrainedResnet_large_int8": (440880, 412219),
}


def figures(model: ImportedModel, **options: object) -> tuple[int, int, int]:
    """Cycles, program bytes and weight-stream bytes of all regions for the reference target."""
    part, report = ba.partition(model.module, model.params, name=model.name, **options)
    total = [0, 0, 0]
    for region in report.regions:
        imported = import_function(part[region.symbol])
        image = compile_region(imported.region, imported.target, ranges=imported.ranges, scale=imported.scale)
        result = report_image(image)
        total[0] += result.cycles
        total[1] += result.program_bytes
        total[2] += sum(layer.weight_bytes for layer in image.program.layers)
    return total[0], total[1], total[2]


def text(cycles: int, program_bytes: int, weight_bytes: int) -> str:
    return f"{cycles} cycles\n{program_bytes} program bytes\n{weight_bytes} bytes of conv, dwc and wtab\n"


def test_demo(golden: Callable[[str, str], None]) -> None:
    training, _ = load_digits()
    calibration = [{"image": image[None]} for image in training.x[:CALIBRATION_IMAGES]]
    golden("figures/demo", text(*figures(import_model(MODEL_FILE), calibration=calibration)))


@pytest.mark.parametrize("name", VELA_AND_BEST_BYTES)
def test_model(golden: Callable[[str, str], None], shared: Path, name: str) -> None:
    found = figures(import_model(shared / "models" / "mlperf_tiny" / f"{name}.tflite"))
    vela, best = VELA_AND_BEST_BYTES[name]
    assert found[2] < best < vela
    golden(f"figures/{name}", text(*found))
