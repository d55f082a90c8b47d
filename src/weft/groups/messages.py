"""What members of groups say to each other. Each message is broadcast: all hear it, whomever it is meant for.

Discovery: `Arrival`, `Listing`, `Standing`. Who is there: `Presence`, `Farewell`, `Suspect`. Conversation: `Said`.
Catching up: `Ask`, `Want`, `Page`.
"""

from weft.groups.codec import Note, note
from weft.groups.fields import Body, Buckets, Haves, Holdings, Ids, Name, Names, PostField, Wanted
from weft.wire.fields import Bool, Hyper, UInt


@note(1)
class Arrival(Note):
    """I am here, and know these groups. Causes: who knows more answers after a random while, with a `Listing`."""

    member: Hyper
    name: Name
    first: Bool
    """Just arrived; otherwise a member that noticed that its lists differ from another's."""
    buckets: Buckets
    """A hash for each of so many parts of the groups known; a power of two."""


@note(2)
class Listing(Note):
    """Groups as the sender knows them. Causes: lists are merged, new groups offered; who would have said the same keeps
    quiet. After the last page of an answer, who was answered says what it knows beyond."""

    asker: Hyper
    """The peer whose `Arrival` is answered; 0 if this is no answer."""
    lists: Hyper
    """Hash of all lists of the sender: whose is the same would have said the same, and need not read on."""
    whole: Bool
    """The answer, with all its pages, is all that the sender knows."""
    last: Bool
    peers: UInt
    """How many the sender has heard: who has just arrived has heard nobody."""
    buckets: Buckets
    """In the last page of an answer: the sender's hashes, as many as the asker gave."""
    gone: Ids
    """Members that the sender believes to be gone without a word: a hint for who has just arrived."""
    body: Body
    """The groups: a list of `Roster`, compressed (zlib)."""


@note(3)
class Standing(Note):
    """The sender joins or leaves a group. Causes: the lists of the group change."""

    group: Hyper
    member: Hyper
    name: Name
    step: Hyper
    """Odd: joins. Even: leaves."""


@note(4)
class Presence(Note):
    """I am still here. Causes: the member is shown as present; who finds that its lists or messages differ, and stay
    so, asks."""

    member: Hyper
    name: Name
    period_ms: UInt
    """The next one comes after about this time."""
    lists: Hyper
    """Hash of all lists."""
    holdings: Holdings
    """Of some of the sender's groups, by turns."""


@note(5)
class Farewell(Note):
    """The sender disconnects and stays a member of its groups. Causes: it is shown as gone at once."""

    member: Hyper


@note(6)
class Suspect(Note):
    """The sender's neighbour is gone without a word. Causes: that peer says that it is here; if it does not, its member
    is shown as gone."""

    peer: Hyper
    member: Hyper
    """0 if the sender does not know."""


@note(7)
class Said(Note):
    """One message of a group. Causes: it is delivered after the one it responds to, and kept."""

    group: Hyper
    name: Name
    post: PostField


@note(8)
class Ask(Note):
    """What the sender has of a group. Causes: one who holds more answers with pages after a random while, or at once if
    it is named; who lacks something that the sender has asks in turn."""

    group: Hyper
    question: UInt
    """Its number at its sender; a later one replaces it."""
    holder: Hyper
    """The peer that shall go on; 0 for anyone."""
    haves: Haves


@note(9)
class Want(Note):
    """These messages are lacking, because others respond to them. Causes: one who holds them answers with a page."""

    group: Hyper
    wanted: Wanted


@note(10)
class Page(Note):
    """A part of a group's history, in an order that fits. Causes: whoever lacks any of it takes it; who would have sent
    the same keeps quiet; who asked for it asks the sender for more after the `last` page of a turn, if some remain."""

    group: Hyper
    asker: Hyper
    """The peer that is answered; 0 for the answer to a `Want`."""
    question: UInt
    """The number of the question."""
    remaining: UInt
    """Messages to come after this page, as far as the sender knows."""
    last: Bool
    """The sender waits for another question."""
    covers: Haves
    """What is in this page: who has it all need not read on."""
    gone: Haves
    """In the last page of all: what the sender once had and holds no more."""
    names: Names
    """Of the authors."""
    body: Body
    """The messages: a list of posts, compressed (zlib)."""
