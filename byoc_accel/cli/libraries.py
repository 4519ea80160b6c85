"""Images and the model record inside a library file."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..container.dump import damaged_images, find_images
from ..container.image import Image
from ..errors import ModelError
from ..modelinfo import ModelInfo, unpack


@dataclass(frozen=True)
class Library:
    """`info` is None for a library that was not made by byoc-accel compile, or was stripped."""

    images: tuple[Image, ...]
    info: ModelInfo | None


def read_library(path: Path) -> Library:
    """Find everything of ours in a file; raises ModelError when there is nothing, or a part of it is unusable."""
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    for at, error in damaged_images(blob):
        raise ModelError(f"{path}: the image at byte {at} is unusable: {error}")
    library = Library(tuple(image for _, image in find_images(blob)), unpack(blob))
    if not library.images and library.info is None:
        raise ModelError(f"{path}: holds no compiled region; give a library made by byoc-accel compile")
    named = library.info.regions if library.info else ()
    missing = {name for _, name in named} - {image.name for image in library.images}
    if missing:
        raise ModelError(f"{path}: lacks the images of {', '.join(sorted(missing))}; copy or compile it again")
    return library
