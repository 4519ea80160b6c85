"""Rows of the report: one per op that runs."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set

from tvm import relay

from ...modelinfo import OpRow
from ..ir.graph import Graph
from ..match.layers import node_macs


def op_rows(graph: Graph, owner: Mapping[int, str], reasons: Mapping[int, str], scales: Set[int]) -> list[OpRow]:
    """Rows in execution order. owner: region symbol by node; reasons: for the nodes of the host.

    scales: nodes that start a channel scale which became a layer of its own; it multiplies once per element.
    """
    rows = []
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        if node.constant or not isinstance(node.expr, relay.Call):
            continue
        number = counts[node.op]
        counts[node.op] += 1
        name = source_name(node.expr) or f"{node.op}_{number}"
        region = owner.get(node.index, "")
        if node.op.startswith("@wia_"):
            region = node.op[1:]
        macs = math.prod(graph.value(node.index).shape) if node.index in scales else node_macs(graph, node.index)
        rows.append(OpRow(name, node.op, macs, region,
                          "" if region else reasons.get(node.index, "it stays on the host")))
    return rows


def source_name(expr: relay.Expr) -> str:
    """The name that a frontend gave to the op, "" when it gave none; the first of those that TFLite joins."""
    span = expr.span
    if span is None or getattr(span, "source_name", None) is None:
        return ""
    return str(span.source_name.name).partition(";")[0]
