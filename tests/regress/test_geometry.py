"""Public bug reports about convolution geometry (B14 to B20): literals and NumPy int64, on the simulator."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.relay import hook  # noqa: E402
from byoc_accel.sim import simulate_program  # noqa: E402
from byoc_accel.target import load_target  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    compare,
    const,
    external_functions,
    host_ops,
    module,
    qconv2d,
    region_count,
    run,
)


def unit_conv(x: relay.Expr, weight: np.ndarray, zero_point: int = 0, bias: np.ndarray | None = None,
              **attrs: object) -> relay.Expr:
    """NHWC convolution of HWIO weights whose scales are all 1: the int8 result is the sum itself, saturated."""
    one, zero = const(1.0, "float32"), const(0, "int32")
    y = relay.qnn.op.conv2d(x, const(weight, "int8"), const(zero_point, "int32"), zero, one, one,
                            kernel_size=weight.shape[:2], channels=weight.shape[3], data_layout="NHWC",
                            kernel_layout="HWIO", out_dtype="int32", **attrs)
    if bias is not None:
        y = relay.nn.bias_add(y, const(bias, "int32"), axis=3)
    return relay.qnn.op.requantize(y, one, zero, one, const(zero_point, "int32"), axis=3, out_dtype="int8")


def line(values: object) -> np.ndarray:
    return np.asarray(values, np.int8).reshape(1, 1, -1, 1)


def taps(*values: int) -> np.ndarray:
    return np.array(values, np.int8).reshape(1, -1, 1, 1)


def on_device(y: relay.Expr, x: np.ndarray, target: str = "reference") -> np.ndarray:
    """The result of a model of one region and nothing else, which must be TVM's own."""
    mod = module(y)
    name = mod["main"].params[0].name_hint
    part, report = ba.partition(mod, target=target)
    assert region_count(part) == 1 and not host_ops(report), report.to_text()
    found = run(part, {name: x})
    compare(found, run(mod, {name: x}))
    return found[0]


def variable(shape: tuple[int, ...]) -> relay.Var:
    return relay.var("x", shape=shape, dtype="int8")


def reference(x: np.ndarray, weight: np.ndarray, strides: tuple[int, int], pads: tuple[int, ...]) -> np.ndarray:
    """int64 sums of NHWC x and HWIO weight; pads are top, left, bottom, right."""
    x = np.pad(x.astype(np.int64), [(0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)])
    kh, kw = weight.shape[:2]
    rows = range(0, x.shape[1] - kh + 1, strides[0])
    columns = range(0, x.shape[2] - kw + 1, strides[1])
    return np.array([[[np.einsum("hwi,hwio->o", item[r:r + kh, c:c + kw], weight.astype(np.int64)) for c in columns]
                      for r in rows] for item in x])


@pytest.mark.case("B14")
@pytest.mark.parametrize("pads", [(0, 1, 2, 0), (2, 0, 0, 1), (0, 0, 1, 1)])
def test_asymmetric_padding_and_the_flipped_input(pads: tuple[int, ...]) -> None:
    """1 x 3 x 10 x 7, kernel 3 x 2, stride 2. Flipping rows of all operands exchanges top and bottom."""
    rng = np.random.default_rng(0)
    x, weight = rng.integers(-4, 5, (1, 10, 7, 3)), rng.integers(-2, 3, (3, 2, 3, 4))
    for flipped in (False, True):
        if flipped:
            x, weight, pads = x[:, ::-1], weight[::-1], (pads[2], pads[1], pads[0], pads[3])
        y = unit_conv(variable(x.shape), weight, padding=pads, strides=(2, 2))
        expected = reference(x, weight, (2, 2), pads)
        assert np.abs(expected).max() < 128
        np.testing.assert_array_equal(on_device(y, np.ascontiguousarray(x, np.int8)), expected)


