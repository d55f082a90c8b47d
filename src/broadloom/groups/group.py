"""One group, as a program takes part in it: speak, read, look at the tree."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from broadloom.errors import GroupNotFoundError
from broadloom.groups.codec import encode
from broadloom.groups.messages import PostMessage
from broadloom.groups.model import GroupId, GroupMessage, Member, MessageId, Post
from broadloom.groups.settings import DATA_BYTES_MAX, NAME_BYTES_MAX

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.groups.groups import Groups
    from broadloom.groups.model import GroupInfo, MemberStatus


# Speaking in a group without being in it: for programs that put messages there and go, such as a feed.
#
# A guest stands in no list, hears nothing and fetches no history; what it says is a message like any other, kept and
# passed on by the members. It needs no more than the channel.


class GroupPublisher:
    """One author of one group, from its first word to its last: its numbers begin at 1 and must not be used again, so
    it has an id of its own each time."""

    def __init__(self, group_id: GroupId, name: str) -> None:
        if len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
            raise ValueError(f"a name has at most {NAME_BYTES_MAX} bytes, and no NUL in it")
        self.group_id = group_id
        self.name = name
        self.id = secrets.randbits(64) or 1
        self._sequence = 0

    def encode_post(self, data: bytes, reply_to: MessageId | None = None) -> bytes:
        """The payload to broadcast on the channel, all of them in their order."""
        if len(data) > DATA_BYTES_MAX:
            raise ValueError(f"a message of {len(data):,} bytes, at most {DATA_BYTES_MAX:,} are possible in a group")
        self._sequence += 1
        return encode(
            PostMessage(
                self.group_id, self.name, Post(self.id, self._sequence, reply_to, int(1000 * time.time()), data)
            )
        )


UNREAD_MAX = 65_536
"""Messages that wait to be read; the oldest give way, and stay in history."""


class ThreadEntry(NamedTuple):
    """One line of a thread: a message, and how many answers deep it stands."""

    depth: int
    message: GroupMessage


class Group:
    """Made by `Groups.create` and `Groups.join`. Iterate over it to read; `leave` it for good."""

    def __init__(self, groups: "Groups", group_id: GroupId) -> None:
        self._groups = groups
        self.id = group_id
        self._unread: deque[GroupMessage] = deque()
        self._wakeup = asyncio.Event()
        self._is_closed = False
        self.dropped_count = 0
        """Unread messages that gave way to later ones."""

    def __repr__(self) -> str:
        return f"Group({self.id:016x}, {self.description!r})"

    @property
    def info(self) -> "GroupInfo":
        return self._groups._participant.info(self.id)

    @property
    def description(self) -> str:
        return self.info.description

    # -- speaking

    async def send(self, data: bytes, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        """Say something, as an answer or by itself. Waits if the channel is behind. Returns the message, which is
        delivered to ourselves too."""
        await self._groups._runtime.wait_for_window()
        parent = reply_to.id if isinstance(reply_to, GroupMessage) else reply_to
        return self._groups._participant.post(self.id, bytes(data), parent)

    async def send_text(self, text: str, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        return await self.send(text.encode(), reply_to)

    async def leave(self) -> None:
        """For good. (To come back later, just close the `Groups`: the membership stays.)"""
        self._groups._leave(self.id)

    # -- reading

    @property
    def unread_count(self) -> int:
        return len(self._unread)

    def receive_nowait(self) -> GroupMessage | None:
        """The next message, or None at once if there is none."""
        return self._unread.popleft() if self._unread else None

    async def receive(self, timeout_s: float | None = None) -> GroupMessage:
        """The next message. TimeoutError if none comes in time; NoSuchGroup if none can come any more."""
        async with asyncio.timeout(timeout_s):
            while (message := self.receive_nowait()) is None:
                if self._is_closed:
                    raise GroupNotFoundError("the group was left, or the groups were closed")
                self._wakeup.clear()
                await self._wakeup.wait()
        return message

    async def __aiter__(self) -> AsyncIterator[GroupMessage]:
        """Messages as they come, until the group is left: each after the one it responds to."""
        while True:
            try:
                message = await self.receive()
            except GroupNotFoundError:
                return
            yield message

    def _put(self, message: GroupMessage) -> None:
        """Told by the member."""
        self._unread.append(message)
        if len(self._unread) > UNREAD_MAX:
            self._unread.popleft()
            self.dropped_count += 1
        self._wakeup.set()

    def _close(self) -> None:
        self._is_closed = True
        self._wakeup.set()

    # -- looking

    def members(self) -> "dict[Member, MemberStatus]":
        """Present, gone and past members, by name."""
        return self._groups._participant.members(self.id)

    @property
    def is_catching_up(self) -> bool:
        return self._conversation.history_client.is_active

    def get(self, message_id: MessageId) -> GroupMessage | None:
        """A message of the history; None if it is not held."""
        post = self._conversation.history.get(message_id)
        return self._message(post) if post is not None else None

    def history(self) -> list[GroupMessage]:
        """All that is held, in the order in which it was delivered."""
        messages: list[GroupMessage] = []
        row = 0
        while rows := self._conversation.history.scan(row, 10_000):
            row = rows[-1][0]
            messages += [self._message(post) for _, post in rows]
        return messages

    def thread(self, message: GroupMessage | MessageId) -> list[ThreadEntry]:
        """A message and all answers to it that are held, each below what it responds to."""
        message_id = message.id if isinstance(message, GroupMessage) else message
        entries: list[ThreadEntry] = []
        todo = [(0, message_id)]
        while todo:
            depth, message_id = todo.pop()
            found = self.get(message_id)
            if found is not None:
                entries.append(ThreadEntry(depth, found))
            todo += [(depth + 1, each) for each in reversed(self._conversation.history.replies(message_id))]
        return entries

    @property
    def _conversation(self) -> "Conversation":
        conversation = self._groups._participant.conversations.get(self.id)
        if conversation is None:
            raise GroupNotFoundError("the group was left")
        return conversation

    def _message(self, post: Post) -> GroupMessage:
        name = self._conversation.history.names.get(post.author, "")
        parent, sent_at_ms, is_stripped, verified_name = (
            post.parent_id,
            post.sent_at_ms,
            post.is_stripped,
            post.verified_name,
        )
        return GroupMessage(
            self.id, post.id, name, parent, sent_at_ms, post.data, is_stripped=is_stripped, verified_name=verified_name
        )
