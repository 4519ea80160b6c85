"""What comes out of a build: the same bytes everywhere, large host constants, several models in one binary."""
from __future__ import annotations

import os
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
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.relay.codegen import glue  # noqa: E402
from tests.relay.models import (  # noqa: E402
    TARGET,
    compare,
    const,
    external_functions,
    module,
    qconv2d,
    qdense,
    random_inputs,
    run,
)


def float_model() -> tvm.IRModule:
    """Convolution, residual, pooling, dense: a region of every float layer."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 4, 6, 6), dtype="float32")
    w = [const(rng.normal(size=s), "float32") for s in ((4, 4, 3, 3), (3, 16))]
    y = relay.nn.conv2d(x, w[0], channels=4, kernel_size=(3, 3), padding=(1, 1))
    y = relay.nn.avg_pool2d(relay.nn.relu(relay.add(y, x)), (3, 3), (3, 3))
    return module(relay.nn.dense(relay.nn.batch_flatten(y), w[1]))


def images(mod: tvm.IRModule) -> list[bytes]:
    part, _ = ba.partition(mod, calibration=[random_inputs(mod, seed) for seed in range(4)])
    return [hook.compile_function(f)[1] for f in external_functions(part).values()]


@pytest.mark.case("B36")
def test_equal_bytes_whatever_the_hash_seed(root: Path) -> None:
    """B36"""
    code = ("import hashlib; from tests.relay.test_artifacts import *; "
            "print([hashlib.sha256(i).hexdigest() for i in images(float_model())])")
    outputs = {subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True,
                              env={**os.environ, "PYTHONHASHSEED": seed}).stdout.splitlines()[-1]
               for seed in ("0", "1")}
    assert len(outputs) == 1


@pytest.mark.case("B25")
def test_under_strict_floating_point() -> None:
    """B25: no warning of NumPy anywhere in the compiler."""
    expected = images(float_model())
    with np.errstate(all="raise"):
        assert images(float_model()) == expected


@pytest.mark.case("B06")
def test_two_models_in_one_binary(tmp_path: Path) -> None:
    """B06: the same network under two names, and another one, linked together with one runtime."""
    x = relay.var("x", shape=(1, 5, 5, 4), dtype="int8")
    models = {"one/net": 0, "one_net": 0, "other": 1}
    objects, symbols = [], []
    for name, seed in models.items():
        mod = module(qconv2d(x, 4, (1, 1), np.random.default_rng(seed), in_channels=4))
        (function,) = external_functions(ba.partition(mod, name=name)[0]).values()
        symbol, image = hook.compile_function(function)
        objects.append(glue.build_region_object(symbol, image, tmp_path))
        symbols.append(symbol)
    library = glue.link_shared([*objects, glue.build_runtime_object(glue.RUNTIME_ARCHIVE, tmp_path)], tmp_path)
    loaded = tvm.runtime.load_module(str(library))
    assert len(set(symbols)) == 3 and all(loaded.get_function(symbol) for symbol in symbols)


@pytest.mark.case("B07")
@pytest.mark.parametrize("late", [False, True])
def test_virtual_machine_with_a_large_host_constant(late: bool, tmp_path: Path) -> None:
    """B07: 8 MiB stay with the host, with and without late binding; our runtime asks the VM for nothing."""
    rng = np.random.default_rng(0)
    table = rng.integers(-128, 128, (8 << 20) // 64 * 64).astype("int8").reshape(-1, 64)
    x = relay.var("x", shape=(1, 64), dtype="int8")
    y = qdense(x, 64, rng, in_units=64)
    mod = module(relay.max(relay.minimum(y, const(table)), axis=0))
    part, report = ba.partition(mod)
    assert len(report.regions) == 1
    with tvm.transform.PassContext(opt_level=3):
        executable = relay.vm.compile(part, target=TARGET)
    if late:
        executable.move_late_bound_consts(str(tmp_path / "consts"), 1 << 20)
    code, library = executable.save()
    assert late == (len(code) < 1 << 20)
    library.export_library(str(tmp_path / "vm.so"))
    loaded = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(str(tmp_path / "vm.so")))
    if late:
        loaded.load_late_bound_consts(str(tmp_path / "consts"))
    inputs = random_inputs(mod)
    machine = tvm.runtime.vm.VirtualMachine(loaded, tvm.cpu())
    compare([machine.run(**inputs).numpy()], run(mod, inputs))
