"""Shapes of regions: no cycles, no duplicates, one region where one is possible, names, time (B06 to B13, B21)."""
from __future__ import annotations

import re
import time

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.errors import ModelError, QuantizeError, TargetError  # noqa: E402
from tests.relay.models import (  # noqa: E402
    build,
    check_library,
    check_region,
    compare,
    const,
    external_functions,
    host_ops,
    module,
    qadd,
    qconv2d,
    qdense,
    random_inputs,
    reason,
    region_count,
    run,
)

S, Z = 0.05, -5  # one scale and zero point for all tensors


def conv(x: relay.Expr, seed: int, channels: int = 4, in_channels: int = 4, kernel: int = 1,
         **attrs: object) -> relay.Expr:
    return qconv2d(x, channels, (kernel, kernel), np.random.default_rng(seed), in_channels=in_channels, zp=(Z, Z),
                   scales=(S, S), **attrs)


def image(name: str = "x", channels: int = 4) -> relay.Var:
    return relay.var(name, shape=(1, 5, 5, channels), dtype="int8")


def on_host(x: relay.Expr) -> relay.Expr:
    return relay.reverse(x, axis=1)


@pytest.mark.case("B08")
class TestOutputs:
    """B08"""

    def test_value_used_by_three_host_ops(self) -> None:
        y = conv(image(), 0)
        out = relay.Tuple([on_host(y), relay.maximum(on_host(y), y), relay.reverse(y, axis=2)])
        mod = module(out)
        part, _ = ba.partition(mod)
        (function,) = external_functions(part).values()
        assert isinstance(function.ret_type, relay.TensorType)
        inputs = random_inputs(mod)
        compare(run(part, inputs), run(mod, inputs))

    def test_same_value_three_times_and_nested_tuples(self) -> None:
        y = conv(image(), 0)
        z = conv(y, 1)
        check_library(module(relay.Tuple([y, z, y, y])), regions=1)
        nested = relay.Tuple([y, relay.Tuple([z, y])])
        part, _ = ba.partition(module(nested))
        (function,) = external_functions(part).values()
        assert isinstance(function.ret_type, relay.TupleType)
        assert all(isinstance(t, relay.TensorType) for t in function.ret_type.fields)

    def test_inputs_pass_around_regions(self) -> None:
        x = image()
        mod = module(relay.Tuple([x, relay.reshape(x, (5, 20)), conv(x, 0)]))
        report = check_library(mod, regions=1)
        assert host_ops(report) == ["reshape"]

    def test_a_region_of_views_alone_is_dissolved(self) -> None:
        x = image()
        mod = module(relay.reshape(relay.transpose(x, (0, 3, 1, 2)), (1, 100)))
        part, report = ba.partition(mod)
        assert not report.regions and "alone" in reason(report, "reshape")
        tvm.ir.assert_structural_equal(part, mod)

    def test_views_at_both_ends_belong_to_the_region(self) -> None:
        x = relay.var("x", shape=(100,), dtype="int8")
        y = relay.reshape(conv(relay.reshape(x, (1, 5, 5, 4)), 0), (25, 4))
        check_region(module(y))

    def test_a_view_of_an_output_is_left_to_the_host(self) -> None:
        y = conv(image(), 0)
        report = check_library(module(relay.Tuple([y, relay.reshape(y, (5, 20))])), regions=1)
        assert host_ops(report) == ["reshape"]

    def test_tuple_operands_and_split(self) -> None:
        """split -> two convs -> concatenate"""
        parts = relay.split(image(channels=8), 2, axis=3)
        joined = relay.concatenate([conv(parts[0], 0), conv(parts[1], 1)], axis=3)
        check_library(module(conv(joined, 2, 4, 8)))

    def test_function_that_only_returns_its_input(self) -> None:
        x = image()
        mod = module(x, x)
        part, report = ba.partition(mod)
        assert not report.regions and not report.ops
        tvm.ir.assert_structural_equal(part, mod)


