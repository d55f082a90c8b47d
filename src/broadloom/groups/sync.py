"""`Groups` and `Group` for synchronous programs: same names, results and exceptions, without `await`.

    with broadloom.sync.connect("chat/lobby") as channel, Groups(channel, "Anna", store="anna.db") as groups:
        club = groups.create("Chess club")
        club.send_text("Who plays white?")
        for message in club:
            print(message.author_name, message.text)

Thread-safe. Callbacks run in Broadloom's own thread and must not block. Most methods are generated from their
asynchronous counterparts.
"""

import functools
import os
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import broadloom.sync
from broadloom.errors import GroupNotFoundError
from broadloom.groups.group import Group as AsyncGroup
from broadloom.groups.groups import Groups as AsyncGroups
from broadloom.groups.model import GroupEvent, GroupId, GroupInfo, GroupMessage, Member
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.store import Store
from broadloom.sync import _loop_thread

if TYPE_CHECKING:
    from broadloom.protocol.events import Message as ChannelMessage

P = ParamSpec("P")
T = TypeVar("T")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the background loop. It has its own deadline if it needs one."""
    return _loop_thread.run(work, None)


def _call(function: Callable[..., T], *args: Any) -> T:
    """Call a plain function in the background loop."""

    async def work() -> T:
        return function(*args)

    return _run(work())


def _awaits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for the result of an asynchronous one."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(method(self._twin, *args, **kwargs))

    return twin


def _calls(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that calls a plain one in the background loop."""

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _call(functools.partial(method, self._twin, *args, **kwargs))

    return twin


class Group:
    """The synchronous twin of `broadloom.groups.Group`."""

    def __init__(self, twin: AsyncGroup) -> None:
        self._twin = twin
        self.id = twin.id

    send = _awaits(AsyncGroup.send)
    send_text = _awaits(AsyncGroup.send_text)
    receive = _awaits(AsyncGroup.receive)
    leave = _awaits(AsyncGroup.leave)
    members = _calls(AsyncGroup.members)
    history = _calls(AsyncGroup.history)
    get = _calls(AsyncGroup.get)
    thread = _calls(AsyncGroup.thread)

    @property
    def info(self) -> GroupInfo:
        return _call(lambda: self._twin.info)

    @property
    def description(self) -> str:
        return self.info.description

    @property
    def is_catching_up(self) -> bool:
        return _call(lambda: self._twin.is_catching_up)

    @property
    def unread_count(self) -> int:
        return self._twin.unread_count

    @property
    def dropped_count(self) -> int:
        return self._twin.dropped_count

    def receive_nowait(self) -> GroupMessage | None:
        # Looking first costs nothing in a main loop that polls.
        return _call(self._twin.receive_nowait) if self._twin.unread_count else None

    def __iter__(self) -> Iterator[GroupMessage]:
        while True:
            try:
                message = self.receive()
            except GroupNotFoundError:
                return
            yield message


class Groups:
    """The synchronous twin of `broadloom.groups.Groups`, with the same options. Use it with `with`, or `close` it."""

    def __init__(
        self,
        channel: broadloom.sync.Channel,
        name: str,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        settings: GroupSettings | None = None,
        on_unhandled: "Callable[[ChannelMessage], None] | None" = None,
    ) -> None:
        self.channel = channel
        options: dict[str, Any] = {"store": store, "settings": settings, "on_unhandled": on_unhandled}
        self._twin = _call(functools.partial(AsyncGroups, channel._channel, name, **options))
        self._wrapped: dict[GroupId, Group] = {}

    list_groups = _calls(AsyncGroups.list_groups)
    held_count = _calls(AsyncGroups.held_count)
    decline = _calls(AsyncGroups.decline)
    wait_until_synced = _awaits(AsyncGroups.wait_until_synced)
    find = _awaits(AsyncGroups.find)
    close = _awaits(AsyncGroups.aclose)

    @property
    def me(self) -> Member:
        return self._twin.me

    @property
    def joined(self) -> dict[GroupId, Group]:
        return {group_id: self._wrap(group) for group_id, group in _call(lambda: self._twin.joined).items()}

    def create(
        self, description: str, *, retention: RetentionPolicy | None = None, well_known_name: str | None = None
    ) -> Group:
        return self._wrap(_run(self._twin.create(description, retention=retention, well_known_name=well_known_name)))

    def join(self, group: GroupId | GroupInfo) -> Group:
        return self._wrap(_run(self._twin.join(group)))

    def listen(self, group: GroupId | GroupInfo) -> Group:
        return self._wrap(_run(self._twin.listen(group)))

    def leave(self, group: GroupId | Group) -> None:
        _run(self._twin.leave(group.id if isinstance(group, Group) else group))

    def on_event(self, callback: Callable[[GroupEvent], None]) -> Callable[[], None]:
        unsubscribe = _call(self._twin.on_event, callback)

        def unsubscribe_threadsafe() -> None:
            _loop_thread.loop().call_soon_threadsafe(unsubscribe)

        return unsubscribe_threadsafe

    def events(self) -> Iterator[GroupEvent]:
        events = self._twin.events()

        async def next_event() -> GroupEvent | None:
            return await anext(events, None)

        try:
            while (event := _run(next_event())) is not None:
                yield event
        finally:
            _run(events.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _wrap(self, group: AsyncGroup) -> Group:
        found = self._wrapped.get(group.id)
        if found is None or found._twin is not group:
            found = self._wrapped[group.id] = Group(group)
        return found
