"""What members of groups say to each other. Each message is broadcast: all hear it, whomever it is meant for.

Discovery: `Arrival`, `Listing`, `Standing`. Who is there: `Presence`, `Farewell`, `Suspect`. Conversation: `Said`.
Catching up: `Ask`, `Want`, `Page`.
"""

from broadloom.groups.codec import GroupWireMessage, group_message
from broadloom.groups.message_fields import (
    Body,
    Buckets,
    HeldIntervals,
    HistoryDigests,
    MemberIds,
    MessageIds,
    Name,
    Names,
    PostField,
)
from broadloom.wire.fields import Bool, Hyper, UInt


@group_message(1)
class DirectoryRequest(GroupWireMessage):
    """I am here, and know these groups. Causes: who knows more answers after a random while, with a `Listing`."""

    member: Hyper
    name: Name
    is_initial: Bool
    """Just arrived; otherwise a member that noticed that its lists differ from another's."""
    buckets: Buckets
    """A hash for each of so many parts of the groups known; a power of two."""


@group_message(2)
class DirectoryPage(GroupWireMessage):
    """Groups as the sender knows them. Causes: lists are merged, new groups offered; who would have said the same keeps
    quiet. After the last page of an answer, who was answered says what it knows beyond."""

    requester: Hyper
    """The peer whose `Arrival` is answered; 0 if this is no answer."""
    directory_hash: Hyper
    """Hash of all lists of the sender: whose is the same would have said the same, and need not read on."""
    is_complete: Bool
    """The answer, with all its pages, is all that the sender knows."""
    is_last: Bool
    peer_count: UInt
    """How many the sender has heard: who has just arrived has heard nobody."""
    buckets: Buckets
    """In the last page of an answer: the sender's hashes, as many as the asker gave."""
    offline: MemberIds
    """Members that the sender believes to be gone without a word: a hint for who has just arrived."""
    body: Body
    """The groups: a list of `Roster`, compressed (zlib)."""


@group_message(3)
class MembershipChange(GroupWireMessage):
    """The sender joins or leaves a group. Causes: the lists of the group change."""

    group: Hyper
    member: Hyper
    name: Name
    version: Hyper
    """Odd: joins. Even: leaves."""


@group_message(4)
class PresenceHeartbeat(GroupWireMessage):
    """I am still here. Causes: the member is shown as present; who finds that its lists or messages differ, and stay
    so, asks."""

    member: Hyper
    name: Name
    interval_ms: UInt
    """The next one comes after about this time."""
    directory_hash: Hyper
    """Hash of all lists."""
    history_digests: HistoryDigests
    """Of some of the sender's groups, by turns."""


@group_message(5)
class GoingOffline(GroupWireMessage):
    """The sender disconnects and stays a member of its groups. Causes: it is shown as gone at once."""

    member: Hyper


@group_message(6)
class Suspect(GroupWireMessage):
    """The sender's neighbour is gone without a word. Causes: that peer says that it is here; if it does not, its member
    is shown as gone."""

    peer: Hyper
    member: Hyper
    """0 if the sender does not know."""


@group_message(7)
class PostMessage(GroupWireMessage):
    """One message of a group. Causes: it is delivered after the one it responds to, and kept."""

    group: Hyper
    name: Name
    post: PostField


@group_message(8)
class HistoryRequest(GroupWireMessage):
    """What the sender has of a group. Causes: one who holds more answers with pages after a random while, or at once if
    it is named; who lacks something that the sender has asks in turn."""

    group: Hyper
    request_id: UInt
    """Its number at its sender; a later one replaces it."""
    responder: Hyper
    """The peer that shall go on; 0 for anyone."""
    held: HeldIntervals


@group_message(9)
class PostRequest(GroupWireMessage):
    """These messages are lacking, because others respond to them. Causes: one who holds them answers with a page."""

    group: Hyper
    message_ids: MessageIds


@group_message(10)
class HistoryPage(GroupWireMessage):
    """A part of a group's history, in an order that fits. Causes: whoever lacks any of it takes it; who would have sent
    the same keeps quiet; who asked for it asks the sender for more after the `last` page of a turn, if some remain."""

    group: Hyper
    requester: Hyper
    """The peer that is answered; 0 for the answer to a `Want`."""
    request_id: UInt
    """The number of the question."""
    remaining: UInt
    """Messages to come after this page, as far as the sender knows."""
    is_last: Bool
    """The sender waits for another question."""
    contents: HeldIntervals
    """What is in this page: who has it all need not read on."""
    unavailable: HeldIntervals
    """In the last page of all: what the sender once had and holds no more."""
    names: Names
    """Of the authors."""
    body: Body
    """The messages: a list of posts, compressed (zlib)."""