@pytest.mark.case("B09")
class TestCycles:
    """B09"""

    def test_diamond_around_a_host_op(self) -> None:
        """a = conv(x); b = host(a); c = conv(a); d = conv(b) + c: {a, c} and {conv(b), add}."""
        a = conv(image(), 0)
        d = qadd(conv(on_host(a), 1), conv(a, 2), (S, Z), (S, Z), (0.08, 3))
        mod = module(d)
        check_library(mod, regions=2)
        part, _ = ba.partition(mod)
        order = regions_in_order(part)
        assert len(order) == 2

    def test_partition_is_idempotent(self) -> None:
        a = conv(image(), 0)
        mod = module(conv(on_host(a), 1))
        once, _ = ba.partition(mod)
        twice, report = ba.partition(once)
        tvm.ir.assert_structural_equal(once, twice, map_free_vars=True)
        assert {str(k) for k in external_functions(once)} == {str(k) for k in external_functions(twice)}
        assert [row.region for row in report.ops if row.region] == list(external_functions(once))

    def test_the_input_module_is_not_changed(self) -> None:
        mod = module(conv(image(), 0))
        before = tvm.ir.structural_hash(mod)
        ba.partition(mod)
        assert tvm.ir.structural_hash(mod) == before and len(mod.functions) == 1

    @pytest.mark.parametrize("seed", range(6))
    def test_random_graphs(self, seed: int) -> None:
        """Convs, adds and host ops at random: exact, whatever the regions are."""
        rng = np.random.default_rng(seed)
        values: list[relay.Expr] = [image("x0"), image("x1")]
        for step in range(14):
            a, b = (values[int(rng.integers(max(0, len(values) - 5), len(values)))] for _ in range(2))
            kind = rng.integers(4)
            values.append(on_host(a) if kind == 0 else qadd(a, b, (S, Z), (S, Z), (S, Z)) if kind == 1
                          else conv(a, step, kernel=3, padding=(1, 1)))
        check_library(module(relay.Tuple([values[-1], values[-3], values[-6]])))


def regions_in_order(part: tvm.IRModule) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        part["main"], lambda e: found.append(e.op.name_hint)
        if isinstance(e, relay.Call) and isinstance(e.op, relay.GlobalVar) else None)
    return found


@pytest.mark.case("B10")
class TestSize:
    """B10: time; a chain of 5,000 ops is in tests/regress/test_growth.py"""

    def test_dense_block_with_all_to_all_concatenation(self) -> None:
        """(a) 60 layers"""
        values = [relay.var("x", shape=(1, 4, 4, 2), dtype="int8")]
        for layer in range(60):
            joined = values[0] if len(values) == 1 else relay.concatenate(values, axis=3)
            values.append(conv(joined, layer, 2, 2 * len(values)))
        mod = module(values[-1])
        start = time.monotonic()
        _, report = ba.partition(mod)
        assert time.monotonic() - start < 30
        assert sum(1 for row in report.ops if row.op == "qnn.conv2d" and row.region) == 60

    def test_diamonds_take_linear_time(self) -> None:
        """(c) 2^30 paths"""
        y: relay.Expr = image()
        for step in range(30):
            y = qadd(conv(y, step), y, (S, Z), (S, Z), (S, Z))
        start = time.monotonic()
        _, report = ba.partition(module(y))
        assert time.monotonic() - start < 10 and len(report.regions) == 1


