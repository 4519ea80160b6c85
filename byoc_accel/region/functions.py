"""Table of the elementwise functions that `Unary` may name, each on float64 arrays."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


@dataclass(frozen=True)
class Function:
    """`evaluate(x, *args)` is defined for every finite float64 x; `args` are the parameters' names."""

    name: str
    args: tuple[str, ...]
    meaning: str
    evaluate: Callable[..., np.ndarray]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # no overflow for large |x|


def _hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)).astype(np.float64))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x > 0.0, x, alpha * np.expm1(np.minimum(x, 0.0)))


FUNCTIONS: dict[str, Function] = {f.name: f for f in (
    Function("relu", (), "max(x, 0)", lambda x: np.maximum(x, 0.0)),
    Function("clip", ("low", "high"), "min(max(x, low), high); on int8 tensors: of the stored integers",
             np.clip),
    Function("leaky_relu", ("alpha",), "x if x > 0 else alpha * x",
             lambda x, alpha: np.where(x > 0.0, x, alpha * x)),
    Function("sigmoid", (), "1 / (1 + exp(-x))", _sigmoid),
    Function("hard_sigmoid", (), "clip(x + 3, 0, 6) / 6", _hard_sigmoid),
    Function("tanh", (), "tanh(x)", np.tanh),
    Function("hard_swish", (), "x * clip(x + 3, 0, 6) / 6", lambda x: x * _hard_sigmoid(x)),
    Function("swish", (), "x / (1 + exp(-x)), also called silu", lambda x: x * _sigmoid(x)),
    Function("gelu", (), "x / 2 * (1 + erf(x / sqrt(2)))", _gelu),
    Function("gelu_tanh", (), "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))", _gelu_tanh),
    Function("elu", ("alpha",), "x if x > 0 else alpha * (exp(x) - 1)", _elu),
    Function("softplus", (), "log(1 + exp(x))", _softplus),
    Function("mish", (), "x * tanh(log(1 + exp(x)))", lambda x: x * np.tanh(_softplus(x))),
    Function("exp", (), "exp(x)", np.exp),
    Function("abs", (), "|x|", np.abs),
    Function("negative", (), "-x", np.negative),
    Function("square", (), "x * x", np.square),
    Function("affine", ("factor", "offset"), "factor * x + offset",
             lambda x, factor, offset: factor * x + offset),
)}


def evaluate(name: str, args: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Function `name` of `FUNCTIONS` on x, in float64; overflow gives an infinity without a warning."""
    with np.errstate(over="ignore", under="ignore"):
        return FUNCTIONS[name].evaluate(np.asarray(x, np.float64), *args)
