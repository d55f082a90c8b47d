"""Groups for programs that are not asynchronous: the twin of `Groups` and `Group`, over a blocking channel.

    import broadloom.sync

    with broadloom.sync.connect("chat/lobby") as channel, channel.groups("Anna", store="anna.db") as here:
        club = here.create("Chess club")
        club.send_text("Who plays white?")
        while message := club.receive(timeout_s=10):
            print(message.name, message.text)

Everything may be called from any thread; callbacks come in Broadloom's thread and must not block.
"""

import os
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import broadloom.sync
from broadloom.errors import GroupNotFoundError
from broadloom.groups.group import Group as AsyncGroup
from broadloom.groups.group import ThreadEntry
from broadloom.groups.groups import Groups as AsyncGroups
from broadloom.groups.groups import groups as async_groups
from broadloom.groups.model import GroupId, GroupMessage, Member, MessageId
from broadloom.sync.bridge import call, loop_thread, run

if TYPE_CHECKING:
    from broadloom.groups.model import GroupEvent, GroupInfo, MemberStatus
    from broadloom.groups.settings import GroupSettings, RetentionPolicy
    from broadloom.groups.store import Store
    from broadloom.protocol.events import Message as ChannelMessage

T = TypeVar("T")


def _run(work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    return run(work)


def _call_sync(callback: Callable[..., T], *args: Any) -> T:
    """What is known or changed at once, but in Broadloom's thread only."""
    return call(callback, *args)


class Group:
    """A group whose methods wait for their results. Thread-safe."""

    def __init__(self, group: AsyncGroup) -> None:
        self._group = group
        self.id = group.id

    @property
    def info(self) -> "GroupInfo":
        return _call_sync(lambda: self._group.info)

    @property
    def description(self) -> str:
        return self.info.description

    def send(self, data: bytes, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        return _run(self._group.send(data, reply_to), None)

    def send_text(self, text: str, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        return self.send(text.encode(), reply_to)

    def receive_nowait(self) -> GroupMessage | None:
        """The next message, or None at once if there is none: for a main loop that polls."""
        return _call_sync(self._group.receive_nowait) if self._group.unread_count else None

    def receive(self, timeout_s: float | None = None) -> GroupMessage | None:
        """The next message; None if none comes in time. NoSuchGroup if none can come any more."""
        try:
            return _run(self._group.receive(timeout_s), None)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[GroupMessage]:
        """Messages as they come, until the group is left."""
        while True:
            try:
                message = self.receive()
            except GroupNotFoundError:
                return
            if message is not None:
                yield message

    def members(self) -> "dict[Member, MemberStatus]":
        return _call_sync(self._group.members)

    def history(self) -> list[GroupMessage]:
        return _call_sync(self._group.history)

    def get(self, message_id: MessageId) -> GroupMessage | None:
        return _call_sync(self._group.get, message_id)

    def thread(self, message: GroupMessage | MessageId) -> list[ThreadEntry]:
        return _call_sync(self._group.thread, message)

    @property
    def is_catching_up(self) -> bool:
        return _call_sync(lambda: self._group.is_catching_up)

    def leave(self) -> None:
        _run(self._group.leave())


class Groups:
    """Made by `channel.groups`. Thread-safe."""

    def __init__(self, groups: AsyncGroups) -> None:
        self._groups = groups
        self._wrapped: dict[GroupId, Group] = {}

    @property
    def me(self) -> Member:
        return self._groups.me

    def list_groups(self) -> "list[GroupInfo]":
        return _call_sync(self._groups.list_groups)

    @property
    def joined(self) -> dict[GroupId, Group]:
        joined = _call_sync(lambda: self._groups.joined)
        return {group_id: self._wrap(group) for group_id, group in joined.items()}

    def held_count(self, group: "GroupId | GroupInfo") -> int:
        return _call_sync(self._groups.held_count, group)

    def wait_until_synced(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody has told us the groups that it knows; False if nobody did in time."""
        return _run(self._groups.wait_until_synced(timeout_s), None)

    def find(self, name: str, timeout_s: float | None = None) -> "GroupInfo":
        return _run(self._groups.find(name, timeout_s), None)

    def create(
        self, description: str, *, retention: "RetentionPolicy | None" = None, well_known_name: str | None = None
    ) -> Group:
        return self._wrap(_run(self._groups.create(description, retention=retention, well_known_name=well_known_name)))

    def join(self, group: "GroupId | GroupInfo") -> Group:
        return self._wrap(_run(self._groups.join(group)))

    def listen(self, group: "GroupId | GroupInfo") -> Group:
        return self._wrap(_run(self._groups.listen(group)))

    def leave(self, group: GroupId | Group) -> None:
        _run(self._groups.leave(group.id if isinstance(group, Group) else group))

    def decline(self, group: "GroupId | GroupInfo") -> None:
        _call_sync(self._groups.decline, group)

    def on_event(self, callback: "Callable[[GroupEvent], None]") -> Callable[[], None]:
        """Call this for every event, in Broadloom's thread. Returns a function that ends it."""
        unsubscribe = _call_sync(self._groups.on_event, callback)

        def unsubscribe_from_thread() -> None:
            loop_thread.loop().call_soon_threadsafe(unsubscribe)

        return unsubscribe_from_thread

    def close(self) -> None:
        _run(self._groups.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wrap(self, group: AsyncGroup) -> Group:
        found = self._wrapped.get(group.id)
        if found is None or found._group is not group:
            found = self._wrapped[group.id] = Group(group)
        return found


def groups(
    channel: broadloom.sync.Channel,
    name: str,
    *,
    store: "Store | str | os.PathLike[str] | None" = None,
    settings: "GroupSettings | None" = None,
    on_unhandled: "Callable[[ChannelMessage], None] | None" = None,
) -> Groups:
    """Take part in the groups of a blocking channel. The options are those of `broadloom.groups.groups`."""

    async def make() -> AsyncGroups:
        return async_groups(channel._channel, name, store=store, settings=settings, on_unhandled=on_unhandled)

    return Groups(_run(make()))
