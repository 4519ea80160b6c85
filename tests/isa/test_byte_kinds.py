"""Program bytes by kind, counted by hand on a written program."""
from __future__ import annotations

import pytest

from byoc_accel.errors import EncodeError
from byoc_accel.isa.byte_kinds import KINDS, byte_kinds
from byoc_accel.isa.encode import encode_all
from byoc_accel.isa.inst import inst

CODE = encode_all([
    inst("ageo", width=2, run_bytes=4), inst("load", row_bytes=5, rows=2), inst("conv", columns=4, payload=bytes(24)),
    inst("sync_array"), inst("dwc", payload=bytes(8)), inst("lut", payload=bytes(256)), inst("pgeo", width=2),
    inst("post", columns=2, acc_base=1), inst("store", row_bytes=5), inst("setr", reg=1, value=1), inst("halt")])
# Words that are not 0 (docs/ISA.md): ageo 3, load 3, store 2, conv 3, dwc 2, lut 1, pgeo 2, post 3, sync and halt 1,
# setr 2.
EXPECTED = {"weights": 32, "weight_tables": 0, "weight_headers": 4 * (3 + 2), "parameters": 4 + 256,
            "geometry": 4 * (3 + 2), "post": 12, "transfers": 4 * (3 + 2), "control": 4 * (1 + 1 + 2)}


def test_counts() -> None:
    counts = byte_kinds(CODE)
    assert counts == EXPECTED and list(counts) == list(KINDS)
    assert sum(counts.values()) == len(CODE)


def test_a_part_of_a_program() -> None:
    assert byte_kinds(CODE, len(CODE) - 12) == {**dict.fromkeys(KINDS, 0), "control": 12}
    assert byte_kinds(CODE, 8, 8) == dict.fromkeys(KINDS, 0)


def test_the_end_must_be_that_of_an_instruction() -> None:
    with pytest.raises(EncodeError, match="inside of an instruction"):
        byte_kinds(CODE, 0, 4)
