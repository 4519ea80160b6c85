"""The C++ module class behind a compiled region: runnable straight after the build, and exportable.

`wia_module.cc` says why TVM needs such a class. It is compiled once per TVM version against the
headers that the hhb-tvm wheel ships (1.5 s) and kept beside the package, or in the user's cache folder
when the package is not writable. An exported library does not need it.
"""
from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import tvm

from ...errors import HostError
from .compiler import find_compiler, run_compiler

SOURCE = Path(__file__).parent / "wia_module.cc"
CREATE_MODULE = "byoc_accel.relay.CreateModule"
EXPOSE_SYMBOL = "byoc_accel.relay.ExposeSymbol"


def create_module(object_bytes: Callable[[], bytes], symbols: Sequence[str] = (),
                  library: Callable[[], tvm.runtime.Module] | None = None) -> tvm.runtime.Module:
    """A module that saves what `object_bytes` returns at export and finds `symbols` in the loaded `library`.

    Both are called when they are needed for the first time, and then again. Without symbols the module only carries
    code for the linker. Raises HostError when the class cannot be built.
    """
    load()
    create = tvm.get_global_func(CREATE_MODULE)
    return create(lambda: bytearray(object_bytes()), [str(symbol) for symbol in symbols], library or (lambda: None))


def expose_symbol(module: tvm.runtime.Module, symbol: str, library: Path, digest: str) -> None:
    """Make `symbol` of `library` callable from the whole process for as long as `module` lives.

    The AOT executor needs it when it runs in the process that built it: its code calls regions by bare
    symbol. Raises HostError when a living module with other bytes (`digest`) owns the symbol.
    """
    load()
    if not tvm.get_global_func(EXPOSE_SYMBOL)(module, symbol, str(library), digest):
        raise HostError(
            f'symbol "{symbol}" already belongs to a region with other contents in this process, and AOT '
            "code finds regions by symbol only; partition with byoc_accel.relay.partition (its symbols "
            "carry a digest) or give the functions distinct global_symbol names"
        )


@functools.cache
def load() -> None:
    """Compile the plugin unless a cached one fits, and load it into this process. Raises HostError."""
    library = _find_or_build()
    try:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise HostError(f"TVM plugin {library} cannot be loaded ({error}); delete it to rebuild it") from None


def cache_directories() -> tuple[Path, ...]:
    """Where a compiled plugin may live, best first: the package, then the user's cache folder."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return (Path(__file__).parents[2] / "_lib", Path(cache_home) / "byoc_accel")


def library_name(source: bytes, tvm_version: str) -> str:
    """File name of the plugin compiled from `source` for TVM `tvm_version`."""
    key = hashlib.sha256(source + b"\0" + tvm_version.encode()).hexdigest()[:16]
    return f"wia_module-{key}.so"


def _find_or_build() -> Path:
    name = library_name(SOURCE.read_bytes(), _tvm_identity())
    directories = cache_directories()
    for directory in directories:
        if (directory / name).is_file():
            return directory / name
    refusals = []
    for directory in directories:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".build-", dir=directory) as scratch:
                built = Path(scratch) / name
                _compile(built)
                os.replace(built, directory / name)  # atomic: a concurrent process sees none or all of it
        except OSError as error:
            refusals.append(f"{directory}: {error.strerror or error}")
            continue
        return directory / name
    raise HostError(
        f"no writable place for the compiled TVM plugin ({'; '.join(refusals)}); set XDG_CACHE_HOME to a "
        "writable folder"
    )


def _tvm_identity() -> str:
    """Version and binary of the installed TVM: two wheels of one version may differ in their ABI."""
    binary = Path(tvm.__file__).parent / "libtvm.so"
    size_bytes = binary.stat().st_size if binary.is_file() else 0
    return f"{tvm.__version__}/{size_bytes}"


def _compile(output: Path) -> None:
    """Compile SOURCE into the shared library `output`. Raises HostError."""
    root = Path(tvm.__file__).parent
    includes = [root / "include", root / "dlpack" / "include", root / "dmlc-core" / "include"]
    missing = [str(path) for path in includes if not path.is_dir()]
    if missing:
        raise HostError(f"this TVM has no C++ headers ({', '.join(missing)}); install hhb-tvm==3.2.3")
    command = [
        *find_compiler("C++", "once to build the TVM plugin"),
        "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
        "-D_GLIBCXX_USE_CXX11_ABI=0",  # as the wheel was built
        "-DDMLC_USE_LOGGING_LIBRARY=<tvm/runtime/logging.h>",
        *(f"-I{path}" for path in includes), str(SOURCE), "-o", output.name,
    ]  # fmt: skip
    run_compiler(command, output.parent, "the TVM plugin does not compile")