@pytest.mark.case("B06")
class TestNames:
    """B06"""

    @pytest.mark.parametrize("name", ["a/b", "a_b", "a b", "a:b", "größe", "n" * 300, "int", "", "3d"])
    def test_symbols_are_short_c_identifiers(self, name: str) -> None:
        part, report = ba.partition(module(conv(image(), 0)), name=name)
        (symbol,) = external_functions(part)
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*_[0-9a-f]{16}", symbol) and len(symbol) <= 80
        assert report.regions[0].symbol == symbol

    def test_names_that_look_alike_stay_distinct(self) -> None:
        mod = module(conv(image(), 0))
        names = ["a/b", "a_b", "a b", "a:b", "n" * 300, "n" * 301]
        symbols = {ba.partition(mod, name=name)[1].regions[0].symbol for name in names}
        assert len(symbols) == len(names)

    def test_equal_models_have_equal_images_whatever_their_name(self) -> None:
        mod = module(conv(image(), 0))
        assert len({ba.partition(mod, name=n)[1].regions[0].name for n in ("a", "b")}) == 1

    def test_several_functions(self) -> None:
        """@f and @g, called by main."""
        def layer(v: relay.Expr, seed: int) -> relay.Expr:
            return qdense(v, 8, np.random.default_rng(seed), in_units=8, zp=(Z, Z))

        mod, x = tvm.IRModule(), relay.var("x", shape=(1, 8), dtype="int8")
        for seed, name in enumerate("fg"):
            p = relay.var("p", shape=(1, 8), dtype="int8")
            mod[name] = relay.Function([p], layer(p, seed), relay.TensorType((1, 8), "int8"))
        f, g = (mod.get_global_var(name) for name in "fg")
        mod["main"] = relay.Function([x], g(relay.reverse(f(x), axis=1)))
        part, report = ba.partition(relay.transform.InferType()(mod))
        assert region_count(part) == 2 and len(set(external_functions(part))) == 2
        plain = module(layer(relay.reverse(layer(x, 0), axis=1), 1))
        inputs = random_inputs(plain)
        compare(run(part, inputs), run(plain, inputs))

    def test_recursive_functions_are_left_alone(self) -> None:
        mod = tvm.IRModule()
        p = relay.var("p", shape=(1, 8), dtype="int8")
        n = relay.var("n", shape=(), dtype="int32")
        loop = relay.GlobalVar("loop")
        body = relay.If(relay.equal(n, relay.const(0)), p, loop(relay.reverse(p, axis=1), n - relay.const(1)))
        mod[loop] = relay.Function([p, n], body, relay.TensorType((1, 8), "int8"))
        x = relay.var("x", shape=(1, 8), dtype="int8")
        dense = qdense(x, 8, np.random.default_rng(0), in_units=8, zp=(Z, Z))
        mod["main"] = relay.Function([x], loop(dense, relay.const(3)))
        mod = relay.transform.InferType()(mod)
        part, report = ba.partition(mod)
        assert region_count(part) == 1
        inputs = random_inputs(mod)
        with tvm.transform.PassContext(opt_level=3):
            machines = [tvm.runtime.vm.VirtualMachine(relay.vm.compile(m, target="llvm -mtriple=x86_64-linux-gnu"),
                                                      tvm.cpu()) for m in (part, mod)]
        found, expected = (machine.run(**inputs).numpy() for machine in machines)
        compare([found], [expected])

    def test_let_chains_become_graphs(self) -> None:
        x, t = image(), relay.var("t")
        mod = module(relay.Let(t, conv(x, 0), conv(t, 1)), x)
        part, _ = ba.partition(mod)
        assert region_count(part) == 1 and not host_calls(part)


def host_calls(part: tvm.IRModule) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        part["main"], lambda e: found.append(e.op.name)
        if isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op) else None)
    return found


