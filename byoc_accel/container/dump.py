"""Readable listing of an image, and the search for images inside of a library file."""
from __future__ import annotations

from collections.abc import Iterator

from ..emit.program import HostPort, Program
from ..errors import EncodeError, ImageError
from ..isa import asm
from ..isa.encode import decode
from ..target import FIELDS, Target
from . import layout
from .image import Image, digest
from .reader import read_header


def to_text(image: Image, instructions: bool = True) -> str:
    """Header, target, sections, buffers, ports, source map and, unless told otherwise, every instruction."""
    program = image.program
    parts = [_head(image), _target(image.target), _sections(image), _buffers(program), _ports(program),
             _layers(program)]
    if instructions:
        parts.append(_instructions(program))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def find_images(blob: bytes) -> list[tuple[int, Image]]:
    """(offset, Image) of every undamaged image in a file's bytes; images start at multiples of 64 bytes."""
    return [(at, found) for at, found in _search(blob) if isinstance(found, Image)]


def damaged_images(blob: bytes) -> list[tuple[int, ImageError]]:
    """(offset, what is wrong) of every header in a file's bytes that is no whole image of this version."""
    return [(at, found) for at, found in _search(blob) if isinstance(found, ImageError)]


def _search(blob: bytes) -> Iterator[tuple[int, Image | ImageError]]:
    at = blob.find(layout.MAGIC)
    while at >= 0:
        found = _image_at(blob, at) if at % layout.IMAGE_ALIGNMENT_BYTES == 0 else None
        if found is not None:
            yield at, found
        at = blob.find(layout.MAGIC, at + (len(found.data) if isinstance(found, Image) else 1))


def _image_at(blob: bytes, at: int) -> Image | ImageError | None:
    """What stands behind the magic bytes at `at`; None when they are there by chance, as in the runtime's own code."""
    size, header_bytes = (int.from_bytes(blob[at + f.offset:at + f.offset + f.bytes], "little")
                          for name in ("total_bytes", "header_bytes") for f in layout.HEADER.fields if f.name == name)
    if header_bytes != layout.HEADER.bytes:
        return None
    data = blob[at:at + size]
    try:
        read_header(data)
    except ImageError as error:
        return error
    return Image(data)


def _head(image: Image) -> list[str]:
    header = image.header
    return [f"image {image.name}",
            f"  digest   {digest(image)}",
            f"  format   {header['format_version']}, instruction set {header['isa_version']}",
            f"  bytes    {header['total_bytes']}, crc32 {header['crc32']:#010x}"]


def _target(target: Target) -> list[str]:
    lines = [f"target {target.name}", f"  digest   {target.digest.hex()}"]
    for table in dict.fromkeys(f.table for f in FIELDS):
        numbers = " ".join(f"{f.key}={getattr(target, f.name)}" for f in FIELDS if f.table == table)
        lines.append(f"  {table:<12}{numbers}")
    return lines


def _sections(image: Image) -> list[str]:
    return ["sections"] + [f"  {name:<12}offset {offset:>8}  bytes {size:>8}"
                           for name, (offset, size) in image.sections.items()]


def _buffers(program: Program) -> list[str]:
    return ["buffers"] + [f"  {index:>3}  {b.kind:<8}{b.bytes:>10} bytes  {b.name}"
                          for index, b in enumerate(program.buffers)]


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _port(host: HostPort, program: Program) -> str:
    port = host.port
    text = (f"  {program.buffers[host.buffer].kind:<8}{port.host_dtype:<8} {_shape(port.host_shape)}"
            f"  device {_shape(host.device_shape)} perm {''.join(map(str, port.perm))} buffer {host.buffer}")
    if port.host_dtype == "float32":
        text += f" scale {host.scale!r} zero point {host.zero_point}"
    return f"{text}  {port.tensor}"


def _ports(program: Program) -> list[str]:
    return ["ports"] + [_port(host, program) for host in program.ports]


def _layers(program: Program) -> list[str]:
    return ["layers"] + [f"  {x.start:>8} {x.end:>8}  {x.macs:>12} MACs {x.weight_bytes:>9} weight bytes  "
                         f"{x.kind} {x.name}" for x in program.layers]


def _instructions(program: Program) -> list[str]:
    lines = ["program"]
    starts: dict[int, list[str]] = {}
    for layer in program.layers:
        starts.setdefault(layer.start, []).append(f"  {layer.kind} {layer.name}:")
    at = 0
    depth = 0
    while at < len(program.code):
        lines += starts.get(at, [])
        try:
            inst, size = decode(program.code, at)
        except EncodeError as error:
            return [*lines, f"  {at:>8}  {error}"]
        depth -= inst.mnemonic == "endl"
        lines.append(f"  {at:>8}  {'  ' * max(depth, 0)}{asm.to_text(inst, full=False)}")
        depth += inst.mnemonic == "loop"
        at += size
    return lines
