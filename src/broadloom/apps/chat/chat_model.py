"""The whole chat without its screen: the groups that we are in, invitations, and what happened since somebody looked.

The channel may bring thousands of messages a second, and the screen must stay quick. So nothing is drawn when it
happens: messages wait with their groups, events leave marks here, and `work` takes in as much as a given time allows.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from broadloom.apps.chat.group_model import CatchUpProgress, GroupModel, title_of
from broadloom.apps.chat.read_state import ReadState
from broadloom.groups import (
    CatchingUp,
    CaughtUp,
    Group,
    GroupDiscovered,
    GroupEvent,
    GroupId,
    GroupInfo,
    GroupMessage,
    Groups,
    LimitReached,
    MemberJoined,
    MemberLeft,
    MemberOffline,
    MemberOnline,
    MessageId,
)

# What was written and waits to be said: one after the other, in order, while the channel may be behind.


OUTBOX_MAX = 50
"""Texts that wait; one more is refused, and stays where it was written."""


class Outbox:
    """`run` it as a task of its own."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(OUTBOX_MAX)

    @property
    def pending_count(self) -> int:
        return self._queue.qsize()

    def put(self, send: Callable[[], Awaitable[None]]) -> bool:
        """False if too much waits already."""
        try:
            self._queue.put_nowait(send)
        except asyncio.QueueFull:
            return False
        return True

    async def run(self) -> None:
        while True:
            await (await self._queue.get())()


TREES_MAX = 8
"""Groups whose tree is held; the one not looked at for longest gives way."""
NOTICES_MAX = 100
"""Things to tell that wait; the oldest give way to later ones."""


@dataclass
class Changes:
    """What changed since it was asked for last."""

    groups: bool = False
    """Groups, invitations or their unread counts."""
    conversation: bool = False
    """Of the group that is shown."""
    members: bool = False
    new_invitations: list[GroupInfo] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class ChatModel:
    def __init__(self, groups: Groups, read_state: ReadState, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` counts computing time: on a busy machine the hours pass without anything being done."""
        self.groups = groups
        self.read_state = read_state
        self._clock = clock
        self.group_models: dict[GroupId, GroupModel] = {}
        self.invitations: dict[GroupId, GroupInfo] = {}
        """Groups that we were invited to, and have neither joined nor rejected."""
        self.shown: GroupModel | None = None
        self._recently_shown: dict[GroupId, None] = {}
        """Groups with a tree; the one looked at last stands at the end."""
        self._groups_changed = self._members_changed = self._shown_changed = True
        self._new_invitations: deque[GroupInfo] = deque(maxlen=NOTICES_MAX)
        self._notices: deque[str] = deque(maxlen=NOTICES_MAX)
        for group in groups.joined.values():
            self.group_models[group.id] = GroupModel(groups, group, read_state)
        self._unsubscribe = groups.on_event(self._on_event)
        for info in groups.list_groups():
            if not info.is_joined and not info.is_declined:
                self.invitations[info.id] = info
        if read_state.load_error:
            self._notices.append(read_state.load_error)

    def close(self) -> None:
        """OSError if what was read cannot be saved."""
        self._unsubscribe()
        self.read_state.save()

    @property
    def is_closed(self) -> bool:
        """Whether the channel was left: nobody would hear us."""
        return self.groups.channel.status().state == "left"

    def sorted_groups(self) -> list[GroupModel]:
        """By title, so that each stays where the hand expects it."""
        return sorted(self.group_models.values(), key=lambda talk: (talk.title.casefold(), talk.id))

    # -- groups

    def show(self, group_model: GroupModel | None) -> None:
        self.shown = group_model
        self._shown_changed = self._members_changed = self._groups_changed = True
        if group_model is not None:
            group_model.open()
            self._recently_shown.pop(group_model.id, None)
            self._recently_shown[group_model.id] = None
            while len(self._recently_shown) > TREES_MAX:
                oldest = next(iter(self._recently_shown))
                del self._recently_shown[oldest]
                self.group_models[oldest].close()

    async def create(self, title: str, about: str = "") -> GroupModel:
        return self._add_group(await self.groups.create(f"{title}\n{about}" if about else title))

    async def join(self, group_id: GroupId) -> GroupModel:
        group = await self.groups.join(group_id)
        self.invitations.pop(group_id, None)
        return self._add_group(group)

    def _add_group(self, group: Group) -> GroupModel:
        found = self.group_models.get(group.id)
        if found is None:
            found = self.group_models[group.id] = GroupModel(self.groups, group, self.read_state)
        self._groups_changed = True
        return found

    def decline(self, group_id: GroupId) -> None:
        self.groups.decline(group_id)
        self.invitations.pop(group_id, None)
        self._groups_changed = True

    async def leave(self, group_model: GroupModel) -> None:
        """For good."""
        await group_model.group.leave()
        del self.group_models[group_model.id]
        self._recently_shown.pop(group_model.id, None)
        self.read_state.forget_group(group_model.id)
        if self.shown is group_model:
            self.shown = None
        self._groups_changed = self._shown_changed = self._members_changed = True

    async def send(self, group_model: GroupModel, text: str, reply_to: MessageId | None) -> GroupMessage:
        """Raises `ValueError` if it is too long, `GroupNotFoundError` if the group was left meanwhile."""
        message = await group_model.group.send_text(text, reply_to)
        group_model.add_sent(message)
        group_model.work()
        self._mark_changed(group_model)
        return message

    # -- what happens

    def _on_event(self, event: GroupEvent) -> None:
        match event:
            case GroupDiscovered(info):
                if info.id not in self.group_models:
                    self.invitations[info.id] = info
                    self._new_invitations.append(info)
                    self._groups_changed = True
            case CatchingUp(group, received, remaining):
                if (group_model := self.group_models.get(group)) is not None:
                    group_model.catching_up = CatchUpProgress(received, remaining)
                    self._mark_changed(group_model)
            case CaughtUp(group, _, unavailable):
                if (group_model := self.group_models.get(group)) is not None:
                    group_model.catching_up, group_model.unavailable = None, unavailable
                    self._mark_changed(group_model)
            case MemberJoined() | MemberLeft() | MemberOffline() | MemberOnline():
                self._members_changed = self._groups_changed = True
            case LimitReached(limit):
                self._notices.append(f"a limit was reached: {limit}")

    def _mark_changed(self, group_model: GroupModel) -> None:
        self._groups_changed = True
        self._shown_changed |= group_model is self.shown

    def add_notice(self, text: str) -> None:
        self._notices.append(text)

    def work(self, budget_s: float) -> None:
        """Take in what came, for at most about so long; the group that is shown first."""
        deadline = self._clock() + budget_s
        first = [self.shown] if self.shown is not None else []
        for group_model in [*first, *(each for each in self.group_models.values() if each is not self.shown)]:
            while group_model.work():
                self._mark_changed(group_model)
                if self._clock() >= deadline:
                    return

    def take_changes(self) -> Changes:
        changes = Changes(
            self._groups_changed,
            self._shown_changed,
            self._members_changed,
            list(self._new_invitations),
            list(self._notices),
        )
        self._groups_changed = self._shown_changed = self._members_changed = False
        self._new_invitations.clear()
        self._notices.clear()
        return changes

    def on_read_state_changed(self) -> None:
        """Unread counts have changed by the reader's own doing."""
        self._groups_changed = self._shown_changed = True


def invitation_text(invitations: list[GroupInfo]) -> str:
    """New groups in one sentence, however many there are."""
    if len(invitations) == 1:
        return f"new group: {title_of(invitations[0].description)}"
    return f"{len(invitations)} new groups"
