"""The table at the top of docs/performance.md is what tests/relay/test_model_figures.py pins."""
from __future__ import annotations

import re
from pathlib import Path

COLUMNS = ("network", "file", "MACs", "cycles", "bound", "program bytes", "of which weight stream", "Vela's weights")


def test_summary_of_networks(root: Path) -> None:
    """After a change of the pins, cycles and bytes of the table change with them."""
    lines = (root / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()
    start = lines.index(f"| {' | '.join(COLUMNS)} |") + 2
    rows = [dict(zip(COLUMNS, (cell.strip() for cell in line.strip("|").split("|")))) for line in
            lines[start:lines.index("", start)]]
    for row in rows:
        pinned = (root / "tests" / "golden" / "figures" / f"{row['file']}.txt").read_text(encoding="utf-8")
        cycles, program_bytes, weight_bytes = re.findall(r"^\d+", pinned, re.M)
        found = [row[name].replace(",", "") for name in ("cycles", "program bytes", "of which weight stream")]
        assert found == [cycles, program_bytes, weight_bytes], f"docs/performance.md, row {row['network']}"
    files = {path.stem for path in (root / "tests" / "golden" / "figures").glob("*.txt")}
    assert {row["file"] for row in rows} == files - {"demo"}
