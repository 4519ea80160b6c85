"""Region: the float or quantized graph of one offloaded region, as a frontend found it.

All tensors are NHWC with four axes (a dense layer's are (N, 1, 1, K)), weights are OHWI. A tensor is either
float32 (no scale) or int8 with the model's own scale and zero point. Frontends convert layouts; nothing after
them knows what a model looked like, except the `Port`s that describe the host's side of each input and output.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import numpy as np

FLOAT32 = "float32"
INT8 = "int8"


@dataclass(frozen=True)
class Tensor:
    """`shape` is (N, H, W, C); `scale` and `zero_point` exist for int8 tensors only."""

    name: str
    shape: tuple[int, int, int, int]
    dtype: str = FLOAT32
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True)
class Port:
    """Host side of a region input or output.

    host array = device array (NHWC) .transpose(perm) .reshape(host_shape); `host_dtype` is float32 or int8.
    """

    tensor: str
    host_shape: tuple[int, ...]
    host_dtype: str
    perm: tuple[int, int, int, int]


@dataclass(frozen=True)
class BatchNorm:
    """Inference batch normalisation over the channels; every array is float32 of shape (C,)."""

    gamma: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    epsilon: float


@dataclass(frozen=True)
class Conv2d:
    """conv2d or dense (a 1x1 conv on (N, 1, 1, K)), with what follows it: bias, batch norm, clip.

    weight: (O, KH, KW, I / groups), float32 or int8 (symmetric). bias: (O,) float32 or int32, or None.
    padding: top, left, bottom, right, filled with the real value 0 (the zero point). clip: (low, high) in units
    of y (real numbers, or int8 values), or None. Quantized only: weight_scale (O,) float32, and acc_scale (O,)
    float32, the scale of the int32 accumulators exactly as the model's requantize states it. rounding is one of
    isa.table.ROUNDINGS; "double" means TFLite's kernel, which takes x.scale * weight_scale in double instead of
    acc_scale.
    """

    name: str
    x: str
    y: str
    weight: np.ndarray
    bias: np.ndarray | None = None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    clip: tuple[float, float] | None = None
    batch_norm: BatchNorm | None = None
    weight_scale: np.ndarray | None = None
    acc_scale: np.ndarray | None = None
    rounding: str = "upward"


@dataclass(frozen=True)
class Add:
    """y = clip(x1 + x2), equal shapes.

    Quantized: each operand is requantized to y, as qnn.add does; with rounding "double" as TFLite's kernel does,
    at a scale of 2**-20 times twice the larger operand scale.
    """

    name: str
    x1: str
    x2: str
    y: str
    clip: tuple[float, float] | None = None
    rounding: str = "upward"


@dataclass(frozen=True)
class Pool:
    """Max or average pooling. kind: "max" | "avg". padding: top, left, bottom, right.

    Quantized average: `raw` means the host's cast(int32) -> avg_pool2d -> cast(int8) sandwich: the stored
    integers are averaged, padding counts as the integer 0, and the quotient is truncated toward zero; with rounding
    "nearest" it is rounded half away from zero, as TFLite's kernel does.
    """

    name: str
    x: str
    y: str
    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    count_include_pad: bool = False
    raw: bool = False
    rounding: str = "upward"


@dataclass(frozen=True)
class Unary:
    """Elementwise function by name: "relu", "clip", "sigmoid", "tanh", ...; args are its parameters.

    Quantized: with `table`, int8 (256,), y = table[x + 128] as the host computes it, and `function` is only its name.
    """

    name: str
    x: str
    y: str
    function: str
    args: tuple[float, ...] = ()
    table: np.ndarray | None = None


@dataclass(frozen=True)
class ConvTranspose2d:
    """Transposed convolution: y[o] = bias + sum of x[i] * weight[k] over i * stride + k - padding = o, per axis.

    weight: (O, KH, KW, I); padding: top, left cut off the full result (bottom and right follow from y's shape).
    The other fields are as in `Conv2d`.
    """

    name: str
    x: str
    y: str
    weight: np.ndarray
    bias: np.ndarray | None = None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    clip: tuple[float, float] | None = None
    batch_norm: BatchNorm | None = None
    weight_scale: np.ndarray | None = None
    acc_scale: np.ndarray | None = None
    rounding: str = "upward"


@dataclass(frozen=True)
class Concat:
    """y = xs one after another along `axis` (1 height, 2 width, 3 channels).

    Quantized: each input is requantized to y, as qnn.concatenate does.
    """

    name: str
    xs: tuple[str, ...]
    y: str
    axis: int
    rounding: str = "upward"


@dataclass(frozen=True)
class Pad:
    """y = x surrounded by `padding` (top, left, bottom, right) positions of `value`, in units of y: a real number
    for float tensors, a stored integer for int8 ones, whose scale and zero point are those of x."""

    name: str
    x: str
    y: str
    padding: tuple[int, int, int, int]
    value: float = 0.0


@dataclass(frozen=True)
class Upsample:
    """Nearest neighbour: position (h, w) of y is position (h // factor_y, w // factor_x) of x."""

    name: str
    x: str
    y: str
    factor: tuple[int, int]


@dataclass(frozen=True)
class Reshape:
    """Same bytes in NHWC order under another shape; the batch axis stays."""

    name: str
    x: str
    y: str


Node = Union[Conv2d, ConvTranspose2d, Add, Pool, Unary, Concat, Pad, Upsample, Reshape]


@dataclass(frozen=True)
class Region:
    """Nodes in execution order; every tensor is produced once; `inputs` and `outputs` in host argument order."""

    name: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`; KeyError when there is none (verify rules that out)."""
        return self.by_name()[name]

    def by_name(self) -> dict[str, Tensor]:
        return {t.name: t for t in self.tensors}


def node_inputs(node: Node) -> tuple[str, ...]:
    """Names of the tensors that `node` reads, in operand order."""
    if isinstance(node, Add):
        return (node.x1, node.x2)
    return node.xs if isinstance(node, Concat) else (node.x,)
