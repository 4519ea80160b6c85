"""Text of docs/SUPPORTED_OPS.md: the constraints' own docstrings, under the host's op names."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from .constraints import rule
from .ops import TABLE

INTRODUCTION = """\
# Supported operators

An op is offloaded when every rule of its kind holds; `byoc-accel explain MODEL` names the first broken rule for each
op that stays on the host. Two more things decide in the end: whether neighbouring layers agree on layout, scale and
zero point (else they become separate regions), and whether the target's memories hold the layer even when it is cut
into blocks. Values that are not finite are errors. A region without a convolution, dense, pooling or quantized add
layer is given back to the host.
"""


def manual(first_line: str, host: str, ops: Mapping[str, Sequence[str]]) -> str:
    """The document. `ops` maps a kind of `TABLE` to the host's operators and what fuses with them."""
    parts = [f"<!-- {first_line} -->\n", INTRODUCTION]
    for kind, constraints in TABLE.items():
        parts.append(f"## {kind[0].upper()}{kind[1:]}\n")
        parts += [f"{host}: {line}\n" for line in ops.get(kind, ())]
        parts.append("\n".join(f"- {rule(constraint)}" for constraint in constraints) + "\n")
    return "\n".join(parts)
