"""Module and parameters -> one typed module without free parameters, as the matcher wants it."""
from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
from tvm import relay

from ...errors import ModelError
from .clamps import move_clamps
from .composites import dissolve
from .integer import to_integer
from .pads import fold_pads
from .unsigned import to_signed


def prepare(mod: tvm.IRModule, params: Mapping[str, object] | None) -> tvm.IRModule:
    """Bind parameters, inline plain functions, simplify inference-only ops (batch norm, dropout), infer types.

    Quantized graphs get their integer form (`integer`), int8 for uint8 (`unsigned`) and clamps where the patterns
    look for them (`clamps`); pools get their padding (`pads`). `mod` is not changed. External functions of an earlier
    partition stay. Raises ModelError.
    """
    if not isinstance(mod, tvm.IRModule):
        raise ModelError(f"a {type(mod).__name__} is no module; give a tvm.IRModule, as relay.frontend returns it")
    if not isinstance(params, (Mapping, type(None))):
        raise ModelError(f"params is a {type(params).__name__}; give a dict of arrays by name, or nothing")
    if "main" not in {v.name_hint for v in mod.get_global_vars()}:
        raise ModelError("the module has no function main; make one with tvm.IRModule.from_expr")
    try:
        mod = relay.transform.InferType()(tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs))
        mod["main"] = bind(mod["main"], params or {})
        mod = _dissolve(_inline(_graph_normal_form(mod)))
        mod = relay.transform.SimplifyInference()(relay.transform.InferType()(mod))
        mod = to_integer(relay.transform.InferType()(mod), is_plain)
        for change in (to_signed, move_clamps, fold_pads):
            mod = _change(mod, change)
        return mod
    except tvm.TVMError as error:
        raise ModelError(f"the module does not type-check: {_reason(error)}") from error


def _reason(error: tvm.TVMError) -> str:
    """The line of a TVM error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "rror:" in line and "Traceback" not in line:
            return line
    return lines[-1] if lines else type(error).__name__


def is_plain(function: object) -> bool:
    """True for a Relay function that is neither external nor a fused one."""
    if not isinstance(function, relay.Function):
        return False
    return function.attrs is None or not {"Compiler", "Primitive", "Extern"} & set(function.attrs.keys())


def bind(function: relay.Function, params: Mapping[str, object]) -> relay.Function:
    """Replace variables by constants. Values are converted to a variable's dtype where that is exact.

    Names that the function does not have are left alone, as relay.build does. Raises ModelError, naming
    parameter, dtype and shape.
    """
    variables = {v.name_hint: v for v in function.params}
    bound = {}
    for name, value in params.items():
        if name in variables:
            bound[name] = _constant(name, value, variables[name].checked_type)
    return relay.build_module.bind_params_by_name(function, bound) if bound else function


def _constant(name: str, value: object, kind: tvm.ir.Type) -> tvm.nd.NDArray:
    if isinstance(value, tvm.nd.NDArray) and str(value.dtype) == str(kind.dtype):
        array, result = value, value
    else:
        array = value.numpy() if isinstance(value, tvm.nd.NDArray) else np.asarray(value)
        result = tvm.nd.array(np.ascontiguousarray(_exact(name, array, str(kind.dtype))))
    shape = tuple(int(d) if isinstance(d, tvm.tir.IntImm) else None for d in kind.shape)
    if len(shape) != len(array.shape) or any(a not in (None, b) for a, b in zip(shape, array.shape)):
        raise ModelError(f"parameter {name!r} has shape {tuple(array.shape)}, the model's variable {shape}")
    return result


def _exact(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    if array.dtype == dtype:  # includes the byte order
        return array
    try:
        goal = np.dtype(dtype)
    except TypeError:
        raise ModelError(f"parameter {name!r} is {array.dtype}, the model's variable {dtype}; convert it") from None
    if array.dtype.kind not in "fiub" or (goal.kind in "iu" and array.dtype.kind == "f"):
        raise ModelError(f"parameter {name!r} is {array.dtype}, the model's variable {dtype}; convert it")
    with np.errstate(all="ignore"):
        converted = array.astype(goal)
        same = converted.astype(array.dtype) == array
    if not (same | (array != array)).all():
        index = tuple(int(i) for i in np.argwhere(~(same | (array != array)))[0])
        raise ModelError(f"parameter {name!r} is {array.dtype}, the model's variable {dtype}, and {array[index]!r} at "
                         f"{list(index)} is not exact in it; convert the parameters")
    return converted


def _change(mod: tvm.IRModule, change: Callable[[relay.Function], relay.Function]) -> tvm.IRModule:
    """`mod` with every plain function changed, and typed again if any is another one."""
    changed = {var: change(f) for var, f in mod.functions.items() if is_plain(f)}
    if all(f.same_as(mod[var]) for var, f in changed.items()):
        return mod
    result = tvm.IRModule({**mod.functions, **changed}, mod.type_definitions, attrs=mod.attrs)
    return relay.transform.InferType()(result)


def _graph_normal_form(mod: tvm.IRModule) -> tvm.IRModule:
    """Turn let chains into graphs; other functions are left as they are."""
    if any(is_plain(f) and isinstance(f.body, relay.Let) for f in mod.functions.values()):
        return relay.transform.InferType()(relay.transform.ToGraphNormalForm()(mod))
    return mod


def _inline(mod: tvm.IRModule) -> tvm.IRModule:
    """Inline plain functions that are called but do not call themselves, and remove them."""
    calls = {var.name_hint: _callees(function) for var, function in mod.functions.items() if is_plain(function)}
    called = set().union(*calls.values()) & set(calls)
    chosen = sorted(name for name in called - {"main"} if not _reaches(name, name, calls))
    if not chosen:
        return mod
    for name in chosen:
        mod[name] = mod[name].with_attr("Inline", tvm.tir.IntImm("int32", 1))
    mod = relay.transform.Inline()(relay.transform.InferType()(mod))
    kept = {var: f for var, f in mod.functions.items() if var.name_hint not in chosen}
    return tvm.IRModule(kept, mod.type_definitions, attrs=mod.attrs)


def _dissolve(mod: tvm.IRModule) -> tvm.IRModule:
    """Plain functions without composite functions inside."""
    changed = {var: dissolve(f) for var, f in mod.functions.items() if is_plain(f)}
    if all(f.same_as(mod[var]) for var, f in changed.items()):
        return mod
    return tvm.IRModule({**mod.functions, **changed}, mod.type_definitions, attrs=mod.attrs)


def _callees(function: relay.Function) -> set[str]:
    """Names of the global functions that `function` mentions, also inside of control flow and closures."""
    found: set[str] = set()
    relay.analysis.post_order_visit(
        function, lambda e: found.add(e.name_hint) if isinstance(e, relay.GlobalVar) else None)
    return found


def _reaches(start: str, goal: str, calls: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    stack = list(calls.get(start, ()))
    while stack:
        name = stack.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            stack.extend(calls.get(name, ()))
    return False


