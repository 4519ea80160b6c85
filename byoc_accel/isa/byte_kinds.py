"""What the bytes of a program are for: weights, what comes with them, and everything else."""
from __future__ import annotations

from ..errors import EncodeError
from .encode import decode
from .table import BY_MNEMONIC, INSTRUCTIONS

#: Kinds in the order in which reports list them.
KINDS: dict[str, str] = {
    "weights": "payloads of conv and dwc, their masks and padding included",
    "weight_tables": "wtab: code lengths of the weights that follow",
    "weight_headers": "fields of conv and dwc: addresses, tokens, sizes",
    "parameters": "par, addp and lut: biases, multipliers, shifts, lookup tables, with their headers and padding",
    "geometry": "ageo and pgeo: sizes and strides",
    "post": "fields of post: addresses, tokens",
    "transfers": "load, store and fill: addresses, sizes, strides, tokens",
    "control": "loops, address registers, sync, halt"}

_STATE = {"wtab": "weight_tables", "ageo": "geometry", "pgeo": "geometry", "par": "parameters", "addp": "parameters",
          "lut": "parameters", "post": "post", "load": "transfers", "store": "transfers", "fill": "transfers"}
#: Kind of an instruction's own bytes; payloads belong to them, but for weights.
_HEADERS = {i.mnemonic: "weight_headers" if i.payload == "weights" else _STATE.get(i.mnemonic, "control")
            for i in INSTRUCTIONS}


def byte_kinds(code: bytes, start: int = 0, end: int | None = None) -> dict[str, int]:
    """Bytes of each of `KINDS` in the instructions of code[start:end]; they add up to its length.

    Raises EncodeError for bytes that are no instructions, and when `end` is inside of one.
    """
    end = len(code) if end is None else end
    counts = dict.fromkeys(KINDS, 0)
    while start < end:
        inst, size = decode(code, start)
        header = size - len(inst.payload) if BY_MNEMONIC[inst.mnemonic].payload == "weights" else size
        counts[_HEADERS[inst.mnemonic]] += header
        counts["weights"] += size - header
        start += size
    if start != end:
        raise EncodeError(f"offset {end}: it is inside of an instruction; give the offset of one")
    return counts
