"""byoc-accel disasm: the instructions of every region in a library."""
from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import ModelError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The instructions are explained in docs/ISA.md, the sections in docs/FORMAT.md."
    parser.add_argument("library", type=Path, metavar="OUT.so", help="library made by byoc-accel compile, or an image")
    parser.add_argument("--region", metavar="NAME", help="only this region")


def run(args: argparse.Namespace) -> int:
    from ..container.dump import to_text
    from .libraries import read_library

    images = read_library(args.library).images
    names = [image.name for image in images]
    chosen = [image for image in images if args.region in (None, image.name)]
    if not chosen:
        known = ", ".join(names) or "none"
        raise ModelError(f"{args.library}: no region {args.region or 'at all'}; its regions are: {known}")
    print("\n".join(to_text(image) for image in chosen), end="")
    return 0
