"""What must hold between the records of an image; emit/verify and the C runtime check the instructions."""
from __future__ import annotations

from math import prod

from ..emit.program import BUFFER_KINDS, HostPort, Program
from ..target import Target
from . import layout
from .faults import layout_fault

#: Scales must be positive, normal float32 numbers, so that the host can divide by them.
MIN_SCALE = 2.0 ** -126
MAX_SCALE = 2.0 ** 127


def verify_program(program: Program, target: Target) -> None:
    """Buffers, ports, source map and code length fit each other; raises ImageError otherwise."""
    _verify_counts(program, target.memory_max_external_bytes)
    for index, port in enumerate(program.ports):
        _verify_port(index, port, program)
    _verify_port_order(program)
    _verify_layers(program)


def _verify_counts(program: Program, max_buffer_bytes: int) -> None:
    for name, count, limit in (("buffers", len(program.buffers), layout.MAX_BUFFERS),
                               ("ports", len(program.ports), layout.MAX_PORTS),
                               ("layers", len(program.layers), layout.MAX_LAYERS)):
        if count > limit:
            raise layout_fault(f"section {name}", f"{count} records, at most {limit}")
    for index, buffer in enumerate(program.buffers):
        if buffer.kind not in BUFFER_KINDS:
            raise layout_fault(f"buffer {index} {buffer.name!r}", f"kind {buffer.kind!r}")
        if not 1 <= buffer.bytes <= max_buffer_bytes:
            raise layout_fault(f"buffer {index} {buffer.name!r}", f"{buffer.bytes} bytes, 1 to {max_buffer_bytes}")
    if not program.code or len(program.code) % 4:
        raise layout_fault("section program", f"{len(program.code)} bytes, expected whole 32-bit words")


def _verify_port(index: int, host: HostPort, program: Program) -> None:
    where = f"port {index} {host.port.tensor!r}"
    if not 0 <= host.buffer < len(program.buffers) or program.buffers[host.buffer].kind == "scratch":
        raise layout_fault(where, f"buffer {host.buffer} is no input or output")
    if host.port.host_dtype not in layout.DTYPES:
        raise layout_fault(where, f"data type {host.port.host_dtype!r}, known are {', '.join(layout.DTYPES)}")
    if len(host.port.host_shape) > layout.MAX_RANK or len(host.device_shape) != 4:
        raise layout_fault(where, f"host shape {host.port.host_shape}, device shape {host.device_shape}; at most "
                           f"{layout.MAX_RANK} host axes and exactly 4 device axes")
    if sorted(host.port.perm) != [0, 1, 2, 3]:
        raise layout_fault(where, f"perm {host.port.perm} is no permutation of (0, 1, 2, 3)")
    size = program.buffers[host.buffer].bytes
    if prod(host.device_shape) != size or prod(host.port.host_shape) != size:
        raise layout_fault(where, f"host shape {host.port.host_shape}, device shape {host.device_shape} and "
                           f"{size} buffer bytes differ")
    if not -128 <= host.zero_point <= 127:
        raise layout_fault(where, f"zero point {host.zero_point} is no int8")
    if not MIN_SCALE <= host.scale < MAX_SCALE:
        raise layout_fault(where, f"scale {host.scale} is no positive, normal float32")


def _verify_port_order(program: Program) -> None:
    kinds = [program.buffers[p.buffer].kind for p in program.ports]
    if kinds != sorted(kinds, key=BUFFER_KINDS.index) or "output" not in kinds:
        raise layout_fault("section ports", "inputs must come first, then at least one output")
    bound = [p.buffer for p in program.ports]
    for index, buffer in enumerate(program.buffers):
        count = bound.count(index)
        if (buffer.kind == "input" and count != 1) or (buffer.kind == "output" and count < 1):
            raise layout_fault(f"buffer {index} {buffer.name!r}", f"{count} ports for this {buffer.kind}")


def _verify_layers(program: Program) -> None:
    end = 0
    for index, layer in enumerate(program.layers):
        if layer.start != end or layer.end < layer.start:
            raise layout_fault(f"layer {index} {layer.name!r}",
                               f"program bytes {layer.start} to {layer.end}, expected to start at {end}")
        end = layer.end
    if end != len(program.code):
        raise layout_fault("section layers", f"spans end at {end}, the program at {len(program.code)}")
