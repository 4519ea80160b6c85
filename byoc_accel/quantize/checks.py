"""Values that no int8 form can stand for: NaN and infinities in constants or data, and degenerate batch norms."""
from __future__ import annotations

import numpy as np

from ..errors import QuantizeError
from ..region.region import Conv2d, ConvTranspose2d, Region


def require_finite(where: str, array: np.ndarray) -> None:
    """Raise QuantizeError naming `where`, the first index and its value when `array` holds NaN or infinity."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    bad = np.argwhere(~np.isfinite(array))
    index = tuple(int(i) for i in bad[0])
    raise QuantizeError(f"{where}[{', '.join(map(str, index))}] is {array[index]} ({len(bad)} such values); "
                        "only finite values can be quantized, fix the model or the data")


def require_finite_constants(region: Region) -> None:
    """Check weight, bias and batch norm of every layer; QuantizeError names layer, index and value."""
    for node in region.nodes:
        if not isinstance(node, (Conv2d, ConvTranspose2d)):
            continue
        where = f"{region.name}: {type(node).__name__.lower()} {node.name!r}"
        for name in ("weight", "bias", "weight_scale", "acc_scale"):
            if getattr(node, name) is not None:
                require_finite(f"{where}: {name}", getattr(node, name))
        if node.batch_norm is not None:
            for name in ("gamma", "beta", "mean", "variance"):
                require_finite(f"{where}: batch norm {name}", getattr(node.batch_norm, name))
            _require_variance(where, node)


def _require_variance(where: str, node: Conv2d | ConvTranspose2d) -> None:
    norm = node.batch_norm
    total = norm.variance.astype(np.float64) + norm.epsilon
    if (total <= 0).any():
        c = int(np.flatnonzero(total <= 0)[0])
        raise QuantizeError(f"{where}: batch norm variance[{c}] is {norm.variance[c]} with epsilon {norm.epsilon}; "
                            "their sum must be above 0")
