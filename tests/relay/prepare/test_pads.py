"""Padding with the lowest value before a max pool, as the ONNX importer writes auto_pad: padding of the pool."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import check_region, module, random_inputs, run  # noqa: E402


def padded_pool(dtype: str, value: float, layout: str = "NCHW") -> tvm.IRModule:
    shape = (1, 6, 6, 6)
    widths = {"N": (0, 0), "C": (0, 0), "H": (0, 1), "W": (2, 1)}
    y = relay.nn.pad(relay.var("x", shape=shape, dtype=dtype), [widths[axis] for axis in layout], value)
    return module(relay.nn.max_pool2d(y, (3, 3), (2, 1), padding=(1, 0), layout=layout))


@pytest.mark.parametrize("dtype, value", [("float32", float(np.finfo(np.float32).min)), ("int8", -128)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_lowest_values(dtype: str, value: float, layout: str) -> None:
    """As values they took the whole int8 range: a scale of 1e36."""
    region = check_region(padded_pool(dtype, value, layout)).region
    assert [type(node).__name__ for node in region.nodes] == ["Pool"] and region.nodes[0].padding == (1, 2, 2, 1)


def test_other_values_stay_values() -> None:
    mod = padded_pool("float32", 1.5)
    inputs = random_inputs(mod)
    part, _ = ba.partition(mod, calibration=[inputs])
    expected = run(mod, inputs)[0]
    assert np.abs(run(part, inputs)[0] - expected).max() <= 0.02 * np.abs(expected).max()
