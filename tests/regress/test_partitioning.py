"""Public bug reports about partitioning (B08, B09, B11 to B13, B21), and that regions are convex whatever the graph."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.errors import AccelError, HostError  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.target import load_target  # noqa: E402
from tests.relay.models import (  # noqa: E402
    TARGET,
    build,
    check_library,
    compare,
    const,
    external_functions,
    host_ops,
    module,
    qadd,
    qconv2d,
    qdense,
    random_inputs,
    region_count,
    run,
)

S, Z = 0.05, -5  # one scale and zero point for all tensors


def conv(x: relay.Expr, seed: int, **attrs: object) -> relay.Expr:
    return qconv2d(x, 4, (1, 1), np.random.default_rng(seed), in_channels=4, zp=(Z, Z), scales=(S, S), **attrs)


def image(name: str = "x") -> relay.Var:
    return relay.var(name, shape=(1, 3, 3, 4), dtype="int8")


def on_host(x: relay.Expr) -> relay.Expr:
    return relay.reverse(x, axis=1)


def total(a: relay.Expr, b: relay.Expr) -> relay.Expr:
    return qadd(a, b, (S, Z), (S, Z), (S, Z))


# Convexity, from the partitioned and the original module alone: no code of the partitioner is asked.


def bodies(mod: tvm.IRModule) -> Iterator[tuple[str, relay.Function]]:
    for var, function in mod.functions.items():
        yield var.name_hint, function


def parts(expr: relay.Expr) -> list[relay.Expr]:
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    return [expr.tuple_value] if isinstance(expr, relay.TupleGetItem) else []


def is_region(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar)


def check_convex(part: tvm.IRModule) -> None:
    """Every region is called once, and the calls of main have an order: Relay expressions cannot hold a cycle, so a
    region that fed itself would have to be called twice, each time with another part of its inputs."""
    calls: dict[str, set[int]] = {}
    seen: dict[int, relay.Expr] = {}
    stack = [part["main"].body]
    while stack:
        expr = stack.pop()
        if expr.handle.value in seen:
            continue
        seen[expr.handle.value] = expr
        if is_region(expr):
            calls.setdefault(expr.op.name_hint, set()).add(expr.handle.value)
        stack.extend(parts(expr))
    assert set(calls) == set(external_functions(part))
    assert all(len(places) == 1 for places in calls.values()), calls
    for name, function in external_functions(part).items():
        check_connected(name, function)
        fields = function.body.fields if isinstance(function.body, relay.Tuple) else [function.body]
        assert all(isinstance(f.checked_type, relay.TensorType) for f in fields), name
        assert len({f.handle.value for f in fields}) == len(fields), f"{name} returns a value twice"


def check_connected(name: str, function: relay.Function) -> None:
    """The ops of a region hang together: two that do not would be two regions."""
    group: dict[int, int] = {}
    keep = []

    def root(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    def visit(expr: relay.Expr) -> None:
        keep.append(expr)
        if isinstance(expr, relay.Call):
            group[expr.handle.value] = expr.handle.value
            for arg in expr.args:
                if arg.handle.value in group:
                    group[root(arg.handle.value)] = root(expr.handle.value)

    relay.analysis.post_order_visit(function.body, visit)
    assert len({root(i) for i in group}) == 1, name


@st.composite
def graphs(draw: st.DrawFn) -> tvm.IRModule:
    """Convolutions, sums and host ops in any order on any earlier values; several outputs."""
    values: list[relay.Expr] = [image("x0"), image("x1")]
    for step in range(draw(st.integers(3, 14))):
        a, b = (values[draw(st.integers(max(0, len(values) - 6), len(values) - 1))] for _ in range(2))
        kind = draw(st.sampled_from(["conv", "conv", "sum", "host"]))
        values.append(conv(a, step) if kind == "conv" else total(a, b) if kind == "sum" else on_host(a))
    chosen = draw(st.lists(st.integers(2, len(values) - 1), min_size=1, max_size=3))
    return module(relay.Tuple([values[-1], *(values[i] for i in chosen)]))


@settings(max_examples=60)
@given(graphs())
def test_regions_are_convex_and_connected(mod: tvm.IRModule) -> None:
    part, report = ba.partition(mod)
    check_convex(part)
    assert {row.op for row in report.ops if not row.region} <= {"reverse"}


# B08


@pytest.mark.case("B08")
def test_unused_output_of_a_tuple() -> None:
    x = image()
    mod = module(relay.TupleGetItem(relay.Tuple([conv(x, 0), on_host(conv(x, 1))]), 0), x)
    inputs = random_inputs(mod)
    part, _ = ba.partition(mod)
    check_convex(part)
    compare(run(part, inputs), run(mod, inputs))


@pytest.mark.case("B08")
def test_an_external_function_with_a_tuple_parameter_is_refused() -> None:
    """Partition never makes one; handed to the codegen it is an error of ours and no crash."""
    part, _ = ba.partition(module(conv(image(), 0)))
    (function,) = external_functions(part).values()
    p = relay.Var("p", relay.TupleType([image().type_annotation]))
    tupled = relay.Function([p], relay.bind(function.body, {function.params[0]: relay.TupleGetItem(p, 0)}))
    tupled = relay.transform.InferType()(tvm.IRModule.from_expr(tupled))["main"]
    for name in function.attrs.keys():
        tupled = tupled.with_attr(name, function.attrs[name])
    with pytest.raises(AccelError):
        hook.compile_function(tupled)


@pytest.mark.case("B08")
def test_a_region_of_nothing_but_its_input_is_refused() -> None:
    part, _ = ba.partition(module(conv(image(), 0)))
    (function,) = external_functions(part).values()
    x = image()
    empty = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x)))["main"]
    for name in function.attrs.keys():
        empty = empty.with_attr(name, function.attrs[name])
    with pytest.raises(AccelError):
        hook.compile_function(empty)


# B09


@pytest.mark.case("B09")
def test_diamond_around_a_host_softmax() -> None:
    """The Relay form of a Relax report: a = conv(x); b = softmax(a) on the host; c = conv(a); d = conv(b) + c."""
    rng = np.random.default_rng(0)
    w = [const(rng.normal(size=(4, 4, 3, 3)) / 6, "float32") for _ in range(3)]
    x = relay.var("x", shape=(1, 4, 6, 6), dtype="float32")

    def layer(v: relay.Expr, i: int) -> relay.Expr:
        return relay.nn.conv2d(v, w[i], channels=4, kernel_size=(3, 3), padding=(1, 1))

    a = layer(x, 0)
    mod = module(relay.add(layer(relay.nn.softmax(a, axis=1), 1), layer(a, 2)))
    inputs = random_inputs(mod)
    part, report = ba.partition(mod, calibration=[inputs])
    check_convex(part)
    assert host_ops(report) == ["nn.softmax"] and region_count(part) == 2
    again, _ = ba.partition(part)
    tvm.ir.assert_structural_equal(part, again, map_free_vars=True)
    (found,), (expected,) = run(part, inputs), run(mod, inputs)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


# Robust partitioning: what users write.


@pytest.mark.case("B08")
def test_two_outputs_and_a_tensor_used_inside_and_outside() -> None:
    """A value that the region reads again and the host reads too, in a function with two outputs."""
    x = image()
    a = conv(x, 0)
    b = conv(a, 1)
    mod = module(relay.Tuple([total(b, a), on_host(a)]))
    part, report = ba.partition(mod)
    check_convex(part)
    assert region_count(part) == 1 and host_ops(report) == ["reverse"]
    (function,) = external_functions(part).values()
    assert len(function.ret_type.fields) == 2
    inputs = random_inputs(mod)
    compare(run(part, inputs), run(mod, inputs))


@pytest.mark.case("B05")
def test_one_weight_at_two_scales_and_two_strides() -> None:
    """The same int8 constant read as two different real weights, and once with stride 2; nothing is shared."""
    w = const(np.random.default_rng(0).integers(-127, 128, (1, 1, 4, 4)), "int8")
    x = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")

    def layer(scale: float, strides: tuple[int, int]) -> relay.Expr:
        y = relay.qnn.op.conv2d(x, w, const(Z, "int32"), const(0, "int32"), const(S, "float32"),
                                const(scale, "float32"), kernel_size=(1, 1), channels=4, data_layout="NHWC",
                                kernel_layout="HWIO", out_dtype="int32", strides=strides)
        return relay.qnn.op.requantize(y, const(S * scale, "float32"), const(0, "int32"), const(S, "float32"),
                                       const(Z, "int32"), axis=3, out_dtype="int8")

    outputs = [layer(0.004, (1, 1)), layer(0.002, (1, 1)), layer(0.004, (2, 2))]
    mod = module(relay.Tuple(outputs))
    inputs = random_inputs(mod)
    results = run(ba.partition(mod)[0], inputs)
    compare(results, run(mod, inputs))
    assert (results[0] != results[1]).any()
    np.testing.assert_array_equal(results[0][:, ::2, ::2], results[2])


@pytest.mark.case("B08")
def test_shared_subexpressions_are_computed_once() -> None:
    """One convolution with three readers is one op of one region, also where a frontend wrote it twice."""
    a = conv(image(), 0)
    mod = module(total(total(conv(a, 1), a), conv(a, 2)))
    part, report = ba.partition(mod)
    check_convex(part)
    assert [row.op for row in report.ops].count("qnn.conv2d") == 3 and region_count(part) == 1
    x = image()
    twice = module(total(conv(x, 0), conv(x, 0)))
    check_library(twice, regions=1)


@pytest.mark.case("B08")
def test_nothing_to_offload() -> None:
    x = relay.var("x", shape=(3, 4), dtype="float32")
    mod = module(relay.Tuple([relay.nn.softmax(x), relay.sum(x, axis=1)]))
    part, report = ba.partition(mod)
    assert not report.regions and report.macs_offloaded == 0
    tvm.ir.assert_structural_equal(part, mod)
    compare(run(part, random_inputs(mod)), run(mod, random_inputs(mod)))


# B02


@pytest.mark.case("B02")
def test_a_composite_function_inside_the_model() -> None:
    """A convolution that another pass wrapped as a composite: offloaded or left alone, exact in any case."""
    p = image("p")
    composite = relay.Function([p], conv(p, 0)).with_attr("Composite", "other.conv2d")
    composite = composite.with_attr("PartitionedFromPattern", "qnn.conv2d_nn.bias_add_qnn.requantize_")
    x = image()
    mod = module(conv(relay.Call(composite, [conv(x, 1)]), 2), x)
    plain = module(conv(conv(conv(x, 1), 0), 2))
    part, report = ba.partition(mod)
    assert region_count(part) == 1 and not host_ops(report), report.to_text()
    inputs = random_inputs(plain)
    compare(run(part, inputs), run(plain, inputs))


# B12


@pytest.mark.case("B12")
def test_what_the_accelerator_cannot_do_has_a_reason() -> None:
    """conv2d_transpose with stride 3, dilation 7, a kernel of 65 x 65, result scales of 0 and 1e30: offloaded or on
    the host with one line of reason, and never an error after acceptance."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 66, 66, 2), dtype="int8")
    f = relay.var("f", shape=(1, 4, 5, 5), dtype="float32")
    w = const(rng.normal(size=(4, 6, 3, 3)), "float32")
    layers = [qconv2d(x, 2, (65, 65), rng, in_channels=2), qconv2d(x, 3, (3, 3), rng, in_channels=2, dilation=(7, 7)),
              relay.nn.conv2d_transpose(f, w, strides=(3, 3), channels=6, kernel_size=(3, 3))]
    good = qconv2d(x, 3, (1, 1), rng, in_channels=2)
    for scale in (0.0, 1e30):
        args = list(good.args)
        args[3] = const(scale, "float32")
        layers.append(relay.Call(good.op, args, good.attrs))
    for target in ("reference", "tiny"):
        for layer in layers:
            mod = module(layer)
            part, report = ba.partition(mod, target=target, calibration=[random_inputs(mod)])
            for row in report.ops:
                assert row.region or (row.reason and "\n" not in row.reason), report.to_text()
            for function in external_functions(part).values():
                hook.compile_function(function)


