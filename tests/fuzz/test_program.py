"""C side of the simulator: strict warnings, sanitizers over hostile programs, stand-alone runner."""
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from byoc_accel import sim
from byoc_accel.compile import compile_qregion
from byoc_accel.isa.encode import encode
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.report import QuantReport
from byoc_accel.target import load_target
from tests import qregions
from tests.hw_sim import hostile

ROOT = Path(__file__).resolve().parents[2]
CORE = sorted(str(p) for p in ROOT.glob("hw_sim/src/*.c") if p.name != "main.c")
MAIN = str(ROOT / "hw_sim/src/main.c")
FUZZ = [str(ROOT / "tests/fuzz/fuzz_program.c"), str(ROOT / "tests/fuzz/replay.c")]
INCLUDE = [f"-I{ROOT}/hw_sim/include", f"-I{ROOT}/runtime_c/include"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]
SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def build(folder: Path, name: str, sources: list[str], flags: list[str]) -> Path:
    program = folder / name
    result = subprocess.run(["gcc", *STRICT, *flags, *INCLUDE, *sources, "-o", str(program)], capture_output=True,
                            text=True)
    assert result.returncode == 0, result.stderr
    return program


def links(folder: Path, flag: str) -> bool:
    """This gcc can build and start programs with `flag`."""
    source, program = folder / "probe.c", folder / "probe"
    source.write_text("#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n")
    built = subprocess.run(["gcc", flag, str(source), "-o", str(program)], capture_output=True)
    return built.returncode == 0 and subprocess.run([str(program)], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sim")


def replay(program: Path, folder: Path, seed: int, count: int) -> None:
    names = []
    for number, data in enumerate(hostile.fuzz_inputs(seed, count)):
        path = folder / f"input{seed}_{number}"
        path.write_bytes(data)
        names.append(str(path))
    result = subprocess.run([str(program), *names], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout == f"{count} inputs\n"


def test_hostile_programs_under_sanitizers(folder: Path) -> None:
    if not links(folder, "-fsanitize=address,undefined"):
        pytest.skip("gcc has no address sanitizer here")
    replay(build(folder, "fuzz_asan", CORE + FUZZ, SANITIZERS), folder, 7, 2000)


def test_fuzz_target_with_plain_gcc(folder: Path) -> None:
    replay(build(folder, "fuzz_plain", CORE + FUZZ, ["-O2"]), folder, 8, 2000)


@pytest.fixture(scope="module")
def runner(folder: Path) -> Path:
    """main.c, under sanitizers where gcc has them."""
    flags = SANITIZERS if links(folder, "-fsanitize=address,undefined") else ["-O2"]
    return build(folder, "wia_sim", [*CORE, MAIN], flags)


@pytest.mark.case("B18")
def test_depthwise_larger_than_its_input_twenty_times(folder: Path, runner: Path) -> None:
    """1 x 72 x 7 x 1, 5 x 5, stride 2, pad 2: no access beside a buffer, and NumPy's bytes in every run."""
    net = qregions.one_conv((1, 7, 1, 72), (72, 5, 5, 1), groups=72, stride=(2, 2), padding=(2, 2, 2, 2))
    target = load_target("reference")
    program = compile_qregion(net, QuantReport("one_conv", "exact", "model", 0, ()), target).program
    numbers = ",".join(map(str, target.numbers()))
    (folder / "depthwise").write_bytes(program.code)
    for seed in range(20):
        x = np.random.default_rng(seed).integers(-128, 128, (1, 7, 1, 72)).astype(np.int8)
        expected = interpret(net, [x])["y"]
        assert expected.shape == (1, 4, 1, 72)
        (folder / "x").write_bytes(x.tobytes())
        done = subprocess.run([str(runner), "--target", numbers, "depthwise", "in:x", f"out:{expected.size}:y"],
                              capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr[-2000:]
        assert (folder / "y").read_bytes() == expected.tobytes()


def test_standalone_runner(folder: Path, runner: Path) -> None:
    """main.c under sanitizers gives the bytes and cycles that Python sees; faults have exit code 1."""
    target = load_target("tiny")
    code = b"".join(map(encode, hostile.valid_program()))
    x = np.random.default_rng(1).integers(-128, 128, 700).astype(np.int8)
    y = np.zeros(300, np.int8)
    expected = sim.simulate(code, target, [x, y], writable=[False, True], trace=True)
    (folder / "code").write_bytes(code)
    (folder / "x").write_bytes(x.tobytes())
    numbers = ",".join(map(str, target.numbers()))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(runner), "--target", numbers, *arguments], capture_output=True, text=True,
                              cwd=folder)

    for kernel in sim.kernels():
        done = run("--kernel", kernel, "--trace", "100000", "code", "in:x", "out:300:y")
        assert done.returncode == 0, done.stderr
        assert f"cycles {expected.cycles} macs {expected.total.macs} " in done.stdout
        assert done.stdout.splitlines()[-len(expected.trace):] == list(expected.trace)
        assert (folder / "y").read_bytes() == y.tobytes()
    assert run("code", "in:x").returncode == 1 and "external buffer missing" in run("code", "in:x").stdout
    assert run("--limit", "50", "code", "in:x", "out:300").returncode == 1
    for bad in (["--mode", "fast", "code"], ["--mode"], ["code", "in:nowhere"], ["nowhere"], []):
        assert run(*bad).returncode == 2, bad


def test_warnings_at_o2_and_in_32_bits(folder: Path) -> None:
    for source in [*CORE, MAIN]:
        assert compiles(folder, source, "-O2") == "", source
    if "fatal error" in compiles(folder, FUZZ[0], "-m32"):
        pytest.skip("no 32-bit C library here")
    for source in [*CORE, MAIN]:
        assert compiles(folder, source, "-m32") == "", source


def compiles(folder: Path, source: str, flag: str) -> str:
    """What gcc says about one file."""
    return subprocess.run(["gcc", *STRICT, flag, *INCLUDE, "-c", source, "-o", str(folder / "x.o")],
                          capture_output=True, text=True).stderr
