"""Calibration samples: host arrays -> checked device arrays, stacked into batches; noise where there are none."""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Union

import numpy as np

from ..errors import QuantizeError
from ..region import geometry
from ..region.ports import to_device
from ..region.region import Port, Region
from .checks import require_finite

Sample = Union[Mapping[str, np.ndarray], Sequence[np.ndarray]]
DeviceSample = dict[str, np.ndarray]  # float32 NHWC by tensor name

BATCH_BYTES = 256 << 20  # all float64 activations of one stacked batch
NOISE_SAMPLES = 8
NOISE_SEED = 0


class CalibrationWarning(UserWarning):
    """Activation ranges are guesses, because no calibration inputs were given."""


def device_samples(region: Region, calibration: Iterable[Sample]) -> list[DeviceSample]:
    """Check every sample and bring it into the device layout.

    A sample holds one array per input in its host layout (`Port.host_shape`): a list in the order of
    `region.inputs`, or a dict by tensor name. Raises QuantizeError, naming sample and input, for a missing
    array, a wrong shape, NaN or infinity, and for an empty set.
    """
    samples = []
    for index, sample in enumerate(calibration):
        where = f"{region.name}: calibration sample {index}"
        if not isinstance(sample, Mapping):
            if len(sample) != len(region.inputs):
                raise QuantizeError(f"{where}: {len(sample)} arrays; give one for each of {len(region.inputs)} inputs")
            sample = {port.tensor: array for port, array in zip(region.inputs, sample)}
        samples.append({port.tensor: _device_array(where, region, port, sample) for port in region.inputs})
    if not samples:
        raise QuantizeError(f"{region.name}: the calibration set is empty; give at least one sample, or none at all")
    return samples


def _device_array(where: str, region: Region, port: Port, sample: Mapping[str, np.ndarray]) -> np.ndarray:
    if port.tensor not in sample:
        raise QuantizeError(f"{where}: no array for input {port.tensor!r}; it has {', '.join(sorted(sample))}")
    array = np.asarray(sample[port.tensor])
    if array.shape != tuple(port.host_shape) or array.dtype.kind not in "fiub":
        raise QuantizeError(f"{where}: input {port.tensor!r} is {array.dtype} {array.shape}; "
                            f"give float32 {tuple(port.host_shape)}")
    require_finite(f"{where}: input {port.tensor!r}", array)
    with np.errstate(over="ignore", under="ignore"):
        device = to_device(port, region.tensor(port.tensor).shape, array).astype(np.float32)
    require_finite(f"{where}: input {port.tensor!r} as float32", device)
    return device


def noise_samples(region: Region) -> list[DeviceSample]:
    """Seeded Gaussian noise of unit variance: half of the samples white, half smooth (5x5 box) as images are."""
    rng = np.random.default_rng(NOISE_SEED)
    samples = []
    for index in range(NOISE_SAMPLES):
        sample = {}
        for port in region.inputs:
            n, h, w, c = region.tensor(port.tensor).shape
            noise = rng.standard_normal((n, h + 4, w + 4, c))
            smooth = geometry.pool_sum(noise, (5, 5), (1, 1), (0, 0, 0, 0)) / 5.0
            sample[port.tensor] = (smooth if index % 2 else noise[:, 2:-2, 2:-2]).astype(np.float32)
        samples.append(sample)
    return samples


def stacked(region: Region, samples: Sequence[DeviceSample]) -> Iterator[tuple[int, DeviceSample]]:
    """Batches of samples joined along the batch axis, each with the index of its first sample."""
    step = max(1, BATCH_BYTES // sample_bytes(region))
    for first in range(0, len(samples), step):
        group = samples[first:first + step]
        yield first, {name: np.concatenate([s[name] for s in group]) for name in group[0]}


def sample_bytes(region: Region) -> int:
    """What all activations of one sample take in float64."""
    return sum(8 * math.prod(t.shape) for t in region.tensors)
