"""`Group`, one group of a program, and `GroupPublisher`, which posts to a group without joining it."""

import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broadloom.channel.item_reader import ItemReader
from broadloom.channel.outgoing import Way
from broadloom.errors import GroupNotFoundError
from broadloom.groups.codec import LAYER, encode
from broadloom.groups.messages import PostMessage
from broadloom.groups.model import GroupId, GroupMessage, Member, MemberId, MessageId, Post
from broadloom.groups.settings import NAME_BYTES_MAX, check_data, check_text

if TYPE_CHECKING:
    from broadloom.groups.conversation import Conversation
    from broadloom.groups.groups import Groups
    from broadloom.groups.model import GroupInfo, MemberStatus
    from broadloom.groups.participant import Participant

UNREAD_MAX = 65_536
"""Unread messages of one group. The oldest are dropped first, and stay in history."""
SCAN_ROWS = 10_000
"""Rows read from the store at a time."""


class ThreadEntry(NamedTuple):
    """One message of a thread."""

    depth: int
    """0 for the message the thread was requested for, 1 for its replies, and so on."""
    message: GroupMessage


class Group(ItemReader[GroupMessage]):
    """A group that was created, joined or listened to with `Groups`. Iterate over it to receive messages: every reply
    comes after its parent.

    As on a channel, a program does not receive its own messages: `send` returns them. They are part of `history()` and
    `thread()`.
    """

    _end_error = GroupNotFoundError

    def __init__(self, groups: "Groups", group_id: GroupId) -> None:
        super().__init__()
        self._groups = groups
        self.id = group_id
        self._unread: deque[GroupMessage] = deque()
        self._is_closed = False
        self.dropped_count = 0
        """Unread messages dropped because the program did not read them in time."""

    def __repr__(self) -> str:
        return f"Group({self.id:016x}, {self.description!r})"

    @property
    def info(self) -> "GroupInfo":
        return self._participant.info(self.id)

    @property
    def description(self) -> str:
        return self.info.description

    # -- sending

    async def send(self, data: bytes, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        """Post a message, optionally as a reply, and return it. Waits while the channel is congested."""
        data = await self._groups.channel._filter_content(check_data(data), Way.POST, self.description, LAYER)
        await self._groups._runtime.wait_for_window()
        parent_id = reply_to.id if isinstance(reply_to, GroupMessage) else reply_to
        return self._participant.post(self.id, data, parent_id)

    async def send_text(self, text: str, reply_to: GroupMessage | MessageId | None = None) -> GroupMessage:
        return await self.send(text.encode(), reply_to)

    async def leave(self) -> None:
        """Leave the group permanently. To come back later, just close the `Groups`: the membership stays."""
        await self._groups.leave(self.id)

    # -- receiving

    @property
    def unread_count(self) -> int:
        return len(self._unread)

    def _take(self) -> GroupMessage | None:
        return self._unread.popleft() if self._unread else None

    def _check_open(self) -> None:
        self._groups.channel._check_loop()
        if self._is_closed:
            raise GroupNotFoundError(f"group {self.id:016x} was left, or its `Groups` was closed")

    def _awaited(self) -> str:
        return f"message in group {self.id:016x}"

    def _put(self, message: GroupMessage) -> None:
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
        """Current and former members, sorted by name."""
        return self._participant.members(self.id)

    @property
    def is_catching_up(self) -> bool:
        """Whether history is being fetched from other members."""
        return self._conversation.history_client.is_active

    def get(self, message_id: MessageId) -> GroupMessage | None:
        """A message of the history; None if it is not held."""
        post = self._conversation.history.get(message_id)
        return self._message(post) if post is not None else None

    def history(self) -> list[GroupMessage]:
        """All messages held, in delivery order."""
        messages: list[GroupMessage] = []
        row = 0
        while rows := self._conversation.history.scan(row, SCAN_ROWS):
            row = rows[-1][0]
            messages += [self._message(post) for _, post in rows]
        return messages

    def thread(self, message: GroupMessage | MessageId) -> list[ThreadEntry]:
        """A message and all replies to it that are held, depth first."""
        message_id = message.id if isinstance(message, GroupMessage) else message
        entries: list[ThreadEntry] = []
        stack = [(0, message_id)]
        while stack:
            depth, message_id = stack.pop()
            found = self.get(message_id)
            if found is not None:
                entries.append(ThreadEntry(depth, found))
            stack += [(depth + 1, each) for each in reversed(self._conversation.history.replies(message_id))]
        return entries

    @property
    def _participant(self) -> "Participant":
        return self._groups._participant

    @property
    def _conversation(self) -> "Conversation":
        conversation = self._participant.conversations.get(self.id)
        if conversation is None:
            raise GroupNotFoundError(f"group {self.id:016x} was left")
        return conversation

    def _message(self, post: Post) -> GroupMessage:
        return self._conversation.group_message(post, self._conversation.history.names.get(post.author, ""))


class GroupPublisher:
    """Posts to a group without joining it, for example from a feed.

    A publisher is not a member, receives nothing and fetches no history; it only needs the channel. Sequence numbers
    start at 1 and must not be reused, so each publisher is a new author.
    """

    def __init__(self, group_id: GroupId, name: str) -> None:
        check_text("name", name, NAME_BYTES_MAX)
        self.group_id = group_id
        self.name = name
        self.id = MemberId(secrets.randbits(63) or 1)  # not provable: a publisher has no ticket
        self._sequence = 0

    def encode_post(self, data: bytes, reply_to: MessageId | None = None) -> bytes:
        """The payload to broadcast on the layer of the groups (`LAYER`), in the order of encoding."""
        data = check_data(data)
        self._sequence += 1
        post = Post(self.id, self._sequence, reply_to, int(1000 * time.time()), data)
        return encode(PostMessage(self.group_id, self.name, post))
