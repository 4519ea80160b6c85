"""Shortened channel parameters against every accumulator that they may meet, with Python integers."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.emit.channels import Channels, reach, simplify
from byoc_accel.isa.parameters import bias_bits, parameters, significant_bits


def result(v: int, multiplier: int, shift: int, zero_point: int, clamp: tuple[int, int]) -> int:
    return max(clamp[0], min(clamp[1], ((v * multiplier + (1 << (shift - 1))) >> shift) + zero_point))


def check(channels: Channels, low: list[int], high: list[int]) -> Channels:
    (short,) = simplify(channels, np.array(low), np.array(high), len(low))
    for old_bias, bias, old, new, old_shift, shift, first, last in zip(
            *(x.tolist() for pair in zip((channels.bias, channels.multiplier, channels.shift),
                                         (short.bias, short.multiplier, short.shift)) for x in pair), low, high):
        for acc in range(first, last + 1):
            expected = result(acc + old_bias, old, old_shift, channels.zero_point, channels.clamp)
            assert result(acc + bias, new, shift, channels.zero_point, channels.clamp) == expected, acc
    assert (short.rounding, short.zero_point, short.clamp) == (channels.rounding, channels.zero_point, channels.clamp)
    return short


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(-128, 127), st.sampled_from(((-128, 127), (-128, 5),
       (-7, 127), (3, 3))), st.sampled_from((31, 33, 36, 39, 45, 53, 60)), st.sampled_from((10, 1000, 10**6, 10**9)))
def test_every_result_stays(seed: int, columns: int, zero_point: int, clamp: tuple[int, int], shift: int,
                            largest_bias: int) -> None:
    random = np.random.default_rng(seed)
    bias = random.integers(-largest_bias, largest_bias + 1, columns)
    channels = Channels(bias, random.integers(1 << random.integers(28, 31), 1 << 31, columns),
                        np.minimum(random.integers(shift, shift + 3, columns), 62), "upward", zero_point, clamp)
    low, size = random.integers(-400, 401, columns), random.integers(0, 300, columns)
    check(channels, low.tolist(), (low + size).tolist())


def test_multipliers_get_short() -> None:
    """Results 0 to 4 of v = 0 .. 9 halved and rounded up: any multiplier from 4 / 9 to below 1 / 2 + 1 / 18 does."""
    odd = np.array([(1 << 30) + 12345, (1 << 30) + 54321])
    short = check(Channels(np.zeros(2, int), odd, np.array([31, 31]), "upward", 0, (-128, 127)), [0, 0], [9, 9])
    assert short.multiplier.tolist() == [1 << 30, 1 << 30] and significant_bits(short.multiplier) == 1


def test_constant_channels_get_short_biases() -> None:
    """A channel that always saturates takes the shift of its neighbour and a bias just large enough."""
    channels = Channels(np.array([2**31 - 300, 17]), np.array([(1 << 31) - 1, (1 << 30) + 7]), np.array([40, 33]),
                        "upward", -128, (-128, 127))
    short = check(channels, [-200, -300], [200, 300])
    # Every v of the first is at least 255 - 1/2 steps of 8: 2036 + 200.
    assert (short.bias[0], short.multiplier[0], short.shift[0]) == (2236, 1 << 30, 33)
    assert bias_bits(short.bias) == 13


@pytest.mark.parametrize("channels", [
    Channels(np.array([5, 6]), np.array([1 << 30, 1 << 30]) + 1, np.array([33, 33]), "upward", 0, (-128, 127)),
    Channels(np.array([5, 6]), np.array([3, 5]) + (1 << 30), np.array([33, 33]), "nearest", 0, (-128, 127)),
    Channels(np.array([-2**31, 2**31 - 1]), np.array([3, 5]) + (1 << 30), np.full(2, 33), "upward", 0, (-128, 127)),
], ids=["uniform", "other rounding", "accumulators may wrap"])
def test_left_alone(channels: Channels) -> None:
    (short,) = simplify(channels, np.array([-100, -100]), np.array([100, 100]), 2)
    assert all(np.array_equal(*pair) for pair in ((short.bias, channels.bias), (short.multiplier, channels.multiplier),
                                                  (short.shift, channels.shift)))


def test_groups_do_not_meet() -> None:
    """Many channels at once give what each group gives alone; the groups differ in length, range and rounding room."""
    random = np.random.default_rng(3)
    channels = Channels(random.integers(-5000, 5000, 37), random.integers(1 << 29, 1 << 31, 37),
                        random.integers(31, 40, 37), "upward", -3, (-100, 120))
    channels.multiplier[16:24], channels.shift[16:24] = (1 << 30) + 5, 35  # a uniform one
    low, high = -random.integers(0, 9000, 37), random.integers(0, 9000, 37)
    together = simplify(channels, low, high, 8)
    assert [len(group.bias) for group in together] == [8, 8, 8, 8, 5] and together[2].uniform
    for index, group in enumerate(together):
        some = slice(8 * index, 8 * index + 8)
        (alone,) = simplify(channels.part(some), low[some], high[some], 8)
        assert alone.fields == group.fields


def test_reach() -> None:
    low, high = reach(np.array([[1, -2, 0], [127, -128, 5]], np.int8))
    assert low.tolist() == [-128 - 254, -128 * 127 - 127 * 128 - 640]
    assert high.tolist() == [127 + 256, 127 * 127 + 128 * 128 + 635]


def test_format_follows_the_values() -> None:
    fields = parameters(np.array([-4, 3]), np.array([(1 << 30) + (1 << 28), 3 << 29]), np.array([33, 36]))
    assert {k: fields[k] for k in ("bias_bits", "multiplier_bits", "normal", "shift_base", "shift_bits")} == {
        "bias_bits": 3, "multiplier_bits": 3, "normal": 1, "shift_base": 33, "shift_bits": 2}
    # Biases 100, 011; multipliers without their top bit 01, 10; shifts 0, 3: from bit 0 on, lowest bits first.
    assert fields["payload"] == (0b11_00_10_01_011_100).to_bytes(4, "little")
