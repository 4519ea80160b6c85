"""The format table is consistent, and the generated files are those of the tables."""
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from byoc_accel.container import generate, layout, registers
from byoc_accel.container.records import decode_record, encode_record
from byoc_accel.errors import C_ERRORS
from byoc_accel.target import FIELDS


@pytest.mark.parametrize("record", layout.RECORDS, ids=lambda record: record.name)
def test_fields_fill_their_record(record: layout.Record) -> None:
    end = 0
    for field in record.fields:
        assert field.offset == end
        assert field.offset % layout.TYPE_BYTES[field.type] == 0
        assert 1 <= field.since <= layout.FORMAT_VERSION
        assert field.meaning
        end += field.bytes
    assert end == record.bytes
    names = [field.name for field in record.fields]
    assert len(set(names)) == len(names)  # the C header names each once, the reserved field too
    assert record.bytes % 4 == 0


def test_sections_are_in_order_and_aligned() -> None:
    assert [s.kind for s in layout.SECTIONS] == list(range(1, len(layout.SECTIONS) + 1))
    for section in layout.SECTIONS:
        unit = layout.record_bytes(section)
        assert section.alignment_bytes % min(unit, 8) == 0
    assert layout.SECTIONS[-1].name == "program"
    assert layout.SECTIONS[-1].alignment_bytes == layout.IMAGE_ALIGNMENT_BYTES
    assert layout.TARGET_NUMBERS == len(FIELDS)


def test_record_bytes_are_those_of_struct() -> None:
    values = {"name": 1, "buffer": 2, "host_dtype": 1, "host_rank": 2, "perm": b"\0\3\1\2", "scale": 0.1,
              "zero_point": -3, "device_shape": (4, 5, 6, 7), "host_shape": (8, 9, 0, 0, 0, 0, 0, 0)}
    data = encode_record(layout.PORT_RECORD, values)
    assert data == struct.pack("<IIHH4Bdi4I8II", 1, 2, 1, 2, 0, 3, 1, 2, 0.1, -3, 4, 5, 6, 7, 8, 9, *[0] * 7)
    assert decode_record(layout.PORT_RECORD, b"??" + data, 2) == {**values, "_": b"\0\0\0\0"}


def test_registers_do_not_overlap() -> None:
    used: set[int] = set()
    for register in registers.REGISTERS:
        offsets = {register.offset + 4 * i for i in range(register.count)}
        assert register.offset % 4 == 0 and not used & offsets
        assert max(offsets) < registers.WINDOW_BYTES
        assert register.access in ("read", "write", "both")
        used |= offsets
        bits = [bit.bit for bit in register.bits]
        assert len(set(bits)) == len(bits)


def test_error_codes_are_unique() -> None:
    codes = [error.code for error in C_ERRORS]
    assert len(set(codes)) == len(codes) and max(codes) == 0


def test_generated_files_are_fresh(root: Path) -> None:
    assert generate.stale(root) == []


def test_generate_check_finds_a_change(root: Path, tmp_path: Path) -> None:
    assert generate.main(["--check", "--root", str(tmp_path)]) == 1
    assert not list(tmp_path.iterdir())
    assert generate.main(["--root", str(tmp_path)]) == 0
    assert generate.main(["--check", "--root", str(tmp_path)]) == 0
    document = tmp_path / "docs/FORMAT.md"
    assert "<!-- table" not in document.read_text(encoding="utf-8")
    document.write_text(document.read_text(encoding="utf-8") + "x", encoding="utf-8")
    assert generate.stale(tmp_path) == ["docs/FORMAT.md"]
