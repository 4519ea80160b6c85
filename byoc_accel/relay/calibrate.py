"""Calibration inputs of the model -> inputs of every float region, as the unpartitioned model computes them."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tvm
from tvm import relay

from ..errors import QuantizeError
from ..quantize.calibration import NOISE_SAMPLES, NOISE_SEED
from ..quantize.checks import require_finite
from . import host
from .graph import Graph, tensor_type
from .regions import Group

Sample = dict[str, np.ndarray]


def check_samples(function: relay.Function, calibration: Iterable[Mapping[str, np.ndarray]]) -> list[Sample]:
    """The samples as arrays of the inputs' dtypes.

    Raises QuantizeError for missing and unknown names, wrong shapes, values that are not finite or do not fit
    the input's dtype, and for an empty set.
    """
    expected = {v.name_hint: tensor_type(v) for v in function.params}
    samples = [_sample(index, sample, expected) for index, sample in enumerate(calibration)]
    if not samples:
        raise QuantizeError("the calibration set is empty; give at least one sample, or none at all")
    return samples


def _sample(index: int, sample: Mapping[str, np.ndarray], expected: Mapping[str, tuple]) -> Sample:
    where = f"calibration sample {index}"
    if not isinstance(sample, Mapping) or set(sample) != set(expected):
        given = ", ".join(map(repr, sample)) if isinstance(sample, Mapping) else f"a {type(sample).__name__}"
        wanted = ", ".join(f"{name!r} {dtype} {shape}" for name, (shape, dtype) in expected.items())
        raise QuantizeError(f"{where}: holds {given or 'nothing'}; the model's inputs are {wanted}")
    return {name: _array(f"{where}: input {name!r}", sample[name], *expected[name]) for name in expected}


def _array(where: str, value: object, shape: tuple[int | None, ...], dtype: str) -> np.ndarray:
    array = np.asarray(value.numpy() if isinstance(value, tvm.nd.NDArray) else value)
    fits = len(array.shape) == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape))
    if not fits or array.dtype.kind not in "fiub":
        raise QuantizeError(f"{where} is {array.dtype} {array.shape}; give {dtype} {shape}")
    require_finite(where, array)
    with np.errstate(over="ignore", under="ignore"):
        converted = array.astype(dtype)
    if dtype.startswith("float"):
        require_finite(f"{where} as {dtype}", converted)
    elif (converted != array).any():
        raise QuantizeError(f"{where} holds values that {dtype} does not have; give {dtype} {shape}")
    return converted


def noise(function: relay.Function) -> list[Sample]:
    """Seeded stand-ins for calibration inputs: Gaussian noise of mean 0 and variance 1 (integers: 0 and 1)."""
    rng = np.random.default_rng(NOISE_SEED)
    samples = []
    for _ in range(NOISE_SAMPLES):
        sample = {}
        for variable in function.params:
            shape, dtype = tensor_type(variable)
            sizes = [1 if d is None else d for d in shape]
            draw = rng.standard_normal(sizes) if dtype.startswith("float") else rng.integers(0, 2, sizes)
            sample[variable.name_hint] = np.asarray(draw, dtype)
        samples.append(sample)
    return samples


def region_samples(module: tvm.IRModule, function: relay.Function, graph: Graph, groups: Sequence[Group],
                   samples: Sequence[Sample]) -> list[list[list[np.ndarray]]]:
    """For every group, for every sample: the host arrays of its inputs. Raises HostError.

    TVM runs the model only when an input is computed by it.
    """
    names = {node.index: node.expr.name_hint for node in graph.nodes if node.op == "var"}
    computed = sorted({i for group in groups for i in group.inputs if i not in names})
    values: list[dict[int, np.ndarray]] = [{i: s[name] for i, name in names.items()} for s in samples]
    if computed:
        body = relay.Tuple([graph.nodes[i].expr for i in computed])
        needed = {v.name_hint for v in relay.analysis.free_vars(body)}
        probe = relay.Function([v for v in function.params if v.name_hint in needed], body)
        inputs = ({name: s[name] for name in s if name in needed} for s in samples)
        for known, outputs in zip(values, host.run(probe, module, inputs)):
            known.update(zip(computed, outputs))
    return [[[known[i] for i in group.inputs] for known in values] for group in groups]
