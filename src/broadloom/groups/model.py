"""The nouns of groups: members, groups, messages, and what names them.

A member is not a peer. A peer id is drawn anew at each connect; a member keeps its id in its store and returns under
it, so that it can go on with its own numbering.
"""

import re
from enum import Enum
from typing import NamedTuple

from broadloom.groups.settings import RetentionPolicy

MemberId = int
"""64 random bits, drawn once for a store. Two people may have the same name, never the same id."""
GroupId = int
"""64 bits: random, or derived from a name that all know (`group_id`)."""


class Member(NamedTuple):
    """Who takes part in groups."""

    id: MemberId
    name: str
    """For people. Anybody may choose any name."""

    def __str__(self) -> str:
        return self.name or f"{self.id:016x}"


class MessageId(NamedTuple):
    """Names one message of a group: its author, and its running number there from 1 on."""

    author: MemberId
    sequence: int

    def __str__(self) -> str:
        """As people and programs pass it on: the author in hexadecimal digits, and the number."""
        return f"{self.author:016x}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "MessageId":
        """Back again; ValueError if it is none."""
        author, _, sequence = text.partition("-")
        if not re.fullmatch(r"[0-9a-f]{16}-[1-9][0-9]{0,18}", text):
            raise ValueError(f"{text!r} names no message: 16 hexadecimal digits, a dash and a number do")
        return cls(int(author, 16), int(sequence))


class Post(NamedTuple):
    """One message of a group as it is kept and passed on."""

    author: MemberId
    sequence: int
    parent_id: MessageId | None
    """The message it responds to; None for the root of the tree."""
    sent_at_ms: int
    """Milliseconds since 1970 by the author's clock: for people, and for keeping history by age."""
    data: bytes
    is_stripped: bool = False
    """Only the identities were kept: the data is gone."""
    verified_name: str = ""
    """Who said it, by its ticket, if we have heard it said ourselves. Never passed on: it is our own knowledge."""

    @property
    def id(self) -> MessageId:
        return MessageId(self.author, self.sequence)


class GroupMessage(NamedTuple):
    """One message of a group, as the application gets it: after the one that it responds to, or marked."""

    group_id: GroupId
    id: MessageId
    author_name: str
    """Of the author, for people."""
    parent_id: MessageId | None
    sent_at_ms: int
    data: bytes
    is_orphan: bool = False
    """What it responds to could not be had in time; if that comes after all, it is delivered later."""
    is_stripped: bool = False
    """The group keeps identities only, and this one came from history: there is no data."""
    verified_name: str = ""
    """The name on the ticket of who said it, which need not be `name`. Empty if the channel has no tickets, or if the
    message came with the history: then it is what a member passed on."""

    @property
    def author(self) -> MemberId:
        return self.id.author

    @property
    def sequence(self) -> int:
        return self.id.sequence

    @property
    def text(self) -> str:
        """The data as UTF-8 text; ValueError if it is none."""
        return self.data.decode()


# What a member tells its application, beside messages.


class MemberStatus(Enum):
    """How a member stands to a group, as seen from here."""

    ONLINE = "online"
    OFFLINE = "offline"
    """Disconnected, or not heard of any more; still a member."""
    LEFT = "left"


class GroupInfo(NamedTuple):
    """What is known of a group."""

    id: GroupId
    description: str
    retention: RetentionPolicy
    is_joined: bool
    """By us."""
    is_declined: bool
    online_count: int
    """Members that are there."""
    member_count: int
    """Members, there or not, without those who left."""


class DirectorySynced(NamedTuple):
    """Somebody has answered our arrival: what it knows of groups, we know now. Told once."""

    group_count: int
    """Known now."""


class GroupDiscovered(NamedTuple):
    """There is a group that we have not heard of since we arrived: join or reject it, or do nothing."""

    group: GroupInfo


class MemberJoined(NamedTuple):
    group: GroupId
    member: Member


class MemberLeft(NamedTuple):
    group: GroupId
    member: Member


class MemberOffline(NamedTuple):
    """A member of one of our groups disconnected, or died without a word."""

    member: Member


class MemberOnline(NamedTuple):
    """It is heard again."""

    member: Member


class CatchingUp(NamedTuple):
    """History is coming in."""

    group: GroupId
    received: int
    remaining: int


class CaughtUp(NamedTuple):
    """No more history is to come."""

    group: GroupId
    received: int
    unavailable: int
    """Messages that were said and that nobody here holds any more."""


class LimitReached(NamedTuple):
    """A limit was reached, and something of others was not taken; told once for each kind."""

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
