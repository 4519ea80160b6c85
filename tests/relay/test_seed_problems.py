"""The three seed problems, each with the fault that shows when its remedy is taken out (B01 to B05, B07)."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.container.dump import find_images  # noqa: E402
from byoc_accel.errors import HostError  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.relay.importer import import_function  # noqa: E402
from tests.relay.models import (  # noqa: E402
    TARGET,
    build,
    check_library,
    compare,
    const,
    external_functions,
    module,
    qconv2d,
    qdense,
    random_inputs,
    region_count,
    run,
    run_library,
)


def host_barrier(x: relay.Expr) -> relay.Expr:
    """Something that stays on the host and keeps int8 values: reverses the last axis."""
    return relay.reverse(x, axis=-1)


def weight(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, (rows, columns)).astype("int8")


def dense_with(x: relay.Expr, w: np.ndarray, zp: int = 3) -> relay.Expr:
    y = relay.qnn.op.dense(x, const(w), const(zp, "int32"), const(0, "int32"), const(0.1, "float32"),
                           const(0.01, "float32"), w.shape[0], "int32")
    return relay.qnn.op.requantize(y, const(0.001, "float32"), const(0, "int32"), const(0.9, "float32"),
                                   const(zp, "int32"), out_dtype="int8")


def chain(matrices: list[np.ndarray]) -> tvm.IRModule:
    x = relay.var("x", shape=(1, matrices[0].shape[1]), dtype="int8")
    y = x
    for w in matrices:
        y = host_barrier(dense_with(y, w))
    return module(y)


class TestFunctionIdentity:
    """Seed 1: layers of equal shape must not share a function that depends on the values of the weights."""

    @pytest.mark.case("B01")
    def test_equal_shapes_with_different_weights(self) -> None:
        """B01: three weight sets, and a fourth layer that repeats the first: three programs."""
        first, second, third = (weight(64, 64, seed) for seed in range(3))
        mod = chain([first, second, third, first])
        part, report = ba.partition(mod)
        names = [r.name for r in report.regions]
        assert len(names) == 4 and len(set(names)) == 3 and names[0] == names[3]
        assert len({r.symbol for r in report.regions}) == 4
        inputs = random_inputs(mod)
        compare(run(part, inputs), run(mod, inputs))

    @pytest.mark.case("B01")
    def test_swapping_weights_swaps_results(self) -> None:
        a, b = weight(32, 32, 1), weight(32, 32, 2)
        inputs = random_inputs(chain([a, b]))
        results = [run(ba.partition(chain(pair))[0], inputs)[0] for pair in ([a, b], [b, a])]
        assert (results[0] != results[1]).any()
        compare([results[1]], run(chain([b, a]), inputs))

    @pytest.mark.case("B01")
    def test_two_builds_of_one_structure_share_nothing(self) -> None:
        """Same IR, other params, same process."""
        def model(seed: int) -> tuple[tvm.IRModule, dict]:
            x = relay.var("x", shape=(1, 16), dtype="int8")
            w = relay.var("w", shape=(16, 16), dtype="int8")
            y = relay.qnn.op.dense(x, w, const(3, "int32"), const(0, "int32"), const(0.1, "float32"),
                                   const(0.01, "float32"), 16, "int32")
            y = relay.qnn.op.requantize(y, const(0.001, "float32"), const(0, "int32"), const(0.3, "float32"),
                                        const(3, "int32"), out_dtype="int8")
            return module(y, x, w), {"w": weight(16, 16, seed)}

        x = random_inputs(chain([weight(16, 16, 0)]))
        libraries, expected = [], []
        for seed in (1, 2):
            mod, params = model(seed)
            part, _ = ba.partition(mod, params)
            libraries.append(build(part))
            bound = tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(mod["main"], params))
            expected.append(run(relay.transform.InferType()(bound), x))
        for library, right in zip(libraries, expected):
            compare(run_library(library, x), right)
        assert (expected[0][0] != expected[1][0]).any()

    @pytest.mark.case("B01")
    def test_the_fault_when_functions_are_identified_by_shape(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the remedy: a codegen that remembers programs by the shapes of their tensors."""
        mod = chain([weight(16, 16, 1), weight(16, 16, 2)])
        part, _ = ba.partition(mod)
        inputs, known = random_inputs(mod), {}

        def by_shape(function: relay.Function) -> tuple[str, bytes]:
            symbol, image = hook.compile_function(function)
            key = str([tuple(v.checked_type.shape) for v in function.params])
            return symbol, known.setdefault(key, image)

        try:
            hook.register(compile=by_shape)
            assert (run(part, inputs)[0] != run(mod, inputs)[0]).any()
        finally:
            hook.register()
        compare(run(part, inputs), run(mod, inputs))

    @pytest.mark.case("B04")
    def test_no_cache_stands_on_a_digest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """B04: even if every digest were the same, two layers are two programs."""
        import importlib

        partition_module = importlib.import_module("byoc_accel.relay.partition")
        monkeypatch.setattr(partition_module, "digest", lambda region: "0" * 16)
        mod = chain([weight(16, 16, 1), weight(16, 16, 2)])
        part, report = ba.partition(mod)
        assert len({r.symbol for r in report.regions}) == 2
        inputs = random_inputs(mod)
        compare(run(part, inputs), run(mod, inputs))

    @pytest.mark.case("B04")
    def test_attributes_are_part_of_the_identity(self) -> None:
        """B04: same weights, strides 1 and 2."""
        outputs = []
        for strides in ((1, 1), (2, 2)):
            x = relay.var("x", shape=(1, 4, 4, 3), dtype="int8")
            mod = module(qconv2d(x, 3, (1, 1), np.random.default_rng(0), in_channels=3, strides=strides))
            outputs.append(ba.partition(mod)[1].regions[0].name)
        assert outputs[0] != outputs[1]

    @pytest.mark.case("B05")
    def test_one_weight_in_two_layers(self) -> None:
        """B05: the same constant in convolutions of other sizes, and on two inputs; it is not changed in place."""
        w = const(np.random.default_rng(0).integers(-127, 128, (8, 8, 3, 3)), "int8")
        before = w.data.numpy().copy()

        def conv(x: relay.Expr) -> relay.Expr:
            y = relay.qnn.op.conv2d(x, w, const(0, "int32"), const(0, "int32"), const(0.1, "float32"),
                                    const(0.01, "float32"), kernel_size=(3, 3), channels=8, padding=(1, 1),
                                    out_dtype="int32")
            return relay.qnn.op.requantize(y, const(0.001, "float32"), const(0, "int32"), const(0.9, "float32"),
                                           const(0, "int32"), axis=1, out_dtype="int8")

        variables = [relay.var(f"x{i}", shape=s, dtype="int8") for i, s in
                     enumerate([(1, 8, 32, 32), (1, 8, 7, 5), (1, 8, 7, 5)])]
        mod = module(relay.Tuple([conv(v) for v in variables]), *variables)
        inputs = random_inputs(mod)
        first, report = ba.partition(mod, target="tiny")
        compare(run(first, inputs), run(mod, inputs))
        assert np.array_equal(w.data.numpy(), before)
        assert ba.partition(mod, target="tiny")[1] == report


