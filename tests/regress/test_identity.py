"""Public bug reports about function identity, names and constants (B01, B06, S1, S7); the seed problems themselves are
in tests/relay/test_seed_problems.py."""
from __future__ import annotations

import re

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.container.image import unpack  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from tests.relay.models import (  # noqa: E402
    compare,
    const,
    external_functions,
    module,
    qconv2d,
    qdense,
    random_inputs,
    run,
)


def dense_512(x: relay.Expr, seed: int) -> relay.Expr:
    """float -> int8 dense + bias -> float sigmoid, reversed so that it stays on the host."""
    q = relay.qnn.op.quantize(x, const(1 / 256, "float32"), const(-128, "int32"), out_dtype="int8")
    y = qdense(q, 512, np.random.default_rng(seed), in_units=512, zp=(-128, 7), scales=(1 / 256, 0.06))
    real = relay.qnn.op.dequantize(y, const(0.06, "float32"), const(7, "int32"))
    return relay.sigmoid(relay.reverse(real, axis=1))


@pytest.mark.case("B01")
def test_three_dense_layers_of_512_and_one_that_repeats_the_first() -> None:
    """dense 512 -> 512 + bias + sigmoid, weight sets 0, 1, 2, 0: three programs, and every byte is TVM's."""
    y: relay.Expr = relay.sigmoid(relay.var("x", shape=(1, 512), dtype="float32"))  # all four regions begin alike
    for seed in (0, 1, 2, 0):
        y = dense_512(y, seed)
    mod = module(y)
    part, report = ba.partition(mod)
    names = [region.name for region in report.regions]
    assert len(names) == 4 and len(set(names)) == 3 and names[0] == names[3]
    assert len({region.symbol for region in report.regions}) == 4
    inputs = random_inputs(mod)
    for a, b in zip(run(part, inputs), run(mod, inputs)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.case("B06")
@pytest.mark.case("S1")
def test_layer_names_are_no_identity() -> None:
    """Names that sanitize alike, that are no C, and one name for two layers of one shape: the report keeps them as
    they are, symbols are C, and every layer keeps its own weights."""
    names = ["a/b", "a_b", "a b", "a:b", "größe", "n" * 300, "int", "same", "same"]
    y: relay.Expr = relay.var("x", shape=(1, 8), dtype="int8")
    for seed, name in enumerate(names):
        layer = qdense(y, 8, np.random.default_rng(seed), in_units=8, zp=(7, 7), scales=(0.06, 0.06))
        y = relay.reverse(named(layer, name), axis=1)
    mod = module(y)
    part, report = ba.partition(mod)
    assert [row.name for row in report.ops if row.op == "qnn.requantize"] == names
    symbols = list(external_functions(part))
    assert len(set(symbols)) == len(names) == len({region.name for region in report.regions})
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,79}", s) and len(s.rsplit("_", 1)[1]) == 16 for s in symbols)
    inputs = random_inputs(mod)
    compare(run(part, inputs), run(mod, inputs))


def named(call: relay.Call, name: str) -> relay.Call:
    """`call` as a frontend names it."""
    span = relay.Span(relay.SourceName(name), 0, 0, 0, 0)
    return relay.Call(call.op, call.args, call.attrs, call.type_args, span)


@pytest.mark.case("S7")
def test_weights_that_several_blocks_read_are_stored_once() -> None:
    """A convolution that a small target cuts into many blocks: its weights are in the program about once, in any order
    of the model's parameters, and every block reads the right ones."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 40, 32, 16), dtype="int8")
    weights = {f"w{i}": rng.integers(-127, 128, (3, 3, 16, 16)).astype("int8") for i in range(2)}
    y: relay.Expr = x
    for name in weights:
        y = relay.qnn.op.conv2d(y, relay.var(name, shape=(3, 3, 16, 16), dtype="int8"), const(0, "int32"),
                                const(0, "int32"), const(0.05, "float32"), const(0.01, "float32"), channels=16,
                                kernel_size=(3, 3), padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO",
                                out_dtype="int32")
        y = relay.qnn.op.requantize(y, const(0.0005, "float32"), const(0, "int32"), const(0.05, "float32"),
                                    const(0, "int32"), axis=3, out_dtype="int8")
    mod = module(relay.transpose(y, (0, 1, 2, 3)), x, *(v for v in relay.analysis.free_vars(y) if v.name_hint != "x"))
    images = set()
    for order in (list(weights), list(reversed(weights))):
        part, report = ba.partition(mod, {name: weights[name] for name in order}, target="tiny")
        assert len(report.regions) == 1
        (function,) = external_functions(part).values()
        images.add(hook.compile_function(function)[1])
    (image,) = images
    program = unpack(image)[0]
    assert sum(layer.weight_bytes for layer in program.layers) < 1.25 * sum(w.size for w in weights.values())
    bound = relay.build_module.bind_params_by_name(mod["main"], {n: tvm.nd.array(w) for n, w in weights.items()})
    bound = relay.transform.InferType()(tvm.IRModule.from_expr(bound))
    inputs = random_inputs(bound)
    compare(run(part, inputs), run(bound, inputs))


@pytest.mark.case("B04")
def test_clip_bounds_and_strides_are_part_of_a_program() -> None:
    """Equal weights, one attribute apart: every pair of images differs."""
    x = relay.var("x", shape=(1, 4, 4, 3), dtype="int8")
    variants = [{}, {"strides": (2, 2)}, {"padding": (1, 1)}, {"clip": (-100, 100)}, {"clip": (-100, 99)},
                {"zp": (-5, 8)}, {"zp": (-4, 7)}, {"rounding": "TONEAREST"}]
    images = set()
    for options in variants:
        part, _ = ba.partition(module(qconv2d(x, 3, (1, 1), np.random.default_rng(0), in_channels=3, **options)))
        (function,) = external_functions(part).values()
        images.add(hook.compile_function(function)[1])
    assert len(images) == len(variants)
