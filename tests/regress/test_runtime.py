"""Public bug reports about runtime, simulator and build (B03, B34 to B36, S8)."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.compile import compile_qregion  # noqa: E402
from byoc_accel.errors import HostError  # noqa: E402
from byoc_accel.quantize.interpret import interpret  # noqa: E402
from byoc_accel.quantize.report import QuantReport  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.relay.codegen import glue  # noqa: E402
from byoc_accel.relay.files.execute import Executor  # noqa: E402
from byoc_accel.sim import simulate_program  # noqa: E402
from byoc_accel.target import load_target  # noqa: E402
from tests import qregions  # noqa: E402
from tests.relay.models import (  # noqa: E402
    TARGET,
    build,
    compare,
    const,
    external_functions,
    module,
    qconv2d,
    qdense,
    random_inputs,
    run,
    run_aot,
    run_library,
)


def small(seed: int = 0, units: int = 8) -> tvm.IRModule:
    x = relay.var("x", shape=(1, 16), dtype="int8")
    return module(qdense(x, units, np.random.default_rng(seed), in_units=16))


NETS = {"residual": qregions.residual_net(size=8, channels=20),
        "depthwise": qregions.one_conv((1, 9, 7, 20), (20, 3, 3, 1), groups=20, padding=(1, 1, 1, 1)),
        "blocks": qregions.one_conv((1, 60, 40, 16), (16, 3, 3, 16), padding=(1, 1, 1, 1), stride=(2, 1))}


@pytest.mark.case("B34")
@pytest.mark.parametrize("target", ["reference", "tiny"])
@pytest.mark.parametrize("name", NETS)
def test_what_memories_hold_before_a_run_changes_nothing(name: str, target: str) -> None:
    """SRAM, accumulators, parameters and buffers full of 0x00, 0xFF and noise; tracing; counters within their
    bounds."""
    hardware, net = load_target(target), NETS[name]
    program = compile_qregion(net, QuantReport(name, "exact", "model", 0, ()), hardware).program
    (port,) = net.inputs
    x = np.random.default_rng(1).integers(-128, 128, net.by_name()[port.tensor].shape).astype(np.int8)
    expected = interpret(net, [x])[net.outputs[0].tensor]
    stats = []
    for options in ({"fill": "zero"}, {"fill": "ones"}, *({"fill": "noise", "seed": s} for s in (1, 2)),
                    {"fill": "noise", "trace": True}):
        outputs, result = simulate_program(program, hardware, {program.buffers[0].name: x}, **options)
        (found,) = outputs.values()
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)
        assert bool(result.trace) == options.get("trace", False)
        stats.append(result.to_json())
    assert len(set(stats)) == 1
    assert result.cycles >= -(-result.total.macs // hardware.macs_per_cycle) and 0 < result.utilisation <= 1
    assert all(unit.busy_cycles <= result.cycles for unit in result.total.units)


@pytest.mark.case("B35")
def test_a_region_without_the_runtime_names_what_is_missing(tmp_path: Path) -> None:
    (function,) = external_functions(ba.partition(small())[0]).values()
    symbol, image = hook.compile_function(function)
    lonely = glue.build_region_object(symbol, image, tmp_path)
    with pytest.raises(HostError, match="wia_tvm_call"):
        glue.link_shared([lonely], tmp_path)
    with pytest.raises(HostError, match="runtime archive .*libnone.a is missing; install byoc-accel again"):
        glue.build_runtime_object(tmp_path / "libnone.a", tmp_path)


EXPORT = """
import sys
from pathlib import Path
from tests.regress.test_runtime import *
folder = Path(sys.argv[1])
mod = small()
build(ba.partition(mod)[0]).export_library(str(folder / "model.so"))
loaded = tvm.runtime.load_module(str(folder / "model.so"))
compare(run_library(loaded, random_inputs(mod)), run(mod, random_inputs(mod)))
np.save(folder / "expected.npy", run(mod, random_inputs(mod))[0])
np.save(folder / "x.npy", random_inputs(mod)["x"])
"""

RUN = """
import sys, numpy, tvm
from tvm.contrib import graph_executor
folder = sys.argv[1]
module = graph_executor.GraphModule(tvm.runtime.load_module(folder + "/model.so")["default"](tvm.cpu()))
module.set_input("x", numpy.load(folder + "/x.npy"))
module.run()
assert (module.get_output(0).numpy() == numpy.load(folder + "/expected.npy")).all()
assert not [name for name in sys.modules if name.startswith("byoc")]
"""


@pytest.mark.case("B36")
@pytest.mark.case("S8")
def test_paths_with_spaces_and_accents_and_an_unwritable_tmpdir(tmp_path: Path, root: Path) -> None:
    """Built and exported where the temporary folder cannot be written (/proc, even for root), into a folder with a
    space and an accent; moved away afterwards, it runs from another working directory with nothing else left."""
    folder = tmp_path / "dir with space" / "é"
    folder.mkdir(parents=True)
    environment = {**os.environ, "TMPDIR": "/proc/none"}
    made = subprocess.run([sys.executable, "-c", EXPORT, str(folder)], cwd=root, env=environment, capture_output=True,
                          text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    moved = tmp_path / "elsewhere é"
    shutil.move(folder, moved)
    shutil.rmtree(tmp_path / "dir with space")
    result = subprocess.run([sys.executable, "-I", "-c", RUN, str(moved)], cwd="/", env=environment,
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.case("B36")
def test_a_library_without_suffix_is_refused_in_words(tmp_path: Path) -> None:
    """#5747: no riddle of a linker."""
    build(ba.partition(small())[0]).export_library(str(tmp_path / "model.so"))
    (tmp_path / "model.so").rename(tmp_path / "model")
    with pytest.raises(HostError, match="name ends with .so"):
        Executor(tmp_path / "model")


