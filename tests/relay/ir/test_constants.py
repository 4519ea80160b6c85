"""Constants are read where TVM keeps them: a model's weights are in memory once."""
from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.relay
pytest.importorskip("tvm.relay", reason="TVM with Relay is not installed")

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

from byoc_accel.relay.ir.constants import ConstantEvaluator  # noqa: E402
from tests.relay.models import const, module  # noqa: E402


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4, 5)])
def test_values_stay_in_place(dtype: str, shape: tuple[int, ...]) -> None:
    expected = np.asarray(np.random.default_rng(0).integers(0, 100, shape), dtype)
    constant = module(relay.Constant(tvm.nd.array(expected)))["main"].body
    found = ConstantEvaluator()(constant)
    assert found.dtype == expected.dtype and found.shape == shape and np.array_equal(found, expected)
    assert not found.flags.writeable
    if expected.size:
        assert found.ctypes.data == constant.data.handle.contents.data


def test_values_outlive_the_constant() -> None:
    constant = module(const(np.arange(1000), "float32"))["main"].body
    found = ConstantEvaluator()(constant)
    del constant
    tvm.nd.array(np.zeros(1000, np.float32))
    assert found.tolist() == list(range(1000))


def test_booleans_are_copied() -> None:
    constant = module(const(np.array([True, False]), "bool"))["main"].body
    assert ConstantEvaluator()(constant).tolist() == [True, False]
