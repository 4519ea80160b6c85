"""The glue inside of TVM: loaded as a library, with TVM's error texts and strings."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.target import load_target
from tests.runtime_c import building, images

pytestmark = pytest.mark.relay


@pytest.fixture(scope="module")
def library(c_folder: Path):
    """A library of one region, linked from its object and the glue, loaded by TVM."""
    import tvm

    from byoc_accel.relay.codegen.glue import build_region_object

    image = images.conv_image(load_target("tiny"), dtype="float32", nchw=True)
    folder = c_folder / "region"
    folder.mkdir()
    (folder / "conv.o").write_bytes(build_region_object("wia_conv", image.data, folder))
    sources = [*building.CORE, "runtime_c/hal/hal_sim.c", *building.SIMULATOR, *building.TVM]
    made = building.objects(c_folder / "glue", sources, ["-std=gnu11", "-fPIC", "-fvisibility=hidden", "-O2"])
    building.run_cc(["-shared", str(folder / "conv.o"), *made, "-o", str(folder / "conv.so")])
    return tvm.runtime.load_module(str(folder / "conv.so"))


def arrays(seed: int = 0):
    import tvm

    x = np.random.default_rng(seed).normal(0, 3, (1, images.CHANNELS, 2, 3)).astype(np.float32)
    return x, tvm.nd.array(x), tvm.nd.array(np.full((1, images.OUT, 2, 3), 9, np.float32))


def test_call(library) -> None:
    x, given, result = arrays()
    library["wia_conv"](given, result)
    q = np.clip(np.trunc(x / np.float32(0.05) + np.copysign(0.5, x)) - 7, -128, 127).astype(np.int8)
    expected = images.conv_result(q.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(result.numpy(), (expected.astype(np.int32) - 3).astype(np.float32) * np.float32(0.1))


def test_error_text_reaches_python(library) -> None:
    import tvm

    _, given, result = arrays()
    with pytest.raises(tvm.TVMError, match=r'run: region "conv": argument 0 "x" is float32 \(1, 3, 2, 3\), expected '
                                           r"float32 \(1, 5, 2, 3\): WIA_E_SHAPE"):
        library["wia_conv"](result, given)
    with pytest.raises(tvm.TVMError, match="1 arguments, expected 1 inputs and 1 outputs"):
        library["wia_conv"](given)
    assert np.array_equal(result.numpy(), np.full((1, images.OUT, 2, 3), 9))


def test_statistics_are_a_string(library) -> None:
    library["wia_tvm_reset_stats"]()
    _, given, result = arrays()
    library["wia_conv"](given, result)
    text = library["wia_tvm_stats"]()
    assert isinstance(text, str)
    stats = json.loads(str(text))
    assert stats["runs"] == 1 and stats["cycles"] > 0 and stats["regions"][0]["name"] == "conv"
