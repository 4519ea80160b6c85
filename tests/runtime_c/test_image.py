"""Records that Python refuses to pack, written all the same: the C loader refuses them, too."""
from __future__ import annotations

import pytest

from byoc_accel import runtime
from byoc_accel.container.writer import build
from byoc_accel.errors import ImageError
from tests.container.test_image import BAD, TINY

#: What no bytes can say.
UNWRITABLE = {"zero byte in a name", "surrogate in a name", "too long names", "negative macs", "unknown buffer kind",
              "negative buffer", "unknown data type", "nine axes", "short perm"}


@pytest.mark.parametrize("name", BAD)
def test_bad_records(name: str) -> None:
    try:
        data = build(BAD[name], TINY)
    except (ImageError, KeyError, ValueError):
        assert name in UNWRITABLE
        return
    assert name not in UNWRITABLE
    with pytest.raises(ImageError) as info:
        runtime.check_image(data)
    assert "WIA_E_LAYOUT" in str(info.value) and "\n" not in str(info.value)
