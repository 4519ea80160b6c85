"""What the commands on model files share: arguments, checks, and the table of what stays on the host."""
from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ..errors import ModelError
from ..modelinfo import ModelInfo

SUFFIXES = (".onnx", ".tflite")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="model file: " + ", ".join(SUFFIXES))
    parser.add_argument("--host", choices=("relay",), default="relay", help="compiler of the rest (default: relay)")
    parser.add_argument("--target", default="reference", metavar="TARGET",
                        help="a shipped target (reference, tiny) or a .toml file (default: reference)")
    parser.add_argument("--shape", action="append", default=[], type=_shape, metavar="NAME=1,3,48,192",
                        help="sizes of an input that an ONNX file leaves open (once per input)")


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = (0,)
    if not name or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a name and sizes of 1 or more, as in image=1,3,48,192")
    return name, shape


def shapes(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The sizes of inputs that the command line gives, by name."""
    return dict(args.shape)


def check_model(path: Path) -> None:
    """Raise ModelError unless `path` is a file of a kind that can be imported."""
    if path.suffix not in SUFFIXES:
        raise ModelError(f"{path}: cannot import {path.suffix or 'a file without suffix'}; give one of "
                         + ", ".join(SUFFIXES))
    if not path.is_file():
        raise ModelError(f"{path}: {'is no file' if path.exists() else 'no such file'}")


def summary(info: ModelInfo) -> str:
    """One line: how much of the model is offloaded, and what is not."""
    from .table import percent

    left = Counter(row.op for row in info.ops if not row.region)
    offloaded = len(info.ops) - sum(left.values())
    kinds = ", ".join(f"{op} x {count}" if count > 1 else op for op, count in sorted(left.items()))
    return (f"{offloaded} of {len(info.ops)} ops and {percent(info.macs_offloaded, info.macs)} of "
            f"{info.macs:,} MACs offloaded" + (f"; on the host: {kinds}" if kinds else ""))
