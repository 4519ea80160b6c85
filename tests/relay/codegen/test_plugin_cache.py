"""Where the C++ plugin for TVM is compiled and kept."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from byoc_accel.errors import HostError

pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from byoc_accel.relay.codegen import glue, plugin  # noqa: E402

pytestmark = pytest.mark.relay


class TestPluginCache:
    """The plugin is compiled where it can be written, once, and a refusal says what to do."""

    @pytest.fixture(autouse=True)
    def places(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        directories = [tmp_path / "package", tmp_path / "cache"]
        monkeypatch.setattr(plugin, "cache_directories", lambda: tuple(directories))
        return directories

    def test_package_folder_first_and_no_second_build(self, places: list[Path], monkeypatch) -> None:
        built = plugin._find_or_build()
        assert built.parent == places[0]
        assert [path.name for path in places[0].iterdir()] == [built.name]  # no scratch is left
        monkeypatch.setenv("CXX", "no-such-compiler")
        assert plugin._find_or_build() == built

    def test_user_folder_when_the_package_is_read_only(self, places: list[Path]) -> None:
        places[0].write_text("a file where the folder should be")
        assert plugin._find_or_build().parent == places[1]

    def test_no_place_at_all(self, places: list[Path]) -> None:
        for place in places:
            place.write_text("")
        with pytest.raises(HostError, match="no writable place .*XDG_CACHE_HOME"):
            plugin._find_or_build()

    def test_no_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(HostError, match=r"no C\+\+ compiler found \(tried no-such-compiler\).*install"):
            plugin._find_or_build()
        monkeypatch.delenv("CXX")
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(HostError, match=r"tried g\+\+, c\+\+, clang\+\+"):
            plugin._find_or_build()

    def test_name_depends_on_source_and_version(self) -> None:
        names = {plugin.library_name(source, version) for source in (b"a", b"b") for version in ("1", "2")}
        assert len(names) == 4

    def test_concurrent_builds(self, places: list[Path], tmp_path: Path) -> None:
        script = (
            f"import sys, pathlib; sys.path.insert(0, {str(Path(glue.__file__).parents[3])!r})\n"
            "from byoc_accel.relay.codegen import plugin\n"
            f"plugin.cache_directories = lambda: (pathlib.Path({str(places[0])!r}),)\n"
            "plugin.load(); plugin.create_module(b'')\n"
        )
        started = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
        assert [process.wait() for process in started] == [0, 0]
        assert len(list(places[0].iterdir())) == 1
