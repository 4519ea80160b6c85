"""Output files appear whole or not at all."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ModelError

_UNFINISHED: set[Path] = set()


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` when the block ends, and vanishes when the block raises.

    A link keeps pointing to its file, which is replaced; what is no regular file (/dev/stdout, a pipe) gets the bytes
    when they are complete. Raises ModelError when `path` or what the block writes cannot be written.
    """
    check_writable(path)
    special = _is_special(Path(path))
    goal = Path(path if special else os.path.realpath(path))
    try:
        folder = Path(tempfile.mkdtemp(prefix=".byoc-accel-", dir=None if special else goal.parent))
    except OSError as error:
        raise ModelError(f"{path}: cannot write to {goal.parent} ({error.strerror}); name another folder") from error
    _UNFINISHED.add(folder)
    try:
        written = folder / Path(path).name
        yield written
        if special:
            with written.open("rb") as source, goal.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        else:
            os.replace(written, goal)
    except OSError as error:
        if error.filename is not None and not {folder, goal} & {Path(error.filename), *Path(error.filename).parents}:
            raise
        raise ModelError(f"{path}: cannot be written ({error.strerror}); make room, or name another file") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _UNFINISHED.discard(folder)


def check_writable(path: str | Path) -> None:
    """Raise ModelError for a path that `atomic` would refuse: a folder, or a file in a folder that does not exist."""
    goal = Path(path)
    if goal.is_dir():
        raise ModelError(f"{path}: is a folder; name a file")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir() and not _is_special(goal):
        raise ModelError(f"{path}: folder {folder} does not exist; make it first")


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def drop_unfinished() -> None:
    """Remove what blocks of `atomic` have written so far; for a process that ends at once."""
    for folder in list(_UNFINISHED):
        shutil.rmtree(folder, ignore_errors=True)
