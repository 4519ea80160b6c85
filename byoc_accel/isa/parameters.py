"""Inline data of par: biases, multipliers and shifts in three planes of fields as wide as their values ask for."""
from __future__ import annotations

import numpy as np

from ..errors import EncodeError
from .encode import parameter_bytes, parameter_widths
from .inst import Inst

MULTIPLIER_BITS = 31
TOP_BIT = 1 << (MULTIPLIER_BITS - 1)
BIAS_LIMIT = 1 << 31


def parameters(bias: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, uniform: bool = False) -> dict[str, object]:
    """Fields and payload of a par: `bias` int32 (columns,); `multiplier` < 2^31 and `shift`, (1,) if uniform.

    Fields are the narrowest that hold every value. Raises EncodeError naming the channel whose value does not fit.
    """
    bias = _integers("bias", bias, -BIAS_LIMIT, BIAS_LIMIT - 1)
    multiplier = _integers("multiplier", multiplier, 0, (1 << MULTIPLIER_BITS) - 1)
    shift = _integers("shift", shift, 0, 255)
    count = 1 if uniform else len(bias)
    if len(multiplier) != count or len(shift) != count:
        raise EncodeError(f"par: {len(multiplier)} multipliers and {len(shift)} shifts; "
                          f"{len(bias)} {'uniform ' if uniform else ''}channels need {count}")
    bits = significant_bits(multiplier)
    normal = int(bool((multiplier >= TOP_BIT).all()))
    base = int(shift.min())
    fields = {"columns": len(bias), "uniform": int(uniform), "bias_bits": bias_bits(bias), "multiplier_bits": bits,
              "normal": normal, "shift_base": base, "shift_bits": int(shift.max() - base).bit_length()}
    planes = (bias, (multiplier & (TOP_BIT - 1 if normal else -1)) >> (MULTIPLIER_BITS - bits), shift - base)
    widths = (fields["bias_bits"], max(bits - normal, 0), fields["shift_bits"])
    return {**fields, "payload": pack_planes(planes, widths)}


def bias_bits(bias: np.ndarray) -> int:
    """Bits of a two's complement field that holds every one of `bias`, at least 1."""
    return max(int(max(bias.max(), (~bias).max())).bit_length() + 1, 1)


def significant_bits(multiplier: np.ndarray) -> int:
    """Bits from bit 30 down to the lowest one that is set in any of `multiplier`."""
    used = int(np.bitwise_or.reduce(multiplier))
    return MULTIPLIER_BITS - ((used & -used).bit_length() - 1) if used else 0


def unpack_parameters(par: Inst) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bias, multiplier and shift as int64 (columns,) each, uniform ones repeated; raises EncodeError."""
    columns, normal = par.columns, par.normal
    if len(par.payload) != parameter_bytes(par):
        raise EncodeError(f"par: payload of {len(par.payload)} bytes; its fields ask for {parameter_bytes(par)}")
    widths = parameter_widths(par)
    counts = (columns, *(1 if par.uniform else columns,) * 2)
    bits = np.unpackbits(np.frombuffer(par.payload, np.uint8), bitorder="little")
    planes, at = [], 0
    for count, width in zip(counts, widths):
        plane = bits[at:at + count * width].reshape(count, width).astype(np.int64)
        planes.append(plane @ (np.int64(1) << np.arange(width)))
        at += count * width
    if bits[at:].any():
        raise EncodeError("par: padding after the shifts is not zero")
    bias, multiplier, shift = planes
    sign = np.int64(1) << (widths[0] - 1)
    multiplier = (multiplier << (MULTIPLIER_BITS - par.multiplier_bits)) + normal * TOP_BIT
    return (bias ^ sign) - sign, np.resize(multiplier, columns), np.resize(shift + par.shift_base, columns)


def pack_planes(planes: tuple[np.ndarray, ...], widths: tuple[int, ...]) -> bytes:
    """The low `widths` bits of all values of each plane, one after another from bit 0 on, zero-padded to words."""
    bits = [np.unpackbits(plane.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")[:, :width]
            for plane, width in zip(planes, widths)]
    data = np.packbits(np.concatenate([b.ravel() for b in bits]), bitorder="little").tobytes()
    return data + bytes(-len(data) % 4)


def _integers(name: str, values: np.ndarray, low: int, high: int) -> np.ndarray:
    values = np.atleast_1d(np.asarray(values))
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise EncodeError(f"par: {name} is {values.dtype} of shape {values.shape}; give integers (channels,)")
    bad = np.flatnonzero((values < low) | (values > high))
    if bad.size:
        raise EncodeError(f"par: {name} of channel {bad[0]} = {values[bad[0]]}; allowed are {low} to {high}")
    return values.astype(np.int64)
