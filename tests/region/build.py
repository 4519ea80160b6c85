"""Small regions for tests: chains of float nodes with the shapes worked out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byoc_accel.region.region import FLOAT32, Add, Conv2d, Node, Pad, Pool, Port, Region, Reshape, Tensor, Unary


def out_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Result shape of one node, computed independently of the package."""
    if isinstance(node, (Add, Unary)):
        return shape
    if isinstance(node, Reshape):
        return (shape[0], 1, 1, int(np.prod(shape[1:])))
    if isinstance(node, Pad):
        top, left, bottom, right = node.padding
        return (shape[0], top + shape[1] + bottom, left + shape[2] + right, shape[3])
    kernel = node.kernel if isinstance(node, Pool) else node.weight.shape[1:3]
    dilation = node.dilation if isinstance(node, Conv2d) else (1, 1)
    size = []
    for axis in (0, 1):
        padded = shape[1 + axis] + node.padding[axis] + node.padding[axis + 2]
        size.append((padded - (kernel[axis] - 1) * dilation[axis] - 1) // node.stride[axis] + 1)
    return (shape[0], *size, node.weight.shape[0] if isinstance(node, Conv2d) else shape[3])


def chain(x_shape: tuple[int, int, int, int], *nodes: Node) -> Region:
    """x -> nodes[0] -> nodes[1] ...; an Add takes its second operand x2 by name, "" being its first one."""
    tensors, linked, current = [Tensor("x", x_shape)], [], "x"
    for i, node in enumerate(nodes):
        y = f"y{i}"
        if isinstance(node, Add):
            linked.append(replace(node, x1=current, x2=node.x2 or current, y=y))
        else:
            linked.append(replace(node, x=current, y=y))
        tensors.append(Tensor(y, out_shape(node, tensors[[t.name for t in tensors].index(current)].shape)))
        current = y
    return Region("chain", tuple(tensors), tuple(linked), (host_port("x", x_shape),),
                  (host_port(current, tensors[-1].shape),))


def host_port(name: str, shape: tuple[int, int, int, int]) -> Port:
    n, h, w, c = shape
    return Port(name, (n, c, h, w), FLOAT32, (0, 3, 1, 2))


def conv(weight: np.ndarray, bias: np.ndarray | None = None, name: str = "conv", **options: object) -> Conv2d:
    return Conv2d(name, "", "", np.asarray(weight, np.float32), None if bias is None else np.asarray(bias, np.float32),
                  **options)


def weights(seed: int, *shape: int) -> np.ndarray:
    """Normal weights of variance 1 / fan-in, no two rows alike."""
    rng = np.random.default_rng(seed)
    return (rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
