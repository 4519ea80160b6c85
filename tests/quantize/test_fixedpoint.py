"""fixedpoint against Python integers and fractions: nothing here comes from the code under test."""
from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize import fixedpoint as fp
from byoc_accel.quantize.qregion import Requant


def exact(v: int, m: int, s: int, rounding: str) -> int:
    """The definition with unbounded integers and fractions."""
    real = Fraction(v * m, 1 << s)
    if rounding == "upward":
        return math.floor(real + Fraction(1, 2))
    if rounding == "nearest":
        return int(math.copysign(1, v)) * math.floor(abs(real) + Fraction(1, 2))
    if rounding == "truncate":
        return math.trunc(real)
    return tflite(v, m, 31 - s)


def tflite(v: int, m: int, exponent: int) -> int:
    """gemmlowp's fixedpoint.h, transcribed operation by operation (C division truncates)."""
    left, right = max(exponent, 0), max(-exponent, 0)
    a = min(max(v << left, -(1 << 31)), (1 << 31) - 1)
    ab = a * m
    nudge = (1 << 30) if ab >= 0 else 1 - (1 << 30)
    high = math.trunc(Fraction(ab + nudge, 1 << 31))
    mask = (1 << right) - 1
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> right) + (1 if (high & mask) > threshold else 0)


INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@settings(max_examples=400, deadline=None)
@given(v=INT32, m=st.integers(0, (1 << 31) - 1), s=st.integers(1, 62),
       rounding=st.sampled_from(["upward", "nearest", "truncate", "double"]))
def test_requantize_equals_big_integers(v, m, s, rounding):
    assert int(fp.requantize(v, m, s, rounding)) == exact(v, m, s, rounding)


@pytest.mark.parametrize("rounding", ["upward", "nearest", "truncate", "double"])
def test_requantize_near_ties(rounding):
    """2**16 accumulators around zero; the multipliers make many products exact halves or nearly so."""
    v = np.arange(-(1 << 15), 1 << 15)
    for m, s in [(1 << 30, 31), (1 << 30, 32), (1 << 30, 35), ((1 << 30) + 1, 33), ((1 << 31) - 1, 34),
                 (3 << 29, 36)]:
        got = fp.requantize(v, m, s, rounding)
        sample = np.r_[0:64, 32768 - 600:32768 + 600, 65536 - 64:65536]
        assert [int(g) for g in got[sample]] == [exact(int(x), m, s, rounding) for x in v[sample]]


@pytest.mark.parametrize("rounding", ["upward", "nearest", "truncate", "double"])
def test_requantize_extremes_do_not_wrap(rounding):
    for v in (-(1 << 31), (1 << 31) - 1):
        for s in (1, 30, 31, 32, 62):
            m = (1 << 31) - 1
            assert int(fp.requantize(v, m, s, rounding)) == exact(v, m, s, rounding)


@pytest.mark.case("B26")
def test_roundings_of_b26():
    half = fp.from_real(0.5)
    v = np.array([-3, -1, 1, 3])  # reals -1.5, -0.5, 0.5, 1.5
    table = {"upward": [-1, 0, 1, 2], "nearest": [-2, -1, 1, 2], "truncate": [-1, 0, 0, 1]}
    for rounding, expected in table.items():
        assert fp.requantize(v, half.multiplier, half.shift, rounding).tolist() == expected
    quarter = fp.from_real(0.25)
    v = np.array([5, 1])  # one rounding gives 1 and 0, TFLite's two give 2 and 1
    assert fp.requantize(v, quarter.multiplier, quarter.shift, "double").tolist() == [2, 1]
    for rounding in ("upward", "nearest"):
        assert fp.requantize(v, quarter.multiplier, quarter.shift, rounding).tolist() == [1, 0]


def test_unknown_rounding_is_an_error():
    with pytest.raises(QuantizeError, match="rounding 'even' is unknown"):
        fp.requantize(1, 1, 1, "even")


def test_per_channel_broadcasts_over_the_last_axis():
    v = np.array([[[[8, 8, -8]]], [[[24, 5, 7]]]])
    got = fp.requantize(v, np.array([1 << 30, 1 << 30, 3 << 29]), np.array([31, 32, 32]), "upward")
    assert got.tolist() == [[[[4, 2, -3]]], [[[12, 1, 3]]]]  # 5/4 = 1.25; -8*0.375 = -3; 7*0.375 = 2.625


@pytest.mark.case("B29")
def test_from_real_against_fractions():
    """B29: 10,000 random scale triples; the float64 quotient is encoded as exact fraction arithmetic says."""
    rng = np.random.default_rng(11)
    scales = np.exp(rng.uniform(-9, 3, (10000, 3)))
    for s_in, s_w, s_out in scales:
        real = s_in * s_w / s_out
        requant = fp.from_real(real)
        fraction, exponent = Fraction(real), 0
        while fraction >= 1:
            fraction, exponent = fraction / 2, exponent + 1
        while fraction < Fraction(1, 2):
            fraction, exponent = fraction * 2, exponent - 1
        m = math.floor(fraction * (1 << 31) + Fraction(1, 2))
        if m == 1 << 31:
            m, exponent = m // 2, exponent + 1
        assert (requant.multiplier, requant.shift) == (m, 31 - exponent)
        assert 1 << 30 <= requant.multiplier < 1 << 31


