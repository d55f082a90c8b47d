"""The nouns of the groups layer: members, groups, messages and events.

A member is not a peer. A peer id is new with every connection; a member keeps its id in its store, so it returns as the
same member and continues its own sequence numbers.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from broadloom.groups.settings import RetentionPolicy
from broadloom.wire.types import HexId

if TYPE_CHECKING:
    MemberId = int
    GroupId = int
else:

    class MemberId(HexId):
        """Drawn once per store; with a ticket, a hash of that number and the name on the ticket. Names need not be
        unique, ids are."""

        __slots__ = ()

    class GroupId(HexId):
        """Random, or derived from a well-known name (`group_id_from_name`)."""

        __slots__ = ()


class Member(NamedTuple):
    id: MemberId
    name: str
    """Display name. Chosen by the member itself and not verified."""

    def __str__(self) -> str:
        return self.name or f"{self.id:016x}"


class MessageId(NamedTuple):
    """Identifies a message within its group."""

    author: MemberId
    sequence: int
    """The author's own numbering of its messages in this group: 1, 2, 3 and so on."""

    def __str__(self) -> str:
        return f"{self.author:016x}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "MessageId":
        """The inverse of `str()`."""
        author, _, sequence = text.partition("-")
        if not re.fullmatch(r"[0-9a-f]{16}-[1-9][0-9]{0,18}", text):
            raise ValueError(f"{text!r} is not a message id: expected 16 hexadecimal digits, a dash and a number")
        return cls(MemberId(author, 16), int(sequence))


class Post(NamedTuple):
    """A group message as it is stored and sent."""

    author: MemberId
    sequence: int
    parent_id: MessageId | None
    """The message this one replies to; None if it starts a thread."""
    sent_at_ms: int
    """Unix time by the author's clock, for display and for retention by age."""
    data: bytes
    is_stripped: bool = False
    """Only the ids were kept; `data` is empty."""
    verified_name: str = ""
    """See `GroupMessage.verified_name`. Local knowledge: it is never sent."""
    proof: bytes = b""
    """Its author's signature (`proofs.py`); empty on a channel without tickets."""
    credential: bytes = b""
    """The certificate to verify it with."""

    @property
    def id(self) -> MessageId:
        return MessageId(self.author, self.sequence)


@dataclass(frozen=True, slots=True)
class GroupMessage:
    """A group message as the application receives it: after its parent, or as an orphan."""

    group_id: GroupId
    id: MessageId
    author_name: str
    parent_id: MessageId | None
    sent_at_ms: int
    data: bytes
    is_orphan: bool = False
    """The parent was not available in time. If it turns up, it is delivered after this message."""
    is_stripped: bool = False
    """The group keeps only ids and this message came from history: `data` is empty."""
    verified_name: str = ""
    """The name on the author's ticket, which may differ from `author_name`. Empty on a channel without tickets, and if
    `is_unproven`."""
    is_unproven: bool = False
    """On a channel with tickets: no signature proves who wrote it."""

    @classmethod
    def from_post(
        cls, group_id: GroupId, post: Post, author_name: str, *, is_orphan: bool = False, has_tickets: bool = False
    ) -> "GroupMessage":
        _, _, parent_id, sent_at_ms, data, is_stripped, verified_name, _, _ = post
        is_unproven = has_tickets and not verified_name
        return cls(
            group_id,
            post.id,
            author_name,
            parent_id,
            sent_at_ms,
            data,
            is_orphan,
            is_stripped,
            verified_name,
            is_unproven,
        )

    @property
    def author(self) -> MemberId:
        return self.id.author

    @property
    def author_note(self) -> str:
        """What a screen shows after the name of the author: the name on its ticket if that differs, or that nothing
        proves who wrote the message. It may contain any character."""
        if self.is_unproven:
            return "(unproven)"
        return f"[{self.verified_name}]" if self.verified_name not in ("", self.author_name) else ""

    @property
    def sequence(self) -> int:
        return self.id.sequence

    @property
    def text(self) -> str:
        """The data decoded as UTF-8. Raises `UnicodeDecodeError` if it is not text."""
        return self.data.decode()

    @property
    def sent_at(self) -> datetime | None:
        """`sent_at_ms` as local time; None if no calendar has that time: the author may send any number."""
        try:
            return datetime.fromtimestamp(self.sent_at_ms / 1000, UTC).astimezone()
        except (OverflowError, OSError, ValueError):
            return None


class MemberStatus(StrEnum):
    """The status of a member in a group, as seen from here."""

    ONLINE = "online"
    OFFLINE = "offline"
    """Disconnected or unreachable, and still a member."""
    LEFT = "left"


class GroupInfo(NamedTuple):
    """What is known about a group."""

    id: GroupId
    description: str
    retention: RetentionPolicy
    is_joined: bool
    is_declined: bool
    online_count: int
    member_count: int
    """Online and offline members, without those that left."""


# -- events


class DirectorySynced(NamedTuple):
    """Another member answered our directory request. Emitted once."""

    group_count: int


class GroupDiscovered(NamedTuple):
    """A group became known in this session: join it, decline it, or ignore it."""

    group: GroupInfo


class MemberJoined(NamedTuple):
    group_id: GroupId
    member: Member


class MemberLeft(NamedTuple):
    group_id: GroupId
    member: Member


class MemberOffline(NamedTuple):
    """A member of one of our groups disconnected or failed."""

    member: Member


class MemberOnline(NamedTuple):
    """An offline member is back."""

    member: Member


class CatchingUp(NamedTuple):
    """History is arriving."""

    group_id: GroupId
    received: int
    remaining: int


class CaughtUp(NamedTuple):
    """All available history has arrived."""

    group_id: GroupId
    received: int
    unavailable: int
    """Messages that existed and that no reachable member holds any more."""


class LimitReached(NamedTuple):
    """A limit was reached and data from other members was rejected. Emitted once per kind."""

    limit: str


GroupEvent = (
    DirectorySynced
    | GroupDiscovered
    | MemberJoined
    | MemberLeft
    | MemberOffline
    | MemberOnline
    | CatchingUp
    | CaughtUp
    | LimitReached
)
