"""Hypothesis strategies: random valid Regions (float and int8) and QRegions, with inputs.

    from tests.strategies_region import LARGE, SMALL, qregion_cases

    @given(qregion_cases(SMALL))
    def test(case):
        qregion, inputs = case        # inputs: list of int8 NHWC arrays

`SMALL` suits tiny.toml (4x4 array, 8 KiB of SRAM), `LARGE` suits reference.toml. All node kinds (or those of
`kinds`, for instance `BASIC`), chains and residual graphs, several inputs and outputs, C = H = W traps, sizes that are
no multiples of anything. The structure is drawn, so that examples shrink; weights come from NumPy with a drawn seed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from byoc_accel.isa.table import ROUNDINGS
from byoc_accel.quantize import fixedpoint
from byoc_accel.quantize.qregion import (
    IDENTITY,
    QAdd,
    QConcat,
    QConv,
    QConvTranspose,
    QLut,
    QPad,
    QPool,
    QRegion,
    QReshape,
    QTensor,
    QUpsample,
    Requant,
)
from byoc_accel.quantize.verify import verify as verify_qregion
from byoc_accel.region import geometry
from byoc_accel.region.region import (
    FLOAT32,
    INT8,
    Add,
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
)
from byoc_accel.region.verify import verify as verify_region
from tests.strategies_graph import BASIC, KINDS, LARGE, ONE_NODE, SMALL, Size, float_regions

__all__ = [
    "BASIC",
    "KINDS",
    "LARGE",
    "ONE_NODE",
    "SMALL",
    "Size",
    "float_regions",
    "int8_regions",
    "qregion_cases",
    "qregions",
    "random_inputs",
]


def _scales(draw: st.DrawFn, region: Region, rng: np.random.Generator) -> dict[str, tuple[float, int]]:
    """scale (representable in float32) and zero point per tensor; what only moves values keeps its input's."""
    out: dict[str, tuple[float, int]] = {}
    keep = {
        n.y: n.x
        for n in region.nodes
        if isinstance(n, (Reshape, Pad, Upsample))
        or getattr(n, "kind", "") == "max"
        or getattr(n, "function", "") == "clip"
    }
    concats = {n.y: n.xs[0] for n in region.nodes if isinstance(n, Concat)}
    for tensor in region.tensors:
        zero_point = (
            draw(st.sampled_from([-128, -5, 0, 3, 127]))
            if draw(st.booleans())
            else int(rng.integers(-128, 128))
        )
        scale = float(np.float32(np.exp(rng.uniform(np.log(0.01), np.log(0.1)))))
        out[tensor.name] = out[keep[tensor.name]] if tensor.name in keep else (scale, zero_point)
        if tensor.name in concats:  # equal scales are a case of their own, with equal zero points another
            first = out[concats[tensor.name]]
            style = draw(st.sampled_from(["other", "scale", "both"]))
            out[tensor.name] = {"other": (scale, zero_point), "scale": (first[0], zero_point), "both": first}[style]
    return out


def _host(port: Port, draw: st.DrawFn) -> Port:
    return replace(port, host_dtype=draw(st.sampled_from([FLOAT32, INT8])))


@st.composite
def int8_regions(draw: st.DrawFn, size: Size = SMALL, kinds: tuple[str, ...] = KINDS) -> Region:
    """A valid quantized Region, as a QNN model gives it: per-channel scales, qnn.add, raw average pools."""
    region = draw(float_regions(size, kinds))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    scales = _scales(draw, region, rng)
    nodes = tuple(_int8_node(draw, node, scales, rng) for node in region.nodes)
    tensors = tuple(Tensor(t.name, t.shape, INT8, *scales[t.name]) for t in region.tensors)
    out = Region(
        region.name,
        tensors,
        nodes,
        tuple(replace(p, host_dtype=INT8) for p in region.inputs),
        tuple(replace(p, host_dtype=INT8) for p in region.outputs),
    )
    verify_region(out)
    return out


