"""Expected steps of the decoder of codec lanes."""
from __future__ import annotations

import numpy as np
import pytest

from byoc_accel.timing.tiles import step_cycles


def test_one_word_a_cycle():
    # 0, 1 or 2 words with chances 1/4, 1/2, 1/4 take 1, 1 or 2 cycles
    assert step_cycles(2, 50, 1) == pytest.approx(1.25)
    assert step_cycles(2, 100, 1) == 2 and step_cycles(2, 0, 1) == 1


@pytest.mark.parametrize("lanes, percent, words", [(32, 45, 16), (32, 60, 16), (4, 90, 2), (16, 50, 16)])
def test_expectation(lanes, percent, words):
    asked = (np.random.default_rng(0).random((200_000, lanes)) < percent / 100).sum(axis=1)
    assert step_cycles(lanes, percent, words) == pytest.approx(np.maximum(1, -(-asked // words)).mean(), rel=0.005)
