"""What a member tells its application, beside messages."""

from enum import Enum
from typing import NamedTuple

from weft.groups.names import GroupId, Member
from weft.groups.settings import Keep


class Here(Enum):
    """How a member stands to a group, as seen from here."""

    PRESENT = "present"
    GONE = "gone"
    """Disconnected, or not heard of any more; still a member."""
    LEFT = "left"


class GroupInfo(NamedTuple):
    """What is known of a group."""

    id: GroupId
    description: str
    keep: Keep
    joined: bool
    """By us."""
    rejected: bool
    present: int
    """Members that are there."""
    members: int
    """Members, there or not, without those who left."""


class Greeted(NamedTuple):
    """Somebody has answered our arrival: what it knows of groups, we know now. Told once."""

    groups: int
    """Known now."""


class GroupOffered(NamedTuple):
    """There is a group that we have not heard of since we arrived: join or reject it, or do nothing."""

    group: GroupInfo


class MemberJoined(NamedTuple):
    group: GroupId
    member: Member


class MemberLeft(NamedTuple):
    group: GroupId
    member: Member


class MemberGone(NamedTuple):
    """A member of one of our groups disconnected, or died without a word."""

    member: Member


class MemberBack(NamedTuple):
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


class Refused(NamedTuple):
    """A limit was reached, and something of others was not taken; told once for each kind."""

    what: str


GroupEvent = (
    Greeted | GroupOffered | MemberJoined | MemberLeft | MemberGone | MemberBack | CatchingUp | CaughtUp | Refused
)
