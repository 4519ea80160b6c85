"""The report: every op has a region or a reason; numbers add up; text and JSON say the same."""
from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.modelinfo import pack, unpack  # noqa: E402
from tests.relay.models import const, external_functions, module, random_inputs  # noqa: E402


def model() -> object:
    """conv -> softmax -> conv -> transposed conv: two regions, two host ops."""
    rng = np.random.default_rng(0)
    w = [const(rng.normal(size=s), "float32") for s in ((4, 3, 3, 3), (5, 4, 1, 1), (5, 2, 3, 3))]
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
    y = relay.nn.relu(relay.nn.conv2d(x, w[0], channels=4, kernel_size=(3, 3), strides=(2, 2)))
    y = relay.nn.conv2d(relay.nn.softmax(y, axis=1), w[1], channels=5, kernel_size=(1, 1))
    return module(relay.nn.conv2d_transpose(y, w[2], channels=2, kernel_size=(3, 3)))


def test_every_op_has_a_region_or_a_reason() -> None:
    mod = model()
    part, report = ba.partition(mod, calibration=[random_inputs(mod)], name="net")
    assert [row.op for row in report.ops] == ["nn.conv2d", "nn.relu", "nn.softmax", "nn.conv2d", "nn.conv2d_transpose"]
    assert all(bool(row.region) != bool(row.reason) for row in report.ops)
    assert len({row.name for row in report.ops}) == 5
    assert [r.symbol for r in report.regions] == list(external_functions(part))


def test_macs_by_hand() -> None:
    """3x3 kernel on 3x3 positions, 1x1 on 3x3, and a transposed 3x3 on 3x3 operand positions."""
    _, report = ba.partition(model(), calibration=[random_inputs(model())])
    counts = [row.macs for row in report.ops]
    assert counts == [9 * 3 * 4 * 9, 0, 0, 4 * 5 * 9, 9 * 5 * 2 * 9]
    assert report.macs == sum(counts) and report.macs_offloaded == sum(r.macs for r in report.regions)
    assert report.macs_offloaded == counts[0] + counts[3] + (counts[4] if report.ops[4].region else 0)


def test_quantization_of_every_float_layer() -> None:
    mod = model()
    _, report = ba.partition(mod, calibration=[random_inputs(mod, seed) for seed in range(3)])
    assert [q.region for q in report.quantization] == [r.name for r in report.regions]
    for q in report.quantization:
        assert q.source == "calibration" and q.samples == 3 and all(layer.sqnr_db > 20 for layer in q.layers)


def test_noise_is_named_as_the_source() -> None:
    with pytest.warns(UserWarning, match="guesses from noise"):
        _, report = ba.partition(model())
    assert {q.source for q in report.quantization} == {"noise"}


def test_text_and_json() -> None:
    mod = model()
    _, report = ba.partition(mod, calibration=[random_inputs(mod)], name="net")
    text, data = report.to_text(), json.loads(report.to_json())
    assert text.startswith("net: 2 regions") and "host: the accelerator has no nn.softmax" in text
    assert [op["op"] for op in data["ops"]] == [row.op for row in report.ops]
    assert data["macs"] == report.macs and len(data["quantization"]) == 2
    assert ba.partition(mod, calibration=[random_inputs(mod)], name="net")[1].to_text() == text


def test_record_for_the_library() -> None:
    _, report = ba.partition(model(), calibration=[random_inputs(model())], name="net")
    info = report.model_info()
    assert (info.model, info.host, info.macs, info.ops) == ("net", "relay", report.macs, report.ops)
    assert unpack(pack(info)) == info
