"""`Groups`: the public object, one program's membership in all groups of a channel.

async with broadloom.connect("chat/lobby") as channel, Groups(channel, "Anna", store="anna.db") as groups:
    club = await groups.create("Chess club")
    await club.send_text("Who plays white?")
    async for message in club:
        print(message.author_name, message.text)
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from broadloom.channel.arguments import check_callback, check_timeout
from broadloom.channel.closable import AsyncClosable
from broadloom.channel.event_listeners import EventListeners
from broadloom.channel.outgoing import Way
from broadloom.errors import AmbiguousGroupError, GroupNotFoundError
from broadloom.groups.channel_runtime import ChannelGroupRuntime
from broadloom.groups.codec import LAYER
from broadloom.groups.group import Group
from broadloom.groups.model import DirectorySynced, GroupEvent, GroupId, GroupInfo, GroupMessage, Member, MemberStatus
from broadloom.groups.participant import Participant
from broadloom.groups.settings import GroupSettings, RetentionPolicy
from broadloom.groups.sqlite_store import SqliteStore
from broadloom.groups.store import Store

if TYPE_CHECKING:
    from broadloom.channel import Channel

SYNC_WINDOWS = 1.5
"""Reply windows to wait for the first directory page: it is sent within one and takes a moment to arrive."""
ID_PREFIX_MIN = 4
"""Shorter hexadecimal prefixes of a group id could be words."""
CANDIDATES_MAX = 10
"""Groups listed in an error message."""


class HasGroupId(Protocol):
    """A `GroupInfo` or a `Group`."""

    @property
    def id(self) -> GroupId: ...


class Groups(AsyncClosable):
    """The groups of `channel`, joined as the member `name`. Use it with `async with`, or call `aclose()`.

    - `store`: an SQLite file (or a `Store`) for the member's identity, groups and history. By default they are kept in
      memory, so every run is a new member.

    Group messages do not appear among those of the channel, which can be read as before.

    Not thread-safe: use it from one event loop.
    """

    def __init__(
        self,
        channel: "Channel",
        name: str,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        settings: GroupSettings | None = None,
    ) -> None:
        self.channel = channel
        self._listeners: EventListeners[GroupEvent] = EventListeners(channel.name)
        self._joined: dict[GroupId, Group] = {}
        self._early_events: list[GroupEvent] | None = []
        """Events from before the program had a chance to register a callback."""
        self._synced = asyncio.Event()
        self._is_closed = False
        self._runtime = ChannelGroupRuntime(channel, self._deliver, self._emit, self._end_reading)
        opened = SqliteStore(store) if isinstance(store, str | os.PathLike) else store
        self._participant = Participant(self._runtime, name, opened, settings)
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
        """All known groups, joined or not."""
        return self._participant.groups()

    @property
    def joined(self) -> dict[GroupId, Group]:
        """The groups this member is in, including those it joined in earlier runs with the same store."""
        return {group_id: group for group_id, group in self._joined.items() if self._participant.is_in(group_id)}

    def members(self, group: GroupId | HasGroupId) -> dict[Member, MemberStatus]:
        """Current and former members of a known group, joined or not, sorted by name."""
        return self._participant.members(_id(group))

    def stored_count(self, group: GroupId | HasGroupId) -> int:
        """Number of messages of a group in the store, joined or not."""
        return self._participant.store.history(_id(group)).count

    async def wait_until_synced(self, timeout_s: float | None = None) -> bool:
        """Wait for the first answer to our directory request, after which all groups its sender knows are known here.

        Returns False if none came in time: there is no other peer, or none knows more groups. By default it waits as
        long as other members may take to answer.
        """
        check_timeout(timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._sync_timeout_s if timeout_s is None else timeout_s):
                await self._synced.wait()
        return self._synced.is_set()

    async def find(self, name: str, timeout_s: float | None = None) -> GroupInfo:
        """Wait for a group, given its description, its `well_known_name` or the first digits of its id.

        Raises `GroupNotFoundError` if there is no such group in time, `AmbiguousGroupError` if there are several.
        """
        check_timeout(timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._sync_timeout_s if timeout_s is None else timeout_s):
                await self._listeners.wait_until(lambda: bool(_matches(name, self.list_groups())))
        return resolve_group(name, self.list_groups())

    @property
    def _sync_timeout_s(self) -> float:
        return SYNC_WINDOWS * self._participant.settings.reply_window_s

    async def create(
        self, description: str, *, retention: RetentionPolicy | None = None, well_known_name: str | None = None
    ) -> Group:
        """Create a group and join it. All members that use the same `well_known_name` get the same group."""
        if isinstance(description, str):  # others are rejected below
            filtered = await self.channel._filter_content(description.encode(), Way.POST, layer=LAYER)
            description = filtered.decode(errors="replace")
        group_id = group_id_from_name(well_known_name) if well_known_name is not None else None
        return self._open(self._participant.create(description, retention, group_id))

    async def join(self, group: GroupId | HasGroupId) -> Group:
        """Join a known group. Its history follows automatically."""
        self._participant.join(_id(group))
        return self._open(_id(group))

    async def listen(self, group: GroupId | HasGroupId) -> Group:
        """Receive a group's history and messages without joining it. The members do not notice."""
        self._participant.listen(_id(group))
        return self._open(_id(group))

    async def leave(self, group: GroupId | HasGroupId) -> None:
        """Leave a group permanently. To come back later, just close: the membership stays."""
        self._participant.leave(_id(group))
        self._joined.pop(_id(group))._close()

    def decline(self, group: GroupId | HasGroupId) -> None:
        """Do not report this group again in this session."""
        self._participant.decline(_id(group))

    def _open(self, group_id: GroupId) -> Group:
        if group_id not in self._joined:
            self._joined[group_id] = Group(self, group_id)
        return self._joined[group_id]

    # -- events

    def on_event(self, callback: Callable[[GroupEvent], None]) -> Callable[[], None]:
        """Call `callback` for every event. Returns a function that unsubscribes it."""
        check_callback(callback)
        return self._listeners.add(callback)

    def events(self) -> AsyncGenerator[GroupEvent, None]:
        """Events as they happen, until this object is closed or the channel is left."""
        return self._listeners.events()

    def _emit_early(self) -> None:
        early, self._early_events = self._early_events or [], None
        for event in early:
            self._emit(event)

    def _emit(self, event: GroupEvent) -> None:
        if isinstance(event, DirectorySynced):
            self._synced.set()
        if self._early_events is not None:
            self._early_events.append(event)
        else:
            self._listeners.emit(event)

    def _deliver(self, message: GroupMessage) -> None:
        group = self._joined.get(message.group_id)
        if group is not None:
            group._put(message)

    # -- closing

    async def aclose(self) -> None:
        """Go offline and close the store. Memberships stay, and so does the channel."""
        if self._is_closed:
            return
        self._is_closed = True
        self._participant.go_offline()
        self._end_reading()
        await self._runtime.close()
        self._participant.store.close()

    def _end_reading(self) -> None:
        """Also called when the channel is left."""
        for group in self._joined.values():
            group._close()
        self._listeners.end()


