"""The worked numbers of docs/numerics.md are executed."""

from __future__ import annotations

import doctest


def test_worked_numbers(root):
    result = doctest.testfile(str(root / "docs" / "numerics.md"), module_relative=False)
    assert result.failed == 0 and result.attempted > 15
