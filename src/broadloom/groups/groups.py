"""The public object: the groups of one channel, as one program takes part in them.

async with broadloom.connect("chat/lobby") as channel, channel.groups("Anna", store="anna.db") as here:
    club = await here.create("Chess club")
    question = await club.send_text("Who plays white?")
    async for message in club:
        print(message.name, message.text)
"""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from broadloom.errors import GroupNotFoundError
from broadloom.groups.channel_runtime import ChannelRuntime
from broadloom.groups.group import Group
from broadloom.groups.model import DirectorySynced, GroupEvent, GroupId, GroupInfo, GroupMessage, Member
from broadloom.groups.participant import Participant
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import Store

if TYPE_CHECKING:
    from broadloom.channel import Channel
    from broadloom.protocol.events import Message as ChannelMessage


# Which group somebody means: by what it is called, by the text it was made by, or by the first digits of its id.


DIGITS_MIN = 4
"""Of an id: fewer may be a word."""
LISTED_MAX = 10
"""Groups named in an error."""


def group_id_from_name(name: str) -> GroupId:
    """The id of a group that all find by the same text."""
    return int.from_bytes(hashlib.sha256(b"broadloom group\0" + name.encode()).digest()[:8], "big") or 1


class AmbiguousGroupError(GroupNotFoundError):
    """Several groups are called the same."""