def _int8_node(
    draw: st.DrawFn, node: Node, scales: dict[str, tuple[float, int]], rng: np.random.Generator
) -> Node:
    rounding = draw(st.sampled_from(["upward", "upward", "nearest", "double"]))
    clip = draw(st.sampled_from([None, None, (0.0, 127.0), (-100.0, 90.0)]))
    if isinstance(node, (Conv2d, ConvTranspose2d)):
        o = node.weight.shape[0]
        weight = rng.integers(-127, 128, node.weight.shape).astype(np.int8)
        spread = 74.0 * 74.0 * np.sqrt(node.weight[0].size)
        target = np.exp(rng.uniform(-1, 1, o)) * 50.0 / spread
        acc_scale = (target * scales[node.y][0]).astype(np.float32)
        bias = (
            rng.integers(-int(spread), int(spread) + 1, o).astype(np.int32) if node.bias is not None else None
        )
        return replace(
            node,
            weight=weight,
            bias=bias,
            batch_norm=None,
            clip=clip,
            rounding=rounding,
            acc_scale=acc_scale,
            weight_scale=(acc_scale / scales[node.x][0]).astype(np.float32),
        )
    if isinstance(node, Add):
        return replace(node, clip=clip, rounding=rounding)
    if isinstance(node, Pool):
        rounding = "upward" if rounding == "double" else rounding  # ratios above 1 would saturate there
        return replace(node, raw=node.kind == "avg" and draw(st.booleans()), rounding=rounding)
    if isinstance(node, Concat):
        return replace(node, rounding=rounding)
    if isinstance(node, Pad):
        return replace(node, value=draw(st.sampled_from([scales[node.x][1], scales[node.x][1], -128, 0, 127])))
    if isinstance(node, Unary) and node.function != "clip" and draw(st.integers(0, 3)) == 0:
        return replace(node, table=rng.integers(-128, 128, 256).astype(np.int8))
    return node


@st.composite
def qregions(draw: st.DrawFn, size: Size = SMALL, kinds: tuple[str, ...] = KINDS) -> QRegion:
    """A valid QRegion with random integers throughout: every rounding, clamp, multiplier and shift style."""
    region = draw(float_regions(size, kinds))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    scales = _scales(draw, region, rng)
    nodes = tuple(_qnode(draw, node, scales, rng, region) for node in region.nodes)
    out = QRegion(
        region.name,
        tuple(QTensor(t.name, t.shape, *scales[t.name]) for t in region.tensors),
        nodes,
        tuple(_host(p, draw) for p in region.inputs),
        tuple(_host(p, draw) for p in region.outputs),
    )
    verify_qregion(out)
    return out


def _qnode(
    draw: st.DrawFn,
    node: Node,
    scales: dict[str, tuple[float, int]],
    rng: np.random.Generator,
    region: Region,
):
    rounding = draw(st.sampled_from(ROUNDINGS))
    if isinstance(node, (Conv2d, ConvTranspose2d)):
        return _qconv(draw, node, rng, rounding)
    if isinstance(node, Concat):
        return _qconcat(draw, node, scales, rng, rounding)
    if isinstance(node, Pad):
        value = draw(st.sampled_from([scales[node.x][1], scales[node.x][1], -128, 5]))
        return QPad(node.name, node.x, node.y, node.padding, value)
    if isinstance(node, Upsample):
        return QUpsample(node.name, node.x, node.y, node.factor)
    if isinstance(node, Add):
        return _qadd(draw, node, rng, rounding)
    if isinstance(node, Pool):
        return _qpool(draw, node, scales, rounding, region.tensor(node.x).shape)
    if isinstance(node, Unary):
        return QLut(node.name, node.x, node.y, rng.integers(-128, 128, 256).astype(np.int8))
    return QReshape(node.name, node.x, node.y)


def _clamp(draw: st.DrawFn) -> tuple[int, int]:
    return draw(st.sampled_from([(-128, 127), (-128, 127), (0, 127), (-128, 40), (-77, 5), (3, 3)]))


