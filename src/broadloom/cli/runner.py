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

from broadloom.cli.exit_codes import FAILURE, INTERRUPTED, SUCCESS, USAGE_ERROR, CommandFailed, UsageError


def print_error(command: str, text: str) -> None:
    """One line for the person, beside the results."""
    is_colored = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    line = f"broadloom {command}: {text}"
    with suppress(OSError):
        print(f"\x1b[31m{line}\x1b[0m" if is_colored else line, file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """For a person who watches; not for the log of a script."""
    if sys.stderr.isatty():
        with suppress(OSError):
            print(text if "NO_COLOR" in os.environ else f"\x1b[2m{text}\x1b[0m", file=sys.stderr, flush=True)


class StopSignal:
    """Asks a command that runs in an event loop to end."""

    def __init__(self, command: str, task: "asyncio.Task[int]") -> None:
        self.command = command
        self.interrupt_is_success = False
        """Set by commands that have no other end, once they have joined."""
        self.exit_code: int | None = None
        self._task = task

    def request_stop(self, exit_code: int) -> None:
        """Once; the command then sees `CancelledError` and leaves."""
        if self.exit_code is None:
            self.exit_code = exit_code
            self._task.cancel()

    def on_signal(self, number: int) -> None:
        if self.exit_code is not None:
            print_error(self.command, "given up; the channel was not left in good order")
            # Nothing more may wait for anything: not for threads, not for the loop.
            os._exit(INTERRUPTED + number)
        self.request_stop(SUCCESS if self.interrupt_is_success else INTERRUPTED + number)


class _StderrHandler(logging.Handler):
    """Warnings of the library, in the form of all complaints."""

    def __init__(self, command: str) -> None:
        super().__init__(logging.WARNING)
        self._command = command

    def emit(self, record: logging.LogRecord) -> None:
        print_error(self._command, record.getMessage())


def run(command: str, work: Callable[[StopSignal], Coroutine[Any, Any, int]]) -> int:
    """A command that takes part in a channel; returns its exit code."""
    return run_reporting_errors(command, lambda: _run(command, work))


def run_reporting_errors(command: str, act: Callable[[], int]) -> int:
    """Do it, and tell what is wrong in one line."""
    with route_warnings_to(_StderrHandler(command)):
        try:
            return act()
        except UsageError as mistake:
            print_error(command, str(mistake))
            return USAGE_ERROR
        except CommandFailed as failed:
            print_error(command, str(failed))
            return FAILURE
        except BrokenPipeError:
            discard_output()
            return SUCCESS
        except KeyboardInterrupt:
            return INTERRUPTED + signal.SIGINT
        except Exception as problem:
            return _report_library_error(command, problem)


def _report_library_error(command: str, problem: Exception) -> int:
    from broadloom.errors import BroadloomError
    from broadloom.security import InvalidKeyError

    if not isinstance(problem, BroadloomError | InvalidKeyError):
        raise problem
    print_error(command, str(problem))
    return USAGE_ERROR if isinstance(problem, InvalidKeyError) else FAILURE


@contextmanager
def route_warnings_to(handler: logging.Handler) -> Iterator[None]:
    """Only there: whoever comes later goes before."""
    logger = logging.getLogger("broadloom")
    before, propagate = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagate


def _run(command: str, work: Callable[[StopSignal], Coroutine[Any, Any, int]]) -> int:
    from broadloom.transport.event_loop import new_event_loop

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        end = StopSignal(command, task)
        _install_signal_handlers(end)
        try:
            return await work(end)
        except asyncio.CancelledError:
            if end.exit_code is None:
                raise
            return end.exit_code

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


def _install_signal_handlers(end: StopSignal) -> None:
    loop = asyncio.get_running_loop()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Ignored: by `nohup`, or by a shell for what it runs in the background.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            # NotImplementedError: not on Windows, where Python's own handling of Ctrl-C stays in force.
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, end.on_signal, int(number))


def discard_output() -> None:
    """Nobody reads it any more: what is left of it goes nowhere, without a word at the interpreter's end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
