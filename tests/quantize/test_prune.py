"""Useless channels go, output bytes stay."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.prune import prune
from byoc_accel.quantize.qregion import QConv, QRegion
from byoc_accel.quantize.verify import verify
from tests import qregions as q


def _mobile(seed: int, dead: int, unread: int) -> QRegion:
    """1x1 conv -> depthwise 3x3 -> 1x1 conv -> dense-like conv, with dead and unread channels in the first."""
    rng = np.random.default_rng(seed)
    shape = (1, 6, 6, 12)
    names = ("x", "a", "b", "c", "o")
    tensors = [q.tensor(n, shape if n != "o" else (1, 6, 6, 5), int(z)) for n, z in
               zip(names, rng.integers(-90, 90, 5))]
    c1, dw, c2, c3 = (q.conv(rng, "c1", "x", "a", (12, 1, 1, 12)),
                      q.conv(rng, "dw", "a", "b", (12, 3, 3, 1), groups=12, padding=q.SAME),
                      q.conv(rng, "c2", "b", "c", (12, 1, 1, 12)), q.conv(rng, "c3", "c", "o", (5, 1, 1, 12)))
    c1.weight[:dead] = 0
    c2.weight[..., 12 - unread:] = 0
    c3.weight[..., 3] = 0
    return q.region("mobile", tensors, [c1, dw, c2, c3], ["x"], ["o"])


def _channels(region: QRegion) -> dict[str, int]:
    return {t.name: t.shape[3] for t in region.tensors}


@pytest.mark.parametrize("dead, unread", [(0, 0), (3, 0), (0, 4), (5, 4), (12, 0), (0, 12)])
@pytest.mark.parametrize("seed", range(3))
def test_outputs_keep_every_byte(dead, unread, seed):
    region = _mobile(seed, dead, unread)
    small = prune(region)
    verify(small)
    x = np.random.default_rng(seed).integers(-128, 128, (2, 6, 6, 12)).astype(np.int8)
    assert np.array_equal(interpret(small, [x])["o"], interpret(region, [x])["o"])
    kept = _channels(small)
    assert kept["x"] == 12 and kept["o"] == 5 and kept["a"] == kept["b"]
    if dead == 0 and unread < 12:
        assert kept["c"] == 11 and kept["a"] == 12 - unread
    if unread == 12:  # everything behind is constant
        assert kept["a"] == kept["c"] == 1


def test_channel_that_is_the_zero_point_goes_through_a_padded_depthwise():
    """A channel stuck at its zero point adds nothing anywhere, borders included, so all three tensors lose it."""
    region = _mobile(0, 3, 0)
    nodes = list(region.nodes)
    nodes[0] = replace(nodes[0], bias=np.where(np.arange(12) < 3, 0, nodes[0].bias).astype(np.int32))
    region = replace(region, nodes=tuple(nodes))
    small = prune(region)
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 6, 12)).astype(np.int8)
    assert np.array_equal(interpret(small, [x])["o"], interpret(region, [x])["o"])
    assert _channels(small)["a"] == _channels(small)["b"] == 9


def test_a_tensor_that_an_add_or_the_host_reads_keeps_its_channels():
    region = q.residual_net(6, 6)
    conv = region.nodes[1]
    assert isinstance(conv, QConv)
    conv.weight[2] = 0
    assert _channels(prune(region)) == _channels(region)


def test_nothing_to_do_changes_nothing():
    region = q.residual_net(6, 6)
    small = prune(region)
    assert all(a is b for a, b in zip(small.nodes, region.nodes))
