"""How compiled regions live in TVM: plugin, object files, linking, three executors, no second constants.

The runtime is a fake in C here: an image says how many tensors come in, and the function it computes.
The expected values are NumPy's.
"""
from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.errors import HostError

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402
from tvm.relay.backend import Executor, Runtime  # noqa: E402

from byoc_accel.relay import hook  # noqa: E402
from tests.relay.models import nm  # noqa: E402

TARGET = "llvm -mtriple=x86_64-linux-gnu"
SHAPE = (1, 4, 6, 8)
COUNT = int(np.prod(SHAPE))
EXECUTORS = ["graph", "vm", "aot"]
MAGIC = 0x46414B45

# out[i] = gain * (sum of inputs)[i] + offsets[i]. Checks what TVM passes; errors go where TVM looks for them.
FAKE_RUNTIME = r"""
#include <stdint.h>
#include <stddef.h>
#include <string.h>
typedef struct { int32_t type, id; } dev_t;
typedef struct { uint8_t code, bits; uint16_t lanes; } dtype_t;
typedef struct { void* data; dev_t dev; int32_t ndim; dtype_t dtype; int64_t* shape; int64_t* strides;
                 uint64_t byte_offset; } tensor_t;
typedef struct { int32_t magic, inputs, count; float gain; float offsets[]; } image_t;
void TVMAPISetLastError(const char*) __attribute__((weak));
static int fail(const char* text) { if (TVMAPISetLastError) TVMAPISetLastError(text); return -1; }
extern int fake_runtime_calls;  /* lives in the other member of the archive */
int wia_tvm_call(const void* image, size_t size, const void* args, const int* codes, int n) {
  const image_t* im = image;
  tensor_t* const* t = args;
  if ((uintptr_t)image % 64 != 0) return fail("fake: image is misaligned");
  if (im->magic != 0x46414B45 || size != sizeof *im + 4u * (size_t)im->count) return fail("fake: bad image");
  if (n != im->inputs + 1) return fail("fake: wrong number of tensors");
  for (int i = 0; i < n; i++) {
    int64_t count = 1;
    if (codes[i] != 7 && codes[i] != 13) return fail("fake: an argument is no tensor");
    for (int d = 0; d < t[i]->ndim; d++) count *= t[i]->shape[d];
    if (t[i]->dtype.code != 3 && count != im->count) return fail("fake: wrong shape");
  }
  fake_runtime_calls++;
  for (int64_t i = 0; i < im->count; i++) {
    float sum = 0;
    for (int k = 0; k < im->inputs; k++) sum += ((float*)t[k]->data)[i];
    ((float*)t[im->inputs]->data)[i] = im->gain * sum + im->offsets[i];
  }
  return 0;
}
"""


