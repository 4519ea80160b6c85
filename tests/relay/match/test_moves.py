"""Concatenation, padding, upsampling and transposed convolution, against TVM's own lowering (B32)."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from byoc_accel.quantize.quantize import quantize  # noqa: E402
from byoc_accel.relay.importer import Imported, import_function  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_library,
    check_region,
    compare,
    const,
    conv,
    external_functions,
    float_input,
    host_ops,
    int8_input,
    module,
    normal,
    qconcat,
    qconv2d,
    random_inputs,
    reason,
    run,
    run_imported,
    shaped,
)


def kinds(imported: Imported) -> list[str]:
    return [type(node).__name__ for node in imported.region.nodes]


class TestConcat:
    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    @pytest.mark.parametrize("letter", ["C", "H", "W"])
    def test_integers_at_three_scales(self, layout: str, letter: str) -> None:
        """Each operand is requantized to the result, or copied; C = H = W, so that a wrong axis shows by values."""
        rng = np.random.default_rng(0)
        x, side = int8_input(*shaped(layout, 1, 4, 4, 4)), int8_input(*shaped(layout, 1, 4, 4, 4), name="side")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, layout=layout, zp=(3, -7), scales=(0.05, 0.1))
        b = qconv2d(x, 4, (3, 3), rng, in_channels=4, layout=layout, padding=(1, 1), zp=(3, 4), scales=(0.05, 0.01))
        y = qconcat([a, side, b, a], [(0.1, -7), (0.2, 9), (0.01, 4), (0.1, -7)], (0.1, -7), layout.index(letter))
        imported = check_region(module(y, x, side))
        assert kinds(imported) == ["Conv2d", "Conv2d", "Concat"]
        assert imported.region.nodes[2].axis == "NHWC".index(letter)

    def test_library(self) -> None:
        """On the simulator, and with layers behind it."""
        rng = np.random.default_rng(0)
        x = int8_input(1, 4, 6, 6)
        a = qconv2d(x, 5, (1, 1), rng, in_channels=4, layout="NCHW", zp=(3, -7), scales=(0.05, 0.1))
        b = qconv2d(x, 3, (3, 3), rng, in_channels=4, layout="NCHW", padding=(1, 1), zp=(3, 4), scales=(0.05, 0.02))
        y = qconcat([a, b], [(0.1, -7), (0.02, 4)], (0.08, -3), 1)
        check_library(module(qconv2d(y, 4, (3, 3), rng, in_channels=8, layout="NCHW", zp=(-3, 1),
                                     scales=(0.08, 0.05))), regions=1)

    @pytest.mark.parametrize("axis", [1, -1])
    def test_floats_of_rank_3(self, axis: int) -> None:
        """Detection heads: reshaped results of different sizes, joined into one list."""
        x = float_input(1, 4, 6, 8)
        parts = [relay.reshape(relay.nn.conv2d(x, normal(3, 3, 8, c, seed=c), channels=c, kernel_size=(3, 3),
                                               padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO"), shape)
                 for c, shape in ((4, (1, -1, 2)), (2, (1, -1, 2) if axis == 1 else (1, 48, -1)))]
        imported = check_region(module(relay.concatenate(relay.Tuple(parts), axis)))
        assert kinds(imported)[-1] == "Concat"

    @pytest.mark.parametrize("shapes,axis", [(((5,), (3,)), 0), (((2, 5), (2, 3)), 1), (((3, 4), (5, 4)), 0)])
    def test_ranks_1_and_2(self, shapes: tuple[tuple[int, ...], ...], axis: int) -> None:
        a, b = (int8_input(*shape, name=n) for shape, n in zip(shapes, "ab"))
        rank_2 = relay.reshape(qconcat([a, b], [(0.1, 0), (0.2, 3)], (0.1, 0), axis), (1, -1))
        count = sum(int(np.prod(s)) for s in shapes)
        pooled = relay.reshape(rank_2, (1, 1, 1, count))
        y = qconv2d(pooled, 4, (1, 1), np.random.default_rng(0), in_channels=count, zp=(0, 1))
        check_library(module(y, a, b))

    def test_a_tensor_twice(self) -> None:
        x = float_input(1, 4, 5, 5)
        y = conv(x)
        joined = relay.concatenate(relay.Tuple([y, y, x]), 1)
        assert kinds(check_region(module(conv(joined, in_channels=12)))) == ["Conv2d", "Concat", "Conv2d"]

    @pytest.mark.parametrize("factor,host", [(-0.8, []), (0.01, ["concatenate"])])
    def test_heads_of_other_ranges_are_joined_by_the_host(self, factor: float, host: list[str]) -> None:
        """As BlazeFace's scores: in one scale with the other head, the small one would be a few steps."""
        x = conv(float_input(1, 6, 6, 4), layout="NHWC")
        weight = np.random.default_rng(0).normal(size=(1, 1, 4, 2))
        heads = [relay.reshape(relay.nn.conv2d(x, const(weight * f, "float32"), channels=2, kernel_size=(1, 1),
                                               data_layout="NHWC", kernel_layout="HWIO"), (1, -1, 2))
                 for f in (factor, 1.0)]
        mod = module(relay.concatenate(relay.Tuple(heads), 1))
        inputs = random_inputs(mod)
        limit_of = [float(np.ptp(part)) / 100 for part in np.split(run(mod, inputs)[0], 2, axis=1)]
        part, report = ba.partition(mod, calibration=[inputs])
        assert host_ops(report) == host and len(report.regions) == 1, report.to_text()
        assert not host or "no operand gets a step of more than 2 times its own: " in reason(report, "concatenate")
        error = np.abs(run(part, inputs)[0] - run(mod, inputs)[0])
        for each, limit in zip(np.split(error, 2, axis=1), limit_of):
            assert each.max() <= limit

    def test_where_the_device_reads_the_result_ranges_do_not_matter(self) -> None:
        x = float_input(1, 4, 6, 6)
        parts = relay.Tuple([conv(x), relay.nn.conv2d(x, normal(4, 4, 1, 1), kernel_size=(1, 1))])
        assert kinds(check_region(module(relay.nn.relu(relay.concatenate(parts, 1))))) == [
            "Conv2d", "Conv2d", "Concat", "Unary"]

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_stored_integers_are_copied(self, layout: str) -> None:
        """`concatenate` of int8 tensors of one scale: layers, and an input that has it from the reader behind."""
        rng = np.random.default_rng(0)
        x, side = int8_input(*shaped(layout, 1, 4, 4, 4)), int8_input(*shaped(layout, 1, 4, 4, 4), name="side")
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, layout=layout, zp=(3, -7), scales=(0.05, 0.1))
        joined = relay.concatenate(relay.Tuple([side, a]), layout.index("C"))
        y = qconv2d(joined, 4, (1, 1), rng, in_channels=8, layout=layout, zp=(-7, 4), scales=(0.1, 0.1))
        assert kinds(check_region(module(y, x, side))) == ["Conv2d", "Concat", "Conv2d"]

    def test_alone_it_stays_on_the_host(self) -> None:
        a, b = float_input(1, 4, name="a"), float_input(1, 3, name="b")
        _, report = ba.partition(module(relay.concatenate(relay.Tuple([a, b]), 1), a, b))
        assert host_ops(report) == ["concatenate"]

    @pytest.mark.parametrize("form", ["constant operand", "split", "read twice", "other scale", "stored"])
    def test_what_stays_on_the_host_is_right(self, form: str) -> None:
        rng = np.random.default_rng(0)
        x = int8_input(1, 4, 4, 4)
        a = qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7), scales=(0.05, 0.1))
        pair = relay.Tuple([a, x])
        zeros = const(rng.integers(-128, 128, (1, 4, 4, 4)), "int8")
        y = {"constant operand": lambda: qconcat([a, zeros], [(0.1, -7), (0.2, 0)], (0.1, -7), 3),
             "split": lambda: relay.concatenate(relay.split(a, 2, 3), 2),
             "read twice": lambda: relay.Tuple([relay.concatenate(pair, 1), relay.stack(pair, 0)]),
             "stored": lambda: relay.concatenate(relay.Tuple(
                 [a, qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -6), scales=(0.05, 0.2))]), 3),
             "other scale": lambda: qconcat([a, x], [(0.3, -7), (0.2, 0)], (0.1, -7), 3)}[form]()
        report = check_library(module(y))
        assert len(report.regions) >= 1