@pytest.mark.case("B36")
def test_eight_threads_compile_and_run() -> None:
    """Each partitions and compiles a model of its own while all run one loaded module."""
    shared = build(ba.partition(small())[0])
    inputs = random_inputs(small())
    (expected,) = run(small(), inputs)
    alone = [image_of(small(seed, 4 + seed)) for seed in range(8)]
    failures: list[str] = []

    def work(seed: int) -> None:
        try:
            if image_of(small(seed, 4 + seed)) != alone[seed]:
                failures.append(f"{seed}: another image")
            for _ in range(3):
                if (run_library(shared, inputs)[0] != expected).any():
                    failures.append(f"{seed}: another result")
        except Exception as error:  # of a thread, which pytest would not see
            failures.append(f"{seed}: {error!r}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def image_of(mod: tvm.IRModule) -> bytes:
    (function,) = external_functions(ba.partition(mod)[0]).values()
    return hook.compile_function(function)[1]


FORK = """
import os, sys
from tests.regress.test_runtime import *
children = []
for seed in range(8):
    child = os.fork()
    if not child:
        mod = small(seed, 4 + seed)
        (found,) = run(ba.partition(mod)[0], random_inputs(mod))
        (expected,) = run(mod, random_inputs(mod))
        os._exit(int((found != expected).any()))
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
"""


@pytest.mark.case("B36")
def test_eight_processes_build_at_once(tmp_path: Path, root: Path) -> None:
    """All of them find no compiled plugin and make it: each gets a whole one."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", FORK], cwd=root, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.case("B36")
def test_four_mebibytes_of_weights_build_quickly(tmp_path: Path) -> None:
    """2048 x 2048 int8: object and library of the region take the compiler below a minute and a GB (in fact a tenth of
    a second), and partitioning little more."""
    import resource
    import time

    x = relay.var("x", shape=(1, 2048), dtype="int8")
    part, _ = ba.partition(module(qdense(x, 2048, np.random.default_rng(0), in_units=2048)))
    (function,) = external_functions(part).values()
    symbol, image = hook.compile_function(function)
    start = time.monotonic()
    content = glue.build_region_object(symbol, image, tmp_path)
    glue.link_shared([content, glue.build_runtime_object(glue.RUNTIME_ARCHIVE, tmp_path)], tmp_path)
    assert time.monotonic() - start < 60
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20  # KiB


@pytest.mark.case("B36")
def test_entry_points_for_aarch64(tmp_path: Path) -> None:
    """A region's object for another processor: the entry point calls the runtime, the image is read-only data."""
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    if compiler is None:
        pytest.skip("no aarch64-linux-gnu-gcc")
    (tmp_path / "image.bin").write_bytes(bytes(64))
    (tmp_path / "region.c").write_text(glue.entry_source("wia_x", bytes(64)))
    subprocess.run([compiler, "-c", "-O2", "-fPIC", "region.c", "-o", "region.o"], cwd=tmp_path, check=True)


@pytest.mark.case("B03")
def test_relay_vm_library_is_hardly_larger_than_its_program(tmp_path: Path) -> None:
    """The size rule of the graph executor for the Relay VM (which takes the place of Relax's): no second copy of the
    weights in bytecode or library."""
    weight_bytes = 512 * 512
    x = relay.var("x", shape=(1, 512), dtype="int8")
    mod = module(qdense(x, 512, np.random.default_rng(0), in_units=512))
    with tvm.transform.PassContext(opt_level=3):
        executable = relay.vm.compile(ba.partition(mod)[0], target=TARGET)
    code, library = executable.save()
    library.export_library(str(tmp_path / "vm.so"))
    assert len(code) < 10_000
    assert (tmp_path / "vm.so").stat().st_size <= 1.15 * weight_bytes + 200_000


@pytest.mark.case("B36")
def test_two_activations_of_different_shapes_keep_their_order(tmp_path: Path) -> None:
    """A region whose second parameter is used first, under the graph executor and AOT."""
    rng = np.random.default_rng(0)
    a, b = relay.var("a", shape=(1, 5, 5, 3), dtype="int8"), relay.var("b", shape=(1, 3, 3, 4), dtype="int8")
    y = qconv2d(b, 4, (1, 1), rng, in_channels=4)
    z = qconv2d(a, 4, (3, 3), rng, in_channels=3)
    total = relay.qnn.op.add(y, z, *[const(v, t) for _ in range(3) for v, t in ((0.06, "float32"), (7, "int32"))])
    mod = module(total, a, b)
    part, report = ba.partition(mod)
    assert len(report.regions) == 1
    expected = run(mod, random_inputs(mod))
    compare(run(part, random_inputs(mod)), expected)
    compare(run_aot(part, random_inputs(mod), tmp_path), expected)
