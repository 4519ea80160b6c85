"""Object files of regions: deterministic, with one visible name, for C and C++ alike, or one line that says why."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.errors import HostError

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from byoc_accel.relay.codegen import glue  # noqa: E402
from tests.relay.models import nm  # noqa: E402


def test_region_object_is_deterministic_and_hides_all_but_the_entry(tmp_path: Path) -> None:
    image = bytes(range(40))
    folders = [tmp_path / "a b", tmp_path / "größe \" ' $x"]
    objects = []
    for folder in folders:
        folder.mkdir()
        objects.append(glue.build_region_object("wia_sym", image, folder))
    assert objects[0] == objects[1]
    (tmp_path / "region.o").write_bytes(objects[0])
    symbols = nm("--extern-only", tmp_path / "region.o")
    assert {line.split()[-1] for line in symbols if " T " in line} == {"wia_sym"}
    assert {line.split()[-1] for line in symbols if " U " in line} == {"wia_tvm_call"}


@pytest.mark.parametrize("compiler", [["cc", "-x", "c", "-std=c99"], ["c++", "-x", "c++", "-std=c++11"]])
def test_entry_source_is_c_and_cxx(tmp_path: Path, compiler: list[str]) -> None:
    (tmp_path / "image.bin").write_bytes(b"x")
    (tmp_path / "region.c").write_text(glue.entry_source("wia_sym", b"1"))
    flags = ["-Wall", "-Wextra", "-Werror", "-c", "region.c", "-o", "region.o"]
    subprocess.run([*compiler, *flags], cwd=tmp_path, check=True)
    assert any(line.endswith(" T wia_sym") for line in nm(tmp_path / "region.o"))


@pytest.mark.parametrize(
    ("symbol", "image", "message"),
    [
        ("a-b", b"x", 'region symbol "a-b" is no C identifier'),
        ("größe", b"x", "is no C identifier"),
        ("ok", b"", 'region "ok" has an image of 0 B'),
        ("int", b"x", "failed on a region: .*error"),
    ],
)
def test_bad_regions_are_refused(tmp_path: Path, symbol: str, image: bytes, message: str) -> None:
    with pytest.raises(HostError, match=message) as raised:
        glue.build_region_object(symbol, image, tmp_path)
    assert "\n" not in str(raised.value)


def test_unusable_folders_and_compilers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match="cannot write .*missing.*TMPDIR"):
        glue.build_region_object("ok", b"x", tmp_path / "missing")
    with pytest.raises(HostError, match="runtime archive .*none.a is missing"):
        glue.build_runtime_object(tmp_path / "none.a", tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler -O3")
    with pytest.raises(HostError, match=r"no C compiler found \(tried no-such-compiler\).*set CC"):
        glue.build_region_object("ok", b"x", tmp_path)
    monkeypatch.setenv("CC", "'gcc")
    with pytest.raises(HostError, match="CC is .* no command: No closing quotation; correct or unset it$"):
        glue.build_region_object("ok", b"x", tmp_path)
    monkeypatch.setenv("CC", "false")
    with pytest.raises(HostError, match="false failed on a region: the compiler gave no reason"):
        glue.build_region_object("ok", b"x", tmp_path)


@pytest.mark.case("B36")
def test_large_image_is_cheap(tmp_path: Path) -> None:
    """25 MB as a C array would cost the compiler minutes and GBs."""
    image = np.random.default_rng(0).bytes(25_000_000)
    script = f"""
import resource, sys, pathlib
sys.path.insert(0, {str(Path(glue.__file__).parents[3])!r})
from byoc_accel.relay.codegen import glue
image = pathlib.Path("image.in").read_bytes()
assert glue.build_region_object("big", image, ".").count(image) == 1
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
assert usage.ru_maxrss < 300_000, usage
"""
    (tmp_path / "image.in").write_bytes(image)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
