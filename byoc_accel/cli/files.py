"""Output files appear whole or not at all."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ModelError


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` when the block ends, and vanishes when the block raises."""
    goal = Path(path)
    if not goal.parent.is_dir():
        raise ModelError(f"{goal}: folder {goal.parent} does not exist; make it first")
    if goal.is_dir():
        raise ModelError(f"{goal}: is a folder; name a file")
    try:
        folder = Path(tempfile.mkdtemp(prefix=".byoc-accel-", dir=goal.parent))
    except OSError as error:
        raise ModelError(f"{goal}: cannot write to {goal.parent} ({error.strerror})") from error
    try:
        yield folder / goal.name
        os.replace(folder / goal.name, goal)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