def fake_image(inputs: int, gain: float, offsets: np.ndarray) -> bytes:
    return struct.pack("<iiif", MAGIC, inputs, offsets.size, gain) + offsets.astype("<f4").tobytes()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake runtime as a static archive of two members, built as the real one is."""
    folder = tmp_path_factory.mktemp("fake runtime")
    (folder / "fake.c").write_text(FAKE_RUNTIME)
    (folder / "count.c").write_text("int fake_runtime_calls = 0;\n")
    flags = ["-O1", "-fPIC", "-fvisibility=hidden"]
    subprocess.run(["cc", "-c", *flags, "fake.c", "count.c"], cwd=folder, check=True)
    subprocess.run(["ar", "rcs", "libfake.a", "fake.o", "count.o"], cwd=folder, check=True)
    return folder / "libfake.a"


class Model:
    """main(x) = exp(b(a(x), x)) * host, with external functions a and b that hold different constants."""

    def __init__(self, seed: int, prefix: str = "wia_test"):
        rng = np.random.default_rng(seed)
        self.symbols = (f"{prefix}_a", f"{prefix}_b")
        self.gains = (0.5, -0.25)
        self.offsets = [rng.normal(size=SHAPE).astype("float32") for _ in range(2)]
        self.host = rng.normal(size=SHAPE).astype("float32")
        self.images = {
            symbol: fake_image(inputs, gain, offsets)
            for symbol, inputs, gain, offsets in zip(self.symbols, (1, 2), self.gains, self.offsets)
        }
        self.module = self._relay()

    def _relay(self) -> tvm.IRModule:
        # The body of an external function is ours; only its constants matter to the host.
        def region(symbol: str, names: list[str], offsets: np.ndarray) -> relay.Function:
            params = [relay.var(name, shape=SHAPE, dtype="float32") for name in names]
            body = params[0]
            for param in params[1:]:
                body = relay.add(body, param)
            body = relay.add(body, relay.const(offsets))
            func = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))["main"]
            one = tvm.tir.IntImm("int32", 1)
            for key, value in {"Primitive": one, "Inline": one, "Compiler": "byoc_accel"}.items():
                func = func.with_attr(key, value)
            return func.with_attr("global_symbol", symbol)

        module = tvm.IRModule()
        first, second = (relay.GlobalVar(symbol) for symbol in self.symbols)
        module[first] = region(self.symbols[0], ["p"], self.offsets[0])
        module[second] = region(self.symbols[1], ["p", "q"], self.offsets[1])
        x = relay.var("x", shape=SHAPE, dtype="float32")
        y = relay.Call(second, [relay.Call(first, [x]), x])
        module["main"] = relay.Function([x], relay.multiply(relay.exp(y), relay.const(self.host)))
        return relay.transform.InferType()(module)

    def compile(self, func: relay.Function) -> tuple[str, bytes]:
        symbol = str(func.attrs["global_symbol"])
        return symbol, self.images[symbol]

    def expected(self, x: np.ndarray) -> np.ndarray:
        a = self.gains[0] * x + self.offsets[0]
        b = self.gains[1] * (a + x) + self.offsets[1]
        return np.exp(b) * self.host

    def check(self, x: np.ndarray, got: np.ndarray) -> None:
        np.testing.assert_allclose(got, self.expected(x), rtol=2e-6, atol=1e-6)


@pytest.fixture
def model(archive: Path, request: pytest.FixtureRequest) -> Iterator[Model]:
    made = Model(seed=1)
    hook.register(made.compile, archive)
    yield made
    hook.register()


def build(model: Model, executor: str):
    with tvm.transform.PassContext(opt_level=3):
        if executor == "graph":
            return relay.build(model.module, TARGET)
        if executor == "aot":
            return relay.build(model.module, TARGET, executor=Executor("aot"), runtime=Runtime("cpp"))
        return relay.vm.compile(model.module, TARGET)


def runner(executor: str, lib) -> Callable[[np.ndarray], np.ndarray]:
    """`lib` is what relay.build or relay.vm.compile gave, or a loaded library."""
    device = tvm.cpu()
    if executor == "vm":
        machine = tvm.runtime.vm.VirtualMachine(lib, device)
        return lambda x: machine.invoke("main", tvm.nd.array(x)).numpy()
    wrap = graph_executor.GraphModule if executor == "graph" else tvm.runtime.executor.AotModule
    module = lib.module if hasattr(lib, "module") else lib
    executor_module = wrap(module["default"](device))

    def run(x: np.ndarray) -> np.ndarray:
        executor_module.run(x=tvm.nd.array(x))
        return executor_module.get_output(0).numpy()

    return run


def export(executor: str, lib, path: Path) -> None:
    """Writes path, and for the VM the bytecode beside it, as `.ro`."""
    if executor == "vm":
        code, library = lib.save()
        path.with_suffix(".ro").write_bytes(code)
        library.export_library(str(path))
    else:
        lib.export_library(str(path))


FRESH = """
import sys
import numpy as np
import tvm.runtime
import tvm.runtime.ndarray as nd
executor, path, inputs, outputs = sys.argv[1:]
device = nd.cpu(0)
module = tvm.runtime.load_module(path)
x = nd.array(np.load(inputs))
if executor == "vm":
    from tvm.runtime import vm
    machine = vm.VirtualMachine(vm.Executable.load_exec(open(path[:-3] + ".ro", "rb").read(), module), device)
    y = machine.invoke("main", x).numpy()
else:
    run = module["default"](device)
    run["set_input"]("x", x)
    run["run"]()
    y = run["get_output"](0).numpy()
