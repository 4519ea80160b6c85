"""to_text(Region): deterministic text, one line per port, tensor and node; constants appear as digests."""
from __future__ import annotations

import hashlib

import numpy as np

from .region import (
    Add,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Node,
    Pad,
    Pool,
    Port,
    Region,
    Tensor,
    Unary,
    Upsample,
    node_inputs,
)


def array_digest(array: np.ndarray) -> str:
    """First 16 hex digits of SHA-256 over dtype, shape and the little-endian bytes."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    head = f"{little.dtype.name} {little.shape} ".encode()
    found = hashlib.sha256(head)
    found.update(little.reshape(-1))
    return found.hexdigest()[:16]


def array_text(array: np.ndarray) -> str:
    """`16x3x3x8 int8 #0123456789abcdef`."""
    return f"{'x'.join(map(str, array.shape))} {array.dtype.name} #{array_digest(array)}"


def to_text(region: Region) -> str:
    """`region` as text: the golden format. Equal text means equal region."""
    return _text(region, {t.name: t.name for t in region.tensors}, {n.name: n.name for n in region.nodes},
                 region.name)


def digest(region: Region) -> str:
    """16 hex digits of the region's structure and constants; names do not count."""
    tensors = {t.name: f"t{i}" for i, t in enumerate(region.tensors)}
    nodes = {n.name: f"n{i}" for i, n in enumerate(region.nodes)}
    return hashlib.sha256(_text(region, tensors, nodes, "region").encode()).hexdigest()[:16]


def _text(region: Region, tensors: dict[str, str], nodes: dict[str, str], name: str) -> str:
    lines = [f"region {name}"]
    lines += [_port_text("input", p, tensors) for p in region.inputs]
    lines += [_port_text("output", p, tensors) for p in region.outputs]
    lines += [_tensor_text(t, tensors) for t in region.tensors]
    lines += [_node_text(n, tensors, nodes) for n in region.nodes]
    return "\n".join(lines) + "\n"


def _join(values: tuple[int, ...], separator: str = "x") -> str:
    return separator.join(map(str, values))


def _port_text(side: str, port: Port, names: dict[str, str]) -> str:
    return (f"  {side} {names[port.tensor]} host {port.host_dtype} {_join(port.host_shape)} "
            f"perm {_join(port.perm, ',')}")


def _tensor_text(tensor: Tensor, names: dict[str, str]) -> str:
    text = f"  tensor {names[tensor.name]} {_join(tensor.shape)} {tensor.dtype}"
    return text if tensor.scale is None else f"{text} scale {tensor.scale!r} zero_point {tensor.zero_point}"


def _node_text(node: Node, tensors: dict[str, str], nodes: dict[str, str]) -> str:
    operands = ", ".join(tensors[x] for x in node_inputs(node))
    parts = [f"  {nodes[node.name]}: {tensors[node.y]} = {type(node).__name__.lower()}({operands})"]
    return " ".join(p for p in parts + _PARTS.get(type(node), lambda _: [])(node) if p)


def _pool_parts(node: Pool) -> list[str]:
    parts = [node.kind, f"kernel {_join(node.kernel)}", f"stride {_join(node.stride)}",
             f"padding {_join(node.padding, ',')}"]
    return parts + [word for word in ("count_include_pad", "raw") if getattr(node, word)] + [node.rounding]


def _unary_parts(node: Unary) -> list[str]:
    table = [] if node.table is None else [f"table {array_text(node.table)}"]
    return [node.function, *(repr(float(a)) for a in node.args), *table]


def _clip_text(clip: tuple[float, float] | None) -> str:
    return "" if clip is None else f"clip {float(clip[0])!r} {float(clip[1])!r}"


def _conv_parts(node: Conv2d | ConvTranspose2d) -> list[str]:
    parts = [f"weight {array_text(node.weight)}", f"stride {_join(node.stride)}",
             f"padding {_join(node.padding, ',')}"]
    if isinstance(node, Conv2d):
        parts += [f"dilation {_join(node.dilation)}", f"groups {node.groups}"]
    for name in ("bias", "weight_scale", "acc_scale"):
        if getattr(node, name) is not None:
            parts.append(f"{name} {array_text(getattr(node, name))}")
    if node.batch_norm is not None:
        norm = node.batch_norm
        arrays = np.stack([norm.gamma, norm.beta, norm.mean, norm.variance])
        parts.append(f"batch_norm {array_text(arrays)} epsilon {float(norm.epsilon)!r}")
    return parts + [_clip_text(node.clip), node.rounding]


_PARTS = {
    Conv2d: _conv_parts,
    ConvTranspose2d: _conv_parts,
    Pool: _pool_parts,
    Add: lambda node: [_clip_text(node.clip), node.rounding],
    Unary: _unary_parts,
    Concat: lambda node: [f"axis {node.axis}", node.rounding],
    Pad: lambda node: [f"padding {_join(node.padding, ',')}", f"value {float(node.value)!r}"],
    Upsample: lambda node: [f"factor {_join(node.factor)}"],
}
