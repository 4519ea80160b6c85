"""Factors and offsets per channel where no convolution stands before them, as in pre-activation residual networks."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import check_region, const, host_ops, module, reason  # noqa: E402

C = 4  # and H and W: a mistaken axis must not show as a wrong shape


def values(*shape: int, seed: int = 0) -> relay.Expr:
    return const(np.random.default_rng(seed).uniform(0.5, 2.0, shape), "float32")


def vector(layout: str, axis: str = "C", seed: int = 0) -> relay.Expr:
    """Positive values that differ along one axis."""
    return values(*(C if a == axis else 1 for a in layout), seed=seed)


def conv(x: relay.Expr, layout: str, seed: int) -> relay.Expr:
    taps = (3,) * (len(layout) - 2)
    weight = np.random.default_rng(seed).normal(size=(C, C, *taps))
    if layout == "NCW":
        return relay.nn.conv1d(x, const(weight, "float32"), channels=C, kernel_size=3, padding=1)
    kernel_layout = "OIHW" if layout == "NCHW" else "HWIO"
    weight = weight if layout == "NCHW" else weight.transpose(2, 3, 1, 0)
    return relay.nn.conv2d(x, const(weight, "float32"), channels=C, kernel_size=(3, 3), padding=(1, 1),
                           data_layout=layout, kernel_layout=kernel_layout)


FORMS = {
    "multiply": lambda x, v: relay.multiply(x, v), "multiply left": lambda x, v: relay.multiply(v, x),
    "divide": lambda x, v: relay.divide(x, v), "add left": lambda x, v: relay.add(v, x),
    "subtract": lambda x, v: relay.subtract(x, v),
    "twice": lambda x, v: relay.add(relay.multiply(relay.subtract(x, v), v), v),
    "relu": lambda x, v: relay.nn.relu(relay.subtract(relay.multiply(x, v), v))}


def residual(x: relay.Expr, layout: str) -> relay.Expr:
    """A sum of two convolutions."""
    return relay.add(conv(x, layout, 1), conv(x, layout, 2))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCW"])
@pytest.mark.parametrize("form", FORMS)
def test_after_an_add(form: str, layout: str) -> None:
    x = relay.var("x", shape=(2,) + (C,) * (len(layout) - 1), dtype="float32")
    imported = check_region(module(FORMS[form](residual(x, layout), vector(layout))))
    assert [n.name for n in imported.region.nodes][-1].startswith("scale_")


def test_batch_norm_of_a_shortcut_that_goes_on() -> None:
    """relay.testing's ResNet: the sum is normalized for the next block and added to its result."""
    x = relay.var("x", shape=(1, C, C, C), dtype="float32")
    total = residual(x, "NCHW")
    norm = relay.nn.batch_norm(total, *(values(C, seed=s) for s in range(4)))[0]
    check_region(module(relay.add(conv(relay.nn.relu(norm), "NCHW", 3), total)))


@pytest.mark.parametrize("axis", ["H", "W", "N"])
def test_along_another_axis_it_stays_on_the_host(axis: str) -> None:
    x = relay.var("x", shape=(C, C, C, C), dtype="float32")
    y = conv(relay.multiply(residual(x, "NCHW"), vector("NCHW", axis)), "NCHW", 3)
    _, report = ba.partition(module(y), calibration=[{"x": np.ones((C, C, C, C), np.float32)}])
    assert host_ops(report) == ["multiply"]


def test_of_a_region_input_it_stays_on_the_host() -> None:
    """It would quantize the input twice."""
    x = relay.var("x", shape=(1, C, C, C), dtype="float32")
    y = conv(relay.multiply(x, vector("NCHW")), "NCHW", 1)
    _, report = ba.partition(module(y), calibration=[{"x": np.ones((1, C, C, C), np.float32)}])
    assert "nothing to compute before it" in reason(report, "multiply")


def test_alone_it_stays_on_the_host() -> None:
    x = relay.var("x", shape=(1, C, C, C), dtype="float32")
    _, report = ba.partition(module(relay.multiply(x, vector("NCHW"))))
    assert not report.regions and "no convolution" in reason(report, "multiply")


def test_its_macs_are_counted_once_per_element() -> None:
    x = relay.var("x", shape=(1, C, C, C), dtype="float32")
    y = relay.add(relay.multiply(residual(x, "NCHW"), vector("NCHW")), vector("NCHW"))
    _, report = ba.partition(module(y), calibration=[{"x": np.ones((1, C, C, C), np.float32)}])
    assert report.macs == report.macs_offloaded == 2 * 9 * C ** 4 + C ** 3
