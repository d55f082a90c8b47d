"""The nouns of groups: members, groups, messages, and what names them.

A member is not a peer. A peer id is drawn anew at each connect; a member keeps its id in its store and returns under
it, so that it can go on with its own numbering.
"""

import re
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
    parent: MessageId | None
    """The message it responds to; None for the root of the tree."""
    sent_ms: int
    """Milliseconds since 1970 by the author's clock: for people, and for keeping history by age."""
    data: bytes
    hollow: bool = False
    """Only the identities were kept: the data is gone."""
    proven: str = ""
    """Who said it, by its ticket, if we have heard it said ourselves. Never passed on: it is our own knowledge."""

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
    proven: str = ""
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