class TestPad:
    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    @pytest.mark.parametrize("letters", ["HW", "C", "HWC"])
    @pytest.mark.parametrize("value", [-7, 20])
    def test_integers(self, layout: str, letters: str, value: int) -> None:
        """Behind a layer, by any value: the zero point (-7) or not."""
        widths = [{"H": (2, 1), "W": (0, 3), "C": (1, 2)}[a] if a in letters else (0, 0) for a in layout]
        a = qconv2d(int8_input(*shaped(layout, 1, 4, 4, 4)), 4, (1, 1), np.random.default_rng(0), in_channels=4,
                    layout=layout, zp=(3, -7), scales=(0.05, 0.1))
        check_region(module(relay.nn.pad(a, widths, pad_value=value)))

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_floats(self, layout: str) -> None:
        widths = [{"N": (0, 0), "H": (2, 1), "W": (0, 3), "C": (1, 2)}[a] for a in layout]
        x = float_input(*shaped(layout, 1, 4, 4, 4))
        check_region(module(relay.nn.pad(conv(x, layout=layout), widths, pad_value=0.5)))

    def test_library(self) -> None:
        """Channels as in BlazeFace: a pooled tensor widened, and added to a layer."""
        rng = np.random.default_rng(0)
        x = int8_input(1, 6, 6, 4)
        a = qconv2d(x, 8, (3, 3), rng, in_channels=4, strides=(2, 2), padding=(0, 0, 1, 1), zp=(3, -7),
                    scales=(0.05, 0.1))
        wide = relay.nn.pad(relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), [(0, 0)] * 3 + [(0, 4)], pad_value=3)
        pairs = [const(v, t) for s in ((0.1, -7), (0.05, 3), (0.12, 5)) for v, t in zip(s, ("float32", "int32"))]
        check_library(module(relay.qnn.op.add(a, wide, *pairs)), regions=1)

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_before_two_convolutions_it_is_folded_into_both(self, layout: str) -> None:
        rng = np.random.default_rng(0)
        widths = [{"N": (0, 0), "C": (0, 0), "H": (1, 2), "W": (0, 3)}[a] for a in layout]
        padded = relay.nn.pad(int8_input(*shaped(layout, 1, 6, 7, 3)), widths, pad_value=-5)
        y = relay.Tuple([qconv2d(padded, c, (3, 3), rng, in_channels=3, layout=layout, padding=(1, 0)) for c in (4, 5)])
        imported = check_region(module(y))
        qregion, _ = quantize(imported.region)
        assert [(type(n).__name__, n.padding) for n in qregion.nodes] == [("QConv", (2, 0, 3, 3))] * 2

    @pytest.mark.parametrize("form,why", [("reflect", "mode reflect"), ("batch", ""), ("1e9", "value 1e+09"),
                                          ("run time", "computed at run time")])
    def test_what_stays_on_the_host(self, form: str, why: str) -> None:
        y = conv(float_input(1, 4, 4, 4))
        widths = ((0, 0), (0, 0), (1, 1), (1, 1))
        y = {"reflect": lambda: relay.nn.pad(y, widths, pad_mode="reflect"),
             "batch": lambda: relay.nn.pad(y, ((1, 0), *widths[1:])),
             "1e9": lambda: relay.nn.pad(y, widths, pad_value=1e9),
             "run time": lambda: relay.nn.pad(y, widths, pad_value=relay.var("v", shape=()))}[form]()
        mod = module(y)
        _, report = ba.partition(mod, calibration=[random_inputs(mod)])
        assert host_ops(report) == ["nn.pad"] and why in reason(report, "nn.pad")


