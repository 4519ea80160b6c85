"""Object files and loaded libraries of compiled regions, made when the first of them is needed.

A build of many regions would otherwise wait for a compiler and a linker for each of them, of which one part is never
used: running needs no object files, and exporting no loaded library. All regions that wait are compiled side by side,
and linked into one library. An object file is a function of its region alone, whatever waits beside it.
"""
from __future__ import annotations

import functools
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import tvm

from ...errors import HostError
from . import glue

_lock = threading.RLock()


class Region:
    """A compiled region: C symbol, image, and the archive of the runtime behind it."""

    def __init__(self, symbol: str, image: bytes, archive: Path):
        glue.check_region(symbol, image)
        self.symbol, self.archive = symbol, archive
        self._image = image  # until it is in the object file
        self._object: bytes | None = None
        self._library: tvm.runtime.Module | None = None
        with _lock:
            _waiting.add(self)

    def object_bytes(self) -> bytes:
        """The object file of `glue.build_region_object`. Raises HostError."""
        with _lock:
            if self._object is None:
                _compile([self, *(r for r in _waiting if r is not self)])
            assert self._object is not None
            return self._object

    def library(self) -> tvm.runtime.Module:
        """A library loaded into this process in which `symbol` is. Raises HostError."""
        with _lock:
            if self._library is None:
                self.object_bytes()
                batch = _unlike(self, [r for r in _waiting if r._object is not None])
                with _linked(batch) as path:
                    loaded = _load(path)
                for region in batch:
                    region._library = loaded
                    _waiting.discard(region)
            return self._library

    @contextmanager
    def own_library(self) -> Iterator[Path]:
        """The path of a library with this region alone, for as long as the context lasts. Raises HostError."""
        with _lock:
            self.object_bytes()
            with _linked([self]) as path:
                self._library = _load(path)
                _waiting.discard(self)
                yield path


_waiting: weakref.WeakSet[Region] = weakref.WeakSet()  # for an object file or a library


def _compile(regions: Sequence[Region]) -> None:
    """Object files of all `regions`; an error of the first one is raised, others get another chance."""
    missing = [r for r in regions if r._object is None]

    def build(region: Region) -> HostError | None:
        try:
            with _scratch() as workdir:
                region._object = glue.build_region_object(region.symbol, region._image, workdir)
                region._image = b""
        except HostError as error:
            return error
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        first, *_ = pool.map(build, missing)
    if first is not None:
        raise first


def _unlike(region: Region, others: Sequence[Region]) -> list[Region]:
    """`region`, and of `others` those that can be in one library with it: one of each symbol, and the same runtime."""
    chosen = {region.symbol: region}
    for other in sorted(others, key=lambda r: r.symbol):
        if other.archive == region.archive:
            chosen.setdefault(other.symbol, other)
    return list(chosen.values())


@contextmanager
def _linked(regions: Sequence[Region]) -> Iterator[Path]:
    with _scratch() as workdir:
        yield glue.link_shared([*(r._object for r in regions), runtime_object(regions[0].archive)], workdir)


def _load(path: Path) -> tvm.runtime.Module:
    try:
        return tvm.runtime.load_module(str(path))
    except Exception as error:
        raise HostError(f"regions cannot be loaded from {path.parent}: {str(error).splitlines()[-1]}; set TMPDIR to a "
                        "folder that allows to run code") from error


@functools.cache
def runtime_object(archive: Path) -> bytes:
    """All of the runtime's archive as one object file. Raises HostError."""
    with _scratch() as workdir:
        return glue.build_runtime_object(archive, workdir)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="byoc_accel-", ignore_cleanup_errors=True)
    except OSError as error:
        reason = error.strerror or error
        raise HostError(f"no temporary folder: {reason}; set TMPDIR to a writable one") from None
