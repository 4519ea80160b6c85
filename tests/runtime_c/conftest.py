"""Fixtures of the C tests: one folder of sanitized objects per session."""
from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def c_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where C programs are built; objects in it are shared."""
    return tmp_path_factory.mktemp("c")
