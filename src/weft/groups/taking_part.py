"""The public object: the groups of one channel, as one program takes part in them.

async with weft.connect("chat/lobby") as channel, channel.groups("Anna", store="anna.db") as here:
    club = await here.create("Chess club")
    question = await club.send_text("Who plays white?")
    async for message in club:
        print(message.name, message.text)
"""

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from weft.groups.errors import NoSuchGroup
from weft.groups.events import Greeted, GroupEvent, GroupInfo
from weft.groups.group import Group
from weft.groups.history import Store
from weft.groups.meant import Ambiguous, group_id, meant
from weft.groups.names import GroupId, Member, Message
from weft.groups.over_channel import ChannelMedium
from weft.groups.participant import Participant
from weft.groups.settings import Keep, Settings
from weft.groups.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.fabric.events import Message as ChannelMessage

log = logging.getLogger("weft")

EVENTS_MAX = 1000
"""Events kept for each reader of `events()`; the oldest give way."""
GREETING_WINDOWS = 1.5
"""So many windows for answers we wait to be greeted: the answer takes a moment to come."""


class Groups:
    """Made by `channel.groups`. All from one event loop."""

    def __init__(
        self,
        channel: "Channel",
        member: str,
        store: Store | None,
        settings: Settings | None,
        on_other: "Callable[[ChannelMessage], None] | None",
    ) -> None:
        self.channel = channel
        self._listeners: list[Callable[[GroupEvent], None]] = []
        self._wakers: list[Callable[[GroupEvent | None], None]] = []
        self._joined: dict[GroupId, Group] = {}
        self._early: list[GroupEvent] | None = []
        """What happens before the program can have begun to listen."""
        self._ended = asyncio.Event()
        self._greeted = asyncio.Event()
        self._is_closed = False
        self.medium = ChannelMedium(channel, self._deliver, self._tell, on_other, self._end_reading)
        self.participant = Participant(self.medium, member, store, settings)
        for group in self.participant.conversations:
            self._joined[group] = Group(self, group)
        self.medium.serve(self.participant)
        self.participant.arrive()
        asyncio.get_running_loop().call_soon(self._tell_early)

    @property
    def me(self) -> Member:
        return self.participant.me

    # -- groups

    def known(self) -> list[GroupInfo]:
        """All groups that we have heard of."""
        return self.participant.groups()

    @property
    def joined(self) -> dict[GroupId, Group]:
        """The groups that we are in; also those that were joined before, by the same store."""
        return {named: group for named, group in self._joined.items() if self.participant.is_in(named)}

    def held(self, group: GroupId | GroupInfo) -> int:
        """Messages of a group that we hold, joined or not."""
        return self.participant.held(_id(group))

    async def greeted(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody has answered our arrival, so that we know the groups that it knows. False if nobody did
        in time (else the time that others take for it): nobody is there, or knows more of groups than we do."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._greeting_s if timeout_s is None else timeout_s):
                await self._greeted.wait()
        return self._greeted.is_set()

    async def find(self, called: str, timeout_s: float | None = None) -> GroupInfo:
        """The group that is called this: its description, the identity it was made by, or the first digits of its id.
        Waits for it as for `greeted`. NoSuchGroup if there is none, or if several are called so."""
        news = asyncio.Event()
        end = self.on_event(lambda _event: news.set())
        try:
            async with asyncio.timeout(self._greeting_s if timeout_s is None else timeout_s):
                while True:
                    try:
                        return meant(called, self.known())
                    except Ambiguous:
                        raise
                    except NoSuchGroup:
                        news.clear()
                        await news.wait()
        except TimeoutError:
            return meant(called, self.known())
        finally:
            end()

    @property
    def _greeting_s(self) -> float:
        return GREETING_WINDOWS * self.participant.settings.answer_s

    async def create(self, description: str, *, keep: Keep | None = None, identity: str | None = None) -> Group:
        """A new group with us in it. With `identity`, whoever creates it by the same text finds the same group."""
        named = group_id(identity) if identity is not None else None
        return self._open(self.participant.create(description, keep, named))

    async def join(self, group: GroupId | GroupInfo) -> Group:
        """A group that was offered, or is in `known`."""
        named = _id(group)
        self.participant.join(named)
        return self._open(named)

    async def listen(self, group: GroupId | GroupInfo) -> Group:
        """Hear a group without being in it: its history comes, and what is said; nobody is told that we listen."""
        named = _id(group)
        self.participant.listen(named)
        return self._open(named)

    async def leave(self, group: GroupId | Group) -> None:
        """For good."""
        self.left(group.id if isinstance(group, Group) else group)

    def reject(self, group: GroupId | GroupInfo) -> None:
        """Not offered again until we next arrive."""
        self.participant.reject(_id(group))

    def _open(self, named: GroupId) -> Group:
        found = self._joined.get(named)
        if found is None:
            found = self._joined[named] = Group(self, named)
        return found

    def left(self, named: GroupId) -> None:
        if named not in self._joined:
            raise NoSuchGroup(f"group {named:016x} was not joined")
        self.participant.leave(named)
        self._joined.pop(named).close()

    # -- events

    def on_event(self, callback: Callable[[GroupEvent], None]) -> Callable[[], None]:
        """Call this for every event. Returns a function that ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    async def events(self) -> AsyncIterator[GroupEvent]:
        """Events as they come, until this is closed."""
        waiting: deque[GroupEvent] = deque(maxlen=EVENTS_MAX)
        news = asyncio.Event()

        def happened(event: GroupEvent | None) -> None:
            if event is not None:
                waiting.append(event)
            news.set()

        self._wakers.append(happened)
        end = self.on_event(happened)
        try:
            while True:
                while waiting:
                    yield waiting.popleft()
                if self._ended.is_set():
                    return
                news.clear()
                await news.wait()
        finally:
            end()
            self._wakers.remove(happened)

    # -- told by the member

    def _deliver(self, message: Message) -> None:
        group = self._joined.get(message.group)
        if group is not None:
            group.put(message)

    def _tell_early(self) -> None:
        early, self._early = self._early or [], None
        for event in early:
            self._tell(event)

    def _tell(self, event: GroupEvent) -> None:
        if isinstance(event, Greeted):
            self._greeted.set()
        if self._early is not None:
            self._early.append(event)
            return
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("%s: a callback for events of groups failed", self.channel.name)

    # -- the end

    async def close(self) -> None:
        """Stop taking part, and stay a member: whoever comes back with the same store goes on. The channel stays."""
        if self._is_closed:
            return
        self._is_closed = True
        self.participant.depart()
        self._end_reading()
        await self.medium.close()
        self.participant.store.close()

    def _end_reading(self) -> None:
        """Nothing comes any more: this was closed, or the channel was left."""
        self._ended.set()
        for group in self._joined.values():
            group.close()
        for wake in self._wakers:
            wake(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def groups(
    channel: "Channel",
    member: str,
    *,
    store: "Store | str | os.PathLike[str] | None" = None,
    settings: Settings | None = None,
    on_other: "Callable[[ChannelMessage], None] | None" = None,
) -> Groups:
    """Take part in the groups of a channel, and say that we are here.

    - `member`: our name for people.
    - `store`: a file for our history and our identity, or nothing to forget both with the process.
    - `on_other`: gets the messages of the channel that are no group's; without it they are counted and dropped, since
      the groups read the channel from now on.
    """
    kept = SqliteStore(Path(store)) if isinstance(store, str | os.PathLike) else store
    return Groups(channel, member, kept, settings, on_other)


def _id(group: GroupId | GroupInfo) -> GroupId:
    return group.id if isinstance(group, GroupInfo) else group
