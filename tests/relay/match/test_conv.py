"""Convolutions: geometry, layouts, groups and odd sizes, against TVM's own lowering (B13 to B20, B28)."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

from byoc_accel.quantize.quantize import quantize  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    check_region,
    const,
    host_ops,
    int8_input,
    module,
    qconv2d,
    shaped,
)


def quantized(layout: str, hwc: tuple[int, int, int], channels: int, kernel: tuple[int, int], n: int = 1,
              seed: int = 0, **options: object) -> object:
    x = int8_input(*shaped(layout, n, *hwc))
    rng = np.random.default_rng(seed)
    return module(qconv2d(x, channels, kernel, rng, in_channels=hwc[2], layout=layout, **options))


def floating(layout: str, hwc: tuple[int, int, int], channels: int, kernel: tuple[int, int], groups: int = 1,
             kernel_layout: str = "", **attrs: object) -> object:
    rng = np.random.default_rng(3)
    kernel_layout = kernel_layout or {"NHWC": "HWIO", "NCHW": "OIHW"}[layout]
    sizes = {"O": channels, "I": hwc[2] // groups, "H": kernel[0], "W": kernel[1]}
    if kernel_layout == "HWOI" and groups > 1:
        sizes.update(O=hwc[2], I=channels // hwc[2])
    weight = rng.normal(size=[sizes[a] for a in kernel_layout]).astype("float32")
    x = relay.var("x", shape=shaped(layout, 1, *hwc), dtype="float32")
    return module(relay.nn.conv2d(x, const(weight), kernel_size=kernel, channels=channels, groups=groups,
                                  data_layout=layout, kernel_layout=kernel_layout, **attrs))


@pytest.mark.case("B14")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0), (2, 0, 0, 1), (0, 0, 1, 1)])
def test_asymmetric_padding(layout: str, pads: tuple[int, ...]) -> None:
    """B14"""
    imported = check_region(quantized(layout, (10, 7, 3), 5, (3, 2), padding=pads, strides=(2, 2)))
    assert imported.region.nodes[0].padding == pads


@pytest.mark.case("B13")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("hwc", [(16, 16, 16), (4, 4, 4)])
def test_equal_sizes_hide_no_swapped_axis(layout: str, hwc: tuple[int, int, int]) -> None:
    """B13: C = H = W = O, so that a wrong axis would give no shape error."""
    check_region(quantized(layout, hwc, hwc[0], (3, 3), padding=(1, 1)))


@pytest.mark.case("B13")
@pytest.mark.parametrize("kernel_layout", ["OIHW", "HWIO", "OHWI"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_kernel_layouts(layout: str, kernel_layout: str) -> None:
    """B13: the host has no schedule for some of them, so TVM converts the layout of the reference."""
    mod = floating(layout, (6, 6, 6), 6, (3, 3), kernel_layout=kernel_layout)
    inputs = {"x": np.random.default_rng(1).normal(size=shaped(layout, 1, 6, 6, 6)).astype("float32")}
    import byoc_accel.relay as ba
    from byoc_accel.relay.importer import import_function
    from tests.relay.models import external_functions, run_imported

    part, _ = ba.partition(mod, calibration=[inputs])
    (function,) = external_functions(part).values()
    (found,) = run_imported(import_function(function), [inputs["x"]])
    weight = mod["main"].body.args[1].data.numpy().transpose([kernel_layout.index(a) for a in "OIHW"])
    x = inputs["x"] if layout == "NCHW" else inputs["x"].transpose(0, 3, 1, 2)
    expected = np.zeros((1, 6, 4, 4))
    for o in range(6):
        for y in range(4):
            for z in range(4):
                expected[0, o, y, z] = np.sum(weight[o] * x[0, :, y:y + 3, z:z + 3])
    np.testing.assert_allclose(found if layout == "NCHW" else found.transpose(0, 3, 1, 2), expected, atol=1e-4)


@pytest.mark.case("B16")
@pytest.mark.parametrize("dilation,stride", [((2, 3), (1, 1)), ((3, 2), (2, 1)), ((7, 7), (1, 1))])
def test_dilation(dilation: tuple[int, int], stride: tuple[int, int]) -> None:
    """B16"""
    check_region(quantized("NHWC", (17, 19, 5), 6, (3, 3), dilation=dilation, strides=stride, padding=(3, 3)))


@pytest.mark.case("B17")
@pytest.mark.parametrize("kernel,stride,hw", [((1, 1), (3, 3), (7, 7)), ((2, 2), (5, 5), (13, 11)),
                                              ((3, 3), (1, 2), (9, 9)), ((3, 3), (3, 1), (9, 9)),
                                              ((2, 2), (20, 20), (7, 5))])
def test_strides(kernel: tuple[int, int], stride: tuple[int, int], hw: tuple[int, int]) -> None:
    """B17"""
    check_region(quantized("NCHW", (*hw, 4), 6, kernel, strides=stride))


@pytest.mark.case("B18")
@pytest.mark.parametrize("case", [((7, 1, 72), 72, (5, 5), (2, 2), 72), ((4, 3, 8), 5, (4, 3), (0, 0), 1),
                                  ((1, 1, 6), 7, (3, 3), (1, 1), 1)])
def test_small_inputs_and_large_kernels(case: tuple) -> None:
    """B18"""
    hwc, channels, kernel, padding, groups = case
    check_region(quantized("NCHW", hwc, channels, kernel, groups=groups, padding=padding,
                           strides=(2, 2) if kernel == (5, 5) else (1, 1)))


@pytest.mark.case("B19")
@pytest.mark.parametrize("layout,kernel_layout,inputs,outputs,groups", [
    ("NCHW", "OIHW", 8, 8, 2), ("NCHW", "OIHW", 12, 24, 4), ("NHWC", "HWIO", 8, 8, 2), ("NCHW", "OIHW", 16, 16, 16),
    ("NHWC", "HWOI", 16, 16, 16), ("NHWC", "HWOI", 6, 12, 6), ("NHWC", "HWOI", 5, 15, 5)])
def test_groups(layout: str, kernel_layout: str, inputs: int, outputs: int, groups: int) -> None:
    """B19: grouped convolutions are neither dense nor depthwise ones; a depthwise one may multiply channels."""
    check_region(quantized(layout, (6, 5, inputs), outputs, (3, 3), groups=groups, kernel_layout=kernel_layout,
                           padding=(1, 1)))


@pytest.mark.case("B19")
def test_one_input_channel_is_an_ordinary_convolution() -> None:
    """B19: 1 -> 4 channels"""
    check_region(quantized("NHWC", (6, 5, 1), 4, (3, 3)))


@pytest.mark.case("B20")
@pytest.mark.parametrize("channels", [(1, 1), (3, 5), (15, 17), (16, 16), (17, 33), (255, 257), (3, 1025)])
def test_channel_counts(channels: tuple[int, int]) -> None:
    """B20"""
    check_region(quantized("NHWC", (3, 4, channels[0]), channels[1], (1, 1)))


@pytest.mark.case("B28")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_scales_per_output_channel(layout: str) -> None:
    """B28: O = I = 4, scales that differ by 8."""
    check_region(quantized(layout, (5, 5, 4), 4, (3, 3), scales=(0.1, 0.7)))
    check_region(quantized(layout, (5, 5, 4), 4, (3, 3), per_channel=False))


@pytest.mark.case("B11")
@pytest.mark.parametrize("bias", ["none", "bias_add", "add", "add_left"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_bias_forms(bias: str, layout: str) -> None:
    """B11"""
    check_region(quantized(layout, (5, 5, 4), 4, (3, 3), bias=bias))


@pytest.mark.case("B26")
@pytest.mark.parametrize("rounding", ["None", "UPWARD", "TONEAREST"])
def test_rounding(rounding: str) -> None:
    """B26: ties are frequent with few taps and a coarse scale."""
    check_region(quantized("NHWC", (16, 16, 1), 3, (1, 1), rounding=rounding, scales=(0.5, 0.5), bias="none"))


@pytest.mark.case("B15")
def test_conv1d_counts_taps_in_order() -> None:
    """B15: pads left 1 right 2 of an even kernel."""
    x = relay.var("x", shape=(1, 1, 8), dtype="float32")
    weight = np.array([1, 2, 4, 8], "float32").reshape(1, 1, 4)
    mod = module(relay.nn.conv1d(x, const(weight), padding=(1, 2), kernel_size=4, channels=1))
    imported = check_region(mod)
    from tests.relay.models import run_imported

    (y,) = run_imported(imported, [np.arange(1, 9, dtype="float32").reshape(1, 1, 8)])
    assert y.reshape(-1).tolist() == [34, 49, 64, 79, 94, 109, 52, 23]


@pytest.mark.case("B15")
@pytest.mark.parametrize("layout", ["NCW", "NWC"])
@pytest.mark.parametrize("width", [1, 2, 3, 16])
def test_conv1d(layout: str, width: int) -> None:
    """B15"""
    rng = np.random.default_rng(width)
    shape = (1, 5, 17) if layout == "NCW" else (1, 17, 5)
    kernel = (6, 5, width) if layout == "NCW" else (width, 5, 6)
    x = relay.var("x", shape=shape, dtype="float32")
    y = relay.nn.conv1d(x, const(rng.normal(size=kernel), "float32"), data_layout=layout, kernel_size=width,
                        channels=6, kernel_layout="OIW" if layout == "NCW" else "WIO", strides=2, padding=(1, 0))
    bias = const(rng.normal(size=6), "float32")
    check_region(module(relay.nn.relu(relay.nn.bias_add(y, bias, axis=layout.index("C")))))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pad_before_a_convolution_is_folded(layout: str) -> None:
    x = int8_input(*shaped(layout, 1, 6, 7, 3))
    widths = {"N": (0, 0), "C": (0, 0), "H": (1, 2), "W": (0, 3)}
    padded = relay.nn.pad(x, [widths[a] for a in layout], pad_value=-5)
    y = qconv2d(padded, 4, (3, 3), np.random.default_rng(0), in_channels=3, layout=layout, padding=(1, 0))
    imported = check_region(module(y))
    (node,) = quantize(imported.region)[0].nodes
    assert node.padding == (2, 0, 3, 3)


def test_pad_with_another_value_is_not_folded() -> None:
    x = int8_input(1, 6, 7, 3)
    padded = relay.nn.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], pad_value=0)
    y = qconv2d(padded, 4, (3, 3), np.random.default_rng(0), in_channels=3)
    report = check_library(module(y), regions=1)
    assert not host_ops(report)


@pytest.mark.parametrize("target", ["reference", "tiny"])
def test_on_the_simulator(target: str) -> None:
    """Odd sizes through the whole pipeline, on a target that must cut them into pieces."""
    check_library(quantized("NCHW", (13, 11, 17), 33, (3, 2), padding=(0, 1, 2, 0), strides=(2, 1)), regions=1,
                  target=target)
