"""Messages on links between neighbors, except for the broadcast itself (`broadcast_frame.py`).

Each message says what it causes on receipt.
"""

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
    ProofBytes,
    TreePositions,
    UInt,
)


class UnavailableReason(IntEnum):
    """Why a neighbor cannot send messages."""

    PENDING = 1
    """It lacks them too, or does not know of them: they may still arrive."""
    DROPPED = 2
    """It dropped them after retention, or gave them up."""
    NEVER_HELD = 3
    """It joined later, or all its other neighbors did: it does not wait for them."""


@message(20)
class Digest(WireMessage):
    """First frame of either side of a link. Causes: retained messages that the sender lacks are sent."""

    is_new: Bool
    """The sender has no position yet and adopts that of the receiver's digest."""
    is_complete: Bool
    """The two may have been partitioned for long: `authors` includes long idle ones, and the receiver reports its
    own."""
    authors: AuthorStates
    peer_sample: PeerInfos


@message(22)
class Want(WireMessage):
    """Causes: the retained messages of the range are sent, and `Unavailable` for the rest."""

    author: Hyper
    first: Hyper
    last: Hyper


@message(23)
class Unavailable(WireMessage):
    """Causes: the next neighbor is asked; messages that no neighbor has or waits for are reported as missed."""

    author: Hyper
    first: Hyper
    last: Hyper
    reason: Annotated[UnavailableReason, xdr.enum(UnavailableReason)]


@message(24)
class Heartbeat(WireMessage):
    """Sent on an idle link. Causes: nothing; without it the link is closed after `heartbeat_timeout_s`."""


@message(25)
class RandomWalk(WireMessage):
    """Looks for a random edge, or for a free slot, for the requester. Causes: it is forwarded; at its end the edge it
    came over is offered. If only a free slot is wanted, the first peer on its way that has one dials the requester."""

    walk_id: Hyper
    requester: PeerInfoField
    partner: OptionalPeerInfo
    """The peer that gets the far end of the edge; by default the requester."""
    excluded: PeerIds
    """Neighbors of the requester: edges that end at one of them are unsuitable."""
    partner_excluded: PeerIds
    free_slot_only: Bool
    """The requester has one free slot: too few for both ends of an edge, but enough for a peer with a free slot."""
    steps: UInt
    extra_steps: UInt
    """Steps to spend on finding another edge if the first is unsuitable."""


@message(26)
class WalkEnd(WireMessage):
    """Causes: the reservation of the edge over which the walk came is released."""

    walk_id: Hyper


@message(27)
class Unlink(WireMessage):
    """The sender ends this link. Causes: the receiver drains it, sends `UnlinkAck`, and fills the slot as the fields
    say."""

    dial: OptionalPeerInfo
    """Dial this peer and request a link."""
    await_dial: OptionalPeerInfo
    """Reserve the slot for this peer, which will dial."""


@message(28)
class UnlinkAck(WireMessage):
    """Last frame on a drained link. Causes: the connection is closed."""


@message(29)
class Leave(WireMessage):
    """The sender leaves the channel. Causes: its neighbors link to each other in pairs."""

    neighbors: PeerInfos


@message(30)
class SlotSearch(WireMessage):
    """Flooded: the requester has a free slot. Causes: a peer with a free slot that is not a neighbor yet dials it."""

    origin: Hyper
    nonce: Hyper
    hops: UInt
    requester: PeerInfoField


@message(31)
class DiameterEstimate(WireMessage):
    """Flooded: a frame traveled this far. Causes: smaller estimates are raised."""

    origin: Hyper
    nonce: Hyper
    hops: UInt
    diameter: UInt


@message(33)
class Beacon(WireMessage):
    """Flooded periodically by one peer. Causes: all receivers know that they are in the same fabric."""

    origin: Hyper
    nonce: Hyper
    hops: UInt


@message(34)
class NeighborList(WireMessage):
    """All neighbors of the sender, whenever they change. Causes: the receiver knows the fabric up to two hops: whether
    it is a full mesh, which neighbors have a free slot too, and where it is clustered."""

    neighbors: PeerIds


@message(35)
class LastKnown(WireMessage):
    """Messages that the sender knows to exist and may lack itself: an unverified claim. Causes: the receiver looks for
    what it lacks, and forwards claims that are new to it. So all peers learn of messages that none can send any
    more."""

    authors: AuthorStates


@message(37)
class CloseChannel(WireMessage):
    """Flooded: the channel is closed for everyone. Causes: it is forwarded, then all links are closed."""

    origin: Hyper
    nonce: Hyper
    hops: UInt


@message(40)
class IHave(WireMessage):
    """What the sender has of authors whose messages it does not push over this link. Causes: the receiver pulls
    messages that do not arrive another way within a moment, and makes this link its parent if that is clearly closer to
    the author."""

    positions: TreePositions


@message(41)
class Prune(WireMessage):
    """The sender receives this author's messages over another link. Causes: the link becomes lazy: `IHave` only."""

    author: Hyper


@message(42)
class Graft(WireMessage):
    """Makes the link eager for this author. Causes: all messages after `last_contiguous` are sent, and those that
    follow."""

    author: Hyper
    last_contiguous: Hyper


@message(43)
class Ack(WireMessage):
    """Up to where the sender and all its children in the author's tree have its messages. Causes: the receiver
    acknowledges to its own parent in turn; the author waits if too much is in flight."""

    author: Hyper
    last_contiguous: Hyper


@message(60)
class Credential(WireMessage):
    """The certificate of an author, sent over a link before its first message there. Causes: the author's messages can
    be verified; if the certificate is invalid, they are ignored."""

    author: Hyper
    credential: CredentialBytes


@message(61)
class CredentialRequest(WireMessage):
    """The sender received a message without having the credential of its author. Causes: both are sent again."""

    author: Hyper
    sequence: Hyper


@message(62)
class PositionProof(WireMessage):
    """An author's signature without its messages: proves how many messages the author has sent. Sent on a signed
    channel before a digest to a newcomer, and before `LastKnown` and `Unavailable`. Causes: claims up to there are
    believed."""

    proof: ProofBytes
