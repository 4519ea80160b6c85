"""byoc_accel: a TVM external codegen for an int8 accelerator whose weights live inside its instructions.

    import byoc_accel.relay as ba          # needs TVM; partition, build and report for Relay models
    byoc_accel.compile_region(...)         # needs only NumPy; Region in, Image out

The names below are loaded when they are first used, so that importing the package costs little.
"""
from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "compile_region": "compile",
    "Region": "region.region",
    "Target": "target",
    "load_target": "target",
    "Image": "container.image",
    "AccelError": "errors",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'byoc_accel' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
