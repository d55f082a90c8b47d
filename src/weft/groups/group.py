"""One group, as a program takes part in it: speak, read, look at the tree."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from weft.groups.errors import NoSuchGroup
from weft.groups.names import GroupId, Member, Message, MessageId, Post

if TYPE_CHECKING:
    from weft.groups.conversation import Conversation
    from weft.groups.events import GroupInfo, Here
    from weft.groups.taking_part import Groups

UNREAD_MAX = 65_536
"""Messages that wait to be read; the oldest give way, and stay in history."""


class Line(NamedTuple):
    """One line of a thread: a message, and how many answers deep it stands."""

    depth: int
    message: Message


class Group:
    """Made by `Groups.create` and `Groups.join`. Iterate over it to read; `leave` it for good."""

    def __init__(self, groups: "Groups", group: GroupId) -> None:
        self._groups = groups
        self.id = group
        self._unread: deque[Message] = deque()
        self._news = asyncio.Event()
        self._closed = False
        self.dropped = 0
        """Unread messages that gave way to later ones."""

    def __repr__(self) -> str:
        return f"Group({self.id:016x}, {self.description!r})"

    @property
    def info(self) -> "GroupInfo":
        return self._groups.participant.info(self.id)

    @property
    def description(self) -> str:
        return self.info.description

    # -- speaking

    async def send(self, data: bytes, reply_to: Message | MessageId | None = None) -> Message:
        """Say something, as an answer or by itself. Waits if the channel is behind. Returns the message, which is
        delivered to ourselves too."""
        await self._groups.medium.room()
        parent = reply_to.id if isinstance(reply_to, Message) else reply_to
        return self._groups.participant.post(self.id, bytes(data), parent)

    async def send_text(self, text: str, reply_to: Message | MessageId | None = None) -> Message:
        return await self.send(text.encode(), reply_to)

    async def leave(self) -> None:
        """For good. (To come back later, just close the `Groups`: the membership stays.)"""
        self._groups.left(self.id)

    # -- reading

    @property
    def unread(self) -> int:
        return len(self._unread)

    def acquire(self) -> Message | None:
        """The next message, or None at once if there is none."""
        return self._unread.popleft() if self._unread else None

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. TimeoutError if none comes in time; NoSuchGroup if none can come any more."""
        async with asyncio.timeout(timeout_s):
            while (message := self.acquire()) is None:
                if self._closed:
                    raise NoSuchGroup("the group was left, or the groups were closed")
                self._news.clear()
                await self._news.wait()
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages as they come, until the group is left: each after the one it responds to."""
        while True:
            try:
                message = await self.receive()
            except NoSuchGroup:
                return
            yield message

    def put(self, message: Message) -> None:
        """Told by the member."""
        self._unread.append(message)
        if len(self._unread) > UNREAD_MAX:
            self._unread.popleft()
            self.dropped += 1
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    # -- looking

    def members(self) -> "dict[Member, Here]":
        """Present, gone and past members, by name."""
        return self._groups.participant.members(self.id)

    @property
    def is_catching_up(self) -> bool:
        return self._conversation.asking.is_active

    def message(self, named: MessageId) -> Message | None:
        """A message of the history; None if it is not held."""
        post = self._conversation.history.get(named)
        return self._message(post) if post is not None else None

    def history(self) -> list[Message]:
        """All that is held, in the order in which it was delivered."""
        found: list[Message] = []
        row = 0
        while rows := self._conversation.history.scan(row, 10_000):
            row = rows[-1][0]
            found += [self._message(post) for _, post in rows]
        return found

    def thread(self, message: Message | MessageId) -> list[Line]:
        """A message and all answers to it that are held, each below what it responds to."""
        named = message.id if isinstance(message, Message) else message
        lines: list[Line] = []
        todo = [(0, named)]
        while todo:
            depth, named = todo.pop()
            found = self.message(named)
            if found is not None:
                lines.append(Line(depth, found))
            todo += [(depth + 1, each) for each in reversed(self._conversation.history.answers(named))]
        return lines

    @property
    def _conversation(self) -> "Conversation":
        talk = self._groups.participant.conversations.get(self.id)
        if talk is None:
            raise NoSuchGroup("the group was left")
        return talk

    def _message(self, post: Post) -> Message:
        name = self._conversation.history.names.get(post.author, "")
        parent, sent_ms, hollow, proven = post.parent, post.sent_ms, post.hollow, post.proven
        return Message(self.id, post.id, name, parent, sent_ms, post.data, hollow=hollow, proven=proven)
