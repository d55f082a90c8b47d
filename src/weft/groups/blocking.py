"""Groups for programs that are not asynchronous: the twin of `Groups` and `Group`, over a blocking channel.

    import weft.blocking

    with weft.blocking.connect("chat/lobby") as channel, channel.groups("Anna", store="anna.db") as here:
        club = here.create("Chess club")
        club.send_text("Who plays white?")
        while message := club.receive(timeout_s=10):
            print(message.name, message.text)

Everything may be called from any thread; callbacks come in Weft's thread and must not block.
"""

import os
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import weft.blocking
from weft.blocking import SWITCH_S, _background, _call
from weft.groups import taking_part as asynchronous
from weft.groups.errors import NoSuchGroup
from weft.groups.group import Group as AsyncGroup
from weft.groups.group import Line
from weft.groups.names import GroupId, Member, Message, MessageId

if TYPE_CHECKING:
    from weft.fabric.events import Message as ChannelMessage
    from weft.groups.events import GroupEvent, GroupInfo, Here
    from weft.groups.history import Store
    from weft.groups.settings import Keep, Settings

T = TypeVar("T")


def _run(work: Coroutine[Any, Any, T], timeout_s: float | None = SWITCH_S) -> T:
    return _background.run(work, timeout_s)


def _ask(act: Callable[..., T], *args: Any) -> T:
    """What is known or changed at once, but in Weft's thread only."""
    return _run(_call(act, *args))


class Group:
    """A group whose methods wait for their results. Thread-safe."""

    def __init__(self, group: AsyncGroup) -> None:
        self._group = group
        self.id = group.id

    @property
    def info(self) -> "GroupInfo":
        return _ask(lambda: self._group.info)

    @property
    def description(self) -> str:
        return self.info.description

    def send(self, data: bytes, reply_to: Message | MessageId | None = None) -> Message:
        return _run(self._group.send(data, reply_to), None)

    def send_text(self, text: str, reply_to: Message | MessageId | None = None) -> Message:
        return self.send(text.encode(), reply_to)

    def acquire(self) -> Message | None:
        """The next message, or None at once if there is none: for a main loop that polls."""
        return _ask(self._group.acquire) if self._group.unread else None

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if none comes in time. NoSuchGroup if none can come any more."""
        try:
            return _run(self._group.receive(timeout_s), None)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, until the group is left."""
        while True:
            try:
                message = self.receive()
            except NoSuchGroup:
                return
            if message is not None:
                yield message

    def members(self) -> "dict[Member, Here]":
        return _ask(self._group.members)

    def history(self) -> list[Message]:
        return _ask(self._group.history)

    def message(self, named: MessageId) -> Message | None:
        return _ask(self._group.message, named)

    def thread(self, message: Message | MessageId) -> list[Line]:
        return _ask(self._group.thread, message)

    @property
    def is_catching_up(self) -> bool:
        return _ask(lambda: self._group.is_catching_up)

    def leave(self) -> None:
        _run(self._group.leave())


class Groups:
    """Made by `channel.groups`. Thread-safe."""

    def __init__(self, made: asynchronous.Groups) -> None:
        self._groups = made
        self._seen: dict[GroupId, Group] = {}

    @property
    def me(self) -> Member:
        return self._groups.me

    def known(self) -> "list[GroupInfo]":
        return _ask(self._groups.known)

    @property
    def joined(self) -> dict[GroupId, Group]:
        there = _ask(lambda: self._groups.joined)
        return {named: self._twin(group) for named, group in there.items()}

    def held(self, group: "GroupId | GroupInfo") -> int:
        return _ask(self._groups.held, group)

    def greeted(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody has told us the groups that it knows; False if nobody did in time."""
        return _run(self._groups.greeted(timeout_s), None)

    def find(self, called: str, timeout_s: float | None = None) -> "GroupInfo":
        return _run(self._groups.find(called, timeout_s), None)

    def create(self, description: str, *, keep: "Keep | None" = None, identity: str | None = None) -> Group:
        return self._twin(_run(self._groups.create(description, keep=keep, identity=identity)))

    def join(self, group: "GroupId | GroupInfo") -> Group:
        return self._twin(_run(self._groups.join(group)))

    def listen(self, group: "GroupId | GroupInfo") -> Group:
        return self._twin(_run(self._groups.listen(group)))

    def leave(self, group: GroupId | Group) -> None:
        _run(self._groups.leave(group.id if isinstance(group, Group) else group))

    def reject(self, group: "GroupId | GroupInfo") -> None:
        _ask(self._groups.reject, group)

    def on_event(self, callback: "Callable[[GroupEvent], None]") -> Callable[[], None]:
        """Call this for every event, in Weft's thread. Returns a function that ends it."""
        end = _ask(self._groups.on_event, callback)

        def end_from_here() -> None:
            _background.loop().call_soon_threadsafe(end)

        return end_from_here

    def close(self) -> None:
        _run(self._groups.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _twin(self, group: AsyncGroup) -> Group:
        found = self._seen.get(group.id)
        if found is None or found._group is not group:
            found = self._seen[group.id] = Group(group)
        return found


def groups(
    channel: weft.blocking.Channel,
    member: str,
    *,
    store: "Store | str | os.PathLike[str] | None" = None,
    settings: "Settings | None" = None,
    on_other: "Callable[[ChannelMessage], None] | None" = None,
) -> Groups:
    """Take part in the groups of a blocking channel. The options are those of `weft.groups.groups`."""

    async def make() -> asynchronous.Groups:
        return asynchronous.groups(channel._channel, member, store=store, settings=settings, on_other=on_other)

    return Groups(_run(make()))