@pytest.mark.case("B12")
class TestFallback:
    """B12, B21: what cannot be offloaded stays on the host, with a reason."""

    def test_transposed_convolution(self) -> None:
        x = relay.var("x", shape=(1, 4, 5, 5), dtype="float32")
        w = const(np.random.default_rng(0).normal(size=(4, 6, 3, 3)), "float32")
        y = relay.nn.conv2d_transpose(x, w, strides=(3, 3), channels=6, kernel_size=(3, 3))
        _, report = ba.partition(module(y))
        row = next(r for r in report.ops if r.op == "nn.conv2d_transpose")
        assert row.macs == 4 * 6 * 9 * 25 and (row.region or "conv2d_transpose" in row.reason)

    @pytest.mark.parametrize("scale", [0.0, 1e30])
    def test_scales_that_no_shift_encodes(self, scale: float) -> None:
        x = image()
        y = qconv2d(x, 4, (1, 1), np.random.default_rng(0), in_channels=4, scales=(0.05, 0.05))
        attrs = y.attrs
        args = list(y.args)
        args[3] = const(scale, "float32")
        mod = module(relay.Call(y.op, args, attrs))
        _, report = ba.partition(mod)
        assert not report.regions and "scale" in reason(report, "qnn.conv2d").lower()

    def test_kernel_of_65_by_65(self) -> None:
        x = relay.var("x", shape=(1, 66, 66, 1), dtype="int8")
        check_library(module(qconv2d(x, 2, (65, 65), np.random.default_rng(0), in_channels=1)))

    def test_target_decides(self) -> None:
        """A layer of which one row does not fit the small target's SRAM."""
        x = relay.var("x", shape=(1, 1, 300, 64), dtype="int8")
        y = conv(conv(x, 0, 64, 64), 1, 4, 64)
        mod = module(y)
        for target in ("reference", "tiny"):
            report = check_library(mod, target=target)
            for row in report.ops:
                assert row.region or row.reason
        assert len(ba.partition(mod, target="reference")[1].regions) == 1

    @pytest.mark.case("B21")
    @pytest.mark.parametrize("batch", [2, 5])
    def test_batches(self, batch: int) -> None:
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(batch, 3, 6, 5), dtype="int8")
        y = qconv2d(x, 5, (3, 3), rng, in_channels=3, layout="NCHW", zp=(Z, 2))
        y = qdense(relay.nn.batch_flatten(y), 4, rng, in_units=60, zp=(2, 1))
        check_library(module(y), regions=1)

    @pytest.mark.case("B21")
    def test_dynamic_batch_stays_on_the_host(self) -> None:
        x = relay.var("x", shape=(relay.Any(), 8), dtype="float32")
        w = const(np.random.default_rng(0).normal(size=(4, 8)), "float32")
        _, report = ba.partition(module(relay.nn.dense(x, w)))
        assert not report.regions and "(?, 8)" in reason(report, "nn.dense")

    @pytest.mark.case("B21")
    def test_wrong_shape_at_run_time(self) -> None:
        """Compiled for 4, called with 3: TVM's executor refuses before we are called."""
        x = relay.var("x", shape=(4, 8), dtype="int8")
        mod = module(qdense(x, 4, np.random.default_rng(0), in_units=8))
        library = build(ba.partition(mod)[0])
        executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
        with pytest.raises((tvm.TVMError, ValueError)):
            executor.set_input("x", np.zeros((3, 8), "int8"))
            executor.run()

    def test_control_flow_stays_on_the_host(self) -> None:
        x, c = image(), relay.var("c", shape=(), dtype="bool")
        y = relay.If(c, conv(x, 0), on_host(x))
        part, _ = ba.partition(module(conv(y, 1), x, c))
        assert region_count(part) == 1


