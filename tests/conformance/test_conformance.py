"""What passes on TVM's host passes after partitioning, and docs/CONFORMANCE.md says how much of it is offloaded."""
from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tests.conformance import measure, table  # noqa: E402
from tests.conformance.measure import Row  # noqa: E402
from tests.conformance.nodes import WEIGHTED  # noqa: E402


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    return {"constant": measure.measure(), "variable": measure.measure(variable=True), "int8": measure.measure_int8()}


@pytest.mark.parametrize("kind", ["constant", "variable", "int8"])
def test_what_the_host_passes_passes_after_partitioning(kind: str, rows: dict[str, list[Row]]) -> None:
    wrong = [row for row in rows[kind] if row.host and not row.passes]
    assert not wrong and sum(row.host for row in rows[kind]) > 30


def test_weights_at_run_time_stay_on_the_host(rows: dict[str, list[Row]]) -> None:
    for row in rows["variable"]:
        if row.op in WEIGHTED:
            assert not row.regions and (row.reason or not row.host)


def test_table_is_current(root: Path, rows: dict[str, list[Row]]) -> None:
    expected = table.document(**rows)
    assert (root / table.PATH).read_text(encoding="utf-8") == expected, f"run {table.GENERATOR}"