def resolve_group(name: str, groups: Iterable[GroupInfo]) -> GroupInfo:
    """The one group that is called this; NoSuchGroup, with those that there are, if there is none, or more than one."""
    known_groups = list(groups)
    folded = name.casefold()
    digits = name.lower() if len(name) >= DIGITS_MIN else "?"
    for found in (
        [each for each in known_groups if name in (each.description, _title(each))],
        [each for each in known_groups if each.id == group_id_from_name(name)],
        [each for each in known_groups if folded in (each.description.casefold(), _title(each).casefold())],
        [each for each in known_groups if f"{each.id:016x}".startswith(digits)],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousGroupError(
                f"several groups are called {name!r}; give the id of one: {_format_groups(found)}"
            )
    candidates = f"there are: {_format_groups(known_groups)}" if known_groups else "none is known here"
    raise GroupNotFoundError(f"no group is called {name!r}; {candidates}")


def _title(group: GroupInfo) -> str:
    """A description may have a title: its first line."""
    return group.description.partition("\n")[0]


def _format_groups(groups: list[GroupInfo]) -> str:
    listed = [f"{each.id:016x} {each.description!r}" for each in groups[:LISTED_MAX]]
    more = [f"and {len(groups) - LISTED_MAX:,} more"] if len(groups) > LISTED_MAX else []
    return ", ".join([*listed, *more])


log = logging.getLogger("broadloom")

EVENTS_MAX = 1000
"""Events kept for each reader of `events()`; the oldest give way."""
SYNC_WINDOWS = 1.5
"""So many windows for answers we wait to be greeted: the answer takes a moment to come."""


class Groups:
    """Made by `channel.groups`. All from one event loop."""

    def __init__(
        self,
        channel: "Channel",
        name: str,
        store: Store | None,
        settings: GroupSettings | None,
        on_unhandled: "Callable[[ChannelMessage], None] | None",
    ) -> None:
        self.channel = channel
        self._listeners: list[Callable[[GroupEvent], None]] = []
        self._wakers: list[Callable[[GroupEvent | None], None]] = []
        self._joined: dict[GroupId, Group] = {}
        self._early_events: list[GroupEvent] | None = []
        """What happens before the program can have begun to listen."""
        self._ended = asyncio.Event()
        self._synced = asyncio.Event()
        self._is_closed = False
        self._runtime = ChannelRuntime(channel, self._deliver, self._emit, on_unhandled, self._end_reading)
        self._participant = Participant(self._runtime, name, store, settings)
        for group in self._participant.conversations:
            self._joined[group] = Group(self, group)
        self._runtime.attach(self._participant)
        self._participant.announce()
        asyncio.get_running_loop().call_soon(self._emit_early)

    @property
    def me(self) -> Member:
        return self._participant.me

    # -- groups

    def list_groups(self) -> list[GroupInfo]:
        """All groups that we have heard of."""
        return self._participant.groups()

    @property
    def joined(self) -> dict[GroupId, Group]:
        """The groups that we are in; also those that were joined before, by the same store."""
        return {group_id: group for group_id, group in self._joined.items() if self._participant.is_in(group_id)}

    def held_count(self, group: GroupId | GroupInfo) -> int:
        """Messages of a group that we hold, joined or not."""
        return self._participant.held_count(_id(group))

    async def wait_until_synced(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody has answered our arrival, so that we know the groups that it knows. False if nobody did
        in time (else the time that others take for it): nobody is there, or knows more of groups than we do."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._sync_timeout_s if timeout_s is None else timeout_s):
                await self._synced.wait()
        return self._synced.is_set()

    async def find(self, name: str, timeout_s: float | None = None) -> GroupInfo:
        """The group that is called this: its description, the identity it was made by, or the first digits of its id.
        Waits for it as for `greeted`. NoSuchGroup if there is none, or if several are called so."""
        wakeup = asyncio.Event()
        unsubscribe = self.on_event(lambda _event: wakeup.set())
        try:
            async with asyncio.timeout(self._sync_timeout_s if timeout_s is None else timeout_s):
                while True:
                    try:
                        return resolve_group(name, self.list_groups())
                    except AmbiguousGroupError:
                        raise
                    except GroupNotFoundError:
                        wakeup.clear()
                        await wakeup.wait()
        except TimeoutError:
            return resolve_group(name, self.list_groups())
        finally:
            unsubscribe()

    @property
    def _sync_timeout_s(self) -> float:
        return SYNC_WINDOWS * self._participant.settings.reply_window_s

    async def create(
        self, description: str, *, retention: RetentionPolicy | None = None, well_known_name: str | None = None
    ) -> Group:
        """A new group with us in it. With `identity`, whoever creates it by the same text finds the same group."""
        group_id = group_id_from_name(well_known_name) if well_known_name is not None else None
        return self._open(self._participant.create(description, retention, group_id))

    async def join(self, group: GroupId | GroupInfo) -> Group:
        """A group that was offered, or is in `known`."""
        group_id = _id(group)
        self._participant.join(group_id)
        return self._open(group_id)

    async def listen(self, group: GroupId | GroupInfo) -> Group:
        """Hear a group without being in it: its history comes, and what is said; nobody is told that we listen."""
        group_id = _id(group)
        self._participant.listen(group_id)
        return self._open(group_id)

    async def leave(self, group: GroupId | Group) -> None:
        """For good."""
        self._leave(group.id if isinstance(group, Group) else group)

    def decline(self, group: GroupId | GroupInfo) -> None:
        """Not offered again until we next arrive."""
        self._participant.decline(_id(group))

    def _open(self, group_id: GroupId) -> Group:
        found = self._joined.get(group_id)
        if found is None:
            found = self._joined[group_id] = Group(self, group_id)
        return found

    def _leave(self, group_id: GroupId) -> None:
        if group_id not in self._joined:
            raise GroupNotFoundError(f"group {group_id:016x} was not joined")
        self._participant.leave(group_id)
        self._joined.pop(group_id)._close()

    # -- events

    def on_event(self, callback: Callable[[GroupEvent], None]) -> Callable[[], None]:
        """Call this for every event. Returns a function that ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    async def events(self) -> AsyncIterator[GroupEvent]:
        """Events as they come, until this is closed."""
        waiting: deque[GroupEvent] = deque(maxlen=EVENTS_MAX)
        wakeup = asyncio.Event()

        def on_event(event: GroupEvent | None) -> None:
            if event is not None:
                waiting.append(event)
            wakeup.set()

        self._wakers.append(on_event)
        unsubscribe = self.on_event(on_event)
        try:
            while True:
                while waiting:
                    yield waiting.popleft()
                if self._ended.is_set():
                    return
                wakeup.clear()
                await wakeup.wait()
        finally:
            unsubscribe()
            self._wakers.remove(on_event)

    # -- told by the member

    def _deliver(self, message: GroupMessage) -> None:
        group = self._joined.get(message.group_id)
        if group is not None:
            group._put(message)

    def _emit_early(self) -> None:
        early, self._early_events = self._early_events or [], None
        for event in early:
            self._emit(event)

    def _emit(self, event: GroupEvent) -> None:
        if isinstance(event, DirectorySynced):
            self._synced.set()
        if self._early_events is not None:
            self._early_events.append(event)
            return
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("%s: a callback for events of groups failed", self.channel.name)

    # -- the end

    async def aclose(self) -> None:
        """Stop taking part, and stay a member: whoever comes back with the same store goes on. The channel stays."""
        if self._is_closed:
            return
        self._is_closed = True
        self._participant.go_offline()
        self._end_reading()
        await self._runtime.close()
        self._participant.store.close()

    def _end_reading(self) -> None:
        """Nothing comes any more: this was closed, or the channel was left."""
        self._ended.set()
        for group in self._joined.values():
            group._close()
        for wake in self._wakers:
            wake(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def groups(
    channel: "Channel",
    name: str,
    *,
    store: "Store | str | os.PathLike[str] | None" = None,
    settings: GroupSettings | None = None,
    on_unhandled: "Callable[[ChannelMessage], None] | None" = None,
) -> Groups:
    """Take part in the groups of a channel, and say that we are here.

    - `member`: our name for people.
    - `store`: a file for our history and our identity, or nothing to forget both with the process.
    - `on_unhandled`: gets the messages of the channel that are no group's; without it they are counted and dropped,
      since the groups read the channel from now on.
    """
    kept = SqliteStore(Path(store)) if isinstance(store, str | os.PathLike) else store
    return Groups(channel, name, kept, settings, on_unhandled)


def _id(group: GroupId | GroupInfo) -> GroupId:
    return group.id if isinstance(group, GroupInfo) else group
