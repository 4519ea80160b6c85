"""Progress on a terminal, and nothing where stderr is none."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[T], T]]:
    """A bar for `total` equal steps; the function that comes out counts one and returns its argument."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda value: value
        return
    from rich.console import Console
    from rich.progress import BarColumn as Bar
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), Bar(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(what, total=total)

        def advance(value: T) -> T:
            display.advance(task)
            return value

        yield advance


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done, until the next call."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda text: status.update(text)
