"""The server's own membership in the groups of a channel, shared by all open pages.

It listens to a group when a page shows it and joins with the first message from a page. Each group has a numbered
transcript, so every page continues where it was.
"""

from dataclasses import dataclass, field

from broadloom.groups import Group, GroupId, GroupInfo, GroupMessage, Groups, MessageId
from broadloom.web.own_peer import OwnPeer, PageClient

MEMBER_NAME = "Visitor"
"""Name of the member, unless a ticket names it."""
MESSAGES_MAX = 500
"""Kept per group."""
TEXT_CHARS_MAX = 4000
"""Per message, sent and shown."""


@dataclass(slots=True)
class GroupTranscript:
    """One group that is shown."""

    group: Group
    first: int = 0
    """Number of the first message kept."""
    messages: list[GroupMessage] = field(default_factory=list)
    _message_ids: set[MessageId] = field(default_factory=set)

    def receive_new(self) -> None:
        while (message := self.group.receive_nowait()) is not None:
            self.add(message)

    def add(self, message: GroupMessage) -> None:
        if message.id in self._message_ids:
            return
        self._message_ids.add(message.id)
        self.messages.append(message)
        if len(self.messages) > MESSAGES_MAX:
            self._message_ids.discard(self.messages.pop(0).id)
            self.first += 1

    def since(self, number: int) -> tuple[int, list[GroupMessage]]:
        """Messages from this number on, and the next number."""
        self.receive_new()
        return self.first + len(self.messages), self.messages[max(0, number - self.first) :]


class GroupClient(PageClient):
    def __init__(self, own_peer: OwnPeer) -> None:
        super().__init__()
        self._own_peer = own_peer
        self._transcripts: dict[GroupId, GroupTranscript] = {}
        self.groups: Groups | None = None

    @property
    def is_available(self) -> bool:
        return self._own_peer.is_available

    @property
    def is_joined(self) -> bool:
        return self.groups is not None

    async def _join(self) -> None:
        channel = await self._own_peer.channel()
        name = channel.status().name or MEMBER_NAME
        self.groups = await self._stack.enter_async_context(Groups(channel, name))

    def list_groups(self) -> list[GroupInfo]:
        """All groups, largest first."""
        if self.groups is None:
            return []
        return sorted(self.groups.list_groups(), key=lambda each: (-each.member_count, each.description, each.id))

    async def open_group(self, group_id: GroupId) -> GroupTranscript:
        transcript = self._transcripts.get(group_id)
        if transcript is None:
            own_groups = self._require_groups()
            joined = own_groups.joined
            group = joined[group_id] if group_id in joined else await own_groups.listen(group_id)
            transcript = self._transcripts[group_id] = GroupTranscript(group)
            for message in group.history()[-MESSAGES_MAX:]:
                transcript.add(message)
        return transcript

    async def send_text(self, group_id: GroupId, text: str, reply_to: MessageId | None = None) -> GroupMessage:
        own_groups = self._require_groups()
        if group_id not in own_groups.joined:
            await own_groups.join(group_id)
        transcript = await self.open_group(group_id)
        message = await transcript.group.send_text(text[:TEXT_CHARS_MAX], reply_to)
        transcript.receive_new()
        transcript.add(message)
        return message

    async def create(self, description: str) -> GroupId:
        return (await self._require_groups().create(description[:TEXT_CHARS_MAX])).id

    def _require_groups(self) -> Groups:
        if self.groups is None:
            raise RuntimeError("the channel was not joined yet")
        return self.groups


def display_text(message: GroupMessage) -> str:
    """The text of a message, or its size if it is not text."""
    if message.is_stripped:
        return "(this group keeps no text)"
    try:
        text = message.text
    except ValueError:
        return f"({len(message.data):,} bytes of binary data)"
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]} …"
