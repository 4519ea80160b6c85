"""Relay frontend: partition a module, then build it with TVM as always.

    import byoc_accel.relay as ba
    mod, report = ba.partition(mod, params, target="reference", calibration=samples)
    lib = tvm.relay.build(mod, target="llvm -mtriple=x86_64-linux-gnu")

Importing this package registers the code generator with TVM. The way of a module through it:

    partition.py    a module in, the same with external functions out, in three steps:
      prepare/        one form for all graphs, the bytes of quantized ones kept
      match/          the layers, by the table in patterns.py, and a reason for every other op
      regions/        layers joined, calibrated and compiled, until all of them fit
    hook.py         what relay.build calls for each external function: importer.py makes its Region,
      codegen/        and its image becomes a TVM module
    files/          model files in, libraries out and run: the command line and the demo

ir/ reads and rewrites functions for all of them. options.py, host.py, programs.py and report.py are what they share,
load.py is how TVM is imported.
"""
from __future__ import annotations

from .load import load_tvm

load_tvm()

from . import hook  # noqa: E402, F401  (registers relay.ext.byoc_accel)
from .files.build import build_model, explain_model  # noqa: E402
from .partition import partition  # noqa: E402
from .report import PartitionReport  # noqa: E402

__all__ = ["PartitionReport", "build_model", "explain_model", "partition"]
