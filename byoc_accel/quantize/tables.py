"""Lookup tables: an elementwise function between two int8 tensors."""
from __future__ import annotations

import numpy as np

from ..errors import QuantizeError
from ..region.functions import evaluate
from . import fixedpoint


def lookup_table(where: str, function: str, args: tuple[float, ...], x: tuple[float, int],
                 y: tuple[float, int]) -> np.ndarray:
    """int8 (256,): entry i is quantize(function(dequantize(i - 128))); x and y are (scale, zero point).

    As dequantize - function - quantize of the host: float32 between the three, the function in float64.
    Raises QuantizeError with `where` when the function is NaN anywhere on x's range.
    """
    real = fixedpoint.dequantize(np.arange(-128, 128, dtype=np.int16), *x)
    result = evaluate(function, args, real)
    if np.isnan(result).any():
        q = int(np.flatnonzero(np.isnan(result))[0]) - 128
        raise QuantizeError(f"{where}: {function}({real[q + 128]}) is not a number; leave it to the host")
    with np.errstate(over="ignore", under="ignore"):  # what float32 cannot hold saturates
        return fixedpoint.quantize_real(result.astype(np.float32), *y)
