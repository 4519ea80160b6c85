"""Programs that partition made serve the build after it, and no other region (B04)."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel import compile as pipeline  # noqa: E402
from byoc_accel.quantize.qregion import QConv  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from byoc_accel.relay.programs import Programs  # noqa: E402
from tests.relay.models import external_functions, module, qconv2d  # noqa: E402


def network(seed: int = 0, stride: int = 1) -> relay.Function:
    """The external function of one quantized convolution."""
    x = relay.var("x", shape=(1, 6, 6, 6), dtype="int8")
    y = qconv2d(x, 6, (3, 3), np.random.default_rng(seed), in_channels=6, strides=(stride, stride))
    return next(iter(external_functions(ba.partition(module(y))[0]).values()))


def test_a_region_is_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image is the one that a compilation from nothing gives."""
    made = []
    monkeypatch.setattr(pipeline, "schedule", lambda *args, real=pipeline.schedule: made.append(1) or real(*args))
    function = network()
    assert len(made) == 1
    image = hook.compile_function(function)[1]
    assert len(made) == 1
    imported = import_function(function)
    assert image == pipeline.compile_region(imported.region, imported.target).data
    assert image == hook.compile_function(function)[1]  # taken already, so compiled anew
    assert len(made) == 3


def compiled(seed: int = 0, stride: int = 1) -> pipeline.Compiled:
    imported = import_function(network(seed, stride))
    return pipeline.compile_stages(imported.region, imported.target)


def changed(result: pipeline.Compiled, **changes: object) -> object:
    """The quantized region with other fields in its convolution."""
    nodes = tuple(replace(n, **changes) if isinstance(n, QConv) else n for n in result.qregion.nodes)
    return replace(result.qregion, nodes=nodes)


def test_only_an_equal_region_gets_a_program() -> None:
    programs = Programs()
    target = pipeline.load_target("reference")
    result = compiled()
    programs.keep(result.qregion, target, result.program)
    (conv,) = (n for n in result.qregion.nodes if isinstance(n, QConv))
    weight = conv.weight.copy()
    weight[1, 2, 0, 3] ^= 1
    for other in (changed(result, weight=weight), changed(result, clamp=(conv.clamp[0], conv.clamp[1] - 1)),
                  changed(result, bias=conv.bias.astype(np.int64)), compiled(seed=1).qregion,
                  compiled(stride=2).qregion):
        assert programs.take(other, target) is None
    assert programs.take(result.qregion, pipeline.load_target("tiny")) is None
    renamed = programs.take(replace(result.qregion, name="another"), target)
    assert renamed == replace(result.program, name="another")
    assert programs.take(result.qregion, target) is None


def test_the_oldest_programs_are_forgotten() -> None:
    target = pipeline.load_target("reference")
    results = [compiled(seed) for seed in range(3)]
    parameter_bytes = 6 * 6 * 9 + 6 * (4 + 8 + 8)  # weights; bias, multiplier and shift of 6 channels
    programs = Programs(2 * (max(len(r.program.code) for r in results) + parameter_bytes))
    for result in results:
        programs.keep(result.qregion, target, result.program)
    assert [programs.take(r.qregion, target) is not None for r in results] == [False, True, True]
