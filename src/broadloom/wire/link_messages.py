"""Messages of links: lasting connections between neighbours. (The broadcast itself is in `broadcast.py`.)"""

from enum import IntEnum
from typing import Annotated

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, message
from broadloom.wire.fields import (
    AuthorStates,
    Bool,
    CredentialBytes,
    Hyper,
    OptionalPeerInfo,
    PeerIds,
    PeerInfoField,
    PeerInfos,
    TreePositions,
    UInt,
)


class UnavailableReason(IntEnum):
    """Why messages cannot be had from a neighbour."""

    PENDING = 1
    """It lacks them too, or does not know of them: they may still come."""
    EXPIRED = 2
    """They were there and are past retention, or were given up there."""
    NEVER_HELD = 3
    """They were said before its time, or all others there are to ask say so: it does not wait for them."""


@message(20)
class Digest(WireMessage):
    """First frame of either side of a link. Causes: what the other lacks is sent from the retained messages."""

    is_new: Bool
    """The sender has no starting point yet and takes the other's `have` as its own."""
    is_complete: Bool
    """The two may have been apart for long: `have` names long silent authors too, and the other's shall as well."""
    authors: AuthorStates
    peer_sample: PeerInfos


@message(22)
class Want(WireMessage):
    """Causes: the retained messages of the range are sent; for what is not held, a `Gone`."""

    author: Hyper
    first: Hyper
    last: Hyper


@message(23)
class Unavailable(WireMessage):
    """These cannot be had here. Causes: the next neighbour is asked; if none has them nor waits for them, they are
    missed."""

    author: Hyper
    first: Hyper
    last: Hyper
    reason: Annotated[UnavailableReason, xdr.enum(UnavailableReason)]


@message(24)
class Heartbeat(WireMessage):
    """Sent on an idle link. Causes: nothing; silence causes the link to be given up."""


@message(25)
class RandomWalk(WireMessage):
    """Looks for a random edge, or for a hole, for the requester. Causes: handed on; at its end the edge it came over is
    offered, or, if only a hole is wanted, the first peer on its way that has one calls the requester."""

    walk_id: Hyper
    requester: PeerInfoField
    partner: OptionalPeerInfo
    """Who gets the other end of the edge; the requester itself if nobody is named."""
    excluded: PeerIds
    """Neighbours of the requester: an edge with one of them is of no use."""
    partner_excluded: PeerIds
    free_slot_only: Bool
    """The requester has one hole: an edge has two ends too many for it, but a peer with a hole would do."""
    steps: UInt
    extra_steps: UInt
    """Further steps that may be spent on unusable ends."""


@message(26)
class WalkEnd(WireMessage):
    """The edge over which the walk came is free again. Causes: the reservation is dropped."""

    walk_id: Hyper


@message(27)
class Unlink(WireMessage):
    """This link ends. Causes: the rest is drained and answered by `CutDone`; the place is filled as told."""

    dial: OptionalPeerInfo
    """Call this peer and ask for a link."""
    await_dial: OptionalPeerInfo
    """Keep the place for this peer: it will call."""


@message(28)
class UnlinkAck(WireMessage):
    """Last frame on a link that was cut. Causes: the line is closed."""


@message(29)
class Leave(WireMessage):
    """The sender leaves the channel. Causes: its neighbours pair up among each other."""

    neighbors: PeerInfos


@message(30)
class SlotSearch(WireMessage):
    """Flooded: the requester has a hole. Causes: whoever has one too, and is no neighbour yet, calls."""

    origin: Hyper
    nonce: Hyper
    hops: UInt
    requester: PeerInfoField


@message(31)
class DiameterEstimate(WireMessage):
    """Flooded: something travelled this far. Causes: a smaller estimate is raised."""

    origin: Hyper
    nonce: Hyper
    hops: UInt
    diameter: UInt


@message(33)
class Beacon(WireMessage):
    """Flooded now and then by one peer of a fabric. Causes: who hears it knows which fabric it is in."""

    origin: Hyper
    nonce: Hyper
    hops: UInt


@message(34)
class NeighborList(WireMessage):
    """All neighbours of the sender, whenever they change. Causes: the receiver knows the fabric two links deep: whether
    this is the small regime, which neighbours lack a link too, and where the fabric is woven too densely."""

    neighbors: PeerIds


@message(35)
class LastKnown(WireMessage):
    """What the sender knows to exist and perhaps lacks itself. Causes: the receiver notices what it lacks, and passes
    the news on if it was news; so everyone learns of messages that nobody can send any more."""

    authors: AuthorStates


@message(37)
class CloseChannel(WireMessage):
    """Flooded: the channel is closed for all. Causes: passed on, then everyone hangs up."""

    origin: Hyper
    nonce: Hyper
    hops: UInt


@message(40)
class IHave(WireMessage):
    """What the sender has of authors whose messages it does not send over this link. Causes: what the receiver lacks,
    and does not get another way within a moment, it pulls over this link; and it changes over to this link if the
    author is clearly nearer that way."""

    positions: TreePositions


@message(41)
class Prune(WireMessage):
    """This author's messages come another way. Causes: over this link they are only announced from now on."""

    author: Hyper


@message(42)
class Graft(WireMessage):
    """This author's messages are wanted over this link. Causes: those behind the mark are sent, and all that follow."""

    author: Hyper
    last_contiguous: Hyper


@message(43)
class Ack(WireMessage):
    """Up to where the sender, and all that it feeds, have an author's messages. Causes: the receiver, which feeds the
    sender, tells the one that feeds it in turn; the author waits if too much is under way."""

    author: Hyper
    last_contiguous: Hyper


@message(60)
class Credential(WireMessage):
    """Who an author is: its certificate, sent over a link before the author's first message there. Causes: the
    author's messages can be checked from here on; if it is not good, the author is not listened to."""

    author: Hyper
    credential: CredentialBytes


@message(61)
class CredentialRequest(WireMessage):
    """The sender got a message of an author whose credential it does not have (any more). Causes: the credential and
    that message are sent again."""

    author: Hyper
    sequence: Hyper
