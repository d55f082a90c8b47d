"""The whole chat without its screen: the groups that we are in, invitations, and what happened since somebody looked.

The channel may bring thousands of messages a second, and the screen must stay quick. So nothing is drawn when it
happens: messages wait with their groups, events leave marks here, and `work` takes in as much as a given time allows.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.apps.chat.reading import Reading
from weft.apps.chat.talk import Progress, Talk, title_of
from weft.groups import (
    CatchingUp,
    CaughtUp,
    Group,
    GroupEvent,
    GroupId,
    GroupInfo,
    GroupOffered,
    Groups,
    MemberBack,
    MemberGone,
    MemberJoined,
    MemberLeft,
    Message,
    MessageId,
    Refused,
)

TREES_MAX = 8
"""Groups whose tree is held; the one not looked at for longest gives way."""
NOTICES_MAX = 100
"""Things to tell that wait; the oldest give way to later ones."""


@dataclass
class News:
    """What changed since it was asked for last."""

    groups: bool = False
    """Groups, invitations or their unread counts."""
    conversation: bool = False
    """Of the group that is shown."""
    members: bool = False
    offered: list[GroupInfo] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class Talks:
    def __init__(self, here: Groups, reading: Reading, clock: Callable[[], float] = time.thread_time) -> None:
        """`clock` counts computing time: on a busy machine the hours pass without anything being done."""
        self.here = here
        self.reading = reading
        self._clock = clock
        self.talks: dict[GroupId, Talk] = {}
        self.offers: dict[GroupId, GroupInfo] = {}
        """Groups that we were invited to, and have neither joined nor rejected."""
        self.shown: Talk | None = None
        self._looked_at: dict[GroupId, None] = {}
        """Groups with a tree; the one looked at last stands at the end."""
        self._groups_changed = self._members_changed = self._shown_changed = True
        self._offered: deque[GroupInfo] = deque(maxlen=NOTICES_MAX)
        self._notices: deque[str] = deque(maxlen=NOTICES_MAX)
        for group in here.joined.values():
            self.talks[group.id] = Talk(here, group, reading)
        self._end = here.on_event(self._happened)
        for info in here.known():
            if not info.joined and not info.rejected:
                self.offers[info.id] = info
        if reading.problem:
            self._notices.append(reading.problem)

    def close(self) -> None:
        """OSError if what was read cannot be saved."""
        self._end()
        self.reading.save()

    @property
    def is_closed(self) -> bool:
        """Whether the channel was left: nobody would hear us."""
        return self.here.channel.status().state == "left"

    def in_order(self) -> list[Talk]:
        """By title, so that each stays where the hand expects it."""
        return sorted(self.talks.values(), key=lambda talk: (talk.title.casefold(), talk.id))

    # -- groups

    def show(self, talk: Talk | None) -> None:
        self.shown = talk
        self._shown_changed = self._members_changed = self._groups_changed = True
        if talk is not None:
            talk.open()
            self._looked_at.pop(talk.id, None)
            self._looked_at[talk.id] = None
            while len(self._looked_at) > TREES_MAX:
                oldest = next(iter(self._looked_at))
                del self._looked_at[oldest]
                self.talks[oldest].close()

    async def create(self, title: str, about: str = "") -> Talk:
        return self._joined(await self.here.create(f"{title}\n{about}" if about else title))

    async def join(self, named: GroupId) -> Talk:
        group = await self.here.join(named)
        self.offers.pop(named, None)
        return self._joined(group)

    def _joined(self, group: Group) -> Talk:
        found = self.talks.get(group.id)
        if found is None:
            found = self.talks[group.id] = Talk(self.here, group, self.reading)
        self._groups_changed = True
        return found

    def reject(self, named: GroupId) -> None:
        self.here.reject(named)
        self.offers.pop(named, None)
        self._groups_changed = True

    async def leave(self, talk: Talk) -> None:
        """For good."""
        await talk.group.leave()
        del self.talks[talk.id]
        self._looked_at.pop(talk.id, None)
        self.reading.forget(talk.id)
        if self.shown is talk:
            self.shown = None
        self._groups_changed = self._shown_changed = self._members_changed = True

    async def say(self, talk: Talk, text: str, reply_to: MessageId | None) -> Message:
        """ValueError if it is too long; NoSuchGroup if the group was left meanwhile."""
        return await talk.group.send_text(text, reply_to)

    # -- what happens

    def _happened(self, event: GroupEvent) -> None:
        match event:
            case GroupOffered(info):
                if info.id not in self.talks:
                    self.offers[info.id] = info
                    self._offered.append(info)
                    self._groups_changed = True
            case CatchingUp(group, received, remaining):
                if (talk := self.talks.get(group)) is not None:
                    talk.catching_up = Progress(received, remaining)
                    self._changed(talk)
            case CaughtUp(group, _, unavailable):
                if (talk := self.talks.get(group)) is not None:
                    talk.catching_up, talk.unavailable = None, unavailable
                    self._changed(talk)
            case MemberJoined() | MemberLeft() | MemberGone() | MemberBack():
                self._members_changed = self._groups_changed = True
            case Refused(what):
                self._notices.append(f"a limit was reached: {what}")

    def _changed(self, talk: Talk) -> None:
        self._groups_changed = True
        self._shown_changed |= talk is self.shown

    def notice(self, text: str) -> None:
        self._notices.append(text)

    def work(self, budget_s: float) -> None:
        """Take in what came, for at most about so long; the group that is shown first."""
        deadline = self._clock() + budget_s
        first = [self.shown] if self.shown is not None else []
        for talk in [*first, *(each for each in self.talks.values() if each is not self.shown)]:
            while talk.work():
                self._changed(talk)
                if self._clock() >= deadline:
                    return

    def news(self) -> News:
        told = News(
            self._groups_changed, self._shown_changed, self._members_changed, list(self._offered), list(self._notices)
        )
        self._groups_changed = self._shown_changed = self._members_changed = False
        self._offered.clear()
        self._notices.clear()
        return told

    def has_read(self) -> None:
        """Unread counts have changed by the reader's own doing."""
        self._groups_changed = self._shown_changed = True


def invitation(offered: list[GroupInfo]) -> str:
    """New groups in one sentence, however many there are."""
    if len(offered) == 1:
        return f"new group: {title_of(offered[0].description)}"
    return f"{len(offered)} new groups"
