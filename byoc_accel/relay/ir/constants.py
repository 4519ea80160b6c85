"""Values of constant expressions, however a frontend wrote them: transposed, cast, quantized, computed.

Folding happens here and not by a pass over the module, so that constants of the host stay as they are.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Union

import numpy as np
import tvm
from tvm import relay

from .graph import key, op_name, operands, postorder

Value = Union[np.ndarray, tuple, None]  # of a tensor, of a tuple, of what cannot be computed

#: Elementwise ops that NumPy and TVM compute alike, bit for bit (IEEE operations of one step).
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "negative": np.negative, "sqrt": np.sqrt, "abs": np.abs,
}


class ConstantEvaluator:
    """NumPy values of constant expressions; each is computed once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[relay.Expr, Value]] = {}

    def __call__(self, expr: relay.Expr) -> np.ndarray | None:
        """The value of `expr`, whose leaves are constants; None when TVM cannot compute it at compile time."""
        for part in postorder(expr, self._unknown_operands):
            if key(part) not in self._known:
                # the expression is kept, because its address is the key
                self._known[key(part)] = (part, self._evaluate(part))
        value = self._known[key(expr)][1]
        return value if isinstance(value, np.ndarray) else None

    def _unknown_operands(self, expr: relay.Expr) -> list[relay.Expr]:
        return [] if key(expr) in self._known else operands(expr)

    def _evaluate(self, expr: relay.Expr) -> Value:
        if _has_no_numpy_type(expr):
            return None
        if isinstance(expr, relay.Constant):
            return values_of(expr.data)
        if isinstance(expr, relay.Call) and any(_has_no_numpy_type(e) for e in expr.args):
            return _fold(expr)
        values = [self._known[key(e)][1] for e in operands(expr)]
        if any(v is None for v in values):
            return None
        if isinstance(expr, relay.Tuple):
            return tuple(values)
        if isinstance(expr, relay.TupleGetItem):
            return values[0][expr.index]
        simple = _simple(expr, values)
        return _by_tvm(expr, values) if simple is None else simple


def values_of(array: tvm.nd.NDArray) -> np.ndarray:
    """The values of `array`, read-only and in place where NumPy can take them so: a model's weights exist once."""
    kind = str(array.dtype)
    if kind.startswith(("int", "uint", "float")) and array.device == tvm.cpu():
        return np.from_dlpack(array)
    return array.numpy()


def _simple(call: relay.Call, values: list[Value]) -> np.ndarray | None:
    """The ops that importers put around weights, without a compiler run of 50 ms each."""
    name, kind = op_name(call), call.checked_type
    if not isinstance(kind, relay.TensorType) or not all(isinstance(v, np.ndarray) for v in values):
        return None
    if name == "transpose":
        axes = call.attrs.axes
        return np.transpose(values[0], None if axes is None else [int(a) for a in axes])
    if name in ("reshape", "expand_dims", "squeeze"):
        return values[0].reshape([int(d) for d in kind.shape])
    if name == "cast" and kind.dtype in ("float32", "float64") and values[0].dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            return values[0].astype(kind.dtype)
    if kind.dtype not in ("float32", "float64", "int32", "int64") or any(v.dtype != kind.dtype for v in values):
        return None
    function = _ARITHMETIC.get(name)
    if function is None or (name == "divide" and not kind.dtype.startswith("float")):
        return None
    with np.errstate(all="ignore"):  # NaN and infinity are reported where the value is used
        return np.asarray(function(*values), kind.dtype)


def _has_no_numpy_type(expr: relay.Expr) -> bool:
    kind = expr.checked_type
    return isinstance(kind, relay.TensorType) and str(kind.dtype) == "bfloat16"


def _by_tvm(call: relay.Call, values: list[Value]) -> Value:
    return _fold(relay.Call(call.op, [_as_expr(v) for v in values], call.attrs, call.type_args))


def _fold(expr: relay.Expr) -> Value:
    """`expr` computed by TVM, with everything below it."""
    try:
        return _from_expr(relay.transform.FoldConstantExpr(expr, tvm.IRModule(), True))
    except (tvm.TVMError, TypeError, ValueError):
        return None


def _as_expr(value: Value) -> relay.Expr:
    if isinstance(value, tuple):
        return relay.Tuple([_as_expr(v) for v in value])
    return relay.const(np.asarray(value, order="C"), str(value.dtype))  # keeps rank 0


def _from_expr(expr: relay.Expr) -> Value:
    if isinstance(expr, relay.Tuple):
        return tuple(_from_expr(e) for e in expr.fields)
    return values_of(expr.data) if isinstance(expr, relay.Constant) else None
