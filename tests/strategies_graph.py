"""Random valid float Regions, built node by node; `strategies_region` adds the int8 forms."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from byoc_accel.region import geometry
from byoc_accel.region.region import (
    FLOAT32,
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Node,
    Pad,
    Pool,
    Port,
    Region,
    Reshape,
    Tensor,
    Unary,
    Upsample,
    node_inputs,
)
from byoc_accel.region.verify import verify


@dataclass(frozen=True)
class Size:
    """Upper limits: nodes of a region, height and width, channels, bytes of one tensor (per batch item)."""

    nodes: int
    spatial: int
    channels: int
    tensor_bytes: int
    batch: int = 2


SMALL = Size(nodes=5, spatial=9, channels=11, tensor_bytes=1024)
LARGE = Size(nodes=7, spatial=24, channels=70, tensor_bytes=24576)
ONE_NODE = Size(nodes=1, spatial=9, channels=11, tensor_bytes=1024)

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 24, 31, 33, 48, 64, 70)
UNARIES: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("relu", ()),
    ("clip", (0.0, 6.0)),
    ("clip", (-1.0, 1.0)),
    ("leaky_relu", (0.1,)),
    ("sigmoid", ()),
    ("tanh", ()),
    ("hard_swish", ()),
    ("hard_sigmoid", ()),
    ("swish", ()),
    ("gelu", ()),
    ("elu", (1.0,)),
    ("softplus", ()),
)


@dataclass
class _Graph:
    """A region under construction; `shapes` holds every tensor produced so far, in order."""

    draw: st.DrawFn
    size: Size
    rng: np.random.Generator
    batch: int
    shapes: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, max(low, high)))

    def new_input(self, shape: tuple[int, int, int, int]) -> str:
        name = f"in{len(self.inputs)}"
        self.shapes[name] = shape
        self.inputs.append(name)
        return name

    def operand(self) -> str:
        """Mostly the newest tensor, sometimes an older one, so that residual paths arise."""
        names = list(self.shapes)
        return names[-1 - self.draw(st.sampled_from([0, 0, 0, 1, 2])) % len(names)]

    def push(self, node: Node, shape: tuple[int, int, int, int]) -> None:
        self.nodes.append(node)
        self.shapes[node.y] = shape
        self.read.update(node_inputs(node))

    def names(self, kind: str) -> tuple[str, str]:
        return f"{kind}{len(self.nodes)}", f"t{len(self.nodes)}"

    def fits(self, shape: tuple[int, ...]) -> bool:
        return int(np.prod(shape[1:])) <= self.size.tensor_bytes

    def channels(self) -> int:
        return self.draw(st.sampled_from([c for c in CHANNELS if c <= self.size.channels]))


def _window(g: _Graph, shape: tuple[int, ...], most: int, dilate: bool) -> tuple[tuple, tuple, tuple, tuple]:
    """kernel, stride, padding (each less than its kernel's extent), dilation that fit `shape`."""
    dilation = (g.integer(1, 2), g.integer(1, 2)) if dilate and g.integer(0, 3) == 0 else (1, 1)
    kernel = [g.integer(1, most), g.integer(1, most)]
    padding = [0, 0, 0, 0]
    for axis in (0, 1):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        if g.integer(0, 1):
            padding[axis], padding[axis + 2] = (
                g.integer(0, min(2, extent - 1)),
                g.integer(0, min(2, extent - 1)),
            )
        room = shape[1 + axis] + padding[axis] + padding[axis + 2]
        if extent > room:
            kernel[axis] = (room - 1) // dilation[axis] + 1
            extent = (kernel[axis] - 1) * dilation[axis] + 1
            padding[axis], padding[axis + 2] = (
                min(padding[axis], extent - 1),
                min(padding[axis + 2], extent - 1),
            )
            if extent > shape[1 + axis] + padding[axis] + padding[axis + 2]:
                kernel[axis], padding[axis], padding[axis + 2] = 1, 0, 0
    stride = (g.draw(st.sampled_from([1, 1, 2, 3])), g.draw(st.sampled_from([1, 1, 2, 3])))
    return tuple(kernel), stride, tuple(padding), dilation


def _push_conv(g: _Graph) -> None:
    x = g.operand()
    shape = g.shapes[x]
    c = shape[3]
    style = g.draw(st.sampled_from(["full", "full", "point", "depthwise", "multiplier", "groups"]))
    groups, o = 1, g.channels()
    if style in ("depthwise", "multiplier"):
        groups, o = c, c * (2 if style == "multiplier" and 2 * c <= g.size.channels else 1)
    elif style == "groups":
        groups = g.draw(st.sampled_from([d for d in range(1, c + 1) if c % d == 0]))
        o = groups * g.integer(1, max(1, g.size.channels // groups // 2))
    if g.integer(0, 4) == 0 and groups == 1:
        o = c  # O = I: an exchange of the axes keeps the shape
    kernel, stride, padding, dilation = _window(g, shape, 1 if style == "point" else 4, True)
    height, width = geometry.window_shape(shape, kernel, stride, padding, dilation)
    out = (g.batch, height, width, o)
    if not g.fits(out):
        kernel, stride, padding, dilation = (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)
        out = (g.batch, shape[1], shape[2], o)
        if not g.fits(out):
            return
    name, y = g.names("conv")
    weight, bias, clip, norm = _layer(g, (o, *kernel, c // groups))
    g.push(Conv2d(name, x, y, weight, bias, stride, padding, dilation, groups, clip, norm), out)


def _layer(g: _Graph, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None, tuple | None, BatchNorm | None]:
    """Weight, bias, clip and batch norm of a layer."""
    weight = g.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
    bias = g.rng.normal(0, 0.3, shape[0]).astype(np.float32) if g.integer(0, 3) else None
    clip = g.draw(st.sampled_from([None, None, (0.0, 6.0), (0.0, np.inf), (-1.0, 0.75)]))
    return weight, bias, clip, _batch_norm(g.rng, shape[0]) if g.integer(0, 3) == 0 else None


def _batch_norm(rng: np.random.Generator, o: int) -> BatchNorm:
    gamma, beta, mean = (rng.normal(m, 0.5, o).astype(np.float32) for m in (1.0, 0.0, 0.0))
    return BatchNorm(gamma, beta, mean, rng.uniform(0.1, 2.0, o).astype(np.float32), 1e-3)


def _push_add(g: _Graph) -> None:
    x1 = g.operand()
    same = [n for n, s in g.shapes.items() if s == g.shapes[x1] and n != x1]
    if same and g.integer(0, 3):
        x2 = g.draw(st.sampled_from(same))
    elif len(g.inputs) < 3 and g.integer(0, 1):
        x2 = g.new_input(g.shapes[x1])
    else:
        x2 = x1
    if g.integer(0, 1):
        x1, x2 = x2, x1
    name, y = g.names("add")
    clip = g.draw(st.sampled_from([None, None, (0.0, 6.0), (0.0, np.inf)]))
    g.push(Add(name, x1, x2, y, clip), g.shapes[x1])


def _push_pool(g: _Graph) -> None:
    x = g.operand()
    shape = g.shapes[x]
    kind = g.draw(st.sampled_from(["max", "avg"]))
    kernel, stride, padding, _ = _window(g, shape, 4, False)
    if g.integer(0, 3) == 0:
        kernel, stride, padding = shape[1:3], (1, 1), (0, 0, 0, 0)  # global
    height, width = geometry.window_shape(shape, kernel, stride, padding)
    name, y = g.names("pool")
    include = bool(g.integer(0, 1)) and kind == "avg"
    g.push(Pool(name, x, y, kind, kernel, stride, padding, include), (g.batch, height, width, shape[3]))


def _push_unary(g: _Graph) -> None:
    x = g.operand()
    function, args = g.draw(st.sampled_from(UNARIES))
    name, y = g.names(function)
    g.push(Unary(name, x, y, function, args), g.shapes[x])


def _push_reshape(g: _Graph) -> None:
    x = g.operand()
    n, h, w, c = g.shapes[x]
    name, y = g.names("reshape")
    g.push(
        Reshape(name, x, y), g.draw(st.sampled_from([(n, 1, 1, h * w * c), (n, w, h, c), (n, h * w, 1, c)]))
    )


def _push_conv_transpose(g: _Graph) -> None:
    """Sizes from the smallest to all that a host may ask for, less than a stride behind the last reached position."""
    x = g.operand()
    n, h, w, c = g.shapes[x]
    kernel = (g.integer(1, 4), g.integer(1, 4))
    stride = (g.draw(st.sampled_from([1, 2, 2, 3])), g.draw(st.sampled_from([1, 2, 2, 3])))
    padding = tuple(g.integer(0, min(2, k - 1)) for k in kernel)
    full = [(size - 1) * s + k - before for size, s, k, before in zip((h, w), stride, kernel, padding)]
    if min(full) < 1:
        padding, full = (0, 0), [(size - 1) * s + k for size, s, k in zip((h, w), stride, kernel)]
    out = (n, *(g.integer(max(1, f - 2), f + s - 1) for f, s in zip(full, stride)), g.channels())
    if not g.fits(out):
        return
    name, y = g.names("transposed")
    weight, bias, clip, norm = _layer(g, (out[3], *kernel, c))
    g.push(ConvTranspose2d(name, x, y, weight, bias, stride, padding, clip, norm), out)


def _push_concat(g: _Graph) -> None:
    axis = g.draw(st.sampled_from([3, 3, 1, 2]))
    xs = [g.operand()]
    base = g.shapes[xs[0]]
    size = base[axis]
    for _ in range(g.integer(1, 2)):
        alike = [n for n, s in g.shapes.items() if s[:axis] + s[axis + 1:] == base[:axis] + base[axis + 1:]]
        x = None if len(g.inputs) < 3 and g.integer(0, 3) == 0 else g.draw(st.sampled_from(alike))
        more = g.integer(1, 4) if x is None else g.shapes[x][axis]
        if not g.fits((*base[:axis], size + more, *base[axis + 1:])):
            break
        xs.append(x or g.new_input((*base[:axis], more, *base[axis + 1:])))
        size += more
    if g.integer(0, 1):
        xs.reverse()
    name, y = g.names("concat")
    g.push(Concat(name, tuple(xs), y, axis), (*base[:axis], size, *base[axis + 1:]))


def _push_pad(g: _Graph) -> None:
    x = g.operand()
    n, h, w, c = g.shapes[x]
    top, left, bottom, right = padding = tuple(g.integer(0, 2) for _ in range(4))
    out = (n, top + h + bottom, left + w + right, c)
    if not g.fits(out):
        return
    name, y = g.names("pad")
    g.push(Pad(name, x, y, padding, g.draw(st.sampled_from([0.0, 0.0, 0.0, 0.75, -1.5]))), out)


def _push_upsample(g: _Graph) -> None:
    x = g.operand()
    n, h, w, c = g.shapes[x]
    factor = (g.integer(1, 3), g.integer(1, 3))
    out = (n, h * factor[0], w * factor[1], c)
    if not g.fits(out):
        return
    name, y = g.names("upsample")
    g.push(Upsample(name, x, y, factor), out)


def _input_shape(g: _Graph) -> tuple[int, int, int, int]:
    style = g.draw(st.sampled_from(["image", "image", "image", "trap", "dense"]))
    c = g.channels()
    if style == "dense":
        return (g.batch, 1, 1, c)
    top = max(1, min(g.size.spatial, int(np.sqrt(g.size.tensor_bytes / c))))
    if style == "trap":
        c = min(c, g.size.spatial)
        return (g.batch, c, c, c) if g.fits((1, c, c, c)) else (g.batch, 4, 4, 4)
    return (g.batch, g.integer(1, top), g.integer(1, top), c)


_STEPS = {
    "conv": _push_conv,
    "add": _push_add,
    "pool": _push_pool,
    "unary": _push_unary,
    "reshape": _push_reshape,
    "transposed": _push_conv_transpose,
    "concat": _push_concat,
    "pad": _push_pad,
    "upsample": _push_upsample,
}

BASIC = ("conv", "add", "pool", "unary", "reshape")
KINDS = tuple(_STEPS)


@st.composite
def float_regions(draw: st.DrawFn, size: Size = SMALL, kinds: tuple[str, ...] = KINDS) -> Region:
    """A valid float32 Region of the given kinds of nodes (all of `KINDS`, or `BASIC`).

    Outputs are all tensors that nothing reads, and sometimes one that is read.
    """
    g = _Graph(
        draw,
        size,
        np.random.default_rng(draw(st.integers(0, 1 << 20))),
        draw(st.sampled_from([1, 1, 1, size.batch])),
    )
    g.new_input(_input_shape(g))
    weighted = [kind for kind in kinds for _ in range({"conv": 3, "add": 2}.get(kind, 1))]
    for kind in draw(st.lists(st.sampled_from(weighted), min_size=1, max_size=size.nodes)):
        _STEPS[kind](g)
    if not g.nodes:
        _push_unary(g)
    outputs = [n.y for n in g.nodes if n.y not in g.read]
    read = [n.y for n in g.nodes if n.y in g.read]
    if read and g.integer(0, 3) == 0:
        outputs.insert(g.integer(0, len(outputs)), draw(st.sampled_from(read)))
    region = Region(
        "random",
        tuple(Tensor(n, s) for n, s in g.shapes.items()),
        tuple(g.nodes),
        tuple(_port(g, n) for n in g.inputs),
        tuple(_port(g, n) for n in outputs),
    )
    verify(region)
    return region


def _port(g: _Graph, name: str) -> Port:
    """NCHW, NHWC, or two axes where the tensor is a vector."""
    n, h, w, c = shape = g.shapes[name]
    layout = g.draw(st.sampled_from(["NCHW", "NHWC"]))
    if h == w == 1:
        return Port(name, (n, c), FLOAT32, (0, 1, 2, 3))
    return (
        Port(name, (n, c, h, w), FLOAT32, (0, 3, 1, 2))
        if layout == "NCHW"
        else Port(name, shape, FLOAT32, (0, 1, 2, 3))
    )
