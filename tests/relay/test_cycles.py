"""Cost model and simulator on the MLPerf Tiny models: every layer alone, whole networks, every layer inside them."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from byoc_accel.quantize.prune import prune
from byoc_accel.quantize.qregion import QRegion
from byoc_accel.quantize.quantize import quantize
from byoc_accel.schedule.plan import step_inputs
from byoc_accel.schedule.schedule import schedule
from byoc_accel.schedule.steps import make_steps
from tests import qregions as q
from tests.timing.test_timeline import LAYER_CYCLES, PART, REFERENCE, WIDTHS, check, compare_plan

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from byoc_accel.relay import partition  # noqa: E402
from byoc_accel.relay.files.model_file import import_model  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402


def layers(region: QRegion) -> Iterator[QRegion]:
    """One region for each step, of its nodes alone."""
    steps = make_steps(region)
    for step in steps.steps:
        nodes = [node for part in ("conv", "pool", "add", "table") if (node := getattr(step, part, None)) is not None]
        inputs = list(dict.fromkeys(step_inputs(step)))
        names = dict.fromkeys([*inputs, *(node.y for node in nodes)])
        yield q.region(step.name, [steps.tensors[name] for name in names], nodes, inputs, [step.y])


@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8",
                                  "str_ww_ref_model", "pretrainedResnet_large_int8"])
def test_cost_model_agrees_with_the_simulator(shared: Path, name: str) -> None:
    model = import_model(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    module, _ = partition(model.module, model.params, name=name)
    function, = [f for f in module.functions.values() if f.attrs and "Compiler" in f.attrs.keys()]
    imported = import_function(function)
    region = prune(quantize(imported.region, None, scale=imported.scale, ranges=imported.ranges)[0])
    for layer in layers(region):
        check(layer)
    for width in WIDTHS:
        target = replace(REFERENCE, fetch_bytes_per_cycle=width)
        estimates, cycles = compare_plan(schedule(region, target), target)
        assert abs(sum(estimates) - sum(cycles)) <= PART * sum(cycles), (width, sum(estimates), sum(cycles))
        for step, estimate, real in zip(make_steps(region).steps, estimates, cycles):
            assert abs(estimate - real) <= max(PART * real, LAYER_CYCLES), (width, step.name, estimate, real)
