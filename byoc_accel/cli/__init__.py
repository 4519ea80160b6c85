"""The program byoc-accel: one file per command, each with `add_arguments` and `run`.

An error that a user can cause ends with exit code 2 and one line on stderr; results go to stdout, progress
and warnings to stderr. Nothing is imported before a command needs it, so that --help answers at once.
"""
from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from .guard import guarded, stop_on_signals

#: command -> one line of help; the module of that name holds the rest.
COMMANDS = {
    "compile": "compile a model (.onnx, .tflite) into a library",
    "run": "run a library on the simulator",
    "report": "cycles, bounds and stalls of a library, layer by layer",
    "explain": "which ops of a model are offloaded, and why the others are not",
    "disasm": "list the instructions inside a library",
}


class Parser(argparse.ArgumentParser):
    """argparse that reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def build_parser(command: str | None) -> Parser:
    """The whole command line; only `command` gets its arguments, so that the others need no import."""
    parser = Parser(
        prog="byoc-accel",
        description="Compiler for an int8 accelerator whose weights live inside its instructions.",
        epilog="Each command explains itself: byoc-accel COMMAND --help")
    parser.add_argument("--version", action="version", version=f"byoc-accel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".",
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == command:
            importlib.import_module(f".{name}", __name__).add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's, whose signals then end it) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in arguments if word in COMMANDS), None)
    name = f"byoc-accel {command}" if command else "byoc-accel"
    if argv is None:
        stop_on_signals(name)

    def work() -> int:
        args = build_parser(command).parse_args(arguments)
        return int(importlib.import_module(f".{args.command}", __name__).run(args))

    return guarded(name, work)