assert not any(name.split(".")[0] == "byoc_accel" for name in sys.modules)
np.save(outputs, y)
"""


def run_in_fresh_process(executor: str, path: Path, x: np.ndarray) -> np.ndarray:
    inputs, outputs, script = (path.parent / name for name in ("in.npy", "out.npy", "fresh.py"))
    np.save(inputs, x)
    script.write_text(FRESH)
    # The runtime library has no compiler in it; -I keeps this checkout off the path.
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1"}
    subprocess.run(
        [sys.executable, "-I", str(script), executor, str(path), str(inputs), str(outputs)],
        check=True, cwd=path.parent, env=environment,
    )  # fmt: skip
    return np.load(outputs)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(7).normal(size=SHAPE).astype("float32")


@pytest.mark.case("S4")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_runs_straight_after_the_build(model: Model, executor: str, x: np.ndarray) -> None:
    run = runner(executor, build(model, executor))
    model.check(x, run(x))
    model.check(-x, run(-x))


@pytest.mark.case("B36")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_exported_library_runs_in_a_process_with_only_the_runtime(
    model: Model, executor: str, x: np.ndarray, tmp_path: Path
) -> None:
    folder = tmp_path / "with space und größe"
    folder.mkdir()
    export(executor, build(model, executor), folder / "lib.so")
    model.check(x, run_in_fresh_process(executor, folder / "lib.so", x))


def test_a_build_can_be_exported_twice_and_still_runs(model: Model, x: np.ndarray, tmp_path: Path) -> None:
    lib = build(model, "graph")
    lib.export_library(str(tmp_path / "first.so"))
    lib.export_library(str(tmp_path / "second.so"))
    for name in ["first.so", "second.so"]:
        model.check(x, runner("graph", tvm.runtime.load_module(str(tmp_path / name)))(x))
    model.check(x, runner("graph", lib)(x))


def test_tar_export_links_in_any_order(model: Model, x: np.ndarray, tmp_path: Path) -> None:
    build(model, "graph").export_library(str(tmp_path / "lib.tar"))
    model.check(x, runner("graph", tvm.runtime.load_module(str(tmp_path / "lib.tar")))(x))


def test_library_exports_the_entry_points_and_holds_one_runtime(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    build(model, "graph").export_library(str(path))
    names = {line.split()[-1] for line in nm("-D", "--defined-only", path)}
    assert set(model.symbols) <= names
    assert not any("wia_region_image" in name or "wia_tvm_call" in name or "fake" in name for name in names)
    defined = [line.split()[-1] for line in nm(path) if len(line.split()) == 3]
    assert defined.count("wia_tvm_call") == 1
    for image in model.images.values():
        assert path.read_bytes().count(image) == 1


@pytest.mark.parametrize("executor", EXECUTORS)
def test_constants_of_regions_are_nowhere_but_in_their_images(
    model: Model, executor: str, tmp_path: Path
) -> None:
    lib = build(model, executor)
    path = tmp_path / "lib.so"
    export(executor, lib, path)
    content = path.read_bytes()
    if executor != "vm":  # the VM keeps them in its bytecode file
        assert model.host.tobytes() in content
    for offsets in model.offsets:
        assert content.count(offsets.tobytes()) == 1  # the fake image holds them as they are
    if executor == "vm":
        assert all(offsets.tobytes() not in path.with_suffix(".ro").read_bytes() for offsets in model.offsets)
        late = tmp_path / "late.bin"
        with tvm.transform.PassContext(opt_level=3):
            executable = relay.vm.compile(model.module, TARGET)
        executable.move_late_bound_consts(str(late), byte_limit=4)
        assert late.read_bytes().count(model.host.tobytes()) == 1
        assert all(offsets.tobytes() not in late.read_bytes() for offsets in model.offsets)
    else:
        params = [value.numpy().tobytes() for value in lib.get_params().values()]
        assert model.host.tobytes() in params or executor == "aot"  # AOT keeps them in its code
        assert all(offsets.tobytes() not in params for offsets in model.offsets)
    if executor == "graph":
        assert len(lib.get_params()) == 1
        graph = json.loads(lib.get_graph_json())
        inputs = [node["name"] for node in graph["nodes"] if node["op"] == "null"]
        assert inputs == ["x", *lib.get_params()]


def test_without_the_updater_constants_are_stored_twice(model: Model) -> None:
    """Shows the fault that `update_constants` remedies (TVM #7981)."""
    name = "relay.ext.byoc_accel.constant_updater"
    tvm._ffi.registry.remove_global_func(name)
    params = [value.numpy().tobytes() for value in build(model, "graph").get_params().values()]
    assert all(offsets.tobytes() in params for offsets in model.offsets)


def test_two_models_with_the_same_graph_share_nothing(archive: Path, x: np.ndarray, tmp_path: Path) -> None:
    models = [Model(seed=1), Model(seed=2)]
    runners = []
    for index, model in enumerate(models):
        hook.register(model.compile, archive)
        for executor in ["graph", "vm"]:
            lib = build(model, executor)
            runners.append((model, runner(executor, lib)))
            if executor == "graph":
                lib.export_library(str(tmp_path / f"{index}.so"))
                loaded = tvm.runtime.load_module(str(tmp_path / f"{index}.so"))
                runners.append((model, runner(executor, loaded)))
    hook.register()
    assert not np.allclose(models[0].expected(x), models[1].expected(x))
    for model, run in runners:
        model.check(x, run(x))


def test_aot_symbol_clash_in_one_process_is_an_error_until_the_first_owner_is_gone(
    archive: Path, x: np.ndarray
) -> None:
    first, other = Model(seed=1, prefix="wia_clash"), Model(seed=2, prefix="wia_clash")
    hook.register(first.compile, archive)
    lib, again = build(first, "aot"), build(first, "aot")  # the same bytes may be there twice
    first.check(x, runner("aot", again)(x))
    del lib
    hook.register(other.compile, archive)
    with pytest.raises(HostError, match='"wia_clash_[ab]" already belongs to a region with other contents'):
        build(other, "aot")
    first.check(x, runner("aot", again)(x))
    del again
    other.check(x, runner("aot", build(other, "aot"))(x))
    hook.register()


def test_calls_inside_an_exported_library_stay_there(archive: Path, x: np.ndarray, tmp_path: Path) -> None:
    """An equally named region that the process already shows to all must not take them."""
    exported, exposed = Model(seed=3, prefix="wia_stay"), Model(seed=4, prefix="wia_stay")
    hook.register(exported.compile, archive)
    build(exported, "aot").export_library(str(tmp_path / "lib.so"))
    hook.register(exposed.compile, archive)
    lib = build(exposed, "aot")
    exposed.check(x, runner("aot", lib)(x))
    exported.check(x, runner("aot", tvm.runtime.load_module(str(tmp_path / "lib.so")))(x))
    hook.register()


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_errors_of_the_runtime_reach_the_user(model: Model, executor: str, x: np.ndarray) -> None:
    model.images[model.symbols[0]] = fake_image(3, 1.0, model.offsets[0])  # expects one tensor more
    run = runner(executor, build(model, executor))
    with pytest.raises(tvm.TVMError, match="fake: wrong number of tensors"):
        run(x)


def primitive(**attrs: object) -> relay.Function:
    p = relay.var("p", shape=SHAPE, dtype="float32")
    func = relay.Function([p], relay.nn.relu(p))
    for key, value in attrs.items():
        func = func.with_attr(key, value)
    return func


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (primitive(Primitive=1), "without global_symbol has no attribute Compiler, so it is a Primitive"),
        (primitive(Primitive=1, global_symbol="f"), '"f" has no attribute Compiler, so it is a Primitive'),
        (primitive(), "is a plain function and no region"),
        (primitive(Compiler="dnnl", global_symbol="f"), 'function "f" is meant for the compiler "dnnl"'),
        (primitive(Compiler="byoc_accel"), "a function without global_symbol cannot be called by the host"),
        (relay.const(1.0), "got a Constant, not a Relay function"),
    ],
)
def test_functions_that_are_no_regions_are_refused(func: relay.Expr, message: str) -> None:
    with pytest.raises(HostError, match=message) as raised:
        tvm.get_global_func("relay.ext.byoc_accel")(func)
    assert "byoc_accel.relay.partition" in str(raised.value)
    assert "\n" not in str(raised.value)
