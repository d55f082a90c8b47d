"""The synchronous twin of `AppSession`, for games, meetings and auctions in programs without `await`: same names,
results and exceptions. Thread-safe. Callbacks run in Broadloom's own thread and must not block."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

import broadloom.sync
from broadloom.apps.session import AppSession
from broadloom.sync.bridge import (
    Attribute,
    ClosableSyncWrapper,
    SyncWrapper,
    awaits,
    call,
    iterates,
    polls,
    run,
    subscribes,
)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
A = TypeVar("A", bound=AppSession[Any])


class SyncSession(ClosableSyncWrapper[A]):
    """Use it with `with`, on a channel of `broadloom.sync`. The parameters are those of its counterpart."""

    _counterpart: ClassVar[type[AppSession[Any]]]

    def __init__(self, channel: broadloom.sync.Channel, *args: Any, **options: Any) -> None:
        super().__init__(call(self._counterpart, channel._wrapped, *args, **options))  # type: ignore[arg-type]
        self.channel = channel

    @classmethod
    def _of(cls, session: A) -> Self:
        """The twin of a session that has joined."""
        twin = cls.__new__(cls)
        SyncWrapper.__init__(twin, session)
        twin.channel = broadloom.sync.Channel(session.channel)
        return twin

    def __enter__(self) -> Self:
        run(self._wrapped.__aenter__())
        return self

    is_ended = Attribute[bool]()
    unread_count = Attribute[int]()
    leave = awaits(AppSession.leave)
    receive = awaits(AppSession.receive)
    receive_nowait = polls(AppSession.receive_nowait)
    __iter__ = iterates(AppSession.__aiter__)
    events = iterates(AppSession.events)
    on_event = subscribes(AppSession.on_event)


@contextmanager
def entered(make: Callable[[], AbstractAsyncContextManager[T]], twin: Callable[[T], S]) -> Iterator[S]:
    """Run an asynchronous context manager in the background thread; yields the twin of its value."""
    context = call(make)
    value = run(context.__aenter__())
    try:
        yield twin(value)
    except BaseException:
        if not run(_exit(context, *sys.exc_info())):
            raise
    else:
        run(_exit(context, None, None, None))


async def _exit(context: AbstractAsyncContextManager[Any], *problem: Any) -> bool | None:
    return await context.__aexit__(*problem)


def enters(
    twin: Callable[[T], S], function: Callable[P, AbstractAsyncContextManager[T]]
) -> Callable[P, AbstractContextManager[S]]:
    """The synchronous twin of a function that is used with `async with`."""

    @functools.wraps(function)
    def enter(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[S]:
        return entered(functools.partial(function, *args, **kwargs), twin)

    return enter
