"""TVM's packed C ABI in ctypes: call the glue as generated code does, without TVM."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.runtime_c import building

CPU, TENSOR, NDARRAY = 1, 7, 13
OPAQUE = 3
_KINDS = {"i": 0, "u": 1, "f": 2}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def int64s(values: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def tensor(array: np.ndarray) -> DLTensor:
    """A DLTensor over an array, with its strides if it is not compact."""
    strides = None
    if not array.flags.c_contiguous:
        strides = int64s([s // array.itemsize for s in array.strides])
    return DLTensor(array.ctypes.data, CPU, 0, array.ndim, _KINDS[array.dtype.kind], 8 * array.itemsize, 1,
                    int64s(array.shape), strides, 0)


class Library:
    """The glue as a shared library, and the calls of generated code into it."""

    def __init__(self, path: Path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.shim_error.restype = ctypes.c_char_p
        self.lib.shim_call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

    def call(self, image: np.ndarray, arguments: Sequence[object], codes: Sequence[int] | None = None,
             image_bytes: int | None = None) -> str:
        """Run; "" or the error text. Arguments are arrays, DLTensors or None."""
        tensors = [tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
        values = (ctypes.c_uint64 * max(len(tensors), 1))(*[0 if t is None else ctypes.addressof(t) for t in tensors])
        type_codes = (ctypes.c_int * max(len(tensors), 1))(*(codes or [TENSOR] * len(tensors)))
        size = image.size if image_bytes is None else image_bytes
        result = self.lib.shim_call(image.ctypes.data, size, values, type_codes, len(tensors))
        text = self.lib.shim_error().decode()
        assert (result == 0) == (text == "") and result in (0, -1)
        return text

    def stats(self) -> dict:
        """JSON of wia_tvm_stats for the calling thread."""
        value, code = ctypes.c_char_p(), ctypes.c_int(-1)
        assert self.lib.wia_tvm_stats(None, None, 0, ctypes.byref(value), ctypes.byref(code), None) == 0
        assert code.value == OPAQUE  # no TVM here that could make a String of it
        return json.loads(value.value.decode("utf-8"))

    def reset(self) -> None:
        value, code = ctypes.c_uint64(), ctypes.c_int(-1)
        assert self.lib.wia_tvm_reset_stats(None, None, 0, ctypes.byref(value), ctypes.byref(code), None) == 0


def aligned(data: bytes) -> np.ndarray:
    """The bytes of an image at a 64-byte boundary, as they lie in a library."""
    block = np.zeros(len(data) + 64, np.uint8)
    start = -block.ctypes.data % 64
    block[start:start + len(data)] = np.frombuffer(data, np.uint8)
    return block[start:start + len(data)]


def build(folder: Path, sanitize: bool = False) -> Path:
    """libglue.so with hidden visibility, as the archive for exported libraries is built."""
    flags = ["-std=gnu11", "-fPIC", "-fvisibility=hidden", *(building.SANITIZERS if sanitize else ["-O2"])]
    sources = [*building.CORE, "runtime_c/hal/hal_sim.c", *building.SIMULATOR, *building.TVM,
               "tests/runtime_c/tvm_shim.c"]
    made = building.objects(folder / ("glue-asan" if sanitize else "glue"), sources, flags)
    path = folder / ("libglue-asan.so" if sanitize else "libglue.so")
    building.run_cc(["-shared", *(building.SANITIZERS if sanitize else []), *made, "-o", str(path), "-lpthread"])
    return path
