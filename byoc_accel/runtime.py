"""Python face of runtime_c: the real C runtime checks and runs images, with the simulator as its device."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._wia_runtime import ffi, lib
from .container.image import Image
from .container.layout import IMAGE_ALIGNMENT_BYTES
from .errors import C_ERRORS, ImageError, RunError
from .target import FIELDS, Target

_CODES = {error.name: error.code for error in C_ERRORS}

#: Errors of loading whose `where` is an offset in the program, not in the image.
_IN_PROGRAM = frozenset(_CODES[name] for name in ("WIA_E_OPCODE", "WIA_E_PROGRAM_END", "WIA_E_BOUNDS", "WIA_E_LOOP",
                                                  "WIA_E_TOKEN"))


def check_image(data: bytes | Image, target: Target | None = None, max_steps: int = 0) -> None:
    """Parse and verify image bytes as a device of `target` would, by default the image's own.

    Executes the control flow of the program, at most `max_steps` instructions (0: 2**26). Raises ImageError with
    the C runtime's text.
    """
    raw = data.data if isinstance(data, Image) else bytes(data)
    wia = ffi.new("wia_t *")
    device = None if target is None else _Device(target)
    _load(wia, device, raw, max_steps)


def run_image(image: Image | bytes, inputs: Sequence[np.ndarray],
              target: Target | None = None) -> tuple[list[np.ndarray], int]:
    """Run an image on a simulated device of `target`, by default its own: (outputs, cycles).

    inputs: one int8 array of the port's device shape (NHWC) per input, in port order; so are the outputs. Raises
    ImageError when the runtime refuses the image and RunError when a run fails, with the C runtime's text.
    """
    image = image if isinstance(image, Image) else Image(bytes(image))
    wia = ffi.new("wia_t *")
    device = _Device(image.target if target is None else target)
    keep = _load(wia, device, image.data, 0)
    ports = image.program.ports
    kinds = [image.program.buffers[port.buffer].kind for port in ports]
    shapes = [port.device_shape for port, kind in zip(ports, kinds) if kind == "input"]
    alignment = wia.summary.alignment_bytes
    given = [_input(i, a, shape, alignment) for i, (a, shape) in enumerate(zip(inputs, shapes))]
    if len(inputs) != len(shapes):
        raise RunError(f"{image.name}: {len(inputs)} inputs, the region has {len(shapes)}", _CODES["WIA_E_BINDING"])
    outputs = [_aligned(port.device_shape, alignment) for port, kind in zip(ports, kinds) if kind == "output"]
    scratch = _aligned((wia.summary.scratch_bytes,), alignment)
    input_table = ffi.new("wia_tensor_t[]", [_tensor(a) for a in given])
    output_table = ffi.new("wia_tensor_t[]", [_tensor(a) for a in outputs])
    tensors = ffi.new("wia_tensors_t *", {
        "inputs": input_table, "input_count": len(given), "outputs": output_table, "output_count": len(outputs),
        "scratch": _tensor(scratch)})
    code = lib.wia_run(wia, tensors)
    if code != 0:
        raise RunError(f"{image.name}: {_text(code)}{_detail(code, wia.fault)}", code)
    del keep
    return outputs, int(wia.cycles)


class _Device:
    """A simulated device of `target` behind the HAL."""

    def __init__(self, target: Target):
        self._numbers = ffi.from_buffer("uint8_t[]", np.array(target.numbers(), "<u4").tobytes())
        self._digest = ffi.from_buffer("uint8_t[]", target.digest)
        desc = ffi.new("wia_sim_desc_t *", {"target": self._numbers})
        size = lib.wia_sim_size(desc)
        self._memory = ffi.new("uint64_t[]", (size + 7) // 8)
        self._device = ffi.new("wia_hal_sim_t *")
        if lib.wia_hal_sim_init(self._device, desc, self._digest, self._memory, size) != lib.WIA_SIM_OK:
            raise RunError(f"target {target.name}: the simulator refuses it", _CODES["WIA_E_DEVICE"])

    @property
    def hal(self) -> object:
        return ffi.addressof(self._device, "hal")


def _load(wia: object, device: _Device | None, data: bytes, max_steps: int) -> np.ndarray:
    """Load `data`; the result holds the bytes that the runtime uses in place."""
    config = ffi.new("wia_config_t *", {"max_steps": max_steps})
    code = lib.wia_init(wia, ffi.NULL if device is None else device.hal, config)
    if code != 0:
        raise RunError(_text(code), code)
    place = _aligned((len(data),), IMAGE_ALIGNMENT_BYTES)
    place[...] = np.frombuffer(data, np.int8)
    code = lib.wia_load(wia, ffi.from_buffer("char[]", place) if len(data) else _empty(), len(data))
    if code != 0:
        raise ImageError(f"{_text(code)}{_detail(code, wia.fault)}")
    return place


def _empty() -> object:
    return ffi.cast("void *", IMAGE_ALIGNMENT_BYTES)  # no byte of it is read


def _text(code: int) -> str:
    return str(ffi.string(lib.wia_error_text(code)).decode())


def _detail(code: int, fault: object) -> str:
    where, found, expected = fault.where, fault.found, fault.expected
    if code == _CODES["WIA_E_TARGET"] and where:
        return f": {FIELDS[where - 1].table}.{FIELDS[where - 1].key} is {found}, the device has {expected}"
    if code == _CODES["WIA_E_DEVICE"]:
        return f": fault {found - (1 << 32)} at program byte {where}"
    if code in (_CODES["WIA_E_BINDING"], _CODES["WIA_E_SCRATCH"]):
        return f": tensor {where} has {found}, {expected} needed"
    if code in _IN_PROGRAM:
        return f": at program byte {where}"
    return f": at image byte {where}, found {found}, expected {expected}"


def _aligned(shape: tuple[int, ...], alignment_bytes: int) -> np.ndarray:
    """Zeroed int8 array whose first byte is aligned."""
    size = int(np.prod(shape, dtype=np.int64))
    block = np.zeros(size + alignment_bytes, np.int8)
    start = -block.ctypes.data % alignment_bytes
    return block[start:start + size].reshape(shape)


def _input(index: int, array: np.ndarray, shape: tuple[int, ...], alignment_bytes: int) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype != np.int8 or array.shape != tuple(shape):
        raise RunError(f"input {index} is {array.dtype} {array.shape}; give int8 {tuple(shape)}",
                       _CODES["WIA_E_BINDING"])
    copy = _aligned(tuple(shape), alignment_bytes)
    copy[...] = array
    return copy


def _tensor(array: np.ndarray) -> tuple[object, int]:
    if array.size == 0:
        return ffi.NULL, 0
    return ffi.cast("void *", array.ctypes.data), array.size