def _weights(draw: st.DrawFn, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    style = draw(st.sampled_from(["full", "full", "small", "sparse", "channels", "zero"]))
    weight = rng.integers(-127, 128, shape)
    if style == "small":
        weight = rng.integers(-2, 3, shape)
    elif style == "sparse":  # whole reduction slices vanish, as all-zero tiles do
        weight = weight * (rng.random((1, *shape[1:])) < 0.3)
    elif style == "channels":
        weight = weight * (rng.random((shape[0], 1, 1, 1)) < 0.5)
    elif style == "zero":
        weight = weight * 0
    elif draw(st.booleans()):
        weight = np.where(rng.random(shape) < 0.1, rng.choice([-128, 127]), weight)
    return weight.astype(np.int8)


def _qconcat(draw: st.DrawFn, node: Concat, scales: dict[str, tuple[float, int]], rng: np.random.Generator,
             rounding: str) -> QConcat:
    requants = [None if scales[x] == scales[node.y] and draw(st.booleans())
                else fixedpoint.from_real(float(np.exp(rng.uniform(-2, 1)))) for x in node.xs]
    return QConcat(node.name, node.xs, node.y, node.axis, tuple(requants), rounding)


def _qconv(draw: st.DrawFn, node: Conv2d | ConvTranspose2d, rng: np.random.Generator,
           rounding: str) -> QConv | QConvTranspose:
    o = node.weight.shape[0]
    weight = _weights(draw, node.weight.shape, rng)
    spread = 1.0 + 74.0 * np.sqrt((weight.reshape(o, -1).astype(np.float64) ** 2).sum(1))
    bias = np.zeros(o, np.int32) if draw(st.booleans()) else (rng.normal(0, 1, o) * spread).astype(np.int32)
    ratio = np.minimum(np.exp(rng.uniform(-1.5, 1.5, o)) * 50.0 / spread, 20.0)
    style = draw(st.sampled_from(["channel", "channel", "uniform", "power", "narrow"]))
    if style == "uniform":
        ratio = np.full(o, ratio.mean())
    if rounding == "double":
        ratio = np.minimum(ratio, 0.999)  # no left shift, so that nothing saturates
    if style == "power":
        ratio = 2.0 ** np.floor(np.log2(ratio))
    multiplier, shift = fixedpoint.from_real_channels(ratio)
    if style == "narrow" and rounding != "double":  # not normalised: a 16-bit multiplier with its shift
        narrow = np.minimum(shift - 1, 15)
        multiplier, shift = multiplier >> narrow, shift - narrow
    if draw(st.integers(0, 4)) == 0:
        multiplier = np.where(rng.random(o) < 0.3, 0, multiplier)
    if isinstance(node, ConvTranspose2d):
        return QConvTranspose(node.name, node.x, node.y, weight, bias, multiplier, shift, node.stride, node.padding,
                              rounding, _clamp(draw))
    return QConv(
        node.name,
        node.x,
        node.y,
        weight,
        bias,
        multiplier,
        shift,
        node.stride,
        node.padding,
        node.dilation,
        node.groups,
        rounding,
        _clamp(draw),
    )


def _qadd(draw: st.DrawFn, node: Add, rng: np.random.Generator, rounding: str) -> QAdd:
    ratios = np.exp(rng.uniform(-1.5, 0.5, 2))
    if draw(st.booleans()):  # as qnn.add: each operand is brought to the result's scale
        left_shift, out = 0, IDENTITY
        if rounding == "double":
            ratios = np.minimum(ratios, 0.999)
    else:  # as TFLite: at a 2**20 scale
        left_shift, out = 20, fixedpoint.from_real(float(2.0 * ratios.max() / 2**20))
        ratios = ratios / (2.0 * ratios.max())
    one, two = (fixedpoint.from_real(float(r)) for r in ratios)
    if draw(st.integers(0, 5)) == 0:
        one = Requant(0, 31)
    return QAdd(node.name, node.x1, node.x2, node.y, one, two, out, left_shift, rounding, _clamp(draw))


def _qpool(
    draw: st.DrawFn, node: Pool, scales: dict[str, tuple[float, int]], rounding: str, x_shape: tuple[int, ...]
) -> QPool:
    if node.kind == "max":
        return QPool(
            node.name,
            node.x,
            node.y,
            "max",
            node.kernel,
            node.stride,
            node.padding,
            False,
            scales[node.x][1],
            scales[node.y][1],
            (),
            rounding,
        )
    counts = np.unique(
        geometry.pool_counts(
            x_shape[1], x_shape[2], node.kernel, node.stride, node.padding, node.count_include_pad
        )
    ).tolist()
    if draw(st.booleans()):
        requants = tuple((n, fixedpoint.average(n)) for n in counts)
        return QPool(
            node.name,
            node.x,
            node.y,
            "avg",
            node.kernel,
            node.stride,
            node.padding,
            node.count_include_pad,
            0,
            0,
            requants,
            "truncate",
        )
    ratio = (
        draw(st.sampled_from([0.37, 0.999]))
        if rounding == "double"
        else draw(st.sampled_from([0.37, 1.0, 1.9]))
    )
    requants = tuple((n, fixedpoint.average_ratio(n, ratio)) for n in counts)
    return QPool(
        node.name,
        node.x,
        node.y,
        "avg",
        node.kernel,
        node.stride,
        node.padding,
        node.count_include_pad,
        scales[node.x][1],
        scales[node.y][1],
        requants,
        rounding,
    )


def random_inputs(qregion: QRegion, seed: int) -> list[np.ndarray]:
    """int8 NHWC arrays for `interpret`, in the order of `qregion.inputs`; no two are alike."""
    rng = np.random.default_rng(seed)
    tensors = qregion.by_name()
    return [rng.integers(-128, 128, tensors[p.tensor].shape).astype(np.int8) for p in qregion.inputs]


@st.composite
def qregion_cases(draw: st.DrawFn, size: Size = SMALL,
                  kinds: tuple[str, ...] = KINDS) -> tuple[QRegion, list[np.ndarray]]:
    """A QRegion and int8 inputs for it."""
    qregion = draw(qregions(size, kinds))
    return qregion, random_inputs(qregion, draw(st.integers(0, 1 << 20)))