@pytest.mark.case("B13")
class TestLayouts:
    """B13"""

    def test_between_host_convolutions_with_their_own_layout(self) -> None:
        """opt_level 3 gives the host's convolutions NCHWc layouts; our region keeps its own."""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 16, 16, 16), dtype="float32")
        w = [const(rng.normal(size=(16, 16, 3, 3)) / 12, "float32") for _ in range(3)]

        def conv2d(v: relay.Expr, i: int) -> relay.Expr:
            return relay.nn.conv2d(v, w[i], channels=16, kernel_size=(3, 3), padding=(1, 1))

        middle = conv2d(relay.sin(conv2d(x, 0)), 1)
        mod = module(conv2d(relay.sin(middle), 2))
        inputs = random_inputs(mod)
        part, report = ba.partition(mod, calibration=[inputs])
        assert region_count(part) == 3 and host_ops(report) == ["sin", "sin"]
        (found,), (expected,) = run(part, inputs), run(mod, inputs)
        assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_after_convert_layout(self, layout: str) -> None:
        """ConvertLayout puts layout_transform ops and other kernel layouts into the graph."""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 16, 16, 16), dtype="float32")
        w = const(rng.normal(size=(16, 16, 3, 3)) / 12, "float32")
        y = relay.nn.relu(relay.nn.conv2d(x, w, channels=16, kernel_size=(3, 3)))
        mod = module(relay.nn.max_pool2d(y, (2, 2), (2, 2)))
        converted = relay.transform.ConvertLayout({"nn.conv2d": [layout, "default"]})(mod)
        inputs = random_inputs(mod)
        expected = run(mod, inputs)
        part, report = ba.partition(converted, calibration=[inputs])
        assert len(report.regions) == 1 and "layout_transform" not in [r.op for r in report.ops if not r.region]
        (found,) = run(part, inputs)
        assert np.abs(found - expected[0]).max() < 0.05 * np.abs(expected[0]).max()

    def test_two_layouts_meet(self) -> None:
        """A sum of an NCHW and an NHWC convolution: the transpose is free for one of them."""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 4, 4, 4), dtype="int8")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, layout="NCHW", zp=(Z, Z), scales=(S, S))
        b = qconv2d(x, 4, (1, 1), rng, in_channels=4, layout="NHWC", zp=(Z, Z), scales=(S, S))
        check_library(module(qadd(a, b, (S, Z), (S, Z), (S, 1))))
        check_library(module(qadd(a, relay.transpose(b, (0, 3, 1, 2)), (S, Z), (S, Z), (S, 1))))


class TestBadInput:
    def test_no_module(self) -> None:
        with pytest.raises(ModelError, match="Function is no module"):
            ba.partition(module(conv(image(), 0))["main"])
        with pytest.raises(ModelError, match="no function main"):
            ba.partition(tvm.IRModule())

    @pytest.mark.case("B30")
    def test_parameters(self) -> None:
        x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
        mod = module(relay.nn.dense(x, w), x, w)
        exact = np.arange(12).reshape(3, 4) / 8
        for value in (exact, exact.astype("float16"), exact.astype(">f4"), np.asfortranarray(exact)):
            part, _ = ba.partition(mod, {"w": value, "unknown": exact}, calibration=[{"x": np.ones((1, 4))}])
            assert region_count(part) == 1
        with pytest.raises(ModelError, match=r"'w' is float64.*float32.*0\.1.*at \[0, 0\]"):
            ba.partition(mod, {"w": np.full((3, 4), 0.1)})
        with pytest.raises(ModelError, match=r"'w' has shape \(4, 3\)"):
            ba.partition(mod, {"w": np.zeros((4, 3), "float32")})

    def test_target_and_options(self) -> None:
        mod = module(conv(image(), 0))
        with pytest.raises(TargetError, match="no such target"):
            ba.partition(mod, target="huge")
        with pytest.raises(Exception, match="scale 'log' is unknown"):
            ba.partition(mod, scale="log")

    def test_calibration(self) -> None:
        x = relay.var("x", shape=(1, 4))
        mod = module(relay.nn.dense(x, const(np.eye(4), "float32")))
        good = np.ones((1, 4), "float32")
        for samples, message in (([], "empty"), ([{"y": good}], "holds 'y'; the model's inputs are 'x' float32"),
                                 ([{"x": good}, {"x": good[0]}], r"sample 1: input 'x' is float32 \(4,\); give"),
                                 ([{"x": good * np.nan}], r"sample 0: input 'x'\[0, 0\] is nan")):
            with pytest.raises(QuantizeError, match=message):
                ba.partition(mod, calibration=samples)
        with pytest.warns(UserWarning, match="no calibration inputs"):
            ba.partition(mod)