@pytest.mark.case("B15")
def test_even_kernel_with_same_padding() -> None:
    x = line(range(1, 9))
    after = on_device(unit_conv(variable(x.shape), taps(1, 2, 4, 8), padding=(0, 1, 0, 2)), x)
    assert after.ravel().tolist() == [34, 49, 64, 79, 94, 109, 52, 23]
    before = on_device(unit_conv(variable(x.shape), taps(1, 2, 4, 8), padding=(0, 2, 0, 1)), x)
    assert before.ravel().tolist()[:2] == [20, 34]


@pytest.mark.case("B15")
@pytest.mark.parametrize("width,length", [(1, 8), (2, 8), (3, 8), (16, 20), (3, 1), (2, 1)])
def test_one_dimensional_with_bias(width: int, length: int) -> None:
    """"same" padding; more of it after the data where it is odd."""
    rng = np.random.default_rng(width)
    x, weight = rng.integers(-9, 10, (1, 1, length, 1)), rng.integers(-1, 2, (1, width, 1, 3))
    pads = (0, (width - 1) // 2, 0, width // 2)
    y = unit_conv(variable(x.shape), weight, bias=np.array([3, -4, 5]), padding=pads)
    expected = np.clip(reference(x, weight, (1, 1), pads) + [3, -4, 5], -128, 127)
    np.testing.assert_array_equal(on_device(y, x.astype(np.int8)), expected)


def dilated(form: str, x: relay.Expr, zero_point: int) -> relay.Expr:
    """Three taps of 1, dilation 2, "same"."""
    if form == "dilation":
        return unit_conv(x, taps(1, 1, 1), zero_point, padding=(0, 2, 0, 2), dilation=(1, 2))
    batches = relay.nn.space_to_batch_nd(x, [1, 2], [[0, 0], [2, 2]], pad_value=float(zero_point))
    return relay.nn.batch_to_space_nd(unit_conv(batches, taps(1, 1, 1), zero_point), [1, 2], [[0, 0], [0, 0]])


@pytest.mark.case("B16")
@pytest.mark.parametrize("zero_point", [0, -128])
@pytest.mark.parametrize("form", ["dilation", "space_to_batch"])
def test_dilation(form: str, zero_point: int) -> None:
    """Real values 2, 2, 3, 3, 3, 3, 2, 2 in both forms; what the padding holds is the zero point."""
    x = line(np.ones(8) + zero_point)
    mod = module(dilated(form, variable(x.shape), zero_point))
    part, _ = ba.partition(mod)
    assert region_count(part) == 1
    (found,) = run(part, {"x": x})
    assert (found.ravel().astype(int) - zero_point).tolist() == [2, 2, 3, 3, 3, 3, 2, 2]
    compare([found], run(mod, {"x": x}))


@pytest.mark.case("B17")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_rows_behind_the_last_window_are_ignored(layout: str) -> None:
    """1 x 1 with stride 3 on 7 x 7 reads rows and columns 0, 3, 6; 2 x 2 with stride 5 on 13 x 11 leaves one row over
    (12) and four columns (7 to 10): their values change nothing."""
    x = np.arange(49).reshape(1, 7, 7, 1).astype(np.int8)
    found = on_device(unit_conv(variable(x.shape), taps(1), strides=(3, 3)), x)
    assert found[0, :, :, 0].tolist() == [[0, 3, 6], [21, 24, 27], [42, 45, 48]]
    rng = np.random.default_rng(0)
    shape = (1, 13, 11, 4) if layout == "NHWC" else (1, 4, 13, 11)
    mod = module(qconv2d(variable(shape), 6, (2, 2), rng, in_channels=4, layout=layout, strides=(5, 5)))
    part, _ = ba.partition(mod)
    x = rng.integers(-128, 128, shape).astype(np.int8)
    changed = x.copy()
    nhwc = changed if layout == "NHWC" else changed.transpose(0, 2, 3, 1)
    nhwc[:, 12:], nhwc[:, :, 7:] = 99, -99
    assert (changed != x).any()
    found = run(part, {"x": x})
    compare(found, run(mod, {"x": x}))
    compare(run(part, {"x": changed}), found)


@pytest.mark.case("B17")
@pytest.mark.parametrize("kernel,strides,hw", [((3, 3), (1, 2), (9, 9)), ((3, 3), (3, 1), (9, 9)),
                                               ((2, 2), (20, 20), (7, 5)), ((1, 1), (9, 9), (7, 5))])
def test_unequal_strides_and_strides_beyond_the_input(kernel: tuple, strides: tuple, hw: tuple) -> None:
    rng = np.random.default_rng(0)
    check_library(module(qconv2d(variable((1, *hw, 5)), 7, kernel, rng, in_channels=5, strides=strides)), regions=1)


@pytest.mark.case("B18")
def test_depthwise_with_a_kernel_larger_than_the_input() -> None:
    """1 x 72 x 7 x 1, 5 x 5, stride 2, pad 2: 1 x 72 x 4 x 1; every of 20 runs gives the same bytes."""
    mod = module(qconv2d(variable((1, 72, 7, 1)), 72, (5, 5), np.random.default_rng(0), in_channels=72, layout="NCHW",
                         groups=72, padding=(2, 2), strides=(2, 2)))
    part, report = ba.partition(mod)
    assert not host_ops(report)
    (function,) = external_functions(part).values()
    x = np.random.default_rng(1).integers(-128, 128, (1, 72, 7, 1)).astype(np.int8)
    (expected,) = run(mod, {"x": x})
    assert expected.shape == (1, 72, 4, 1)
    program = program_of(function)
    for seed in range(20):
        outputs, _ = simulate_program(program, load_target("reference"), {program.buffers[0].name:
                                      np.ascontiguousarray(x.transpose(0, 2, 3, 1))}, fill="noise", seed=seed)
        (found,) = outputs.values()
        np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), expected)


