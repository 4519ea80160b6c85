"""What ends a program early: lost output, signals, errors of the demo."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from byoc_accel.cli.guard import guarded
from byoc_accel.demo.driver import main as demo

PROGRAM = (sys.executable, "-m", "byoc_accel")
# A command that has begun to write and waits, in the same way as byoc-accel does.
WAITING = """
import signal, sys, time
from byoc_accel.cli.files import atomic
from byoc_accel.cli.guard import guarded, stop_on_signals

def work():
    with atomic("net.so") as path:
        path.write_text("half")
        print("ready", flush=True)
        called_from_c = sorted([2, 1], key=lambda _: time.sleep(60))
    return 0

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # whatever the tests themselves are run under: nohup, a script's background
stop_on_signals("test")
sys.exit(guarded("test", work))
"""


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("compile", "--help")])
def test_output_that_takes_nothing(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr.endswith("standard output: No space left on device\n") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_nothing_behind(number: int, tmp_path: Path, root: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITING], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)})
    assert process.stdout.readline() == "ready\n"
    assert os.listdir(tmp_path) != []
    start = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate()
    assert time.monotonic() - start < 20
    assert (process.returncode, out, err) == (128 + number, "", "test: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_signals_that_are_ignored_stay_ignored() -> None:
    code = ("from signal import SIG_DFL, SIG_IGN, SIGHUP, SIGTERM, getsignal; "
            "from byoc_accel.cli.guard import stop_on_signals; stop_on_signals('x'); "
            "print(getsignal(SIGHUP) == SIG_IGN, getsignal(SIGTERM) == SIG_DFL)")
    result = subprocess.run(["nohup", sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True)
    assert result.stdout == "True False\n"


def test_out_of_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise MemoryError("Unable to allocate 3.64 TiB")

    assert guarded("test", work) == 2
    assert capsys.readouterr().err.startswith("test: out of memory (Unable to allocate 3.64 TiB); give it more")


@pytest.mark.relay
@pytest.mark.parametrize("words, message", [
    (["--images", "0"], "argument --images: '0': give a number of 1 to 1000"),
    (["--target", "mega"], "target: mega: no such target"), (["--folder", "/proc/x"], "/proc/x: No such file")])
def test_demo_refuses_in_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str],
                                  tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = demo(words)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and err.startswith("python -m byoc_accel.demo: " + message) and err.count("\n") == 1
