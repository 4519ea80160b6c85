"""Payloads of par: fields as wide as their values ask for."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.errors import EncodeError
from byoc_accel.isa.encode import encode
from byoc_accel.isa.inst import Inst, inst
from byoc_accel.isa.parameters import bias_bits, parameters, significant_bits, unpack_parameters


def numbers(limits: list[tuple[int, int]], size: int) -> st.SearchStrategy:
    """Arrays of one of these ranges, so that narrow and wide fields occur."""
    return st.sampled_from(limits).flatmap(
        lambda r: st.lists(st.integers(*r), min_size=size, max_size=size)).map(np.array)


@settings(max_examples=300)
@given(st.data(), st.integers(1, 32), st.booleans(), st.integers(0, 30))
def test_round_trip(data: st.DataObject, columns: int, uniform: bool, zeros: int) -> None:
    count = 1 if uniform else columns
    bias = data.draw(numbers([(-1, 0), (-300, 300), (0, 2**17), (-2**31, 2**31 - 1)], columns))
    multiplier = data.draw(numbers([(0, 9), (2**30, 2**31 - 1), (0, 2**31 - 1), (2**30, 2**30)], count))
    multiplier = multiplier >> zeros << zeros
    shift = data.draw(numbers([(0, 255), (33, 36), (62, 62)], count))
    par = inst("par", **parameters(bias, multiplier, shift, uniform))
    assert len(encode(par)) - len(par.payload) in (4, 8)  # a second word of zero is not stored
    for read, written in zip(unpack_parameters(par), (bias, multiplier, shift)):
        assert np.array_equal(read, np.resize(written, columns))


def test_by_hand() -> None:
    par = inst("par", **parameters(np.array([1, -1, 2]), np.array([5, 6, 7]), np.array([31, 1, 62])))
    # 3 bits hold -1 to 2. Bit 0 is the lowest set one, so all 31 bits are stored; shifts 30, 0, 61 above a base of 1.
    assert (par.bias_bits, par.multiplier_bits, par.normal, par.shift_base, par.shift_bits) == (3, 31, 0, 1, 6)
    number = 0b010_111_001 | 5 << 9 | 6 << 40 | 7 << 71 | 30 << 102 | 0 << 108 | 61 << 114
    assert par.payload == number.to_bytes(16, "little")
    uniform = inst("par", **parameters(np.array([0, -1]), np.array([3 << 29]), np.array([35]), True))
    # Bits 30 and 29 of the multiplier, of which bit 30 is known: one bit.
    assert (uniform.bias_bits, uniform.multiplier_bits, uniform.normal, uniform.shift_base) == (1, 2, 1, 35)
    assert uniform.payload == bytes([0b1_10, 0, 0, 0])


def test_extremes_fill_their_fields() -> None:
    assert [bias_bits(np.array([b])) for b in (0, -1, 1, -2, 2, 2**31 - 1, -2**31)] == [1, 1, 2, 2, 3, 32, 32]
    assert [significant_bits(np.array([m])) for m in (0, 1 << 30, 3 << 29, 1, 2**31 - 1)] == [0, 1, 2, 31, 31]
    zero = inst("par", **parameters(np.zeros(4, int), np.zeros(4, int), np.full(4, 9)))
    assert len(zero.payload) == 4 and [x.tolist() for x in unpack_parameters(zero)] == [[0] * 4, [0] * 4, [9] * 4]


def refused(par: Inst) -> str:
    with pytest.raises(EncodeError) as caught:
        unpack_parameters(par)
    return caught.value.args[0]


def test_bad_payloads_are_refused() -> None:
    par = inst("par", **parameters(np.array([1]), np.array([1 << 30]), np.array([31])))
    assert "padding after the shifts is not zero" in refused(par.replace(payload=b"\x05\0\0\0"))
    assert "payload of 8 bytes; its fields ask for 4" in refused(par.replace(payload=bytes(8)))


def test_bad_arrays_are_refused() -> None:
    one = np.ones(1, np.int64)
    for arguments, message in (((one << 31, one, one), "bias of channel 0 = 2147483648"),
                               ((one, -one, one), "multiplier of channel 0 = -1"),
                               ((one, one, one * 256), "shift of channel 0 = 256"),
                               ((np.ones(2, np.int64), one, one), "1 multipliers and 1 shifts; 2 channels need 2"),
                               ((one * 0.5, one, one), "bias is float64")):
        with pytest.raises(EncodeError, match=message):
            parameters(*arguments)
