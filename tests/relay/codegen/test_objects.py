"""Object files and libraries of regions: made late, together, and each from its own region alone."""
from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.errors import HostError  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.relay.codegen import glue, objects  # noqa: E402
from tests.relay.models import (  # noqa: E402
    build,
    compare,
    external_functions,
    module,
    qdense,
    random_inputs,
    run,
    run_library,
)


def chain(layers: int, seed: int = 0) -> tvm.IRModule:
    y: relay.Expr = relay.var("x", shape=(1, 8), dtype="int8")
    for layer in range(layers):
        y = qdense(y, 8, np.random.default_rng(100 * seed + layer), in_units=8, zp=(7, 7), scales=(0.06, 0.06))
        y = relay.reverse(y, axis=1)
    return module(y)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the C compiler was asked for."""
    made: list[str] = []
    run_cc = glue._run_cc
    monkeypatch.setattr(glue, "_run_cc", lambda folder, args: made.append(args[0]) or run_cc(folder, args))
    return made


def test_a_build_calls_no_compiler_and_a_run_links_once(calls: list[str]) -> None:
    objects.runtime_object(glue.RUNTIME_ARCHIVE.resolve())
    del calls[:]
    mod = chain(5)
    library = build(ba.partition(mod)[0])
    assert calls == []
    inputs = random_inputs(mod)
    compare(run_library(library, inputs), run(mod, inputs))
    assert calls.count("-shared") == 1 and calls.count("-c") >= 5
    compare(run_library(library, inputs), run(mod, inputs))
    assert calls.count("-shared") == 1


def test_an_export_links_nothing_for_running(calls: list[str], tmp_path: Path) -> None:
    mod = chain(3)
    build(ba.partition(mod)[0]).export_library(str(tmp_path / "lib.so"))
    assert "-shared" not in calls
    inputs = random_inputs(mod)
    compare(run_library(tvm.runtime.load_module(str(tmp_path / "lib.so")), inputs), run(mod, inputs))


def test_errors_come_when_code_is_needed_and_do_not_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mod, inputs = chain(2), random_inputs(chain(2))
    with monkeypatch.context() as patch:
        patch.setenv("CC", "no-such-compiler")
        library = build(ba.partition(mod)[0])
        with pytest.raises(HostError, match=r"no C compiler found \(tried no-such-compiler\).*set CC"):
            library.export_library(str(tmp_path / "lib.so"))
        with pytest.raises(HostError, match="no C compiler found"):
            run_library(library, inputs)
    compare(run_library(library, inputs), run(mod, inputs))


def test_an_object_depends_on_its_region_alone(tmp_path: Path) -> None:
    functions = external_functions(ba.partition(chain(4))[0]).values()
    compiled = [hook.compile_function(function) for function in functions]
    waiting = [objects.Region(symbol, image, glue.RUNTIME_ARCHIVE) for symbol, image in compiled]
    for region, (symbol, image) in zip(waiting, compiled):
        folder = tmp_path / symbol
        folder.mkdir()
        assert region.object_bytes() == glue.build_region_object(symbol, image, folder)


def test_equal_symbols_with_other_contents_do_not_meet() -> None:
    """Two models built before either runs, with one symbol between them."""
    mods = [chain(1, seed) for seed in (1, 2)]
    regions = []
    for mod in mods:
        (function,) = external_functions(ba.partition(mod)[0]).values()
        regions.append(objects.Region("wia_twin", hook.compile_function(function)[1], glue.RUNTIME_ARCHIVE))
    libraries = [region.library() for region in regions]
    for mod, library in zip(mods, libraries):
        x = random_inputs(mod)["x"]
        y = tvm.nd.array(np.zeros((1, 8), "int8"))
        library["wia_twin"](tvm.nd.array(x), y)
        compare([y.numpy()[:, ::-1]], run(mod, {"x": x}))


def test_a_region_that_does_not_compile_spoils_no_other() -> None:
    (function,) = external_functions(ba.partition(chain(1))[0]).values()
    _, image = hook.compile_function(function)
    bad = objects.Region("int", image, glue.RUNTIME_ARCHIVE)
    good = objects.Region("wia_good", image, glue.RUNTIME_ARCHIVE)
    assert good.library()["wia_good"]
    with pytest.raises(HostError, match="failed on a region: .*error"):
        bad.library()


def test_threads_that_run_a_fresh_build(calls: list[str]) -> None:
    mod = chain(3)
    library = build(ba.partition(mod)[0])
    inputs = random_inputs(mod)
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(run_library(library, inputs)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (expected,) = run(mod, inputs)
    assert len(results) == 8 and all((r == expected).all() for r in results)
    assert calls.count("-shared") == 1
