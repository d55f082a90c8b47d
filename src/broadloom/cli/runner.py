"""What surrounds every command: signals, error messages, exit codes, joining and leaving.

However a command ends, it leaves the channel properly and shows no traceback. Ctrl-C, SIGTERM and SIGHUP request a
stop; a second signal exits at once, and the neighbors have to detect the loss.
"""

import asyncio
import functools
import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from broadloom.cli.exit_codes import (
    FAILURE,
    INTERRUPTED,
    SIGNAL_BASE,
    SUCCESS,
    UsageError,
    exit_code_for,
    missing_package,
    require_extra,
)
from broadloom.cli.options import JoinOptions, option_dataclasses, typer_signature, with_option_names
from broadloom.cli.stdout import discard_output, os_error_text
from broadloom.errors import AccessLostError, ChannelClosedError

if TYPE_CHECKING:
    import typer

    from broadloom.channel import Channel
    from broadloom.channel.connect import PendingConnection
    from broadloom.protocol.runtime import ObserverFactory

FILES_MIN = 32
"""Files that a command in an event loop must be able to open; with fewer it fails in the middle of something."""


def print_error(command: str, text: str) -> None:
    """The text may quote anything, as the name of a file: control characters are escaped."""
    from broadloom.cli.formatting import escape_control_chars

    is_colored = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    line = f"broadloom {command}: " + "\n".join(map(escape_control_chars, text.split("\n")))
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

    def install_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # `nohup` and shells ignore some signals for background jobs: leave those ignored.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                # Not implemented on Windows, where Python's own Ctrl-C handling remains.
                with suppress(NotImplementedError):
                    loop.add_signal_handler(number, self.on_signal, int(number))


def command(
    name: str, group: "typer.Typer | None" = None, *, extra: str = "", failure: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., int]]:
    """Decorator that makes a function a command: it returns an exit code, and reports errors in one line.

    - A function that returns nothing has succeeded.
    - A coroutine function runs in an event loop. It may take `stop: StopSignal`.
    - A parameter whose type is a dataclass, as `join_options: JoinOptions`, becomes one option per field.
    - `extra` has to be installed. With `group`, the command is registered there under its last word.
    - `failure` is the exit code after any error, bugs included, of a command whose other codes are results.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., int]:
        own = inspect.signature(function).parameters
        shared = option_dataclasses(own)

        @functools.wraps(function)
        def run_command(*args: Any, **arguments: Any) -> int:
            for parameter, kind in shared.items():
                given = {each.name: arguments.pop(each.name) for each in fields(kind) if each.name in arguments}
                arguments[parameter] = kind(**given)

            def act() -> int:
                if extra:
                    require_extra(extra)
                if inspect.iscoroutinefunction(function):
                    return _run_loop(
                        name, lambda stop: function(*args, **arguments, **({"stop": stop} if "stop" in own else {}))
                    )
                return function(*args, **arguments) or SUCCESS

            return _reporting_errors(name, act, failure)

        signature = typer_signature(own)
        run_command.__signature__ = signature  # type: ignore[attr-defined]
        run_command.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        if group is not None:
            group.command(name.rsplit(maxsplit=1)[-1])(run_command)
        return run_command

    return decorate


def _reporting_errors(command: str, act: Callable[[], int], failure: int | None = None) -> int:
    with route_warnings_to(lambda text: print_error(command, text)):
        try:
            code = act()
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            discard_output()
            return SUCCESS if failure is None else failure
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as problem:
            if isinstance(problem, ModuleNotFoundError) and problem.name and not problem.name.startswith("broadloom"):
                problem = missing_package(problem.name.partition(".")[0])
            code_for_problem = exit_code_for(problem)
            if code_for_problem is None:
                if failure is None:
                    raise
                traceback.print_exc()
                return failure
            text = os_error_text(problem) if isinstance(problem, OSError) else with_option_names(str(problem))
            print_error(command, text)
            return code_for_problem if failure is None else failure


def _run_loop(command: str, work: Callable[[StopSignal], Coroutine[Any, Any, int | None]]) -> int:
    from broadloom.transport.event_loop import run
    from broadloom.transport.file_descriptors import files_max

    if (most := files_max()) is not None and most < FILES_MIN:
        raise UsageError(
            f"this process may open only {most} files; raise the limit (ulimit -n), at least to {FILES_MIN}"
        )

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        stop = StopSignal(command, task)
        stop.install_signal_handlers()
        try:
            return await work(stop) or SUCCESS
        except asyncio.CancelledError:
            if stop.exit_code is None:
                raise
            return stop.exit_code

    return run(main())


class _WarningHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the screen or the event loop has ended
            self._show(record.getMessage())


@contextmanager
def route_warnings_to(show: Callable[[str], None]) -> Iterator[None]:
    """Show the library's warnings with this function only; the innermost one wins."""
    logger = logging.getLogger("broadloom")
    before, propagate = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [_WarningHandler(show)], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before, propagate


def joined_channel(
    name: str, join_options: JoinOptions, stop: StopSignal, *, tape: "ObserverFactory | None" = None
) -> "AbstractAsyncContextManager[Channel]":
    """Join a channel, visible to `broadloom status`, and leave it at the end. The options are checked at once, and key
    and ticket are read."""
    return _joined(join_options.connect(name, tape=tape), stop)


@asynccontextmanager
async def _joined(connection: "PendingConnection", stop: StopSignal) -> "AsyncIterator[Channel]":
    from broadloom.channel.status_socket import expose_status

    async with connection as channel, expose_status(channel, program=f"broadloom {stop.command}"):
        yield channel


def report_end(command: str, channel: "Channel") -> int:
    """Print why the channel ended although this program did not leave it, and return the exit code. A closed channel is
    not a failure; a revoked or expired ticket is."""
    problem = channel._end_error()
    has_reason = isinstance(problem, AccessLostError | ChannelClosedError)
    print_error(command, str(problem) if has_reason else "the channel was closed for all members")
    return FAILURE if isinstance(problem, AccessLostError) else SUCCESS
