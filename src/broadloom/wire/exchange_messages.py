"""Messages of exchanges: short connections between any two peers, with one request and one response.

The initiator sends `Hello` and a request, the responder `Hello` and a response, or `Reject`. A request for a link turns
the connection into one if it is accepted. Each message says what it causes on receipt.
"""

from enum import IntEnum
from typing import Annotated

from broadloom.wire import xdr
from broadloom.wire.codec import WireMessage, message
from broadloom.wire.fields import (
    AddressField,
    Bool,
    ChannelId,
    Hyper,
    OptionalBeaconId,
    OptionalPeerInfo,
    PeerIds,
    PeerInfoField,
    PeerInfos,
    Text,
    UInt,
)

MAGIC = 0x424C4F4D
"""The letters BLOM."""

VERSION = 1


class RejectReason(IntEnum):
    """Why an exchange was rejected. The text beside it is human-readable."""

    WRONG_PROTOCOL = 1
    WRONG_VERSION = 2
    WRONG_CHANNEL = 3
    NOT_CONNECTED = 4
    NO_FREE_SLOT = 5
    ALREADY_LINKED = 6
    NOT_READY = 7
    BUSY = 8
    LEAVING = 9
    MALFORMED_MESSAGE = 10
    SELF_CONNECTION = 11
    WRONG_KEY = 12
    """Same channel, but the certificate has another issuer: another key or authority."""
    TICKET_EXPIRED = 13
    TICKET_REVOKED = 14
    PEER_ID_MISMATCH = 15
    """The certificate belongs to another peer id than the claimed one."""
    TLS_MISMATCH = 16
    """One side uses TLS, the other plain TCP."""
    SIGNING_MISMATCH = 17
    """One side signs messages, the other does not."""
    CARD_MISMATCH = 18
    """The settings of this peer are not those on the channel's card."""
    CHANNEL_CLOSED = 19
    """The owner has closed the channel."""
    QUOTA_EXCEEDED = 20
    """This member has exceeded its quota, and is not admitted for a while."""
    CHANNEL_TLS_MISMATCH = 21
    """As `TLS_MISMATCH`, and both sides are on the same channel."""


class EdgeOfferResult(IntEnum):
    """Response of a joiner to an edge offer."""

    ACCEPTED = 1
    UNSUITABLE = 2
    """One end is a neighbor already, or would form a cluster: the walk may continue to another edge."""
    NO_FREE_SLOT = 3
    """No edge is needed any more: the walk ends."""


class MergeAction(IntEnum):
    """How two peers merge their partitions. All but `NONE` turn the exchange into a link."""

    NONE = 1
    LINK = 2
    """Both have a free slot."""
    PIN_INITIATOR = 3
    """The responder removes one of its edges; the other end of it dials the initiator."""
    PIN_RESPONDER = 4
    """The initiator removes one of its edges; the other end of it dials the responder."""
    SWAP_EDGES = 5
    """Both remove an edge, and the two other ends link: the one on the initiator's side dials."""


@message(1)
class Hello(WireMessage):
    """First frame of either side. Causes: magic, version and channel are checked; then the request is read."""

    magic: UInt
    version: UInt
    channel: ChannelId
    peer_id: Hyper
    address: AddressField
    """Where the sender listens."""
    has_position: Bool
    """Whether the sender knows where to start in each author's stream. Two peers without a position do not link."""
    signed: Bool
    """Whether the sender signs its messages and rejects unsigned ones."""


@message(2)
class Reject(WireMessage):
    """The exchange is over. Causes: the initiator gives up or tries elsewhere, depending on the reason."""

    reason: Annotated[RejectReason, xdr.enum(RejectReason)]
    text: Text


@message(3)
class DiscoverRequest(WireMessage):
    """Asks whether the responder is connected. Causes: the response; two seekers remember each other and share what
    they know."""

    is_connected: Bool
    """The sender is a member that looks for others; a seeker may join through it."""
    search_depth: UInt
    """Port depth to which the sender has searched all bootstrap hosts without finding the fabric."""
    seekers: PeerInfos


@message(4)
class DiscoverResponse(WireMessage):
    """Causes: a join request if connected; otherwise the seeker skips the depths that the responder has searched."""

    is_connected: Bool
    search_depth: UInt
    seekers: PeerInfos


@message(5)
class JoinRequest(WireMessage):
    """Asks to join. Causes: a direct link if there is a free slot, and random walks for the remaining slots."""

    free_slots: UInt
    neighbors: PeerIds


@message(6)
class JoinResponse(WireMessage):
    """Causes: the exchange becomes a link if `is_linked`; in a full mesh the joiner dials all members."""

    is_linked: Bool
    is_full_mesh: Bool
    diameter: UInt
    members: PeerInfos
    """In a full mesh, all other members."""
    peer_sample: PeerInfos
    """For the peer cache."""


@message(7)
class EdgeOffer(WireMessage):
    """Offers to pin the edge between the initiator and `far_end` onto the responder. Causes: if accepted, the exchange
    becomes a link."""

    walk_id: Hyper
    far_end: PeerInfoField
    splits_pair: Bool
    """The far end goes to the partner named in the walk, so only one slot is needed."""
    near_neighbors: PeerIds
    far_neighbors: PeerIds
    """Neighbors of the far end, as far as known: joiners decline edges that would form clusters."""
    is_final: Bool
    """The walk has no steps left to find a better edge."""


@message(8)
class EdgeOfferResponse(WireMessage):
    """Causes: if accepted, the offering peer removes the edge and its far end dials the joiner."""

    result: Annotated[EdgeOfferResult, xdr.enum(EdgeOfferResult)]


@message(9)
class LinkRequest(WireMessage):
    """Asks for a link. Causes: the exchange becomes a link if there is a free slot."""


@message(10)
class LinkResponse(WireMessage):
    """Accepts: the exchange is a link from here on. (`Reject` declines.)"""


@message(11)
class SeekerJoined(WireMessage):
    """Tells another seeker that the sender has joined. Causes: the same message back; the seeker joins through the
    sender."""


@message(12)
class PartitionProbe(WireMessage):
    """Asks whether both are in the same fabric. Causes: the two partitions merge if not; peer caches are refreshed
    either way. With `declusters`, edges are swapped in any case, because the initiator's edge is part of a cluster."""

    beacon: OptionalBeaconId
    free_slots: UInt
    neighbors: PeerIds
    edge: OptionalPeerInfo
    """Far end of the edge that the initiator would give up."""
    declusters: Bool
    peer_sample: PeerInfos


@message(13)
class PartitionProbeResponse(WireMessage):
    """Causes: the merge action; the lower of the two beacons then spreads in the other partition."""

    beacon: OptionalBeaconId
    merge_action: Annotated[MergeAction, xdr.enum(MergeAction)]
    edge: OptionalPeerInfo
    """Far end of the edge that the responder gives up."""
    peer_sample: PeerInfos
