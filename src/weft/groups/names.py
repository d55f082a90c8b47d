"""The nouns of groups: members, groups, messages, and what names them.

A member is not a peer. A peer id is drawn anew at each connect; a member keeps its id in its store and returns under
it, so that it can go on with its own numbering.
"""

from typing import NamedTuple

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


class Post(NamedTuple):
    """One message of a group as it is kept and passed on."""

    author: MemberId
    sequence: int
    parent: MessageId | None
    """The message it responds to; None for the root of the tree."""
    sent_ms: int
    """Milliseconds since 1970 by the author's clock: for people, and for keeping history by age."""
    data: bytes
    hollow: bool = False
    """Only the identities were kept: the data is gone."""

    @property
    def id(self) -> MessageId:
        return MessageId(self.author, self.sequence)


class Message(NamedTuple):
    """One message of a group, as the application gets it: after the one that it responds to, or marked."""

    group: GroupId
    id: MessageId
    name: str
    """Of the author, for people."""
    parent: MessageId | None
    sent_ms: int
    data: bytes
    orphan: bool = False
    """What it responds to could not be had in time; if that comes after all, it is delivered later."""
    hollow: bool = False
    """The group keeps identities only, and this one came from history: there is no data."""

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
