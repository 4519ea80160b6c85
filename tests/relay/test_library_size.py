"""Bytes of an exported library beside its programs: runtime, simulator, TVM's graph, source map, model record."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.cli.libraries import read_library  # noqa: E402
from byoc_accel.container.dump import find_images  # noqa: E402
from byoc_accel.relay.files.build import build_model  # noqa: E402
from tests.relay.models import build, conv, float_input, int8_input, module, qconv2d, random_inputs  # noqa: E402

FEW, MANY = 4, 44  # layers


def beside(library: Path) -> int:
    data = library.read_bytes()
    return len(data) - sum(len(image.program.code) for _, image in find_images(data))


def float_network(layers: int) -> relay.Expr:
    y: relay.Expr = float_input(1, 4, 6, 6)
    for seed in range(layers):
        y = relay.nn.relu(relay.multiply(conv(y, seed=seed), relay.const(np.float32(0.3))))
    return y


def int8_network(layers: int) -> relay.Expr:
    y: relay.Expr = int8_input(1, 6, 6, 4)
    rng = np.random.default_rng(0)
    for _ in range(layers):
        y = qconv2d(y, 4, (3, 3), rng, in_channels=4, padding=(1, 1), zp=(-5, -5), scales=(0.05, 0.05), clip=(-5, 127))
    return y


@pytest.mark.parametrize("network", [float_network, int8_network])
def test_growth_with_depth(network: Callable[[int], relay.Expr], tmp_path: Path) -> None:
    """A layer adds its record of 40 B and its name, whatever ranges and bias corrections were found for it."""
    sizes = []
    for layers in (FEW, MANY):
        mod = module(network(layers))
        part, report = ba.partition(mod, calibration=[random_inputs(mod)])
        assert len(report.regions) == 1 and all(op.region for op in report.ops)
        library = build(part)
        library.export_library(str(tmp_path / "m.so"))
        assert "range" not in library.get_graph_json()
        sizes.append(beside(tmp_path / "m.so"))
    assert max(sizes) <= 95_000
    # The file grows by whole pages of 4,096 B.
    assert sizes[1] - sizes[0] <= 4096 + 80 * (MANY - FEW)


@pytest.mark.parametrize("name,limit_bytes", [("ad01_int8", 85_000), ("pretrainedResnet_quant", 90_000)])
def test_libraries_of_the_command_line(shared: Path, tmp_path: Path, name: str, limit_bytes: int) -> None:
    """All of it offloaded, and softmax on the host; without the names of functions, with the model's record."""
    out = tmp_path / "m.so"
    build_model(shared / "models" / "mlperf_tiny" / f"{name}.tflite", out=out)
    assert beside(out) <= limit_bytes
    info = read_library(out).info
    assert info is not None and info.macs_offloaded == info.macs > 0
