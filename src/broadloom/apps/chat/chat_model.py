"""The whole chat without its screen: joined groups, invitations, and changes since the last refresh.

A channel may deliver thousands of messages per second while the screen must stay responsive. So nothing is drawn as it
arrives: messages wait in their groups, events set flags here, and `work` takes in as much as a time budget allows.
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

# Texts that wait to be sent, in order, while the channel is congested.


OUTBOX_MAX = 50
"""Unsent texts; one more is refused and stays in the composer."""


class Outbox:
    """`run` it as a task."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(OUTBOX_MAX)

    @property
    def pending_count(self) -> int:
        return self._queue.qsize()

    def put(self, send: Callable[[], Awaitable[None]]) -> bool:
        """False if the queue is full."""
        try:
            self._queue.put_nowait(send)
        except asyncio.QueueFull:
            return False
        return True

    async def run(self) -> None:
        while True:
            await (await self._queue.get())()


TREES_MAX = 8
"""Groups whose tree is in memory; the least recently shown one is dropped."""
NOTICES_MAX = 100
"""Pending notices; the oldest are dropped."""


@dataclass
class Changes:
    """Changes since the last request."""

    groups: bool = False
    """Groups, invitations or unread counts."""
    conversation: bool = False
    """In the shown group."""
    members: bool = False
    new_invitations: list[GroupInfo] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class ChatModel:
    def __init__(self, groups: Groups, read_state: ReadState, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` measures CPU time, so a busy machine does not shorten the work."""
        self.groups = groups
        self.read_state = read_state
        self._clock = clock
        self.group_models: dict[GroupId, GroupModel] = {}
        self.invitations: dict[GroupId, GroupInfo] = {}
        """Invitations neither accepted nor declined."""
        self.shown: GroupModel | None = None
        self._recently_shown: dict[GroupId, None] = {}
        """Groups with a tree, least recently shown first."""
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
        """OSError if the read state cannot be saved."""
        self._unsubscribe()
        self.read_state.save()

    @property
    def is_closed(self) -> bool:
        """Whether the channel was left."""
        return self.groups.channel.status().state == "left"

    def sorted_groups(self) -> list[GroupModel]:
        """By title, so that entries keep their place."""
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
        """Permanently."""
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

    # -- events

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
        """Take in pending messages for about this long, the shown group first."""
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
        """The reader's own action changed unread counts."""
        self._groups_changed = self._shown_changed = True


def invitation_text(invitations: list[GroupInfo]) -> str:
    """New groups in one sentence, however many there are."""
    if len(invitations) == 1:
        return f"new group: {title_of(invitations[0].description)}"
    return f"{len(invitations)} new groups"
