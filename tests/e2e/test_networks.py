"""Networks of ImageNet's shape, smaller: every layer's simulated bytes are those of the quantized region's meaning.

benchmarks/imagenet.py does the same at full size.
"""
from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

sys.path.insert(0, str(ROOT / "benchmarks"))

import _networks as networks  # noqa: E402
from _layers import different_layers, different_outputs, random_input  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.compile import quantize_region  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from tests.relay.models import external_functions, host_ops  # noqa: E402

#: Case -> network and what may stay on the host: relay.testing normalizes its input and ends in a softmax.
CASES: dict[str, tuple[Callable[[], networks.Network], set[str]]] = {
    "mobilenet_v1": (lambda: networks.mobilenet_v1(64), {"nn.softmax"}),
    "mobilenet_v2": (lambda: networks.mobilenet_v2(networks.Float(), 64, 0.5), set()),
    "mobilenet_v2_int8": (lambda: networks.mobilenet_v2(networks.Int8(), 96, 0.25), set()),
    "resnet18": (lambda: networks.resnet(18, 64), {"multiply", "add", "nn.softmax"}),
    "resnet50_int8": (lambda: networks.resnet_v1(networks.Int8(), 50, 96, 16), set())}


@pytest.mark.parametrize("case", CASES)
def test_every_layer_is_exact(case: str) -> None:
    make, on_host = CASES[case]
    network = make()
    calibration = [network.sample()] if network.dtype == "float32" else None
    module, report = ba.partition(network.module, network.params, calibration=calibration)
    assert set(host_ops(report)) == on_host
    (function,) = external_functions(module).values()
    imported = import_function(function)
    qregion, _ = quantize_region(imported.region, ranges=imported.ranges)
    inputs = random_input(qregion)
    assert different_layers(qregion, imported.target, inputs) == []
    assert different_outputs(qregion, imported.target, inputs) == []


def test_tensors_larger_than_the_sram_are_exact() -> None:
    """The first layers of ResNet-50 at 224 x 224: stem, pooling and one bottleneck, 401,408 to 802,816 bytes each."""
    layers = networks.Int8()
    data = layers.input(224)
    x = layers.max_pool(layers.conv(data, 32, 7, 2))
    y = layers.conv(layers.conv(layers.conv(x, 32, 1), 32, 3), 128, 1, relu=False, gain=0.5)
    x = layers.add(y, layers.conv(x, 128, 1, relu=False), relu=True)
    network = networks.network("stem", layers, data, x.expr)
    module, _ = ba.partition(network.module)
    (function,) = external_functions(module).values()
    imported = import_function(function)
    qregion, _ = quantize_region(imported.region)
    assert different_layers(qregion, imported.target, random_input(qregion)) == []
