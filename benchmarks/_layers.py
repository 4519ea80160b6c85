"""Whether a simulated program equals the meaning of its quantized region, layer by layer."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from byoc_accel.emit.emit import emit
from byoc_accel.emit.verify import verify as verify_program
from byoc_accel.quantize.interpret import interpret
from byoc_accel.quantize.prune import prune
from byoc_accel.quantize.qregion import QRegion
from byoc_accel.region.region import INT8, Port
from byoc_accel.schedule.schedule import schedule
from byoc_accel.schedule.verify import verify as verify_plan
from byoc_accel.sim import simulate_program
from byoc_accel.target import Target

NHWC = (0, 1, 2, 3)


def every_tensor_an_output(qregion: QRegion) -> QRegion:
    """The same region, which keeps the result of every node: nothing fuses into a convolution that way."""
    outputs = tuple(Port(t.name, t.shape, INT8, NHWC) for t in (qregion.by_name()[n.y] for n in qregion.nodes))
    return replace(qregion, outputs=outputs)


def random_input(qregion: QRegion, seed: int = 0) -> list[np.ndarray]:
    """Full-range int8 arrays for the inputs."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, qregion.by_name()[p.tensor].shape).astype(np.int8) for p in qregion.inputs]


def different_layers(qregion: QRegion, target: Target, inputs: Sequence[np.ndarray]) -> list[str]:
    """Names of tensors whose simulated bytes are not those of `interpret`, all layers kept; () when all are equal."""
    return _different(every_tensor_an_output(qregion), target, inputs, interpret(qregion, inputs))


def different_outputs(qregion: QRegion, target: Target, inputs: Sequence[np.ndarray]) -> list[str]:
    """The same for the region's own outputs, compiled as it is."""
    return _different(prune(qregion), target, inputs, interpret(qregion, inputs))


def _different(qregion: QRegion, target: Target, inputs: Sequence[np.ndarray],
               expected: dict[str, np.ndarray]) -> list[str]:
    plan = schedule(qregion, target)
    verify_plan(plan, target)
    program = emit(plan, target)
    verify_program(program, target)  # no image: it holds at most 64 inputs and outputs
    named = {port.tensor: array for port, array in zip(qregion.inputs, inputs)}
    outputs, _ = simulate_program(program, target, named, fill="noise")
    missing = [port.tensor for port in qregion.outputs if port.tensor not in outputs]
    return missing + [name for name, array in outputs.items() if not np.array_equal(array, expected[name])]
