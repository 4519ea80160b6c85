"""Weight streams (payloads and wtabs) of the MLPerf Tiny models: exact bytes, changed on purpose only."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import has_relay

pytestmark = pytest.mark.relay
if not has_relay():
    pytest.skip("TVM with Relay is not installed", allow_module_level=True)

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.compile import compile_region  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from byoc_accel.relay.model_file import import_model  # noqa: E402

# Model: our bytes, and those of Vela 5.2.0 for an Ethos-U55-256.
BYTES = {
    "ad01_int8": (172732, 184464),
    "kws_ref_model": (23368, 24016),
    "pretrainedResnet_quant": (72660, 74576),
    "vww_96_int8": (29084, 47328),
    "str_ww_ref_model": (44216, 47424),
    "pretrainedResnet_large_int8": (386468, 440880),
}


@pytest.mark.parametrize("name", BYTES)
def test_weight_stream(shared: Path, name: str) -> None:
    model = import_model(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    part, report = ba.partition(model.module, model.params, name=name)
    (region,) = report.regions
    imported = import_function(part[region.symbol])
    image = compile_region(imported.region, imported.target, ranges=imported.ranges, scale=imported.scale)
    ours, vela = BYTES[name]
    assert sum(layer.weight_bytes for layer in image.program.layers) == ours < vela
