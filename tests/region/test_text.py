"""to_text is the golden format; the digest knows structure and constants, not names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from byoc_accel.region.region import Add, BatchNorm, Pool, Reshape, Unary
from byoc_accel.region.text import array_digest, digest, to_text
from tests.region.build import chain, conv


def example():
    weight = np.arange(36, dtype=np.float32).reshape(4, 3, 3, 1) / 8
    norm = BatchNorm(*(np.arange(4, dtype=np.float32) + k for k in range(4)), 1e-3)
    return chain((1, 6, 6, 1), conv(weight, np.arange(4), "first", padding=(1, 1, 1, 1), batch_norm=norm, clip=(0, 6)),
                 Add("twice", "", "", ""), Unary("act", "", "", "leaky_relu", (0.1,)),
                 Pool("mean", "", "", "avg", (6, 6), (1, 1), count_include_pad=True), Reshape("flat", "", ""))


def test_golden(golden):
    golden("region/example", to_text(example()))


def test_digest_ignores_names():
    region = example()
    renamed = replace(region, name="other", nodes=tuple(replace(n, name=f"n_{n.name}") for n in region.nodes))
    assert digest(renamed) == digest(region) and to_text(renamed) != to_text(region)


def test_digest_sees_every_constant_and_attribute():
    region, first = example(), example().nodes[0]
    weight = first.weight.copy()
    weight[3, 2, 2, 0] += 1e-6 * weight[3, 2, 2, 0]
    norm = replace(first.batch_norm, epsilon=1e-4)
    variants = [replace(first, weight=weight), replace(first, bias=first.bias + 1), replace(first, clip=None),
                replace(first, batch_norm=norm), replace(first, clip=(0, 7))]
    digests = {digest(replace(region, nodes=(v, *region.nodes[1:]))) for v in variants} | {digest(region)}
    assert len(digests) == 6


def test_array_digest_is_of_values_type_and_shape():
    a = np.arange(6, dtype=np.int16)
    assert array_digest(a) == array_digest(a.astype(">i2")) == array_digest(np.repeat(a, 2)[::2])
    assert len({array_digest(v) for v in (a, a.reshape(2, 3), a.astype(np.int32), a[::-1])}) == 4
