"""Targets from TOML: what is wrong is named with its file, its limits and, for a typo, what was meant."""
from __future__ import annotations

from pathlib import Path

import pytest

from byoc_accel.errors import TargetError
from byoc_accel.target import FIELDS, TARGET_DIR, from_numbers, load_target

TINY = (TARGET_DIR / "tiny.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("old, new, message", [
    ("rows = 4", "rows = 1.5", "array.rows is 1.5; give an integer"),
    ("rows = 4", "rows = true", "array.rows is True; give an integer"),
    ("rows = 4", "rows = '4'", "array.rows is '4'; give an integer"),
    ("rows = 4", "rows = 0", "array.rows = 0 lanes; allowed are 1 to "),
    ("rows = 4", "rows = -4", "array.rows = -4 lanes; allowed are 1 to "),
    ("rows = 4", "rows = 99999999999999999999", "array.rows = 99999999999999999999 lanes; allowed are 1 to "),
    ("rows = 4", "rwos = 4", "unknown key array.rwos; did you mean array.rows?"),
    ("rows = 4", "rows = 4\nunit = 1", "unknown key array.unit; remove it"),
    ("rows = 4", "", "array.rows is missing; give "),
    ("[array]", "[arrays]", "unknown key arrays.rows; remove it"),
    ("[array]", "array = 3\n[arrays]", "key 'array' is not a table of the target format; remove it"),
    ('name = "tiny"', "name = 3", "name is 3; give printable text"),
    ('name = "tiny"', 'name = ""', "name is ''; give printable text"),
    ('name = "tiny"', 'name = "a\\nb"', "name is 'a\\nb'; give printable text"),
    ("[array]", "[array", "not valid TOML"),
])
def test_wrong_numbers(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert TINY.count(f"\n{old}") == 1
    path.write_text(TINY.replace(f"\n{old}", f"\n{new}"))
    with pytest.raises(TargetError) as info:
        load_target(path)
    text = str(info.value)
    assert text.startswith(f"target: {path}: ") and message in text and "\n" not in text


def test_what_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for spec, message in (("refernce", "no such target; use one of reference, tiny"), ("", "no such target"),
                          ("a\0b", "no such target"), (tmp_path / "folder.toml", "no such target"),
                          (tmp_path / "none.toml", "no such target"), (tmp_path / "binary.toml", "not valid TOML"),
                          (5, "5 is a int; give a Target, its name or a .toml file"), (None, "None is a NoneType")):
        with pytest.raises(TargetError, match=message):
            load_target(spec)


def test_numbers_and_name_come_back() -> None:
    target = load_target("tiny")
    assert load_target(target) is target and load_target(TARGET_DIR / "tiny.toml") == target
    assert from_numbers("tiny", target.numbers()) == target
    assert target.numbers()[:2] == (target.array_rows, target.array_columns) and len(target.numbers()) == len(FIELDS)
    assert from_numbers("other", target.numbers()).digest == target.digest != load_target("reference").digest
    with pytest.raises(TargetError, match="recompile the image"):
        from_numbers("tiny", target.numbers()[:-1])