#: Every mode and rounding of image.resize2d that is index division for whole factors, and some that are not.
RESIZES = {("asymmetric", r): True for r in ("", "floor", "ceil", "round", "round_prefer_floor", "round_prefer_ceil")}
RESIZES |= {(m, r): r not in ("", "floor", "ceil") for m in ("half_pixel", "pytorch_half_pixel")
            for r in ("", "floor", "ceil", "round", "round_prefer_floor", "round_prefer_ceil")}
RESIZES |= {("tf_half_pixel_for_nn", r): r in ("", "floor") for r in ("", "floor", "round", "ceil")}
RESIZES |= {("align_corners", r): False for r in ("", "floor", "round")}


class TestUpsample:
    def test_every_resize_mode(self) -> None:
        """All modes in one module: those offloaded have TVM's own bytes, those that are no division stay."""
        x = int8_input(1, 5, 3, 4)
        layer = qconv2d(x, 4, (1, 1), np.random.default_rng(0), in_channels=4)
        factors = [(2, 3), (4, 1), (3, 5)]
        cases = [(case, factors[i % 3]) for i, case in enumerate(RESIZES)]
        mod = module(relay.Tuple([
            relay.image.resize2d(layer, (5 * f, 3 * g), layout="NHWC", method="nearest_neighbor",
                                 coordinate_transformation_mode=mode, rounding_method=rounding)
            for (mode, rounding), (f, g) in cases]))
        report = check_library(mod, regions=1)
        rows = [row for row in report.ops if row.op == "image.resize2d"]
        assert [bool(row.region) for row in rows] == [RESIZES[case] for case, _ in cases]

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    @pytest.mark.parametrize("form", ["upsampling", "resize2d", "repeat", "twice"])
    def test_forms(self, layout: str, form: str) -> None:
        x = conv(float_input(1, 4, 4, 4), layout=layout)
        h, w = layout.index("H"), layout.index("W")
        forms: dict[str, Callable[[], relay.Expr]] = {
            "upsampling": lambda: relay.nn.upsampling(x, 2, 3, layout),
            "resize2d": lambda: relay.image.resize2d(x, (8, 4), layout=layout, method="nearest_neighbor",
                                                     coordinate_transformation_mode="asymmetric"),
            "repeat": lambda: relay.repeat(x, 3, h),
            "twice": lambda: relay.repeat(relay.repeat(x, 2, w), 2, h)}
        imported = check_region(module(conv(forms[form](), layout=layout, seed=1)))
        assert kinds(imported) == ["Conv2d", *["Upsample"] * (2 if form == "twice" else 1), "Conv2d"]

    def test_library(self) -> None:
        rng = np.random.default_rng(0)
        x = int8_input(1, 4, 5, 3)
        small = qconv2d(x, 4, (1, 1), rng, in_channels=4, layout="NCHW", zp=(3, -7), scales=(0.05, 0.1))
        y = relay.nn.upsampling(small, 2, 2)
        check_library(module(qconv2d(y, 4, (3, 3), rng, in_channels=4, layout="NCHW", zp=(-7, 1),
                                     scales=(0.1, 0.05))), regions=1)

    @pytest.mark.parametrize("form,why", [("bilinear", "method bilinear"), ("align_corners", "align_corners"),
                                          ("fraction", "(1, 4, 4, 4) to (1, 4, 6, 6)"), ("channels", "channels")])
    def test_what_stays_on_the_host(self, form: str, why: str) -> None:
        y = conv(float_input(1, 4, 4, 4))
        y = {"bilinear": lambda: relay.nn.upsampling(y, 2, 2, method="bilinear"),
             "align_corners": lambda: relay.nn.upsampling(y, 2, 2, align_corners=True),
             "fraction": lambda: relay.nn.upsampling(y, 1.5, 1.5), "channels": lambda: relay.repeat(y, 2, 1)}[form]()
        mod = module(y)
        _, report = ba.partition(mod, calibration=[random_inputs(mod)])
        (op,) = host_ops(report)
        assert why in reason(report, op)


