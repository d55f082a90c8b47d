"""Standard output whose errors say what failed: a full disk, or a reader that has gone."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

STDOUT = "standard output"


class NamedStdout:
    """`sys.stdout`, with errors that name it. Python's own have no file name."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _naming_errors():
            return int(self._stream.write(text))

    def flush(self) -> None:
        with _naming_errors():
            self._stream.flush()


@contextmanager
def _naming_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        discard_output()
        problem.filename = STDOUT
        raise


def os_error_text(problem: OSError) -> str:
    where = f"cannot write to {STDOUT}" if problem.filename == STDOUT else problem.filename
    return f"{where}: {problem.strerror}" if where and problem.strerror else str(problem)


def discard_output() -> None:
    """Send the rest to /dev/null, so that the interpreter does not complain when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
