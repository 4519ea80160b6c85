"""Write the generated files: ``python -m byoc_accel.isa.generate [--check]`` in a checkout.

The C headers and docs/ISA.md come from the tables (isa/table.py, target.py, errors.py) and the hand-written
byoc_accel/isa/manual.md. With --check nothing is written; the exit code is 1 if a file differs.
"""
from __future__ import annotations

import sys
from pathlib import Path

from .. import generated
from .c_header import isa_header
from .c_shared import errors_header, target_header
from .manual import manual

GENERATOR = "python -m byoc_accel.isa.generate"


def files() -> dict[str, str]:
    """Text of every generated file by its path from the repository's root."""
    headers = "runtime_c/include/wia/gen"
    return {
        f"{headers}/wia_isa.h": isa_header(generated.first_line(GENERATOR, "byoc_accel/isa/table.py")),
        f"{headers}/wia_errors.h": errors_header(generated.first_line(GENERATOR, "byoc_accel/errors.py")),
        f"{headers}/wia_target.h": target_header(generated.first_line(GENERATOR, "byoc_accel/target.py")),
        "docs/ISA.md": manual(generated.first_line(GENERATOR, "byoc_accel/isa/table.py and manual.md")),
    }


def stale(root: Path) -> list[str]:
    """Paths of generated files under `root` that are missing or differ from the tables."""
    return generated.stale(root, files())


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; returns the exit code."""
    return generated.run(GENERATOR, __doc__.splitlines()[0], files(), arguments)


if __name__ == "__main__":
    sys.exit(main())