@pytest.mark.case("B29")
def test_from_real_worked_and_edges():
    assert fp.from_real(1.0) == Requant(1 << 30, 30) == fp.IDENTITY
    assert fp.from_real(0.0072474273418460) == Requant(1992157658, 38)  # 0.927670... * 2**31
    assert fp.from_real(1 - 2.0 ** -40) == Requant(1 << 30, 30)  # mantissa rounds up to 2**31: renormalised
    assert fp.from_real(3.0) == Requant(3 << 29, 29)
    assert fp.from_real(2.0 ** 30 * (1 - 2.0 ** -30)).shift == 1
    assert fp.from_real(2.0 ** -32) == Requant(1 << 30, 62)
    assert fp.from_real(2.0 ** -32 * 0.999) == fp.ZERO
    assert fp.from_real(1e-45) == fp.ZERO


def test_underflow_to_zero_is_exact():
    """Below 2**-32 the true result of every int32 is 0 whatever the rounding."""
    for v in (-(1 << 31), (1 << 31) - 1):
        assert abs(Fraction(v) * Fraction(2.0 ** -32 * (1 - 2.0 ** -52))) < Fraction(1, 2)
        for rounding in ("upward", "nearest", "truncate", "double"):
            assert int(fp.requantize(v, fp.ZERO.multiplier, fp.ZERO.shift, rounding)) == 0


@pytest.mark.parametrize("scale", [0.0, -0.5, math.nan, math.inf, 2.0 ** 30, 1e30])
def test_from_real_refuses(scale):
    with pytest.raises(QuantizeError, match="layer 'a'"):
        fp.from_real(scale, "layer 'a'")


def test_from_real_rounding_into_an_unencodable_shift():
    with pytest.raises(QuantizeError, match="shift of 0"):
        fp.from_real(2.0 ** 30 * (1 - 2.0 ** -40))


def test_average_divides_exactly():
    """Every count up to 64 with every sum of int8, and the extremes and multiples of large counts."""
    for n in range(1, 65):
        requant = fp.average(n)
        assert 0 < requant.multiplier < 1 << 31 and 1 <= requant.shift <= 62
        v = np.arange(-128 * n, 128 * n + 1)
        expected = np.sign(v) * (np.abs(v) // n)
        assert np.array_equal(fp.requantize(v, requant.multiplier, requant.shift, "truncate"), expected)
        expected = np.sign(v) * ((np.abs(v) + n // 2) // n)
        assert np.array_equal(fp.requantize(v, requant.multiplier, requant.shift, "nearest"), expected)
    rng = np.random.default_rng(3)
    for n in [*rng.integers(65, 1 << 21, 300).tolist(), (1 << 21) - 1, 1 << 21, 49, 1 << 20, (1 << 20) + 1]:
        q = np.r_[rng.integers(0, 129, 50), 128, 127, 1]
        v = np.minimum((q[:, None] * n + np.array([-1, 0, 1, n - 1, n // 2 - 1, n // 2, n // 2 + 1])).ravel().clip(0),
                       128 * n)
        requant = fp.average(n)
        assert np.array_equal(fp.requantize(v, requant.multiplier, requant.shift, "truncate"), v // n)
        assert np.array_equal(fp.requantize(-v, requant.multiplier, requant.shift, "truncate"), -(v // n))
        assert np.array_equal(fp.requantize(v, requant.multiplier, requant.shift, "nearest"), (2 * v + n) // (2 * n))


def test_average_worked_and_refused():
    assert fp.average(9) == Requant(954437177, 33)  # ceil(2**33 / 9)
    for count in (0, (1 << 21) + 1):
        with pytest.raises(QuantizeError, match="window of"):
            fp.average(count)


def test_power_of_two():
    assert [fp.power_of_two(x) for x in (1.0, 1.001, 0.75, 0.5, 3e-3)] == [1.0, 2.0, 1.0, 0.5, 2.0 ** -8]
    for bad in (0.0, -1.0, math.nan, math.inf, 1e-40, 2.0 ** 30):
        with pytest.raises(QuantizeError):
            fp.power_of_two(bad)


def test_round_half_away():
    x = [-1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, -0.49999999999999994, 2.0 ** 50 + 0.5, -7.0]
    assert fp.round_half_away(np.array(x)).tolist() == [-2, -1, 1, 2, 3, 0, 0, 2.0 ** 50 + 1, -7]


def test_quantize_real_saturates_and_rounds():
    with np.errstate(all="raise"):
        x = np.array([-1e38, -64.5, -64.25, -0.25, 0.25, 63.25, 63.5, 1e38, np.inf, -np.inf], np.float32)
        assert fp.quantize_real(x, 0.5, 0).tolist() == [-128, -128, -128, -1, 1, 127, 127, 127, 127, -128]
        assert fp.quantize_real(np.array([1e38], np.float32), 1e-30, 0).tolist() == [127]
        assert fp.quantize_real(np.array([1e-38], np.float32), 1e10, -7).tolist() == [-7]
        assert fp.dequantize(np.array([-128, 0, 127], np.int8), 0.5, -128).tolist() == [0.0, 64.0, 127.5]