class TestManyAnchors:
    """Seed 2: a region with any number of convolutions is ours to lower."""

    @pytest.mark.case("B02")
    @pytest.mark.parametrize("count", [2, 20])
    def test_convolutions_in_one_region(self, count: int) -> None:
        """B02 (a), (c)"""
        rng = np.random.default_rng(count)
        y: relay.Expr = relay.var("x", shape=(1, 6, 6, 4), dtype="int8")
        for _ in range(count):
            y = qconv2d(y, 4, (3, 3), rng, in_channels=4, padding=(1, 1), zp=(-5, -5), scales=(0.05, 0.05),
                        clip=(-5, 127))
        report = check_library(module(y), regions=1)
        assert len([r for r in report.ops if r.op == "qnn.conv2d" and r.region]) == count

    @pytest.mark.case("B02")
    def test_convolutions_and_dense(self) -> None:
        """B02 (b)"""
        rng = np.random.default_rng(0)
        x = relay.var("x", shape=(1, 3, 6, 6), dtype="int8")
        y = qconv2d(x, 5, (3, 3), rng, in_channels=3, layout="NCHW", zp=(-5, 4))
        y = qconv2d(y, 6, (3, 3), rng, in_channels=5, layout="NCHW", zp=(4, -2))
        y = qdense(relay.nn.batch_flatten(y), 7, rng, in_units=24, zp=(-2, 1))
        check_library(module(y), regions=1)

    @pytest.mark.case("B02")
    def test_the_fault_when_the_host_lowers_such_a_function(self) -> None:
        """Without the remedy: the same body as a primitive function of the host."""
        x = relay.var("x", shape=(1, 3, 6, 6))
        w = [const(np.random.default_rng(i).normal(size=s), "float32") for i, s in
             enumerate([(4, 3, 3, 3), (4, 4, 3, 3)])]
        y: relay.Expr = x
        for each in w:
            y = relay.nn.conv2d(y, each, kernel_size=(3, 3), channels=4)
        inner = relay.Function([x], y).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        z = relay.var("z", shape=(1, 3, 6, 6))
        with pytest.raises(tvm.TVMError, match="(?i)complicated|anchor"):
            build(module(relay.Call(inner, [z]), z))

    @pytest.mark.case("B02")
    def test_a_primitive_function_that_is_not_ours(self) -> None:
        """B02: handed straight to our codegen, it is refused by us, with what to do."""
        x = relay.var("x", shape=(1, 4))
        function = relay.Function([x], relay.nn.relu(x)).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        with pytest.raises(HostError, match="Compiler.*partition the module with byoc_accel.relay.partition"):
            tvm.get_global_func("relay.ext.byoc_accel")(function)

    def test_an_external_function_that_another_partitioner_made(self) -> None:
        x = relay.var("x", shape=(1, 4))
        function = relay.Function([x], relay.nn.relu(x)).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = function.with_attr("Compiler", "byoc_accel").with_attr("global_symbol", "foreign")
        with pytest.raises(HostError, match="foreign has no attribute wia_target; partition"):
            import_function(function)


