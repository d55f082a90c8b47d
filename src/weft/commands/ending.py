"""How commands end: Ctrl-C, complaints, and a reader that has gone away.

The rule: whatever ends a command, the channel is left in good order and nobody sees a traceback. Ctrl-C (or SIGTERM,
or a closed terminal) asks for the end; a second one is taken at its word, and the neighbours have to find out by
themselves.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from weft.commands.errors import FAILED, FINE, INTERRUPTED, WRONG_USE, Failed, Mistake


def complain(command: str, text: str) -> None:
    """One line for the person, beside the results."""
    is_coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    line = f"weft {command}: {text}"
    with suppress(OSError):
        print(f"\x1b[31m{line}\x1b[0m" if is_coloured else line, file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """For a person who watches; not for the log of a script."""
    if sys.stderr.isatty():
        with suppress(OSError):
            print(text if "NO_COLOR" in os.environ else f"\x1b[2m{text}\x1b[0m", file=sys.stderr, flush=True)


class End:
    """Asks a command that runs in an event loop to end."""

    def __init__(self, command: str, task: "asyncio.Task[int]") -> None:
        self.command = command
        self.by_hand_is_fine = False
        """Set by commands that have no other end, once they have joined."""
        self.code: int | None = None
        self._task = task

    def ask(self, code: int) -> None:
        """Once; the command then sees `CancelledError` and leaves."""
        if self.code is None:
            self.code = code
            self._task.cancel()

    def on_signal(self, number: int) -> None:
        if self.code is not None:
            complain(self.command, "given up; the channel was not left in good order")
            # Nothing more may wait for anything: not for threads, not for the loop.
            os._exit(INTERRUPTED + number)
        self.ask(FINE if self.by_hand_is_fine else INTERRUPTED + number)


class _Complaints(logging.Handler):
    """Warnings of the library, in the form of all complaints."""

    def __init__(self, command: str) -> None:
        super().__init__(logging.WARNING)
        self._command = command

    def emit(self, record: logging.LogRecord) -> None:
        complain(self._command, record.getMessage())


def run(command: str, work: Callable[[End], Coroutine[Any, Any, int]]) -> int:
    """A command that takes part in a channel; returns its exit code."""
    return told(command, lambda: _run(command, work))


def told(command: str, act: Callable[[], int]) -> int:
    """Do it, and tell what is wrong in one line."""
    with warnings_go_to(_Complaints(command)):
        try:
            return act()
        except Mistake as mistake:
            complain(command, str(mistake))
            return WRONG_USE
        except Failed as failed:
            complain(command, str(failed))
            return FAILED
        except BrokenPipeError:
            forget_output()
            return FINE
        except KeyboardInterrupt:
            return INTERRUPTED + signal.SIGINT
        except Exception as problem:
            return _of_the_library(command, problem)


def _of_the_library(command: str, problem: Exception) -> int:
    from weft.channel import WeftError
    from weft.security import BadKey

    if not isinstance(problem, WeftError | BadKey):
        raise problem
    complain(command, str(problem))
    return WRONG_USE if isinstance(problem, BadKey) else FAILED


@contextmanager
def warnings_go_to(handler: logging.Handler) -> Iterator[None]:
    """Only there: whoever comes later goes before."""
    logger = logging.getLogger("weft")
    before, propagate = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagate


def _run(command: str, work: Callable[[End], Coroutine[Any, Any, int]]) -> int:
    from weft.net.loop import new_event_loop

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        end = End(command, task)
        _listen_to_signals(end)
        try:
            return await work(end)
        except asyncio.CancelledError:
            if end.code is None:
                raise
            return end.code

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


def _listen_to_signals(end: End) -> None:
    loop = asyncio.get_running_loop()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Ignored: by `nohup`, or by a shell for what it runs in the background.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            # NotImplementedError: not on Windows, where Python's own handling of Ctrl-C stays in force.
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, end.on_signal, int(number))


def forget_output() -> None:
    """Nobody reads it any more: what is left of it goes nowhere, without a word at the interpreter's end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
