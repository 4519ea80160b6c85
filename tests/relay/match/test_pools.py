"""Pooling: windows, layouts, borders and the forms that importers write, against TVM's own lowering (B31)."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

from tvm import relay  # noqa: E402

import byoc_accel.relay as ba  # noqa: E402
from tests.relay.models import (  # noqa: E402
    check_region,
    conv,
    float_input,
    module,
    reason,
    run_imported,
)


@pytest.mark.case("B31")
class TestPooling:
    """B31"""

    @pytest.mark.parametrize("include,expected", [(False, 3.0), (True, 12 / 9)])
    def test_divisor_at_the_border(self, include: bool, expected: float) -> None:
        x = float_input(1, 1, 5, 5)
        y = relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1), count_include_pad=include)
        imported = check_region(module(y))
        (found,) = run_imported(imported, [np.arange(25, dtype="float32").reshape(1, 1, 5, 5)])
        assert found[0, 0, 0, 0] == pytest.approx(expected)

    def test_ceil_mode_with_overhang(self) -> None:
        """7 wide, kernel 2, stride 3: the last window covers one element and divides by 1."""
        x = float_input(1, 1, 1, 7)
        y = relay.nn.avg_pool2d(x, (1, 2), (1, 3), ceil_mode=True)
        imported = check_region(module(y))
        (found,) = run_imported(imported, [np.arange(7, dtype="float32").reshape(1, 1, 1, 7)])
        assert found.reshape(-1).tolist() == [0.5, 3.5, 6.0]

    def test_ceil_mode_that_counts_padding_stays_on_the_host(self) -> None:
        y = relay.nn.avg_pool2d(float_input(1, 1, 1, 7), (1, 2), (1, 3), ceil_mode=True, count_include_pad=True)
        _, report = ba.partition(module(y))
        assert "beyond the padded input" in reason(report, "nn.avg_pool2d")

    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    @pytest.mark.parametrize("ceil_mode", [False, True])
    def test_max_pool(self, layout: str, ceil_mode: bool) -> None:
        """Padding is -128, below every value."""
        shape = (1, 3, 9, 7) if layout == "NCHW" else (1, 9, 7, 3)
        x = relay.var("x", shape=shape, dtype="int8")
        y = relay.nn.max_pool2d(x, (3, 2), (2, 3), padding=(1, 0, 0, 1), layout=layout, ceil_mode=ceil_mode)
        check_region(module(y))

    @pytest.mark.case("S3")
    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    @pytest.mark.parametrize("form", ["avg_pool2d", "padded", "included", "global", "mean", "mean keep"])
    def test_average_between_casts(self, layout: str, form: str) -> None:
        """Sums of stored integers, divided toward zero; 25 x 5 as in S3."""
        shape = (1, 3, 25, 5) if layout == "NCHW" else (1, 25, 5, 3)
        axes = [2, 3] if layout == "NCHW" else [1, 2]
        x = relay.cast(relay.var("x", shape=shape, dtype="int8"), "int32")
        y = {"avg_pool2d": lambda: relay.nn.avg_pool2d(x, (25, 5), (1, 1), layout=layout),
             "padded": lambda: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1), layout=layout),
             "included": lambda: relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1), layout=layout,
                                                     count_include_pad=True),
             "global": lambda: relay.nn.global_avg_pool2d(x, layout=layout),
             "mean": lambda: relay.mean(x, axes), "mean keep": lambda: relay.mean(x, axes, keepdims=True)}[form]()
        imported = check_region(module(relay.cast(y, "int8")))
        assert imported.region.nodes[0].raw

    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    @pytest.mark.parametrize("form", ["avg", "max", "global avg", "global max", "mean", "adaptive"])
    def test_float_pools(self, layout: str, form: str) -> None:
        shape = (1, 4, 6, 6) if layout == "NCHW" else (1, 6, 6, 4)
        axes = [2, 3] if layout == "NCHW" else [1, 2]
        x = conv(float_input(*shape), layout=layout)
        y = {"avg": lambda: relay.nn.avg_pool2d(x, (3, 2), (2, 2), padding=(0, 1), layout=layout),
             "max": lambda: relay.nn.max_pool2d(x, (3, 2), (2, 2), padding=(0, 1), layout=layout),
             "global avg": lambda: relay.nn.global_avg_pool2d(x, layout=layout),
             "global max": lambda: relay.nn.global_max_pool2d(x, layout=layout),
             "mean": lambda: relay.mean(x, axes),
             "adaptive": lambda: relay.nn.adaptive_avg_pool2d(x, (1, 1), layout=layout)}[form]()
        check_region(module(y))

    @pytest.mark.parametrize("form", ["max", "adaptive avg", "adaptive max", "adaptive avg 1-D", "adaptive max 1-D"])
    def test_reductions_and_adaptive_pools(self, form: str) -> None:
        """To one position and to several that divide the size."""
        x, row = float_input(1, 4, 6, 4), float_input(1, 4, 6)
        y = {"max": lambda: relay.max(x, [2, 3], keepdims=True),
             "adaptive avg": lambda: relay.nn.adaptive_avg_pool2d(x, (3, 2)),
             "adaptive max": lambda: relay.nn.adaptive_max_pool2d(x, (2, 4)),
             "adaptive avg 1-D": lambda: relay.nn.adaptive_avg_pool1d(row, 3),
             "adaptive max 1-D": lambda: relay.nn.adaptive_max_pool1d(row, 1)}[form]()
        check_region(module(y))

    def test_adaptive_pools_of_uneven_windows_stay_on_the_host(self) -> None:
        _, report = ba.partition(module(relay.nn.adaptive_avg_pool2d(float_input(1, 4, 7, 4), (3, 2))))
        assert "does not divide" in reason(report, "nn.adaptive_avg_pool2d")

    def test_one_dimensional(self) -> None:
        check_region(module(relay.nn.max_pool1d(float_input(1, 4, 9), (3,), (2,), padding=(1, 0))))
        check_region(module(relay.nn.avg_pool1d(float_input(1, 4, 9), (3,), (2,), padding=(1, 1))))

    def test_mean_over_other_axes_stays_on_the_host(self) -> None:
        _, report = ba.partition(module(relay.mean(float_input(1, 4, 6, 6), [1])))
        assert "height and width" in reason(report, "mean")

    def test_window_in_the_padding(self) -> None:
        y = relay.nn.max_pool2d(float_input(1, 2, 4, 4), (1, 1), (1, 1), padding=(1, 1))
        _, report = ba.partition(module(y))
        assert "padding" in reason(report, "nn.max_pool2d")
