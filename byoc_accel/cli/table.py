"""Tables on stdout: rich draws them, on a terminal in its width, elsewhere as wide as they are."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

WIDE = 200


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]],
                last: Sequence[object] | None = None, header: bool = True) -> None:
    """Columns whose heading starts with ">" are aligned to the right; `last` is set off as the row of totals."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_footer=last is not None,
                  show_header=header, pad_edge=False)
    for index, heading in enumerate(columns):
        right = heading.startswith(">")
        footer = _text(last[index]) if last is not None else ""
        table.add_column(heading.lstrip(">"), footer, justify="right" if right else "left", no_wrap=right,
                         overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False)
    console.print(table)


def percent(part: float, whole: float) -> str:
    """A share with one decimal, "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _text(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("[", r"\[")
