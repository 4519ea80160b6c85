"""Fixtures and switches of the whole test suite.

golden(name, text)   compares with tests/golden/<name>.txt; `--update-golden` writes it
shared               folder with real models and data; the test is skipped when it is absent
@pytest.mark.relay   needs TVM with Relay; skipped, with the reason, in an environment without it
"""
from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
GOLDEN_DIR = Path(__file__).resolve().parent / "golden"
SHARED_VARIABLE = "BYOC_ACCEL_SHARED"

settings.register_profile(
    "default", derandomize=True, deadline=None, print_blob=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
settings.register_profile("long", settings.get_profile("default"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden, do not compare")


def has_relay() -> bool:
    """True where `tvm` is installed and is a version with Relay; does not import it (that takes seconds)."""
    spec = importlib.util.find_spec("tvm")
    places = spec.submodule_search_locations if spec else None
    return any((Path(place) / "relay" / "__init__.py").is_file() for place in places or ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if has_relay():
        return
    skip = pytest.mark.skip(reason="TVM with Relay is not installed: pip install -e .[relay]")
    for item in items:
        if item.get_closest_marker("relay"):
            item.add_marker(skip)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden("schedule/resnet8", text): `text` must equal tests/golden/schedule/resnet8.txt."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN_DIR / f"{name}.txt"
        where = path.relative_to(ROOT)
        text = text if text.endswith("\n") else text + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.is_file():
            pytest.fail(f"{where} is missing; run pytest with --update-golden and read it", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(where), "now", lineterm="")
            head = f"{where} differs; if that is meant, use --update-golden"
            pytest.fail("\n".join([head, *list(lines)[:60]]), pytrace=False)

    return check


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models and data, from $BYOC_ACCEL_SHARED or ../shared beside the checkout."""
    place = Path(os.environ.get(SHARED_VARIABLE, ROOT.parent / "shared"))
    if not (place / "models").is_dir():
        pytest.skip(f"no real models at {place}; set {SHARED_VARIABLE} to the folder with models/ and data/")
    return place