def program_of(function: relay.Function) -> object:
    from byoc_accel.container.image import unpack

    return unpack(hook.compile_function(function)[1])[0]


@pytest.mark.case("B18")
def test_only_the_centre_tap_counts_on_one_pixel() -> None:
    x = np.array([2, -3], np.int8).reshape(1, 1, 1, 2)
    weight = np.random.default_rng(0).integers(-9, 10, (3, 3, 2, 5))
    found = on_device(unit_conv(variable(x.shape), weight, padding=(1, 1)), x)
    assert found.ravel().tolist() == (2 * weight[1, 1, 0] - 3 * weight[1, 1, 1]).tolist()


@pytest.mark.case("B18")
def test_kernels_that_do_not_fit_and_empty_tensors_are_refused() -> None:
    """TVM's type check refuses a kernel larger than the padded input on most ways in; none may crash or compile."""
    rng = np.random.default_rng(0)
    for shape, kernel in (((1, 2, 2, 3), (5, 5)), ((1, 0, 4, 3), (1, 1)), ((0, 4, 4, 3), (3, 3))):
        try:
            mod = module(qconv2d(variable(shape), 4, kernel, rng, in_channels=3))
        except tvm.TVMError:
            continue
        _, report = ba.partition(mod)
        assert not report.regions
        assert all(row.reason for row in report.ops)


@pytest.mark.case("B20")
def test_channel_counts_that_do_not_fit_the_array() -> None:
    """Exact on the simulator with zero points on both sides, and more channels never take fewer cycles."""
    counts = [(1, 1), (3, 5), (15, 17), (16, 16), (17, 33), (255, 257), (3, 1025)]
    cycles = {}
    for inputs, outputs in counts:
        mod = module(qconv2d(variable((1, 3, 4, inputs)), outputs, (1, 1), np.random.default_rng(inputs),
                             in_channels=inputs, zp=(-5, 7)))
        part, report = ba.partition(mod)
        assert not host_ops(report)
        (function,) = external_functions(part).values()
        program = program_of(function)
        x = np.random.default_rng(1).integers(-128, 128, (1, 3, 4, inputs)).astype(np.int8)
        results, stats = simulate_program(program, load_target("reference"), {program.buffers[0].name: x},
                                          fill="noise")
        compare(list(results.values()), run(mod, {"x": x}))
        cycles[inputs, outputs] = stats.cycles
    for a in counts:
        for b in counts:
            if a[0] <= b[0] and a[1] <= b[1]:
                assert cycles[a] <= cycles[b], (a, b, cycles)
