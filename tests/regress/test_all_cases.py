"""Every case of the collected bug reports about accelerator backends has a test, wherever that stands."""
from __future__ import annotations

import ast
from pathlib import Path

CASES = [f"B{n:02}" for n in range(1, 37)] + [f"S{n}" for n in range(1, 9)]


def marked(path: Path) -> list[str]:
    """Cases named by pytest.mark.case on test functions and classes of a file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name.lower().startswith("test"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.case":
                    found += [ast.literal_eval(argument) for argument in mark.args]
    return found


def test_every_case_has_a_test(root: Path) -> None:
    found = {case for path in sorted((root / "tests").rglob("*.py")) for case in marked(path)}
    assert found <= set(CASES), f"no such case: {sorted(found - set(CASES))}"
    assert not [case for case in CASES if case not in found]
