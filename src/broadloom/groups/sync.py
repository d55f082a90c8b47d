"""`Groups` and `Group` for synchronous programs: same names, results and exceptions, without `await`.

    with broadloom.sync.connect("chat/lobby") as channel, Groups(channel, "Anna", store="anna.db") as groups:
        club = groups.create("Chess club")
        club.send_text("Who plays white?")
        for message in club:
            print(message.author_name, message.text)

Thread-safe. Callbacks run in Broadloom's own thread and must not block.
"""

import functools
import os

import broadloom.sync
from broadloom.groups.group import Group as AsyncGroup
from broadloom.groups.groups import Groups as AsyncGroups
from broadloom.groups.model import GroupId, GroupInfo, Member
from broadloom.groups.settings import GroupSettings
from broadloom.groups.store import Store
from broadloom.sync.bridge import (
    Attribute,
    ClosableSyncWrapper,
    SyncWrapper,
    awaits,
    awaits_into,
    call,
    calls,
    iterates,
    polls,
    subscribes,
)


class Group(SyncWrapper[AsyncGroup]):
    """The synchronous twin of `broadloom.groups.Group`."""

    id = Attribute[GroupId]()
    info = Attribute[GroupInfo](in_loop=True)
    description = Attribute[str](in_loop=True)
    is_catching_up = Attribute[bool](in_loop=True)
    unread_count = Attribute[int]()
    dropped_count = Attribute[int]()
    send = awaits(AsyncGroup.send)
    send_text = awaits(AsyncGroup.send_text)
    receive = awaits(AsyncGroup.receive)
    receive_nowait = polls(AsyncGroup.receive_nowait)
    __iter__ = iterates(AsyncGroup.__aiter__)
    leave = awaits(AsyncGroup.leave)
    members = calls(AsyncGroup.members)
    history = calls(AsyncGroup.history)
    get = calls(AsyncGroup.get)
    thread = calls(AsyncGroup.thread)


class Groups(ClosableSyncWrapper[AsyncGroups]):
    """The synchronous twin of `broadloom.groups.Groups`, with the same options. Use it with `with`, or `close` it."""

    def __init__(
        self,
        channel: broadloom.sync.Channel,
        name: str,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        settings: GroupSettings | None = None,
    ) -> None:
        self.channel = channel
        make = functools.partial(AsyncGroups, store=store, settings=settings)
        super().__init__(call(make, channel._wrapped, name))

    me = Attribute[Member]()
    on_event = subscribes(AsyncGroups.on_event)
    events = iterates(AsyncGroups.events)
    list_groups = calls(AsyncGroups.list_groups)
    members = calls(AsyncGroups.members)
    stored_count = calls(AsyncGroups.stored_count)
    decline = calls(AsyncGroups.decline)
    wait_until_synced = awaits(AsyncGroups.wait_until_synced)
    find = awaits(AsyncGroups.find)
    create = awaits_into(Group, AsyncGroups.create)
    join = awaits_into(Group, AsyncGroups.join)
    listen = awaits_into(Group, AsyncGroups.listen)
    leave = awaits(AsyncGroups.leave)

    @property
    def joined(self) -> dict[GroupId, Group]:
        return {group_id: Group(group) for group_id, group in call(lambda: self._wrapped.joined).items()}
