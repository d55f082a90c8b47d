"""The server's own part in the conversations of a channel: one member, for all pages that are open.

It listens to a group when somebody looks at it, and joins it when somebody answers. What was heard is kept as a
numbered log of each group, so that each page can go on from where it is.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.groups import Group, GroupId, GroupInfo, Groups, Message, MessageId, groups
from weft.web.wrong import told

if TYPE_CHECKING:
    from weft.channel import Channel
    from weft.lab.lab import Lab

NAME = "Visitor"
"""As which the pages speak, unless the channel knows us by a ticket."""
MESSAGES_KEPT_MAX = 500
"""Of each group, for pages: its newest."""
JOINING_S = 60.0
TEXT_MAX = 4000
"""Characters of one line that a page sends, and that it shows of others'."""


@dataclass(slots=True)
class Talk:
    """One group that is looked at."""

    group: Group
    first: int = 0
    """Number of the first message that is kept."""
    messages: list[Message] = field(default_factory=list)
    _known: set[MessageId] = field(default_factory=set)

    def read(self) -> None:
        while (message := self.group.acquire()) is not None:
            self.take(message)

    def take(self, message: Message) -> None:
        if message.id in self._known:
            return
        self._known.add(message.id)
        self.messages.append(message)
        if len(self.messages) > MESSAGES_KEPT_MAX:
            self._known.discard(self.messages.pop(0).id)
            self.first += 1

    def since(self, number: int) -> tuple[int, list[Message]]:
        """Messages from this number on, and the next number."""
        self.read()
        return self.first + len(self.messages), self.messages[max(0, number - self.first) :]


class Talking:
    """Made once; `begin` it when the first page wants it."""

    def __init__(
        self, *, lab: "Lab | None" = None, channel: "Channel | None" = None, on_joined: Callable[[int], None]
    ) -> None:
        self._on_joined = on_joined
        self._lab = lab
        self._channel = channel
        self._stack = AsyncExitStack()
        self._beginning: asyncio.Task[None] | None = None
        self._talks: dict[GroupId, Talk] = {}
        self.here: Groups | None = None
        self.problem = ""

    @property
    def is_possible(self) -> bool:
        return self._lab is not None or self._channel is not None

    def begin(self) -> None:
        """Join, if that has not begun yet, or has failed."""
        if self.here is None and (self._beginning is None or self._beginning.done()):
            self.problem = ""
            self._beginning = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        try:
            channel = self._channel
            if channel is None and self._lab is not None:
                import weft

                joining = weft.connect(self._lab.channel, portals=self._lab.portals(), timeout_s=JOINING_S)
                channel = await self._stack.enter_async_context(joining)
            if channel is not None:
                self._on_joined(channel.peer)
                name = channel.status().name or NAME
                self.here = await self._stack.enter_async_context(groups(channel, name))
        except Exception as problem:
            self.problem = told(problem)

    def known(self) -> list[GroupInfo]:
        """All groups, those with most members first."""
        if self.here is None:
            return []
        return sorted(self.here.known(), key=lambda each: (-each.members, each.description, each.id))

    async def look_at(self, named: GroupId) -> Talk:
        talk = self._talks.get(named)
        if talk is None:
            here = self._there()
            joined = here.joined
            group = joined[named] if named in joined else await here.listen(named)
            talk = self._talks[named] = Talk(group)
            for message in group.history()[-MESSAGES_KEPT_MAX:]:
                talk.take(message)
        return talk

    async def say(self, named: GroupId, text: str, reply_to: MessageId | None = None) -> Message:
        here = self._there()
        if named not in here.joined:
            await here.join(named)
        talk = await self.look_at(named)
        return await talk.group.send_text(text[:TEXT_MAX], reply_to)

    async def create(self, description: str) -> GroupId:
        return (await self._there().create(description[:TEXT_MAX])).id

    def _there(self) -> Groups:
        if self.here is None:
            raise RuntimeError("the channel was not joined yet")
        return self.here

    async def close(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
        await self._stack.aclose()


def text_of(message: Message) -> str:
    """For people; what is no text is told by its size."""
    if message.hollow:
        return "(this group keeps no text)"
    try:
        text = message.text
    except ValueError:
        return f"({len(message.data):,} bytes that are no text)"
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} …"
