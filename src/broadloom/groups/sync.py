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
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import broadloom.sync
from broadloom.errors import GroupNotFoundError
from broadloom.groups.group import Group as AsyncGroup
from broadloom.groups.groups import Groups as AsyncGroups
from broadloom.groups.model import GroupId, GroupInfo, GroupMessage, Member
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.store import Store
from broadloom.sync.bridge import awaits, call, calls, iterates, run, subscribes

if TYPE_CHECKING:
    from broadloom.protocol.events import Message as ChannelMessage


class Group:
    """The synchronous twin of `broadloom.groups.Group`."""

    def __init__(self, twin: AsyncGroup) -> None:
        self._twin = twin
        self.id = twin.id

    send = awaits(AsyncGroup.send)
    send_text = awaits(AsyncGroup.send_text)
    receive = awaits(AsyncGroup.receive)
    leave = awaits(AsyncGroup.leave)
    members = calls(AsyncGroup.members)
    history = calls(AsyncGroup.history)
    get = calls(AsyncGroup.get)
    thread = calls(AsyncGroup.thread)

    @property
    def info(self) -> GroupInfo:
        return call(lambda: self._twin.info)

    @property
    def description(self) -> str:
        return self.info.description

    @property
    def is_catching_up(self) -> bool:
        return call(lambda: self._twin.is_catching_up)

    @property
    def unread_count(self) -> int:
        return self._twin.unread_count

    @property
    def dropped_count(self) -> int:
        return self._twin.dropped_count

    def receive_nowait(self) -> GroupMessage | None:
        # Looking first costs nothing in a main loop that polls.
        return call(self._twin.receive_nowait) if self._twin.unread_count else None

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
        self._twin = call(functools.partial(AsyncGroups, channel._twin, name, **options))
        self._wrapped: dict[GroupId, Group] = {}

    on_event = subscribes(AsyncGroups.on_event)
    events = iterates(AsyncGroups.events)
    list_groups = calls(AsyncGroups.list_groups)
    held_count = calls(AsyncGroups.held_count)
    members = calls(AsyncGroups.members)
    decline = calls(AsyncGroups.decline)
    wait_until_synced = awaits(AsyncGroups.wait_until_synced)
    find = awaits(AsyncGroups.find)
    close = awaits(AsyncGroups.aclose)

    @property
    def me(self) -> Member:
        return self._twin.me

    @property
    def joined(self) -> dict[GroupId, Group]:
        return {group_id: self._wrap(group) for group_id, group in call(lambda: self._twin.joined).items()}

    def create(
        self, description: str, *, retention: RetentionPolicy | None = None, well_known_name: str | None = None
    ) -> Group:
        return self._wrap(run(self._twin.create(description, retention=retention, well_known_name=well_known_name)))

    def join(self, group: GroupId | GroupInfo) -> Group:
        return self._wrap(run(self._twin.join(group)))

    def listen(self, group: GroupId | GroupInfo) -> Group:
        return self._wrap(run(self._twin.listen(group)))

    def leave(self, group: GroupId | Group) -> None:
        run(self._twin.leave(group.id if isinstance(group, Group) else group))

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
