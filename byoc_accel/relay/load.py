"""TVM with Relay, imported without a trace in the current folder.

topi keeps the results of one of its functions in a folder .pkl_memoize_py3, which it makes while it is imported: every
folder in which a command ran had one, and where none can be made nothing ran at all.
"""
from __future__ import annotations

import importlib.util
import sys


def load_tvm() -> None:
    """Import tvm.relay. Raises ImportError where there is no TVM, or one without Relay."""
    if importlib.util.find_spec("tvm") is None or importlib.util.find_spec("tvm.relay") is None:
        raise ImportError("byoc_accel.relay needs a TVM with Relay: pip install 'byoc-accel[relay]' on Python 3.10")
    if "tvm.topi" in sys.modules:
        return
    from tvm.contrib import pickle_memoize

    on_disk = pickle_memoize.Cache

    class InMemory(on_disk):
        def __init__(self, key: str, save_at_exit: bool):
            self.cache, self.path, self.dirty, self.save_at_exit = {}, key, False, False

    pickle_memoize.Cache = InMemory
    try:
        import tvm.relay  # noqa: F401
    finally:
        pickle_memoize.Cache = on_disk
