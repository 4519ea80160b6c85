"""Each invariant of Region, broken once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.errors import RegionError
from byoc_accel.region.region import Add, Pool, Port, Reshape, Tensor, Unary
from byoc_accel.region.verify import quantized, verify
from tests.region.build import chain, conv, weights

GOOD = chain((1, 6, 6, 4), conv(weights(0, 8, 3, 3, 2), np.zeros(8), groups=2), Add("add", "", "", ""),
             Pool("pool", "", "", "max", (2, 2), (2, 2)), Unary("relu", "", "", "relu"), Reshape("flat", "", ""))


def node(index, **changes):
    nodes = list(GOOD.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(GOOD, nodes=tuple(nodes))


def tensor(index, **changes):
    tensors = list(GOOD.tensors)
    tensors[index] = replace(tensors[index], **changes)
    return replace(GOOD, tensors=tuple(tensors))


BROKEN = {
    "no nodes": replace(GOOD, nodes=()),
    "two tensors are called 'x'": replace(GOOD, tensors=GOOD.tensors + (GOOD.tensors[0],)),
    "shape \\(1, 0, 6, 4\\)": tensor(0, shape=(1, 0, 6, 4)),
    "dtype int32": tensor(0, dtype="int32"),
    "float32 tensor has no scale": tensor(0, scale=0.5),
    "scale None": tensor(0, dtype="int8"),
    "scale inf": tensor(0, dtype="int8", scale=float("inf"), zero_point=0),
    "zero point 128": tensor(0, dtype="int8", scale=0.5, zero_point=128),
    "is float32 beside int8": tensor(0, dtype="int8", scale=0.5, zero_point=0),
    "input 'nowhere' is unknown": replace(GOOD, inputs=(replace(GOOD.inputs[0], tensor="nowhere"),)),
    "reads 'y2' before it is produced": node(0, x="y2"),
    "writes 'x', which is unknown or written already": node(0, y="x"),
    "two nodes are called 'conv'": node(1, name="conv"),
    "no outputs": replace(GOOD, outputs=()),
    "output 'z' is never produced": replace(GOOD, outputs=(replace(GOOD.outputs[0], tensor="z"),)),
    "tensor 'z' is never produced": replace(GOOD, tensors=GOOD.tensors + (Tensor("z", (1, 1, 1, 1)),)),
    "no permutation": replace(GOOD, inputs=(Port("x", (1, 4, 6, 6), "float32", (0, 1, 1, 2)),)),
    "differ in size": replace(GOOD, inputs=(Port("x", (1, 4, 6, 7), "float32", (0, 3, 1, 2)),)),
    "host int8 for float32": replace(GOOD, inputs=(Port("x", (1, 4, 6, 6), "int8", (0, 3, 1, 2)),)),
    "does not fit 4 input channels": node(0, groups=1),
    "in 3 groups does not fit": node(0, groups=3),
    "stride \\(0, 1\\)": node(0, stride=(0, 1)),
    "padding \\(0, -1, 0, 0\\)": node(0, padding=(0, -1, 0, 0)),
    "exceeds the padded input": node(0, dilation=(3, 1)),
    "result 'y0' is \\(1, 4, 4, 8\\), the operands give \\(1, 4, 6, 8\\)": node(0, padding=(0, 1, 0, 1)),
    "weight is int8": node(0, weight=GOOD.nodes[0].weight.astype(np.int8)),
    "bias is float32 \\(7,\\)": node(0, bias=np.zeros(7, np.float32)),
    "clip \\(2, 1\\)": node(0, clip=(2, 1)),
    "rounding 'even'": node(0, rounding="even"),
    "operands \\(1, 4, 4, 8\\) and \\(1, 6, 6, 4\\)": node(1, x2="x"),
    "kind 'min'": node(2, kind="min"),
    "a window lies in the padding": node(2, padding=(2, 0, 0, 0), stride=(3, 2)),
    "raw is for averages of int8": node(2, raw=True),
    "no function 'sin'": node(3, function="sin"),
    "leaky_relu takes \\(alpha\\)": node(3, function="leaky_relu"),
    "the batch axis and the size must stay": replace(tensor(5, shape=(1, 1, 1, 33)),
                                                     outputs=(replace(GOOD.inputs[0], tensor="x"),)),
}


def test_the_good_one_is_good():
    verify(GOOD)
    assert not quantized(GOOD)


@pytest.mark.parametrize("message", list(BROKEN))
def test_broken(message):
    with pytest.raises(RegionError, match=message):
        verify(BROKEN[message])


def int8_region(**changes):
    scales = np.full(8, 0.01, np.float32)
    fields = {"weight": np.ones((8, 3, 3, 2), np.int8), "bias": np.zeros(8, np.int32), "weight_scale": scales,
              "acc_scale": scales} | changes
    tensors = tuple(replace(t, dtype="int8", scale=0.1, zero_point=3) for t in GOOD.tensors)
    nodes = (replace(GOOD.nodes[0], **fields), *GOOD.nodes[1:])
    return replace(GOOD, tensors=tensors, nodes=nodes)


def test_int8_regions():
    verify(int8_region())
    assert quantized(int8_region())
    for changes, message in (({"acc_scale": None}, "needs weight_scale and acc_scale"),
                             ({"acc_scale": np.full(1, 0.1, np.float32)}, "acc_scale is float32 \\(1,\\)"),
                             ({"acc_scale": np.full(8, 0.1)}, "acc_scale is float64"),
                             ({"bias": np.zeros(8, np.int64)}, "bias is int64"),
                             ({"weight": np.ones((8, 3, 3, 2), np.uint8)}, "weight is uint8")):
        with pytest.raises(RegionError, match=message):
            verify(int8_region(**changes))
    region = int8_region()
    for name, keeper in (("y2", "y1"), ("y4", "y3")):  # a maximum, a reshape
        tensors = tuple(replace(t, zero_point=4) if t.name == name else t for t in region.tensors)
        with pytest.raises(RegionError, match=f"'{name}' must have the scale and zero point of '{keeper}'"):
            verify(replace(region, tensors=tensors))
