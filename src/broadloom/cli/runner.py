"""Runs commands: signals, error messages, broken pipes, and joining and leaving around the command's own work.

However a command ends, it leaves the channel properly and shows no traceback. Ctrl-C, SIGTERM and SIGHUP request a
stop; a second signal exits at once, and the neighbors have to detect the loss.
"""

import asyncio
import functools
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec

from broadloom.cli.exit_codes import (
    FAILURE,
    INTERRUPTED,
    NOT_SUPPORTED,
    SIGNAL_BASE,
    SUCCESS,
    USAGE_ERROR,
    CommandFailedError,
    NotSupportedError,
    UsageError,
    missing_package,
)

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.cli.options import JoinOptions
    from broadloom.protocol.runtime import ObserverFactory

P = ParamSpec("P")


def print_error(command: str, text: str) -> None:
    is_colored = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    line = f"broadloom {command}: {text}"
    with suppress(OSError):
        print(f"\x1b[31m{line}\x1b[0m" if is_colored else line, file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """Print to standard error, but only to a terminal: hints have no place in the log of a script."""
    if sys.stderr.isatty():
        with suppress(OSError):
            print(text if "NO_COLOR" in os.environ else f"\x1b[2m{text}\x1b[0m", file=sys.stderr, flush=True)


class StopSignal:
    """Stops a command that runs in an event loop."""

    def __init__(self, command: str, task: "asyncio.Task[int]") -> None:
        self.command = command
        self.interrupt_is_success = False
        """Set, after joining, by commands for which Ctrl-C is the normal way to stop."""
        self.exit_code: int | None = None
        self._task = task

    def request_stop(self, exit_code: int) -> None:
        """Cancel the command once, so that it leaves the channel; the first exit code counts."""
        if self.exit_code is None:
            self.exit_code = exit_code
            self._task.cancel()

    def on_signal(self, number: int) -> None:
        if self.exit_code is not None:
            print_error(self.command, "stopped at once, without leaving the channel")
            # Exit without waiting for threads or the event loop.
            os._exit(SIGNAL_BASE + number)
        self.request_stop(SUCCESS if self.interrupt_is_success else SIGNAL_BASE + number)


class _StderrHandler(logging.Handler):
    """Formats the library's warnings like the command's own errors."""

    def __init__(self, command: str) -> None:
        super().__init__(logging.WARNING)
        self._command = command

    def emit(self, record: logging.LogRecord) -> None:
        print_error(self._command, record.getMessage())


def run(command: str, work: Callable[[StopSignal], Coroutine[Any, Any, int]]) -> int:
    """Run an asynchronous command and return its exit code."""
    return run_reporting_errors(command, lambda: _run(command, work))


def reports_errors(command: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorator for a synchronous command: turns exceptions into an error message and an exit code."""

    def decorate(function: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(function)
        def reporting(*args: P.args, **kwargs: P.kwargs) -> int:
            return run_reporting_errors(command, lambda: function(*args, **kwargs))

        return reporting

    return decorate


def run_reporting_errors(command: str, act: Callable[[], int]) -> int:
    with route_warnings_to(_StderrHandler(command)):
        try:
            return act()
        except BrokenPipeError:
            discard_output()
            return SUCCESS
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as problem:
            code, text = _explain(problem)
            print_error(command, text)
            return code


def _explain(problem: Exception) -> tuple[int, str]:
    """Exit code and message. What is not meant for the user is a bug, and raised again."""
    from broadloom.errors import BroadloomError
    from broadloom.security import InvalidKeyError

    match problem:
        case UsageError() | InvalidKeyError():
            return USAGE_ERROR, str(problem)
        case CommandFailedError() | BroadloomError():
            return FAILURE, str(problem)
        case NotSupportedError():
            return NOT_SUPPORTED, str(problem)
        case ModuleNotFoundError(name=str(name)) if not name.startswith("broadloom"):
            return NOT_SUPPORTED, str(missing_package(name.partition(".")[0]))
    raise problem


@contextmanager
def route_warnings_to(handler: logging.Handler) -> Iterator[None]:
    """Make this the library's only log handler; the innermost one wins."""
    logger = logging.getLogger("broadloom")
    before, propagate = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagate


@asynccontextmanager
async def joined_channel(
    name: str, join_options: "JoinOptions", stop: StopSignal, *, tape: "ObserverFactory | None" = None
) -> "AsyncIterator[Channel]":
    """Join a channel, visible to `broadloom status`, and leave it at the end."""
    from broadloom.channel.status_socket import expose_status

    async with (
        join_options.connect(name, tape=tape) as channel,
        expose_status(channel, program=f"broadloom {stop.command}"),
    ):
        yield channel


def _run(command: str, work: Callable[[StopSignal], Coroutine[Any, Any, int]]) -> int:
    from broadloom.transport.event_loop import new_event_loop

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        stop = StopSignal(command, task)
        _install_signal_handlers(stop)
        try:
            return await work(stop)
        except asyncio.CancelledError:
            if stop.exit_code is None:
                raise
            return stop.exit_code

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


def _install_signal_handlers(stop: StopSignal) -> None:
    loop = asyncio.get_running_loop()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # `nohup` and shells ignore some signals for background jobs: leave those ignored.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            # Not implemented on Windows, where Python's own Ctrl-C handling remains.
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, stop.on_signal, int(number))


def discard_output() -> None:
    """The reader has gone: send the rest to /dev/null, so that the interpreter does not complain when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
