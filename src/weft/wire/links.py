"""Messages of links: lasting connections between neighbours. (The broadcast itself is in `broadcast.py`.)"""

from enum import IntEnum
from typing import Annotated

from weft.wire import xdr
from weft.wire.codec import Message, message
from weft.wire.fields import (
    Bool,
    ContactField,
    Contacts,
    CredentialBytes,
    Haves,
    Hyper,
    OptionalContact,
    Peers,
    Standings,
    UInt,
)


class Lack(IntEnum):
    """Why messages cannot be had from a neighbour."""

    NOT_YET = 1
    """It lacks them too, or does not know of them: they may still come."""
    NO_MORE = 2
    """They were there and are past retention, or were given up there."""
    NEVER = 3
    """They were said before its time, or all others there are to ask say so: it does not wait for them."""


@message(20)
class Greeting(Message):
    """First frame of either side of a link. Causes: what the other lacks is sent from the retained messages."""

    fresh: Bool
    """The sender has no starting point yet and takes the other's `have` as its own."""
    complete: Bool
    """The two may have been apart for long: `have` names long silent authors too, and the other's shall as well."""
    have: Haves
    sample: Contacts


@message(22)
class Want(Message):
    """Causes: the retained messages of the range are sent; for what is not held, a `Gone`."""

    author: Hyper
    first: Hyper
    last: Hyper


@message(23)
class Gone(Message):
    """These cannot be had here. Causes: the next neighbour is asked; if none has them nor waits for them, they are
    missed."""

    author: Hyper
    first: Hyper
    last: Hyper
    why: Annotated[Lack, xdr.enum(Lack)]


@message(24)
class Heartbeat(Message):
    """Sent on an idle link. Causes: nothing; silence causes the link to be given up."""


@message(25)
class Walk(Message):
    """Looks for a random edge, or for a hole, for the requester. Causes: handed on; at its end the edge it came over is
    offered, or, if only a hole is wanted, the first peer on its way that has one calls the requester."""

    walk: Hyper
    requester: ContactField
    partner: OptionalContact
    """Who gets the other end of the edge; the requester itself if nobody is named."""
    avoid: Peers
    """Neighbours of the requester: an edge with one of them is of no use."""
    partner_avoid: Peers
    hole_only: Bool
    """The requester has one hole: an edge has two ends too many for it, but a peer with a hole would do."""
    steps: UInt
    spare: UInt
    """Further steps that may be spent on unusable ends."""


@message(26)
class WalkOver(Message):
    """The edge over which the walk came is free again. Causes: the reservation is dropped."""

    walk: Hyper


@message(27)
class Cut(Message):
    """This link ends. Causes: the rest is drained and answered by `CutDone`; the place is filled as told."""

    call: OptionalContact
    """Call this peer and ask for a link."""
    expect: OptionalContact
    """Keep the place for this peer: it will call."""


@message(28)
class CutDone(Message):
    """Last frame on a link that was cut. Causes: the line is closed."""


@message(29)
class Leave(Message):
    """The sender leaves the channel. Causes: its neighbours pair up among each other."""

    neighbours: Contacts


@message(30)
class PortSearch(Message):
    """Flooded: the requester has a hole. Causes: whoever has one too, and is no neighbour yet, calls."""

    origin: Hyper
    nonce: Hyper
    hops: UInt
    requester: ContactField


@message(31)
class DiameterEstimate(Message):
    """Flooded: something travelled this far. Causes: a smaller estimate is raised."""

    origin: Hyper
    nonce: Hyper
    hops: UInt
    diameter: UInt


@message(33)
class Beacon(Message):
    """Flooded now and then by one peer of a fabric. Causes: who hears it knows which fabric it is in."""

    origin: Hyper
    nonce: Hyper
    hops: UInt


@message(34)
class View(Message):
    """All neighbours of the sender, whenever they change. Causes: the receiver knows the fabric two links deep: whether
    this is the small regime, which neighbours lack a link too, and where the fabric is woven too densely."""

    neighbours: Peers


@message(35)
class Known(Message):
    """What the sender knows to exist and perhaps lacks itself. Causes: the receiver notices what it lacks, and passes
    the news on if it was news; so everyone learns of messages that nobody can send any more."""

    have: Haves


@message(37)
class Shutdown(Message):
    """Flooded: the channel is closed for all. Causes: passed on, then everyone hangs up."""

    origin: Hyper
    nonce: Hyper
    hops: UInt


@message(40)
class Announce(Message):
    """What the sender has of authors whose messages it does not send over this link. Causes: what the receiver lacks,
    and does not get another way within a moment, it pulls over this link; and it changes over to this link if the
    author is clearly nearer that way."""

    standings: Standings


@message(41)
class Prune(Message):
    """This author's messages come another way. Causes: over this link they are only announced from now on."""

    author: Hyper


@message(42)
class Graft(Message):
    """This author's messages are wanted over this link. Causes: those behind the mark are sent, and all that follow."""

    author: Hyper
    mark: Hyper


@message(43)
class Progress(Message):
    """Up to where the sender, and all that it feeds, have an author's messages. Causes: the receiver, which feeds the
    sender, tells the one that feeds it in turn; the author waits if too much is under way."""

    author: Hyper
    mark: Hyper


@message(60)
class Credential(Message):
    """Who an author is: its certificate, sent over a link before the author's first message there. Causes: the
    author's messages can be checked from here on; if it is not good, the author is not listened to."""

    author: Hyper
    credential: CredentialBytes


@message(61)
class Introduce(Message):
    """The sender got a message of an author whose credential it does not have (any more). Causes: the credential and
    that message are sent again."""

    author: Hyper
    sequence: Hyper