def big_dense(units: int = 1024) -> tuple[tvm.IRModule, np.ndarray]:
    w = weight(units, units, 0)
    x = relay.var("x", shape=(1, units), dtype="int8")
    return module(dense_with(x, w)), w


class TestConstants:
    """Seed 3: a weight exists once, inside its program."""

    @pytest.mark.case("B03")
    def test_exported_library(self, tmp_path: Path) -> None:
        """B03: 1 MiB of weights; their bytes are found nowhere but in the program."""
        mod, w = big_dense()
        part, _ = ba.partition(mod)
        library = build(part)
        assert not library.get_params()
        library.export_library(str(tmp_path / "m.so"))
        blob = (tmp_path / "m.so").read_bytes()
        assert not [n for n in json.loads(library.get_graph_json())["nodes"] if "p0" in n["name"]]
        images = [(at, image) for at, image in find_images(blob)]
        assert len(images) == 1
        assert len(blob) <= len(images[0][1].program.code) + 95_000
        assert copies(blob, w) == (0, 0)

    @pytest.mark.case("B03")
    def test_fresh_process(self, tmp_path: Path) -> None:
        """Loads without this package, prints no warning, gives the same bytes."""
        mod, _ = big_dense(128)
        part, _ = ba.partition(mod)
        build(part).export_library(str(tmp_path / "m.so"))
        inputs = random_inputs(mod)
        np.savez(tmp_path / "in.npz", **inputs)
        code = ("import numpy, tvm; from tvm.contrib import graph_executor as g; "
                f"m = g.GraphModule(tvm.runtime.load_module({str(tmp_path / 'm.so')!r})['default'](tvm.cpu())); "
                f"m.set_input('x', numpy.load({str(tmp_path / 'in.npz')!r})['x']); m.run(); import sys; "
                "assert not [n for n in sys.modules if n.startswith('byoc')]; "
                f"numpy.save({str(tmp_path / 'out.npy')!r}, m.get_output(0).numpy())")
        result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0 and "annot find" not in result.stderr, result.stderr
        compare([np.load(tmp_path / "out.npy")], run(mod, inputs))

    @pytest.mark.case("B03")
    @pytest.mark.case("B07")
    def test_virtual_machine(self, tmp_path: Path) -> None:
        """B03, B07: no constant at all is left for the VM, with and without late binding; save, load, run."""
        mod, w = big_dense(256)
        part, _ = ba.partition(mod)
        inputs = random_inputs(mod)
        with tvm.transform.PassContext(opt_level=3):
            executable = relay.vm.compile(part, target=TARGET)
        assert "int8" not in executable.constants and "float32" not in executable.constants  # sizes of buffers only
        code, library = executable.save()
        assert copies(bytes(code), w) == (0, 0)
        library.export_library(str(tmp_path / "vm.so"))
        assert copies((tmp_path / "vm.so").read_bytes(), w) == (0, 0)
        loaded = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(str(tmp_path / "vm.so")))
        machine = tvm.runtime.vm.VirtualMachine(loaded, tvm.cpu())
        compare([machine.run(**inputs).numpy()], run(mod, inputs))

    @pytest.mark.case("B03")
    @pytest.mark.parametrize("executor", ["graph", "vm"])
    def test_the_fault_when_the_updater_names_the_constants(self, executor: str) -> None:
        """Without the remedy: an updater that reports a region's constants, as TVM's default does."""
        mod, w = big_dense(256)
        part, _ = ba.partition(mod)

        def all_constants(function: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
            found: list[relay.Constant] = []
            relay.analysis.post_order_visit(
                function, lambda e: found.append(e) if isinstance(e, relay.Constant) else None)
            return {f"byoc_accel_{symbol}_const_{i}": c.data for i, c in enumerate(found)}

        try:
            tvm.register_func("relay.ext.byoc_accel.constant_updater", all_constants, override=True)
            assert any(v.numpy().nbytes == w.nbytes for v in build(part).get_params().values())
        finally:
            hook.register()
        assert not build(part).get_params()

    def test_a_constant_that_the_host_uses_too_stays_there(self) -> None:
        rng = np.random.default_rng(0)
        shared = const(rng.integers(-127, 128, (8, 8)), "int8")
        x = relay.var("x", shape=(8, 8), dtype="int8")
        y = dense_with(x, shared.data.numpy())
        mod = module(relay.Tuple([y, relay.maximum(x, shared)]))
        part, _ = ba.partition(mod)
        library = build(part)
        assert [v.shape for v in library.get_params().values()] == [(8, 8)]
        inputs = random_inputs(mod)
        compare(run_library(library, inputs), run(mod, inputs))

    def test_equal_programs_are_stored_once(self, tmp_path: Path) -> None:
        """Byte-identical programs, and only those, are stored once."""
        first, second = weight(64, 64, 1), weight(64, 64, 2)
        sizes = {}
        for name, matrices in {"one": [first], "same": [first] * 4, "two": [first, second] * 2}.items():
            mod = chain(matrices)
            part, _ = ba.partition(mod)
            library = build(part)
            library.export_library(str(tmp_path / f"{name}.so"))
            loaded = tvm.runtime.load_module(str(tmp_path / f"{name}.so"))
            inputs = random_inputs(mod)
            compare(run_library(loaded, inputs), run(mod, inputs))
            sizes[name] = len(list(find_images((tmp_path / f"{name}.so").read_bytes())))
            assert region_count(part) == len(matrices) == len(external_functions(part))
        assert sizes == {"one": 1, "same": 1, "two": 2}


def copies(blob: bytes, w: np.ndarray) -> tuple[int, int]:
    """How often a row of the weights stands in `blob` as int8 and as float32."""
    row = w[1]
    return blob.count(row.tobytes()[:64]), blob.count(row.astype("float32").tobytes()[:64])
