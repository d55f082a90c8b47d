"""`Groups` and `Group` for synchronous programs: same names, results and exceptions, without `await`.

    with broadloom.sync.connect("chat/lobby") as channel, Groups(channel, "Anna", store="anna.db") as groups:
        club = groups.create("Chess club")
        club.send_text("Who plays white?")
        for message in club:
            print(message.author_name, message.text)

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import broadloom.groups.group
import broadloom.groups.groups
import broadloom.sync
from broadloom.errors import GroupNotFoundError
from broadloom.groups.group import ThreadEntry
from broadloom.groups.model import GroupEvent, GroupId, GroupInfo, GroupMessage, Member, MemberStatus, MessageId
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.store import Store
from broadloom.sync.bridge import call, iterate, run

if TYPE_CHECKING:
    from broadloom.protocol.events import Message as ChannelMessage


class Group:
    """The synchronous twin of `broadloom.groups.Group`."""

    def __init__(self, group: broadloom.groups.group.Group) -> None:
        self._group = group
        self.id = group.id

    @property
    def info(self) -> GroupInfo:
        return call(lambda: self._group.info)

    @property
    def description(self) -> str:
        return self.info.description

    @property
    def is_catching_up(self) -> bool:
        return call(lambda: self._group.is_catching_up)

    @property
    def unread_count(self) -> int:
        return self._group.unread_count

    @property
    def dropped_count(self) -> int:
        return self._group.dropped_count

    def send(self, data: bytes, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        return run(self._group.send(data, reply_to))

    def send_text(self, text: str, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        return run(self._group.send_text(text, reply_to))

    def receive_nowait(self) -> GroupMessage | None:
        # Looking first costs nothing in a main loop that polls.
        return call(self._group.receive_nowait) if self._group.unread_count else None

    def receive(self, timeout_s: float | None = None) -> GroupMessage:
        return run(self._group.receive(timeout_s))

    def __iter__(self) -> Iterator[GroupMessage]:
        while True:
            try:
                message = self.receive()
            except GroupNotFoundError:
                return
            yield message

    def members(self) -> dict[Member, MemberStatus]:
        return call(self._group.members)

    def history(self) -> list[GroupMessage]:
        return call(self._group.history)

    def get(self, message_id: MessageId) -> GroupMessage | None:
        return call(self._group.get, message_id)

    def thread(self, message: GroupMessage | MessageId) -> list[ThreadEntry]:
        return call(self._group.thread, message)

    def leave(self) -> None:
        run(self._group.leave())


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
        self._groups = call(
            lambda: broadloom.groups.groups.Groups(
                channel._channel, name, store=store, settings=settings, on_unhandled=on_unhandled
            )
        )
        self._wrapped: dict[GroupId, Group] = {}

    @property
    def me(self) -> Member:
        return self._groups.me

    @property
    def joined(self) -> dict[GroupId, Group]:
        joined = call(lambda: self._groups.joined)
        return {group_id: self._wrap(group) for group_id, group in joined.items()}

    def list_groups(self) -> list[GroupInfo]:
        return call(self._groups.list_groups)

    def held_count(self, group: GroupId | GroupInfo) -> int:
        return call(self._groups.held_count, group)

    def wait_until_synced(self, timeout_s: float | None = None) -> bool:
        return run(self._groups.wait_until_synced(timeout_s))

    def find(self, name: str, timeout_s: float | None = None) -> GroupInfo:
        return run(self._groups.find(name, timeout_s))

    def create(
        self, description: str, *, retention: RetentionPolicy | None = None, well_known_name: str | None = None
    ) -> Group:
        return self._wrap(run(self._groups.create(description, retention=retention, well_known_name=well_known_name)))

    def join(self, group: GroupId | GroupInfo) -> Group:
        return self._wrap(run(self._groups.join(group)))

    def listen(self, group: GroupId | GroupInfo) -> Group:
        return self._wrap(run(self._groups.listen(group)))

    def leave(self, group: GroupId | Group) -> None:
        run(self._groups.leave(group.id if isinstance(group, Group) else group))

    def decline(self, group: GroupId | GroupInfo) -> None:
        call(self._groups.decline, group)

    def on_event(self, callback: Callable[[GroupEvent], None]) -> Callable[[], None]:
        unsubscribe = call(self._groups.on_event, callback)
        return lambda: call(unsubscribe)

    def events(self) -> Iterator[GroupEvent]:
        return iterate(self._groups.events())

    def close(self) -> None:
        run(self._groups.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _wrap(self, group: broadloom.groups.group.Group) -> Group:
        found = self._wrapped.get(group.id)
        if found is None or found._group is not group:
            found = self._wrapped[group.id] = Group(group)
        return found