@pytest.mark.parametrize("move", ["concat", "pad", "upsampling", "repeat", "table"])
def test_transposes_around_a_move_are_free(move: str) -> None:
    """NHWC layers around an op on NCHW values: one region, and nothing but the layers and the op."""
    rng = np.random.default_rng(0)
    x = int8_input(1, 4, 4, 4)
    y = relay.transpose(qconv2d(x, 4, (1, 1), rng, in_channels=4, zp=(3, -7), scales=(0.05, 0.1)), (0, 3, 1, 2))
    real = relay.qnn.op.dequantize(y, const(0.1, "float32"), const(-7, "int32"))
    y, channels = {
        "concat": lambda: (qconcat([y, relay.transpose(x, (0, 3, 1, 2))], [(0.1, -7), (0.05, 3)], (0.1, -7), 1), 8),
        "pad": lambda: (relay.nn.pad(y, ((0, 0), (0, 0), (1, 2), (0, 3)), pad_value=5), 4),
        "upsampling": lambda: (relay.nn.upsampling(y, 2, 3), 4), "repeat": lambda: (relay.repeat(y, 2, 3), 4),
        "table": lambda: (relay.qnn.op.quantize(relay.tanh(real), const(0.1, "float32"), const(-7, "int32"),
                                                out_dtype="int8"), 4)}[move]()
    y = relay.transpose(y, (0, 2, 3, 1))
    imported = check_region(module(qconv2d(y, 4, (3, 3), rng, in_channels=channels, zp=(-7, 1), scales=(0.1, 0.05))))
    assert len(imported.region.nodes) == 3 and {kinds(imported)[0], kinds(imported)[2]} == {"Conv2d"}


