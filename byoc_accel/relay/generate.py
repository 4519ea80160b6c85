"""Write docs/SUPPORTED_OPS.md: ``python -m byoc_accel.relay.generate [--check]`` in a checkout."""
from __future__ import annotations

import sys

from .. import generated
from ..support.manual import manual
from .match.tables import RESULT_SCALE
from .patterns import PATTERNS, Pattern

GENERATOR = "python -m byoc_accel.relay.generate"
PATH = "docs/SUPPORTED_OPS.md"

#: Kind in support.ops.TABLE -> patterns.
KINDS: dict[str, tuple[str, ...]] = {
    "convolution": ("conv", "scale"), "dense": ("dense",), "transposed convolution": ("conv_transpose",),
    "quantized convolution": ("qnn.conv",), "quantized dense": ("qnn.dense",),
    "quantized transposed convolution": ("qnn.conv_transpose",), "add": ("add",), "quantized add": ("qnn.add",),
    "concatenation": ("concat",), "quantized concatenation": ("qnn.concat",), "padding": ("pad",),
    "upsampling": ("upsample",), "pooling": ("pool", "raw_pool"), "elementwise": ("unary",), "PReLU": ("prelu",),
    "arithmetic of two computed tensors": ("two",), "arithmetic with a constant": ("constant",),
    "reshape and transpose": ("view",),
    "quantize and dequantize": ("boundary",)}


def describe(pattern: Pattern) -> str:
    """One line: anchors, what may come before, what may follow."""
    parts = [" | ".join(f"`{op}`" for op in pattern.anchors) + pattern.operands]
    if pattern.head:
        before = f"`{pattern.head}`"
        parts.insert(0, f"{before} then" if pattern.head_required else f"[{before}]")
    for stage in pattern.tail:
        ops = " | ".join(f"`{op}`" for op in stage.ops) + (" (constant per channel)" if stage.per_channel else "")
        parts.append(f"then {ops}" if stage.required else f"[{ops}]" + ("..." if stage.repeat else ""))
    return " ".join(parts)


def text() -> str:
    """The document as it should be."""
    ops = {kind: [describe(p) for p in PATTERNS if p.name in names] for kind, names in KINDS.items()}
    ops["elementwise"].append("several of `add`, `multiply`, `divide`, `clip`, `exp`, `erf`, ... with scalar "
                              "constants that compute one of these functions of one tensor")
    ends = ", ".join(f"`{op}`" for op in sorted(RESULT_SCALE))
    ops["elementwise"].append(f"any of {ends} of an int8 tensor, with `qnn.dequantize` and elementwise ops with scalar "
                              "constants between: a table that TVM computes")
    source = "byoc_accel/support/constraints.py and byoc_accel/relay/patterns.py"
    return manual(generated.first_line(GENERATOR, source), "Relay", ops)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the file; returns the exit code."""
    return generated.run(GENERATOR, __doc__.splitlines()[0], {PATH: text()}, arguments)


if __name__ == "__main__":
    sys.exit(main())
