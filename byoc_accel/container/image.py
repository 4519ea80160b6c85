"""Image: the bytes of one compiled region, used in place from flash. `pack` and `unpack` are inverses."""
from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from ..emit.program import Program
from ..errors import ImageError
from ..target import FIELDS, Target
from .checks import verify_program
from .faults import fault, layout_fault
from .reader import Fields, Sections, read_header, read_program, read_sections, read_target
from .writer import build


@dataclass(frozen=True)
class Image:
    """`data` is the whole image. Parsed views are made on first use and raise ImageError on bad bytes."""

    data: bytes

    @cached_property
    def header(self) -> Fields:
        """Header fields by name, see `layout.HEADER`."""
        return read_header(self.data)

    @cached_property
    def sections(self) -> Sections:
        """Section name -> (offset, bytes)."""
        return read_sections(self.data) if self.header else {}

    @cached_property
    def target(self) -> Target:
        """The accelerator that the program was compiled for."""
        return read_target(self.data, self.header, self.sections)

    @cached_property
    def program(self) -> Program:
        """Instructions, buffers, ports and source map."""
        return read_program(self.data, self.header, self.sections)

    @property
    def name(self) -> str:
        """Name of the region."""
        return self.program.name


def digest(image: Image) -> str:
    """Identity of a program: the first 16 bytes of SHA-256 over the image bytes, as 32 hex digits."""
    return hashlib.sha256(image.data).hexdigest()[:32]


def pack(program: Program, target: Target) -> Image:
    """Image of `program`, which was made for `target`; raises ImageError on values the format cannot hold."""
    if program.target_digest != target.digest:
        raise ImageError(f"{program.name}: program is for target {program.target_digest.hex()}, not "
                         f"{target.name} ({target.digest.hex()}); compile it for that target")
    verify_program(program, target)
    return Image(build(program, target))


def unpack(data: bytes) -> tuple[Program, Target]:
    """Inverse of `pack`; raises ImageError naming the check that failed."""
    image = Image(bytes(data))
    verify(image, None)
    return image.program, image.target


def verify(image: Image, target: Target | None) -> None:
    """Check every byte: header, checksum, sections, records, padding and, if given, the target."""
    verify_program(image.program, image.target)
    if target is not None and image.target.numbers() != target.numbers():
        raise fault("WIA_E_TARGET", "section target", _difference(image.target, target))
    if build(image.program, image.target) != image.data:
        raise layout_fault("image", "reserved bytes, padding or strings differ from what pack writes")


def _difference(found: Target, expected: Target) -> str:
    numbers = zip(FIELDS, found.numbers(), expected.numbers())
    names = ", ".join(f"{f.table}.{f.key} {a} instead of {b}" for f, a, b in numbers if a != b)
    return f"compiled for {found.name}, this is {expected.name}: {names}; recompile for this target"
