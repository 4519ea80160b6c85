"""The C and C++ compilers of this machine: which one, and one line when it fails."""
from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...errors import HostError

#: Language -> the variable that names its compiler, and what is tried without it.
_COMPILERS = {"C": ("CC", ("cc", "gcc", "clang")), "C++": ("CXX", ("g++", "c++", "clang++"))}

#: Beginnings of lines that say that something is wrong, or what was called, but not what is wrong.
_EMPTY_WORDS = ("collect2: error: ld returned", "Compilation error:", "Command line:")


def find_compiler(language: str, purpose: str) -> list[str]:
    """The compiler command for "C" or "C++": $CC or $CXX, else the first one found. `purpose`, for the message, says
    what it is needed for. Raises HostError when there is none."""
    variable, usual = _COMPILERS[language]
    named = os.environ.get(variable, "")
    try:
        candidates = [shlex.split(named)] if named.strip() else [[name] for name in usual]
    except ValueError as error:
        raise HostError(f"{variable} is {named!r}, no command: {error}; correct or unset it") from None
    for command in candidates:
        if shutil.which(command[0]):
            return command
    tried = ", ".join(command[0] for command in candidates)
    raise HostError(f"no {language} compiler found (tried {tried}), needed {purpose}; install g++ or set {variable}")


def run_compiler(command: Sequence[str], directory: Path, failure: str) -> None:
    """Run a compiler or linker in `directory`. Raises HostError, `failure` and what the compiler said, if it fails."""
    try:
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise HostError(f"cannot run {command[0]} in {directory}: {error.strerror}; check TMPDIR") from None
    if result.returncode != 0:
        said = first_error(result.stderr)
        advice = "; make room, or set TMPDIR to another folder" if os.strerror(errno.ENOSPC) in said else ""
        raise HostError(f"{failure}: {said}{advice}")


def first_error(output: str) -> str:
    """The line of a compiler's or linker's output, or of what TVM makes of it, that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_EMPTY_WORDS)]
    for line in said:
        if any(word in line.lower() for word in ("error", "undefined", "fatal", "failed")):
            return line
    return (said or ["the compiler gave no reason"])[-1]
