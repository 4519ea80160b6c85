"""Programs that `partition` made to see what fits, kept until the code generator asks for the same.

Nothing is found by a name, a shape or a digest: a kept program serves a region only when every value of the two
quantized regions is equal.
"""
from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass, replace

import numpy as np

from ..emit.program import Program
from ..quantize.qregion import QRegion
from ..target import Target

LIMIT_BYTES = 256 << 20


class Programs:
    """The latest programs, of at most `limit_bytes` bytes of instructions and weights together."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES):
        self._limit_bytes = limit_bytes
        self._kept: list[tuple[Hashable, QRegion, Target, Program]] = []

    def keep(self, qregion: QRegion, target: Target, program: Program) -> None:
        """Remember that `qregion` compiles to `program` for `target`; the oldest are forgotten."""
        self._kept.append((_outline(qregion), qregion, target, program))
        while self._kept and sum(_size_bytes(q, p) for _, q, _, p in self._kept) > self._limit_bytes:
            self._kept.pop(0)

    def take(self, qregion: QRegion, target: Target) -> Program | None:
        """The program of a region equal to `qregion`, under its name; it is forgotten. None if there is none."""
        outline, unnamed = _outline(qregion), replace(qregion, name="")
        for index, (known, kept, made_for, program) in enumerate(self._kept):
            if known == outline and made_for == target and equal(replace(kept, name=""), unnamed):
                del self._kept[index]
                return replace(program, name=qregion.name)
        return None


#: What partition made and no code generator has asked for yet.
PROGRAMS = Programs()


def equal(a: object, b: object) -> bool:
    """Whether two values of nested dataclasses, tuples, arrays and plain values are the same, dtypes included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if is_dataclass(a):
        return all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def _outline(qregion: QRegion) -> Hashable:
    """What is compared first, because it is cheap."""
    return tuple(qregion.tensors), len(qregion.nodes)


def _size_bytes(qregion: QRegion, program: Program) -> int:
    arrays = (value for node in qregion.nodes for value in vars(node).values() if isinstance(value, np.ndarray))
    return len(program.code) + sum(array.nbytes for array in arrays)
