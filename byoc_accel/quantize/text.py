"""to_text(QRegion): deterministic text, one line per port, tensor and node; constants appear as digests."""
from __future__ import annotations

from ..region.region import Port
from ..region.text import array_text
from .qregion import (
    QAdd,
    QConcat,
    QConv,
    QConvTranspose,
    QLut,
    QNode,
    QPad,
    QPool,
    QRegion,
    QUpsample,
    Requant,
    qnode_inputs,
)


def to_text(qregion: QRegion) -> str:
    """`qregion` as text: the golden format. Equal text means equal region."""
    lines = [f"qregion {qregion.name}"]
    lines += [_port_text("input", p) for p in qregion.inputs]
    lines += [_port_text("output", p) for p in qregion.outputs]
    lines += [f"  tensor {t.name} {_join(t.shape)} scale {t.scale!r} zero_point {t.zero_point}"
              for t in qregion.tensors]
    lines += [_node_text(n) for n in qregion.nodes]
    return "\n".join(lines) + "\n"


def _join(values: tuple[int, ...], separator: str = "x") -> str:
    return separator.join(map(str, values))


def _port_text(side: str, port: Port) -> str:
    return (f"  {side} {port.tensor} host {port.host_dtype} {_join(port.host_shape)} "
            f"perm {_join(port.perm, ',')}")


def _requant_text(requant: Requant) -> str:
    return f"{requant.multiplier}>>{requant.shift}"


def _node_text(node: QNode) -> str:
    head = f"  {node.name}: {node.y} = {type(node).__name__[1:].lower()}({', '.join(qnode_inputs(node))})"
    return " ".join([head, *_parts(node)])


def _parts(node: QNode) -> list[str]:
    if isinstance(node, (QConv, QConvTranspose)):
        parts = [f"weight {array_text(node.weight)}", f"bias {array_text(node.bias)}",
                 f"multiplier {array_text(node.multiplier)}", f"shift {array_text(node.shift)}",
                 f"stride {_join(node.stride)}", f"padding {_join(node.padding, ',')}"]
        if isinstance(node, QConv):
            parts += [f"dilation {_join(node.dilation)}", f"groups {node.groups}"]
        return [*parts, node.rounding, f"clamp {_join(node.clamp, '..')}"]
    if isinstance(node, QAdd):
        return [f"requant {_requant_text(node.requant1)} {_requant_text(node.requant2)} "
                f"{_requant_text(node.requant_out)}", f"left_shift {node.left_shift}", node.rounding,
                f"clamp {_join(node.clamp, '..')}"]
    if isinstance(node, QPool):
        parts = [node.kind, f"kernel {_join(node.kernel)}", f"stride {_join(node.stride)}",
                 f"padding {_join(node.padding, ',')}"]
        if node.kind == "avg":
            parts += [f"zero_points {node.x_zero_point} {node.y_zero_point}", node.rounding, "requants"]
            parts += [f"{count}:{_requant_text(requant)}" for count, requant in node.requants]
        return parts + (["count_include_pad"] if node.count_include_pad else [])
    if isinstance(node, QLut):
        return [f"table {array_text(node.table)}"]
    if isinstance(node, QConcat):
        requants = [_requant_text(r) if r is not None else "copy" for r in node.requants]
        return [f"axis {node.axis}", "requants", *requants, node.rounding]
    if isinstance(node, QPad):
        return [f"padding {_join(node.padding, ',')}", f"value {node.value}"]
    return [f"factor {_join(node.factor)}"] if isinstance(node, QUpsample) else []
