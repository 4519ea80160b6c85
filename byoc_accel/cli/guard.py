"""What ends a program early: an exit code and one line on stderr, and no half-written file."""
from __future__ import annotations

import atexit
import errno
import functools
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from ..errors import AccelError
from .files import drop_unfinished

#: Errors of a write without a file name: only standard output has none.
_FAILED_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EBADF)
_SHOW_CURSOR = "\x1b[?25h\r\x1b[K"


def guarded(name: str, work: Callable[[], int]) -> int:
    """The exit code of `work`; 2 and one line that begins with `name` for an error that a user can cause.

    1 without a line when the reader of our output left, as `| head` does; 130 for Ctrl-C (KeyboardInterrupt).
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return work()
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except (AccelError, OSError) as error:
        lost = isinstance(error, OSError) and error.filename is None and error.errno in _FAILED_WRITES
        if lost:  # what waits for standard output is dropped, so that Python's end is quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        print(f"{name}: {'standard output: ' + error.strerror if lost else _one_line(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"{name}: out of memory ({_one_line(error) or 'of what, Python does not say'}); give it more",
              file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130


def stop_on_signals(name: str) -> None:
    """End this process at once on Ctrl-C, kill and hang-up: exit code 128 + number, one line that begins with `name`.

    No exception is raised: TVM calls Python from C++, and ends with a segmentation fault when one comes through there.
    A signal that is ignored (nohup) stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, functools.partial(_stop, name))


def _stop(name: str, number: int, _: object) -> NoReturn:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    drop_unfinished()
    atexit._run_exitfuncs()  # temporary folders of TVM and of tempfile
    cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
    os.write(2, f"{cursor}{name}: interrupted\n".encode())
    os._exit(128 + number)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
