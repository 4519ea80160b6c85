"""Output files appear whole or not at all; model records survive only undamaged."""
from __future__ import annotations

import errno
import os
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from byoc_accel.cli.files import atomic
from byoc_accel.errors import ModelError
from byoc_accel.modelinfo import MAGIC, ModelInfo, OpRow, pack, unpack

INFO = ModelInfo("größe", "relay", 300, 200, (OpRow("a/b", "nn.conv2d", 200, "r0", ""),
                                             OpRow("s", "nn.softmax", 100, "", "no such unit")))


def test_atomic_replaces_only_on_success(tmp_path: Path) -> None:
    goal = tmp_path / "out put.so"
    goal.write_text("old")
    with pytest.raises(RuntimeError), atomic(goal) as path:
        path.write_text("half")
        raise RuntimeError
    assert goal.read_text() == "old"
    with atomic(goal) as path:
        path.write_text("new")
        assert goal.read_text() == "old"
    assert goal.read_text() == "new"
    assert os.listdir(tmp_path) == ["out put.so"]
    umask = os.umask(0)
    os.umask(umask)
    assert goal.stat().st_mode & 0o777 == 0o666 & ~umask


def test_atomic_needs_a_folder(tmp_path: Path) -> None:
    for goal in (tmp_path / "none" / "x.so", tmp_path):
        with pytest.raises(ModelError), atomic(goal):
            raise AssertionError("not reached")


def test_atomic_writes_to_a_device_and_does_not_replace_it(tmp_path: Path) -> None:
    """A pipe stands for /dev/stdout, which once became a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    with atomic(pipe) as path:
        path.write_bytes(b"all of it")
    assert reader.communicate()[0] == b"all of it"
    assert os.listdir(tmp_path) == ["pipe"] and not pipe.is_file()


def test_atomic_keeps_links(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.so").symlink_to("there/file.so")
    for text in ("made", "replaced"):
        with atomic(tmp_path / "link.so") as path:
            assert path.name == "link.so"
            path.write_text(text)
        assert (tmp_path / "link.so").is_symlink() and (tmp_path / "there/file.so").read_text() == text
    assert os.listdir(tmp_path / "there") == ["file.so"]


def test_failed_writes_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"/dev/full: cannot be written \(No space left on device\); make room"), \
            atomic("/dev/full") as path:
        path.write_text("x")
    with pytest.raises(ModelError, match=r"x.so: cannot be written \(No space left on device\)"), \
            atomic(tmp_path / "x.so"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError, match="other"), atomic(tmp_path / "x.so"):
        (tmp_path / "other").read_bytes()  # not the file that is written
    assert os.listdir(tmp_path) == []


def test_record_round_trip_inside_other_bytes() -> None:
    assert unpack(b"\x7fELF" + pack(INFO) + b"tail") == INFO
    assert unpack(pack(INFO)) == INFO
    assert unpack(b"\x7fELF") is None
    assert pack(INFO) == pack(INFO)


def test_damaged_record_is_none() -> None:
    record = pack(INFO)
    for cut in (len(MAGIC), len(MAGIC) + 4, len(record) - 1):
        assert unpack(record[:cut]) is None
    for at in range(len(MAGIC), len(record), 7):
        assert unpack(record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]) is None
    assert unpack(record + MAGIC + b"\0") == INFO


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text.replace(b'"macs"', b'"mac"'),
                                    lambda text: text.replace(b'"regions"', b'"parts"'), lambda text: b"[]"])
def test_record_of_another_version_is_none(change) -> None:
    head = len(MAGIC) + 8
    text = zlib.compress(change(zlib.decompress(pack(INFO)[head:])))
    record = MAGIC + struct.pack("<II", len(text), zlib.crc32(text)) + text
    assert unpack(record) is None and unpack(pack(INFO) + record) == INFO
