"""What TVM calls for each external function: `relay.ext.byoc_accel` and its constant updater.

Importing this module registers both. The codegen turns a function into an image and returns a module that
runs at once and exports (see codegen/plugin.py). The updater returns nothing: the constants of a region live in its
program, and every constant it named would exist a second time in the host's metadata.
"""
from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import tvm
from tvm import relay

from ..errors import HostError
from .codegen import glue, objects, plugin

COMPILER = "byoc_accel"
CompileFunction = Callable[[relay.Function], tuple[str, bytes]]


def compile_function(func: relay.Function) -> tuple[str, bytes]:
    """One external Relay function to (symbol, image bytes), through the whole pipeline."""
    from ..compile import compile_qregion, pack_program, quantize_region
    from .importer import import_function
    from .programs import PROGRAMS

    imported = import_function(func)
    qregion, report = quantize_region(imported.region, ranges=imported.ranges, scale=imported.scale)
    program = PROGRAMS.take(qregion, imported.target)
    image = (compile_qregion(qregion, report, imported.target).image if program is None
             else pack_program(program, imported.target))
    return str(func.attrs["global_symbol"]), image.data


def register(
    compile: CompileFunction = compile_function, runtime_archive: Path = glue.RUNTIME_ARCHIVE
) -> None:
    """Register the codegen and its constant updater with TVM, replacing earlier ones.

    `compile` and `runtime_archive` are for tests; the defaults are the real pipeline and runtime.
    """

    def codegen(func: relay.Function) -> tvm.runtime.Module:
        check_function(func)
        symbol, image = compile(func)
        return build_module(symbol, image, runtime_archive, expose=_is_aot(func))

    def update_constants(func: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
        del func, symbol
        return {}

    tvm.register_func(f"relay.ext.{COMPILER}", codegen, override=True)
    tvm.register_func(f"relay.ext.{COMPILER}.constant_updater", update_constants, override=True)


def check_function(func: object) -> None:
    """Raise HostError unless `func` is an external function that was partitioned for this codegen."""
    advice = "partition the module with byoc_accel.relay.partition and build it with relay.build"
    if not isinstance(func, relay.Function):
        raise HostError(f"relay.ext.{COMPILER} got a {type(func).__name__}, not a Relay function; {advice}")
    attrs = {} if func.attrs is None else {key: func.attrs[key] for key in func.attrs.keys()}
    name = attrs.get("global_symbol")
    what = f'function "{name}"' if name else "a function without global_symbol"
    # relay.build sets the attribute Compiler to None before it calls us, but the key stays.
    if "Compiler" not in attrs:
        kind = "a Primitive function of the host" if "Primitive" in attrs else "a plain function"
        raise HostError(f"{what} has no attribute Compiler, so it is {kind} and no region; {advice}")
    if attrs["Compiler"] not in (None, COMPILER):
        raise HostError(f'{what} is meant for the compiler "{attrs["Compiler"]}", not "{COMPILER}"; {advice}')
    if not name:
        raise HostError(f"{what} cannot be called by the host; {advice}")


def build_module(
    symbol: str, image: bytes, runtime_archive: Path = glue.RUNTIME_ARCHIVE, *, expose: bool = False
) -> tvm.runtime.Module:
    """A runnable and exportable module whose only function `symbol` runs `image`.

    The C compiler is called when the module is exported or run for the first time, for all regions that wait for it
    (see codegen/objects.py). `expose` makes the symbol visible to the whole process, which AOT code needs to run in the
    process that built it. Raises HostError when the compiler, the linker or the runtime archive fails.
    """
    region = objects.Region(symbol, image, runtime_archive.resolve())
    module = plugin.create_module(region.object_bytes, [symbol], region.library)
    if expose:
        with region.own_library() as path:
            plugin.expose_symbol(module, symbol, path, hashlib.sha256(image).hexdigest())
    module.import_module(_runtime_module(region.archive))
    return module


@functools.cache
def _runtime_module(archive: Path) -> tvm.runtime.Module:
    """The runtime as a module to link. One per process: TVM links a module once, however many import it."""
    return plugin.create_module(lambda: objects.runtime_object(archive))


def _is_aot(func: relay.Function) -> bool:
    """Whether the AOT executor is being built: only its path annotates functions with their memory use."""
    return "used_memory" in func.attrs.keys()


register()
