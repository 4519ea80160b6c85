"""Each invariant of QRegion, broken once; the bounds on widths exactly at their limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from byoc_accel.errors import QuantizeError
from byoc_accel.quantize import fixedpoint
from byoc_accel.quantize.interpret import accumulators
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
from byoc_accel.quantize.verify import accumulator_bounds, verify
from byoc_accel.region.region import Port
from tests.strategies_region import SMALL, qregions


def qconv(**changes) -> QConv:
    fields = dict(
        name="conv",
        x="x",
        y="c",
        weight=np.arange(-4, 4, dtype=np.int8).reshape(2, 1, 1, 4),
        bias=np.array([5, -5], np.int32),
        multiplier=np.array([1 << 30, 1 << 30]),
        shift=np.array([36, 35]),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
        rounding="upward",
        clamp=(-128, 127),
    )
    return QConv(**(fields | changes))


def qregion(*nodes_by_index: tuple[int, object]) -> QRegion:
    tensors = (
        QTensor("x", (1, 4, 4, 4), 0.1, 3),
        QTensor("c", (1, 4, 4, 2), 0.2, -5),
        QTensor("a", (1, 4, 4, 2), 0.3, 0),
        QTensor("p", (1, 2, 2, 2), 0.3, 0),
        QTensor("t", (1, 2, 2, 2), 0.1, 9),
        QTensor("r", (1, 1, 1, 8), 0.1, 9),
    )
    nodes = [
        qconv(),
        QAdd("add", "c", "c", "a", Requant(1 << 30, 31), Requant(1 << 30, 32), IDENTITY, 0, "nearest", (-9, 9)),
        QPool(
            "pool", "a", "p", "avg", (2, 2), (2, 2), (0, 0, 0, 0), False, 0, 0, ((4, Requant(1 << 30, 32)),), "upward"
        ),
        QLut("lut", "p", "t", np.arange(-128, 128).astype(np.int8)),
        QReshape("flat", "t", "r"),
    ]
    for index, node in nodes_by_index:
        nodes[index] = node
    return QRegion(
        "q",
        tensors,
        tuple(nodes),
        (Port("x", (1, 4, 4, 4), "float32", (0, 3, 1, 2)),),
        (Port("r", (1, 8), "int8", (0, 1, 2, 3)),),
    )


GOOD = qregion()
ADD, POOL, LUT = GOOD.nodes[1], GOOD.nodes[2], GOOD.nodes[3]


def tensor(index, **changes):
    return replace(GOOD, tensors=tuple(replace(t, **changes) if i == index else t for i, t in enumerate(GOOD.tensors)))


BROKEN = {
    "names must be unique": replace(GOOD, tensors=GOOD.tensors * 2),
    "tensor 'x': shape": tensor(0, shape=(1, 4, 4)),
    "tensor 'x': scale nan": tensor(0, scale=float("nan")),
    "tensor 'x': zero point -129": tensor(0, zero_point=-129),
    "port of 'z': there is no such tensor": replace(GOOD, outputs=(replace(GOOD.outputs[0], tensor="z"),)),
    "is no view of": replace(GOOD, outputs=(replace(GOOD.outputs[0], host_shape=(1, 9)),)),
    "input tensor is listed twice": replace(GOOD, inputs=GOOD.inputs * 2),
    "two nodes are called 'conv'": qregion((1, replace(ADD, name="conv"))),
    "reads 'r' before it is produced": qregion((0, qconv(x="r"))),
    "writes 'x', which is unknown or written already": qregion((0, qconv(y="x"))),
    "tensor 'spare' is never produced": replace(GOOD, tensors=GOOD.tensors + (QTensor("spare", (1, 1, 1, 1), 1.0, 0),)),
    "no outputs": replace(GOOD, outputs=()),
    "'conv': weight uint8": qregion((0, qconv(weight=np.ones((2, 1, 1, 4), np.uint8)))),
    "does not fit 4 input channels": qregion((0, qconv(groups=2))),
    "bias int64 \\(2,\\)": qregion((0, qconv(bias=np.zeros(2, np.int64)))),
    "shift int64 \\(1,\\)": qregion((0, qconv(shift=np.array([31])))),
    "result 'c' is": qregion((0, qconv(padding=(1, 0, 0, 0)))),
    "clamp \\(5, 4\\)": qregion((0, qconv(clamp=(5, 4)))),
    "clamp \\(-129, 4\\)": qregion((0, qconv(clamp=(-129, 4)))),
    "rounding 'even'": qregion((0, qconv(rounding="even"))),
    "channel 1: multiplier 2147483648": qregion((0, qconv(multiplier=np.array([0, 1 << 31])))),
    "channel 0: shift 0": qregion((0, qconv(shift=np.array([0, 30])))),
    "channel 0: shift 63": qregion((0, qconv(shift=np.array([63, 30])))),
    "\\+ \\(1, 4, 4, 4\\) -> \\(1, 4, 4, 2\\); equal shapes": qregion((1, replace(ADD, x2="x"))),
    "left shift 23": qregion((1, replace(ADD, left_shift=23))),
    "'add': shift 63": qregion((1, replace(ADD, requant_out=Requant(1, 63)))),
    "kind 'min'": qregion((2, replace(POOL, kind="min"))),
    "no requant for windows of 4": qregion((2, replace(POOL, requants=((3, IDENTITY),)))),
    "must be sorted": qregion((2, replace(POOL, requants=((4, IDENTITY), (3, IDENTITY))))),
    "a maximum keeps": qregion((2, replace(POOL, kind="max"))),
    "zero point 400": qregion((2, replace(POOL, x_zero_point=400))),
    "count 4: shift 0": qregion((2, replace(POOL, requants=((4, Requant(1, 0)),)))),
    "a window lies in the padding": qregion((2, replace(POOL, padding=(2, 0, 0, 0), stride=(3, 2)))),
    "table is int16": qregion((3, replace(LUT, table=np.zeros(256, np.int16)))),
    "must have the scale and zero point of 't'": tensor(5, zero_point=8),
}


def test_the_good_one_is_good():
    verify(GOOD)


@pytest.mark.parametrize("message", list(BROKEN))
def test_broken(message):
    with pytest.raises(QuantizeError, match=message):
        verify(BROKEN[message])


def dense(
    k: int,
    bias: int,
    requant: Requant,
    zero_point: int = -128,
    rounding: str = "upward",
    y_zero_point: int = 0,
    weight: int = 127,
) -> QRegion:
    node = qconv(
        x="x",
        y="y",
        weight=np.full((1, 1, 1, k), weight, np.int8),
        bias=np.array([bias], np.int32),
        multiplier=np.array([requant.multiplier]),
        shift=np.array([requant.shift]),
        rounding=rounding,
    )
    ports = [Port("x", (1, k), "int8", (0, 1, 2, 3)), Port("y", (1, 1), "int8", (0, 1, 2, 3))]
    return QRegion(
        "dense",
        (QTensor("x", (1, 1, 1, k), 1.0, zero_point), QTensor("y", (1, 1, 1, 1), 1.0, y_zero_point)),
        (node,),
        (ports[0],),
        (ports[1],),
    )


@pytest.mark.case("B27")
def test_accumulator_limit_is_exact():
    """K = 4096 products of +127 * 255 (B27): 132648960; the bias may fill int32 up to the last value, no further."""
    room = (1 << 31) - 1 - 4096 * 127 * 255
    tiny = Requant(1 << 30, 62)
    verify(dense(4096, room, tiny))
    with pytest.raises(QuantizeError, match="output channel 0: accumulator up to 2147483648"):
        verify(dense(4096, room + 1, tiny))
    verify(dense(4096, -room, tiny, weight=-127))
    verify(dense(4096, -(1 << 31) + 1, tiny))  # the products are 0 or more here: nothing can go below the bias
    with pytest.raises(QuantizeError, match="accumulator up to 2147483648"):
        verify(dense(4096, -(1 << 31), tiny))


def test_result_limit():
    """acc <= 127 * 255 = 32385; times 2**16 it is 2122383360 and fits, times 2**16.1 it does not."""
    verify(dense(1, 0, fixedpoint.from_real(2.0**16)))
    with pytest.raises(QuantizeError, match="requantize can give 22.*give the result a larger scale"):
        verify(dense(1, 0, fixedpoint.from_real(2.0**16.1)))


def test_left_shift_of_the_double_rounding():
    """With a ratio of 2**16 TFLite shifts the accumulator left by 17 first: 32385 << 17 leaves int32."""
    with pytest.raises(QuantizeError, match="32385 << 17 leaves int32"):
        verify(dense(1, 0, fixedpoint.from_real(2.0**16), rounding="double"))
    verify(dense(1, 0, fixedpoint.from_real(2.0**14), rounding="double"))


def test_add_limits():
    """255 << 20 times 8 is 2139095040; two of those leave int32."""
    node = replace(
        ADD,
        left_shift=20,
        requant1=fixedpoint.from_real(7.9),
        requant2=fixedpoint.from_real(0.001),
        requant_out=Requant(1 << 30, 50),
    )
    tensors = tuple(replace(t, zero_point=-128) if t.name == "c" else t for t in GOOD.tensors)
    verify(replace(qregion((1, node)), tensors=tensors))
    with pytest.raises(QuantizeError, match="the sum can reach 42"):
        verify(replace(qregion((1, replace(node, requant2=node.requant1))), tensors=tensors))


@given(qregions(SMALL))
def test_bounds_hold_and_are_reached(region):
    """Inputs that push every product to its end reach the bound; random ones stay inside."""
    tensors = region.by_name()
    rng = np.random.default_rng(5)
    for node in region.nodes:
        if not isinstance(node, QConv) or node.groups != 1:
            continue
        low, high = accumulator_bounds(node, tensors[node.x].zero_point)
        x = rng.integers(-128, 128, tensors[node.x].shape).astype(np.int8)
        acc = accumulators(node, x, tensors[node.x].zero_point)
        assert (acc >= low).all() and (acc <= high).all()
        o, kh, kw, i = node.weight.shape
        best = np.where(node.weight[0] > 0, 127, -128).astype(np.int8)[None]
        flat = replace(node, padding=(0, 0, 0, 0), dilation=(1, 1), stride=(1, 1))
        assert accumulators(flat, best, tensors[node.x].zero_point)[0, 0, 0, 0] == high[0]


def moves(**changes) -> QRegion:
    """x -> transposed -> padded -> enlarged; enlarged and x2 -> joined. Nodes by name may be changed."""
    weight = np.arange(-18, 18, dtype=np.int8).reshape(3, 2, 3, 2)
    tensors = [QTensor("x", (1, 2, 2, 2), 0.1, 3), QTensor("t", (1, 4, 4, 3), 0.2, -5),
               QTensor("p", (1, 5, 4, 3), 0.2, -5), QTensor("u", (1, 5, 8, 3), 0.2, -5),
               QTensor("x2", (1, 5, 8, 1), 0.4, 100), QTensor("j", (1, 5, 8, 4), 0.2, -5)]
    nodes = [QConvTranspose("transposed", "x", "t", weight, np.array([1, 2, 3], np.int32), np.full(3, 1 << 30),
                            np.full(3, 36), (2, 2), (0, 1), "upward", (-128, 127)),
             QPad("padded", "t", "p", (0, 0, 1, 0), -5), QUpsample("enlarged", "p", "u", (1, 2)),
             QConcat("joined", ("u", "x2"), "j", 3, (None, fixedpoint.from_real(2.0)), "upward")]
    nodes = [replace(n, **changes.get(n.name, {})) for n in nodes]
    tensors = [replace(t, **changes.get(t.name, {})) for t in tensors]
    ports = [Port(t.name, t.shape, "int8", (0, 1, 2, 3)) for t in tensors]
    return QRegion("moves", tuple(tensors), tuple(nodes), (ports[0], ports[4]), (ports[5],))


MOVES = {
    "convtranspose 'transposed': weight int16": {"transposed": {"weight": np.ones((3, 2, 3, 2), np.int16)}},
    "stride \\(2, 0\\) must be": {"transposed": {"stride": (2, 0)}},
    "padding \\(0, -1\\)": {"transposed": {"padding": (0, -1)}},
    "give at most \\(1, 5, 3, 3\\)": {"transposed": {"padding": (0, 3)}},
    "give at most \\(1, 5, 5, 5\\)": {"transposed": {"weight": np.ones((5, 2, 3, 2), np.int8)}},
    "weight \\(3, 2, 3, 1\\)": {"transposed": {"weight": np.ones((3, 2, 3, 1), np.int8)}},
    "bias int64": {"transposed": {"bias": np.zeros(3, np.int64)}},
    "output channel 0: shift 63": {"transposed": {"shift": np.full(3, 63)}},
    "clamp \\(1, 0\\)": {"transposed": {"clamp": (1, 0)}},
    "pad 'padded': padding \\(0, 0, 1, -1\\)": {"padded": {"padding": (0, 0, 1, -1)}},
    "of 128; give": {"padded": {"value": 128}},
    "padded by \\(1, 0, 1, 0\\) is not": {"padded": {"padding": (1, 0, 1, 0)}},
    "'p' must have the scale and zero point of 't'": {"t": {"zero_point": 0}},
    "upsample 'enlarged': result 'u'": {"enlarged": {"factor": (1, 3)}},
    "enlarged by \\(1, 0\\)": {"enlarged": {"factor": (1, 0)}},
    "concat 'joined': 2 inputs and 1 requants": {"joined": {"requants": (None,)}},
    "along axis 0": {"joined": {"axis": 0}},
    "are \\(1, 5, 8, 3\\) and \\(1, 5, 8, 1\\) along axis 2": {"joined": {"axis": 2}},
    "result 'j' is \\(1, 5, 8, 5\\)": {"j": {"shape": (1, 5, 8, 5)}},
    "'x2' is copied, but": {"joined": {"requants": (None, None)}},
    "input 'x2': multiplier 2147483648": {"joined": {"requants": (None, Requant(1 << 31, 31))}},
    "input 'x2': requantize can give": {"joined": {"requants": (None, fixedpoint.from_real(2.0 ** 25))}},
    "rounding 'even'": {"joined": {"rounding": "even"}},
}


def test_the_good_moves_are_good():
    verify(moves())


@pytest.mark.parametrize("message", list(MOVES))
def test_broken_moves(message):
    with pytest.raises(QuantizeError, match=message):
        verify(moves(**MOVES[message]))


def test_accumulators_of_a_transposed_convolution_are_bounded_per_phase():
    """Stride 2: each position gets 4 of the 16 taps. All 16 of 4146 channels would leave int32."""
    tall = 1 + (1 << 31) // (16 * 127 * 255)
    weight = np.full((1, 4, 4, tall), 127, np.int8)
    node = QConvTranspose("t", "x", "y", weight, np.zeros(1, np.int32), np.array([1 << 30]), np.array([62]), (2, 2),
                          (1, 1), "upward", (-128, 127))
    tensors = (QTensor("x", (1, 2, 2, tall), 1.0, -128), QTensor("y", (1, 4, 4, 1), 1.0, 0))
    ports = [Port(t.name, t.shape, "int8", (0, 1, 2, 3)) for t in tensors]
    region = QRegion("phases", tensors, (node,), (ports[0],), (ports[1],))
    verify(region)
    low, high = accumulator_bounds(node, -128)
    assert low.tolist() == [0] and high.tolist() == [4 * tall * 127 * 255]
    acc = accumulators(node, np.full(tensors[0].shape, 127, np.int8), -128, (4, 4))
    assert acc.max() == high[0]
    with pytest.raises(QuantizeError, match="output channel 0: accumulator up to"):
        verify(replace(region, nodes=(replace(node, stride=(1, 1), padding=(0, 0)),)))
