"""Rules of FakeQuantizationToInteger that hhb-tvm lacks, or has and cannot run."""
from __future__ import annotations

from tvm import relay
from tvm.ir import TensorAffineType
from tvm.relay.op import register_fake_quantization_to_integer
from tvm.relay.transform.fake_quantization_to_integer import approx_equal

LEVEL = 11  # above TVM's own rules, which are registered at 10


def _identity(expr: relay.Call, type_map: dict) -> list:
    return [expr, type_map[expr.args[0]]]


def _upsampling(expr: relay.Call, type_map: dict) -> list:
    if str(expr.attrs.method) != "nearest_neighbor":
        raise ValueError("values between others are computed")
    return _identity(expr, type_map)


def _avg_pool2d(expr: relay.Call, type_map: dict) -> list:
    """As TVM's rule of global_avg_pool2d: requantize unless scales agree, then average the integers.

    TVM's own rule calls relay.qnn.op.avg_pool2d, which hhb-tvm does not have. Padding that counts as a value is
    real 0, which the integer average cannot know, so that such a layer stays float.
    """
    attrs = {key: expr.attrs[key] for key in expr.attrs.keys() if key != "out_layout"}
    if attrs["count_include_pad"] and (any(int(p) for p in attrs["padding"]) or attrs["ceil_mode"]):
        raise ValueError("padding counts")
    data, x, y = expr.args[0], type_map[expr.args[0]], type_map[expr]
    if approx_equal(x.scale, y.scale) and approx_equal(x.zero_point, y.zero_point) and x.dtype == y.dtype:
        data = relay.cast(data, "int32")
    else:
        data = relay.qnn.op.requantize(data, x.scale, x.zero_point, y.scale, y.zero_point, out_dtype="int32",
                                       axis=x.axis)
    return [relay.nn.avg_pool2d(data, **attrs), TensorAffineType(y.scale, y.zero_point, "int32", y.axis)]


register_fake_quantization_to_integer("nn.avg_pool2d", _avg_pool2d, LEVEL)
register_fake_quantization_to_integer("nn.global_max_pool2d", _identity, LEVEL)
register_fake_quantization_to_integer("nn.upsampling", _upsampling, LEVEL)
