"""What extraction functions share: values of constants, and scales."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...support.candidate import OtherCandidate, Scale
from ..ir.constants import ConstantEvaluator
from ..ir.graph import Graph

ONLY_WITH_LAYER = "it is offloaded only with the layer that it belongs to"


@dataclass(frozen=True)
class Extractor:
    """Reads what candidates need out of `graph`."""

    graph: Graph
    evaluate: ConstantEvaluator

    def other(self, index: int, missing: str = "") -> OtherCandidate:
        """Node `index` as an op of no pattern."""
        node = self.graph.nodes[index]
        return OtherCandidate(str(index), node.op, self.graph.value(index), missing,
                              tuple(self.graph.value(i) for i in node.inputs))

    def constant(self, index: int) -> np.ndarray | None:
        """The value of node `index`, None when it is computed at run time."""
        node = self.graph.nodes[index]
        return self.evaluate(node.expr) if node.constant else None

    def scalar(self, index: int) -> float | int | None:
        """The value of a constant with one element (float32 values as exact doubles), else None."""
        array = self.constant(index)
        return array.reshape(-1)[0].item() if array is not None and array.size == 1 else None

    def scale(self, scale: int, zero_point: int) -> Scale:
        return Scale(self.scalar(scale), self.scalar(zero_point))
