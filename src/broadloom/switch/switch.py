"""`Switch`: the public object, one program's part in the switch of a channel.

async with broadloom.connect("office/hq") as channel, Switch(channel, session="anna") as switch:
    reply = await switch.request("create_object", b"box")
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from broadloom.channel.arguments import check_callback, check_positive_timeout, check_timeout
from broadloom.channel.closable import AsyncClosable
from broadloom.errors import NotConnectedError
from broadloom.switch.channel_runtime import ChannelSwitchRuntime
from broadloom.switch.core import SwitchCore
from broadloom.switch.directory import FileJoin, Registration
from broadloom.switch.handlers import Handler
from broadloom.switch.launcher import PROGRAM_VARIABLE
from broadloom.switch.model import (
    MessageClass,
    MessageState,
    Scope,
    SwitchMessage,
)
from broadloom.switch.observer import Observer
from broadloom.switch.patterns import check_concurrency, make_pattern, message_scope, name
from broadloom.switch.program_types import ProgramType, load_program_types
from broadloom.switch.queue_store import MemoryQueue, QueueStore
from broadloom.switch.requester import TIMEOUT_S, SwitchRequester
from broadloom.switch.session_name import own_session
from broadloom.switch.sqlite_queue import SqliteQueue
from broadloom.switch.status import ProgramQueue, QueuedMessage, SwitchStatus, queued_messages, queues_of, status_of

if TYPE_CHECKING:
    from broadloom.channel import Channel

CONCURRENCY = 64

F = TypeVar("F", bound=Callable[..., Any])

_counters: "WeakKeyDictionary[Channel, Iterator[int]]" = WeakKeyDictionary()
"""Of messages, by connection: ids do not repeat if a switch is closed and another one opened."""


class Switch(SwitchRequester, AsyncClosable):
    """The switch of `channel` for this program. Use it with `async with`, or call `aclose()`.

    - `session`: the session that this program belongs to. Default: the name on the ticket, else login name and host.
      With a ticket it must be the name on it, or begin with that name and a slash.
    - `program`: the type of this program, for messages that others have queued for it.
    - `programs`: program types to start or to queue for, as a TOML file or as a dictionary.
    - `store`: an SQLite file for the queues. By default they are kept in memory.

    The channel can be read as before. Not thread-safe: use it from one event loop.
    """

    def __init__(
        self,
        channel: "Channel",
        *,
        session: str | None = None,
        program: str | None = None,
        programs: Mapping[str, ProgramType] | str | os.PathLike[str] | None = None,
        store: QueueStore | str | os.PathLike[str] | None = None,
    ) -> None:
        self.channel = channel
        session = own_session(channel, session)
        own_program = os.environ.get(PROGRAM_VARIABLE, "") if program is None else program
        if own_program:
            name("program", own_program)
        types = programs if isinstance(programs, Mapping) or programs is None else load_program_types(programs)
        self._is_closed = False
        self._observers: dict[Observer, None] = {}
        queue = SqliteQueue(store) if isinstance(store, str | os.PathLike) else store or MemoryQueue()
        try:
            self._runtime = ChannelSwitchRuntime(channel, self._on_left, session)
            counter = _counters.setdefault(channel, count(1))
            self._core = SwitchCore(self._runtime, session, own_program, types, queue, counter)
        except BaseException:
            queue.close()
            raise
        self._runtime.attach(self._core)
        self._core.start()

    @property
    def session(self) -> str:
        return self._core.session

    @property
    def program(self) -> str:
        return self._core.program

    # -- registering

    def handle(
        self,
        operation: str | Sequence[str],
        *,
        file: str | Sequence[str] | None = None,
        scope: Scope | str | None = None,
        message_class: MessageClass | str | None = None,
        rank: int = 0,
        concurrency: int = CONCURRENCY,
    ) -> Callable[[F], F]:
        """Handle an operation with the decorated function: a coroutine function, or a plain one that does not block.

        It gets a `HandledRequest` and returns the reply as bytes. `raise DeclinedError(text)` passes the request on to
        the next handler; `raise RefusedError(text)`, or any other exception, fails it. At most `concurrency` run at a
        time. Of several handlers, the one with the highest `rank` gets the message. `unregister(function)` removes it.
        """
        self._check_open()
        pattern = make_pattern(
            True, operation, file=file, scope=scope, message_class=message_class, state=None, rank=rank
        )
        check_concurrency(concurrency)

        def register(function: F) -> F:
            if not callable(function):
                raise TypeError(f"a handler must be a function, not {type(function).__name__}")
            self._check_open()
            self._core.add_handler(Handler(pattern, function, concurrency))
            return function

        return register

    def unregister(self, function: Callable[..., Any]) -> None:
        """Remove a handler. Raises `ValueError` if it was not registered."""
        found = [each for each in self._core.handlers if each.function == function]
        if not found:
            raise ValueError(f"{function!r} is not a handler")
        for handler in found:
            self._core.remove_handler(handler)

    def observe(
        self,
        operation: str | Sequence[str] | None = None,
        callback: Callable[[SwitchMessage], None] | None = None,
        *,
        file: str | Sequence[str] | None = None,
        scope: Scope | str | None = None,
        message_class: MessageClass | str | None = None,
        state: MessageState | str | None = None,
        messages_max: int = 10_000,
    ) -> Observer:
        """Get copies of the messages that match, in the order of each sender: with `callback`, or by iterating over the
        result. Without `state`, a message is observed when it is sent and again when it is queued, handled or has
        failed.

        If it is not read, the newest `messages_max` copies are kept.
        """
        self._check_open()
        if callback is not None:
            check_callback(callback)
        pattern = make_pattern(
            False, operation, file=file, scope=scope, message_class=message_class, state=state, rank=0
        )
        observer = Observer(self, pattern, callback, messages_max)
        self._observers[observer] = None
        self._core.add_observer(observer._entry)
        return observer

    def _remove_observer(self, observer: Observer) -> None:
        if self._observers.pop(observer, observer) is None:
            self._core.remove_observer(observer._entry)

    def add_file(self, file: str) -> None:
        """Work on this file, too: it is added to all patterns that name files."""
        self._core.add_file(name("file", file))

    def remove_file(self, file: str) -> None:
        """No longer work on this file: it is removed from all patterns."""
        self._core.remove_file(name("file", file))

    # -- what is registered

    def registrations(self) -> list[Registration]:
        """What all programs have registered, this one included, by peer id."""
        self._core._refresh()
        return self._core.directory.registrations()

    def joins(self, file: str) -> list[FileJoin]:
        """The sessions that work on a file, with the time of their most recent join."""
        self._core._refresh()
        return self._core.directory.joins(file)

    @property
    def is_complete(self) -> bool:
        """Whether the registrations of all members are known. Only then can a request fail with `NO_HANDLER`."""
        return self._core.directory.is_complete

    async def wait_until_complete(self, timeout_s: float | None = None) -> None:
        """Wait until the registrations of all members are known. Raises `TimeoutError`."""
        check_timeout(timeout_s)
        if not await self._wait_until(lambda: self.is_complete, timeout_s):
            raise TimeoutError(f"{self.channel.name}: not all registrations are known after {timeout_s:g} s")

    def has_handler(self, operation: str, *, file: str | None = None, scope: Scope | str | None = None) -> bool:
        """Whether a program that handles this runs, as far as this program knows."""
        return bool(self._core.handler_ids(operation, message_scope(file, scope), file or ""))

    async def wait_for_handler(
        self,
        operation: str,
        *,
        file: str | None = None,
        scope: Scope | str | None = None,
        count: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """Wait until `count` programs that handle this run. Raises `TimeoutError`."""
        self._check_open()
        check_timeout(timeout_s)
        checked = message_scope(file, scope)

        def has_handlers() -> bool:
            return len(self._core.handler_ids(operation, checked, file or "")) >= count

        if not await self._wait_until(has_handlers, timeout_s):
            found = len(self._core.handler_ids(operation, checked, file or ""))
            raise TimeoutError(f"{self.channel.name}: {found} programs handle {operation!r} after {timeout_s:g} s")

    async def _wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Whether the condition, which depends on the directory, holds within the time."""
        changed = asyncio.Event()
        self._core.listeners.append(changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._check_open()
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        finally:
            self._core.listeners.remove(changed.set)
        return True

    # -- queues

    def queue(self) -> list[QueuedMessage]:
        """What waits here for programs that do not run, in order."""
        return queued_messages(self._core)

    async def queues(self, timeout_s: float = TIMEOUT_S) -> list[ProgramQueue]:
        """How many messages wait at each member that starts programs, or queues for them."""
        self._check_open()
        check_positive_timeout(timeout_s)
        self._core._refresh()
        return await queues_of(self._core, timeout_s)

    def drop_queue(self, program: str | None = None) -> int:
        """Remove what is queued, for one program or for all, and return the number of messages."""
        return self._core.host.drop(program)

    def status(self) -> SwitchStatus:
        return status_of(self._core)

    # -- closing

    def _check_open(self) -> None:
        self.channel._check_loop()
        if self._is_closed:
            raise NotConnectedError(f"{self.channel.name}: the switch was closed; open a new one")

    def _on_left(self) -> None:
        """The channel was left: nothing more can be sent or received."""
        self._is_closed = True
        self._core.close()
        for observer in list(self._observers):
            observer._end()

    async def aclose(self) -> None:
        """Withdraw all registrations and end open requests. The channel stays."""
        self._on_left()
        await self._runtime.close()
