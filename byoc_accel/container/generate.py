"""Write the generated files: ``python -m byoc_accel.container.generate [--check]`` in a checkout.

wia_format.h, wia_regs.h and docs/FORMAT.md come from layout.py, registers.py and the hand-written format.md.
With --check nothing is written; the exit code is 1 if a file differs.
"""
from __future__ import annotations

import sys
from pathlib import Path

from .. import generated
from .c_header import format_header, registers_header
from .manual import manual

GENERATOR = "python -m byoc_accel.container.generate"


def files() -> dict[str, str]:
    """Text of every generated file by its path from the repository's root."""
    headers = "runtime_c/include/wia/gen"
    sources = "byoc_accel/container/format.md, layout.py and registers.py"
    return {
        f"{headers}/wia_format.h": format_header(generated.first_line(GENERATOR, "byoc_accel/container/layout.py")),
        f"{headers}/wia_regs.h": registers_header(generated.first_line(GENERATOR, "byoc_accel/container/registers.py")),
        "docs/FORMAT.md": manual(generated.first_line(GENERATOR, sources)),
    }


def stale(root: Path) -> list[str]:
    """Paths of generated files under `root` that are missing or differ from the tables."""
    return generated.stale(root, files())


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; returns the exit code."""
    return generated.run(GENERATOR, __doc__.splitlines()[0], files(), arguments)


if __name__ == "__main__":
    sys.exit(main())