class TestConvTranspose:
    @pytest.mark.parametrize("layout,kernel_layout", [("NCHW", "IOHW"), ("NCHW", "OIHW"), ("NHWC", "HWOI"),
                                                      ("NHWC", "HWIO")])
    def test_floats(self, layout: str, kernel_layout: str) -> None:
        """I = O = 4; bias, batch norm's scaling and relu fuse."""
        sizes = {"O": 4, "I": 4, "H": 3, "W": 2}
        x = float_input(*shaped(layout, 1, 4, 4, 4))
        y = relay.nn.conv2d_transpose(x, normal(*(sizes[a] for a in kernel_layout)), strides=(2, 3),
                                      padding=(1, 0, 0, 1), output_padding=(1, 2), channels=4, kernel_size=(3, 2),
                                      data_layout=layout, kernel_layout=kernel_layout)
        column = normal(*((4, 1, 1) if layout == "NCHW" else (4,)), seed=1)
        y = relay.nn.relu(relay.multiply(relay.nn.bias_add(y, normal(4, seed=2), axis=layout.index("C")), column))
        assert kinds(check_region(module(y))) == ["ConvTranspose2d"]

    @pytest.mark.parametrize("strides,padding,output_padding,kernel", [
        ((2, 2), (0, 0, 0, 0), (0, 0), (2, 2)), ((2, 1), (1, 0, 0, 1), (1, 0), (3, 2)),
        ((3, 2), (2, 2, 2, 2), (2, 1), (5, 4)), ((4, 3), (0, 0, 0, 0), (3, 0), (2, 3))])
    def test_integers(self, strides: tuple[int, int], padding: tuple[int, ...], output_padding: tuple[int, int],
                      kernel: tuple[int, int]) -> None:
        check_library(module(self.quantized(strides, padding, output_padding, kernel)), regions=1)

    def quantized(self, strides: tuple[int, int], padding: tuple[int, ...], output_padding: tuple[int, int],
                  kernel: tuple[int, int]) -> relay.Expr:
        rng = np.random.default_rng(0)
        weight = rng.integers(-127, 128, (4, 4, *kernel)).astype("int8")
        w_scale = rng.uniform(0.5, 1.5, 4).astype("float32") * np.float32(0.008 / np.sqrt(np.prod(kernel)))
        y = relay.qnn.op.conv2d_transpose(
            int8_input(1, 4, 5, 4), const(weight), const(-5, "int32"), const(0, "int32"), const(0.05, "float32"),
            const(w_scale), strides=strides, padding=padding, output_padding=output_padding, channels=4,
            kernel_size=kernel, kernel_layout="IOHW", out_dtype="int32")
        y = relay.nn.bias_add(y, const(rng.integers(-9000, 9000, 4), "int32"))
        y = relay.qnn.op.requantize(y, const(np.float32(0.05) * w_scale), const(0, "int32"), const(0.06, "float32"),
                                    const(7, "int32"), axis=1, out_dtype="int8")
        return relay.clip(y, -100, 110)

    @pytest.mark.parametrize("layout,kernel_layout", [("NCHW", "IOHW"), ("NHWC", "HWOI")])
    def test_groups(self, layout: str, kernel_layout: str) -> None:
        """Two groups of 2 to 3 channels, and one for each channel; against TVM. test_qdq.py has the quantized form."""
        for inputs, outputs, groups in ((4, 6, 2), (4, 4, 4)):
            sizes = {"O": outputs // groups, "I": inputs, "H": 3, "W": 2}
            y = relay.nn.conv2d_transpose(
                float_input(*shaped(layout, 1, 4, 4, inputs)), normal(*(sizes[a] for a in kernel_layout)),
                channels=outputs, kernel_size=(3, 2), strides=(2, 2), padding=(1, 0, 0, 1), data_layout=layout,
                kernel_layout=kernel_layout, groups=groups)
            assert kinds(check_region(module(y))) == ["ConvTranspose2d"]

    def test_dilation(self) -> None:
        """TVM's host cannot build it: every tap adds a shifted copy of the operand."""
        x, w = float_input(1, 4, 4, 4), np.random.default_rng(0).normal(size=(4, 4, 2, 3)).astype("float32")
        mod = module(relay.nn.conv2d_transpose(x, const(w), channels=4, kernel_size=(2, 3), strides=(2, 2),
                                               padding=(1, 0), dilation=(3, 2)))
        inputs = random_inputs(mod)
        part, report = ba.partition(mod, calibration=[inputs])
        expected = np.zeros((4, 2 * 3 + 3 + 1, 2 * 3 + 2 * 2 + 1))
        for ky, kx in np.ndindex(2, 3):
            tap = np.einsum("ihw,io->ohw", inputs["x"][0], w[..., ky, kx])
            expected[:, 3 * ky:3 * ky + 7:2, 2 * kx:2 * kx + 7:2] += tap
        imported = import_function(next(iter(external_functions(part).values())))
        compare(run_imported(imported, [inputs["x"]]), [expected[None, :, 1:-1]])
        assert not host_ops(report)

    def test_a_dilated_kernel_beyond_the_limit_stays_on_the_host(self) -> None:
        y = relay.nn.conv2d_transpose(float_input(1, 4, 4, 4), normal(4, 4, 2, 2), channels=4, kernel_size=(2, 2),
                                      dilation=(256, 1))
        _, report = ba.partition(module(y))
        assert "at most 256 rows and columns: dilation (256, 1)" in reason(report, "nn.conv2d_transpose")