@pytest.mark.case("B12")
def test_the_check_uses_the_target_of_the_compile() -> None:
    """An array of 16 x 16, and one with 4 columns and a quarter of the memory: each decides for itself and is exact."""
    mod = module(conv(conv(image(), 0), 1))
    small = load_target("tiny")
    other = replace(load_target("reference"), name="other", sram_bytes=small.sram_bytes)
    images = set()
    for target in ("reference", small, other):
        part, report = ba.partition(mod, target=target)
        assert len(report.regions) == 1
        (function,) = external_functions(part).values()
        images.add(hook.compile_function(function)[1])
        inputs = random_inputs(mod)
        compare(run(part, inputs), run(mod, inputs))
    assert len(images) == 3


# B21


@pytest.mark.case("B21")
def test_compiled_for_four_called_with_three() -> None:
    """An error that names both shapes, and not one byte of output, from the packed function, the VM and the graph
    executor."""
    x = relay.var("x", shape=(4, 8), dtype="int8")
    mod = module(qdense(x, 5, np.random.default_rng(0), in_units=8))
    part, report = ba.partition(mod)
    library = build(part)
    entry = library.lib.get_function(report.regions[0].symbol, query_imports=True)
    three, four = (tvm.nd.array(np.ones((n, 8), "int8")) for n in (3, 4))
    results = [tvm.nd.array(np.full((n, 5), 99, "int8")) for n in (3, 4)]
    for arguments in ((three, results[1]), (four, results[0]), (three, results[0])):
        with pytest.raises(tvm.TVMError, match=r"int8 \(3, \d\), expected int8 \(4, \d\)"):
            entry(*arguments)
        assert all((r.numpy() == 99).all() for r in results)
    entry(four, results[1])
    compare([results[1].numpy()], run(mod, {"x": four.numpy()}))
    with tvm.transform.PassContext(opt_level=3):
        machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(part, target=TARGET), tvm.cpu())
    with pytest.raises(tvm.TVMError):
        machine.run(x=three)
    executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
    with pytest.raises((tvm.TVMError, ValueError)):
        executor.set_input("x", three)
        executor.run()


@pytest.mark.case("B21")
@pytest.mark.parametrize("batch", [2, 5])
def test_items_of_a_batch_do_not_mix(batch: int) -> None:
    rng = np.random.default_rng(0)

    def model(n: int) -> tvm.IRModule:
        x = relay.var("x", shape=(n, 3, 3, 4), dtype="int8")
        return module(conv(conv(x, 0), 1, padding=(0, 0)))

    x = rng.integers(-128, 128, (batch, 3, 3, 4)).astype(np.int8)
    (together,) = run(ba.partition(model(batch))[0], {"x": x})
    single = ba.partition(model(1))[0]
    for i in range(batch):
        np.testing.assert_array_equal(together[i:i + 1], run(single, {"x": x[i:i + 1]})[0])


def test_errors_of_the_codegen_name_the_function() -> None:
    x = relay.var("x", shape=(1, 4))
    function = relay.Function([x], relay.nn.relu(x)).with_attr("Compiler", "byoc_accel")
    with pytest.raises(HostError, match="byoc_accel.relay.partition"):
        tvm.get_global_func("relay.ext.byoc_accel")(function.with_attr("global_symbol", "f"))
