"""docs/SUPPORTED_OPS.md is what the constraints say."""
from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from byoc_accel.relay import generate  # noqa: E402
from byoc_accel.relay.patterns import PATTERNS  # noqa: E402
from byoc_accel.support.ops import TABLE  # noqa: E402


def test_manual_is_current(root: Path) -> None:
    assert (root / generate.PATH).read_text(encoding="utf-8") == generate.text()
    assert generate.main(["--check"]) == 0


def test_every_pattern_is_in_the_manual() -> None:
    assert set(generate.KINDS) == set(TABLE)
    assert {name for names in generate.KINDS.values() for name in names} == {p.name for p in PATTERNS}
