"""How float regions are calibrated: the names of the methods, without the code behind them."""
from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import QuantizeError

METHODS = "minmax, extreme:M (M >= 2), percentile:P (0 < P <= 100), mse"
DEFAULT_RANGES = "extreme:200"


@dataclass(frozen=True)
class Method:
    """ranges: a method of `activations.collect_ranges`. correct_bias: see `bias`. equalize: see `equalize`.

    Raises QuantizeError for an unknown method.
    """

    ranges: str = DEFAULT_RANGES
    correct_bias: bool = True
    equalize: bool = False

    def __post_init__(self) -> None:
        parse_ranges(self.ranges)


def parse_ranges(method: str) -> tuple[str, float]:
    """Kind and number of a range method; the number is 0 where there is none. Raises QuantizeError."""
    kind, _, text = str(method).partition(":")
    if method in ("minmax", "mse"):
        return kind, 0.0
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if (kind == "percentile" and 0.0 < value <= 100.0) or (kind == "extreme" and 2.0 <= value < math.inf):
        return kind, value
    raise QuantizeError(f"range method {method!r} is unknown; use one of {METHODS}")


DEFAULT = Method()
#: For samples that are no inputs of the model: nothing is read out of them but their largest values.
GUESS = Method("minmax", correct_bias=False)
