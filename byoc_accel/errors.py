"""Every way this package can fail: one exception class per stage, one table of C error codes.

A message is one line and says where, what, the limit, and what to do. The C codes in `C_ERRORS`
are the source of ``runtime_c/include/wia/gen/wia_errors.h`` and of its texts, so the Python face of the
runtime and the C runtime cannot drift.
"""
from __future__ import annotations

from dataclasses import dataclass


class AccelError(Exception):
    """Base of all errors of this package; `stage` is the prefix of the message."""

    stage = "byoc_accel"

    def __init__(self, message: str):
        super().__init__(f"{self.stage}: {message}")


class ModelError(AccelError):
    """A model file or a host module cannot be read or used."""

    stage = "model"


class HostError(AccelError):
    """The TVM host, its compiler plugin or its linker refused."""

    stage = "host"


class TargetError(AccelError):
    """A target description is malformed or out of range."""

    stage = "target"


class RegionError(AccelError):
    """A Region breaks an invariant or holds an unusable constant."""

    stage = "region"


class QuantizeError(AccelError):
    """No int8 form of the region exists: bad calibration data, NaN weights, an unencodable scale."""

    stage = "quantize"


class ScheduleError(AccelError):
    """The region does not fit the target even when tiled."""

    stage = "schedule"


class EncodeError(AccelError):
    """A field value does not fit its instruction, or bytes are no instruction."""

    stage = "isa"


class ProgramError(AccelError):
    """A program breaks a rule of the machine: bounds, dependences, races."""

    stage = "program"


class ImageError(AccelError):
    """Bytes are no valid image, or an image for another target."""

    stage = "image"


class RunError(AccelError):
    """Running an image failed; `code` is the C error code (negative)."""

    stage = "run"

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class CError:
    """One row of the C error table: `code` is negative, `name` is the C constant, `text` says the check."""

    code: int
    name: str
    text: str


C_ERRORS: tuple[CError, ...] = (
    CError(0, "WIA_OK", "no error"),
    CError(-1, "WIA_E_ARGUMENT", "a required argument is null, misaligned or out of range"),
    CError(-2, "WIA_E_TRUNCATED", "image is shorter than its header says"),
    CError(-3, "WIA_E_MAGIC", "image does not start with the WIA magic bytes"),
    CError(-4, "WIA_E_VERSION", "image format or instruction set version is not supported by this runtime"),
    CError(-5, "WIA_E_CRC", "image checksum does not match its bytes"),
    CError(-6, "WIA_E_LAYOUT", "a section or record of the image lies outside of it or is malformed"),
    CError(-7, "WIA_E_TARGET", "image was compiled for another target"),
    CError(-8, "WIA_E_OPCODE", "program holds an unknown instruction or a reserved field value"),
    CError(-9, "WIA_E_PROGRAM_END", "program runs past its end or does not stop with HALT"),
    CError(-10, "WIA_E_BOUNDS", "an instruction reads or writes outside a memory or a buffer"),
    CError(-11, "WIA_E_LOOP", "hardware loops are unbalanced, empty or nested too deep"),
    CError(-12, "WIA_E_TOKEN", "an instruction waits for a token that nobody sends, or tokens are left over"),
    CError(-13, "WIA_E_BINDING", "a tensor is missing, too small, misaligned or of the wrong kind"),
    CError(-14, "WIA_E_SCRATCH", "scratch memory is missing or too small"),
    CError(-15, "WIA_E_DEVICE", "the device reported a fault"),
    CError(-16, "WIA_E_TIMEOUT", "the device did not finish in time"),
    CError(-17, "WIA_E_STATE", "the call is not allowed in this state"),
    CError(-18, "WIA_E_SHAPE", "a host tensor has another shape or data type than the region was compiled for"),
    CError(-19, "WIA_E_MEMORY", "the host has no memory left for a simulator or a conversion buffer"),
)
