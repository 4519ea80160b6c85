"""Calibration inputs of the model -> inputs of every float region, as the unpartitioned model computes them."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tvm
from tvm import relay

from ...errors import QuantizeError
from ...quantize import fixedpoint
from ...quantize.calibration import NOISE_SAMPLES, NOISE_SEED, device_samples, stacked
from ...quantize.checks import require_finite
from ...quantize.interpret import interpret as interpret_qregion
from ...quantize.qregion import QRegion
from ...region.interpret import interpret as interpret_region
from ...region.ports import to_device, to_host
from ...region.region import INT8, Port, Region
from .. import host
from ..ir.graph import Graph, tensor_type
from ..ir.rewrite import rebuild
from .groups import Group

Sample = dict[str, np.ndarray]


def check_samples(function: relay.Function, calibration: Iterable[Mapping[str, np.ndarray]]) -> list[Sample]:
    """The samples as arrays of the inputs' dtypes.

    Raises QuantizeError for what is no iterable, missing and unknown names, wrong shapes, values that are not finite
    or do not fit the input's dtype, and for an empty set.
    """
    if not isinstance(calibration, Iterable):
        raise QuantizeError(f"calibration is a {type(calibration).__name__}; give an iterable of dicts of model inputs")
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


class Trace:
    """Values of a graph's nodes for every sample, filled in from the inputs onwards.

    Regions are computed in NumPy, so that TVM compiles only what stays on the host.
    """

    def __init__(self, module: tvm.IRModule, graph: Graph, samples: Sequence[Sample]):
        self.module, self.graph = module, graph
        self.values: list[dict[int, np.ndarray]] = [
            {n.index: s[n.expr.name_hint] for n in graph.nodes if n.op == "var"} for s in samples]

    def inputs(self, group: Group) -> list[list[np.ndarray]]:
        """For every sample, the host arrays of the inputs of `group`; the regions before it must be recorded.

        Raises HostError when TVM cannot build what lies between.
        """
        missing = [i for i in group.inputs if i not in self.values[0]]
        if missing:
            function, known = self._between(missing)
            samples = ({f"n{i}": values[i] for i in known} for values in self.values)
            for values, outputs in zip(self.values, host.run(function, self.module, samples)):
                values.update(zip(missing, outputs))
        return [[values[i] for i in group.inputs] for values in self.values]

    def record(self, group: Group, outputs: Sequence[Sequence[np.ndarray]]) -> None:
        """Note the outputs of `group`, for every sample in argument order."""
        for values, arrays in zip(self.values, outputs):
            values.update(zip(group.outputs, arrays))

    def _between(self, missing: Sequence[int]) -> tuple[relay.Function, list[int]]:
        """A function from known nodes to `missing` ones, and the known nodes in the order of its parameters n<i>."""
        reached: set[int] = set()
        stack = list(missing)
        while stack:
            index = stack.pop()
            if index not in reached:
                reached.add(index)
                stack += [] if index in self.values[0] else self.graph.nodes[index].inputs
        known = sorted(reached & set(self.values[0]))
        copies = {i: relay.Var(f"n{i}", self.graph.nodes[i].expr.checked_type) for i in known}
        for index in sorted(reached - set(known)):
            node = self.graph.nodes[index]
            copies[index] = rebuild(node.expr, [copies[i] for i in node.inputs])
        body = relay.Tuple([copies[i] for i in missing])
        return relay.Function([copies[i] for i in known], body), known


def float_outputs(region: Region, samples: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Host arrays that the float `region` gives for each sample of host arrays, before any quantization."""
    out: list[list[np.ndarray]] = []
    for _, batch in stacked(region, device_samples(region, samples)):
        values = interpret_region(region, batch)
        out += _split(region.outputs, [values[p.tensor].astype(np.float32) for p in region.outputs],
                      [region.tensor(p.tensor).shape[0] for p in region.outputs])
    return out


def integer_outputs(qregion: QRegion, samples: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Host arrays that `qregion` gives for each sample of host arrays."""
    tensors = qregion.by_name()
    columns = []
    for position, port in enumerate(qregion.inputs):
        tensor = tensors[port.tensor]
        device = np.concatenate([to_device(port, tensor.shape, s[position]) for s in samples])
        if port.host_dtype != INT8:
            device = fixedpoint.quantize_real(device, tensor.scale, tensor.zero_point)
        columns.append(device)
    values = interpret_qregion(qregion, columns)
    results = []
    for port in qregion.outputs:
        tensor, array = tensors[port.tensor], values[port.tensor]
        as_float = port.host_dtype != INT8
        results.append(fixedpoint.dequantize(array, tensor.scale, tensor.zero_point) if as_float else array)
    return _split(qregion.outputs, results, [tensors[p.tensor].shape[0] for p in qregion.outputs])


def _split(ports: Sequence[Port], arrays: Sequence[np.ndarray], batches: Sequence[int]) -> list[list[np.ndarray]]:
    """Stacked device arrays, one per port -> for every sample, the host arrays of the ports."""
    parts = [np.split(array, len(array) // batch) for array, batch in zip(arrays, batches)]
    return [[to_host(port, device) for port, device in zip(ports, sample)] for sample in zip(*parts)]
