"""Relay frontend: partition a module, then build it with TVM as always.

    import byoc_accel.relay as ba
    mod, report = ba.partition(mod, params, target="reference", calibration=samples)
    lib = tvm.relay.build(mod, target="llvm -mtriple=x86_64-linux-gnu")

Importing this package registers the code generator with TVM.
"""
from __future__ import annotations

import importlib.util

if importlib.util.find_spec("tvm") is None or importlib.util.find_spec("tvm.relay") is None:
    raise ImportError("byoc_accel.relay needs a TVM with Relay: pip install 'byoc-accel[relay]' on Python 3.10")

from . import hook  # noqa: E402, F401  (registers relay.ext.byoc_accel)
from .build import build_model, explain_model  # noqa: E402
from .partition import partition  # noqa: E402
from .report import PartitionReport  # noqa: E402

__all__ = ["PartitionReport", "build_model", "explain_model", "partition"]