def _id(group: GroupId | HasGroupId) -> GroupId:
    return GroupId(group if isinstance(group, int) else group.id)


def group_id_from_name(name: str) -> GroupId:
    """The id of the group with this `well_known_name`."""
    return GroupId(int.from_bytes(hashlib.sha256(b"broadloom group\0" + name.encode()).digest()[:8], "big") or 1)


def resolve_group(name: str, groups: Iterable[GroupInfo]) -> GroupInfo:
    """The one group with this description, title (first line), well-known name or id prefix, tried in this order.

    Raises `GroupNotFoundError` if there is none, `AmbiguousGroupError` if there are several.
    """
    known = list(groups)
    found = _matches(name, known)
    if len(found) > 1:
        raise AmbiguousGroupError(f"{name!r} matches several groups; use the id of one: {_format_groups(found)}")
    if not found:
        candidates = f"known groups: {_format_groups(known)}" if known else "no groups are known here"
        raise GroupNotFoundError(f"no group matches {name!r}; {candidates}")
    return found[0]


def _matches(name: str, groups: list[GroupInfo]) -> list[GroupInfo]:
    folded = name.casefold()
    prefix = name.lower() if len(name) >= ID_PREFIX_MIN else "?"
    return (
        [each for each in groups if name in (each.description, _title(each))]
        or [each for each in groups if each.id == group_id_from_name(name)]
        or [each for each in groups if folded in (each.description.casefold(), _title(each).casefold())]
        or [each for each in groups if f"{each.id:016x}".startswith(prefix)]
    )


def _title(group: GroupInfo) -> str:
    return group.description.partition("\n")[0]


def _format_groups(groups: list[GroupInfo]) -> str:
    listed = [f"{each.id:016x} {each.description!r}" for each in groups[:CANDIDATES_MAX]]
    more = [f"and {len(groups) - CANDIDATES_MAX:,} more"] if len(groups) > CANDIDATES_MAX else []
    return ", ".join([*listed, *more])
