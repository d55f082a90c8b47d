"""Messages of calls: short connections between two peers that need not be neighbours.

A call begins with `Hello` and a question from the caller, then `Hello` and an answer (or `Refuse`) from the other
side. Questions that ask for a link turn the call into one if the answer is yes.
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
    """Why a call was refused, for programs; the text beside it is for people."""

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
    """Of the same channel, but its certificate is of another authority."""
    TICKET_EXPIRED = 13
    """The ticket is past its time."""
    TICKET_REVOKED = 14
    """The ticket was withdrawn."""
    PEER_ID_MISMATCH = 15
    """The certificate belongs to another peer id than the one that was claimed."""
    TLS_MISMATCH = 16
    """One side uses TLS, the other plain TCP."""
    SIGNING_MISMATCH = 17
    """One side signs its messages, the other does not."""


class EdgeOfferResult(IntEnum):
    """What a newcomer says to an offered edge."""

    ACCEPTED = 1
    UNSUITABLE = 2
    """One of the ends is a neighbour already, or too close to one: the walk may go on for another edge."""
    NO_FREE_SLOT = 3
    """No more edges are wanted: the walk is over."""


class MergeAction(IntEnum):
    """How two peers that found themselves in different parts join them. All but NOTHING turn the call into a link."""

    NONE = 1
    LINK = 2
    """Both have a hole."""
    PIN_INITIATOR = 3
    """The one who was called cuts an edge of its own; the other end of it calls the caller."""
    PIN_RESPONDER = 4
    """The caller cuts an edge of its own; the other end of it calls the one who was called."""
    SWAP_EDGES = 5
    """Both cut an edge; the two other ends link: the end of the caller calls."""


@message(1)
class Hello(WireMessage):
    """First frame of either side. Causes: a check of magic, version, channel; then the question is read."""

    magic: UInt
    version: UInt
    channel: ChannelId
    peer_id: Hyper
    address: AddressField
    """Where the sender listens for calls."""
    has_position: Bool
    """Whether the sender has a starting point in the stream of messages: two that have none do not link."""
    signed: Bool
    """Whether the sender signs its messages and takes none that are not signed."""


@message(2)
class Reject(WireMessage):
    """The call is over. Causes: the caller gives up or tries elsewhere, by the reason."""

    reason: Annotated[RejectReason, xdr.enum(RejectReason)]
    text: Text


@message(3)
class DiscoverRequest(WireMessage):
    """Question: are you connected? Causes: the answer; two seekers remember each other and share what they know."""

    is_connected: Bool
    """The sender is a member that looks for others of its kind; a seeker may join through it."""
    search_depth: UInt
    """Port depth to which the sender has searched all portals without finding the fabric."""
    seekers: PeerInfos


@message(4)
class DiscoverResponse(WireMessage):
    """Causes: a join request if connected; else the seeker skips the depths that the other has searched."""

    is_connected: Bool
    search_depth: UInt
    seekers: PeerInfos


@message(5)
class JoinRequest(WireMessage):
    """Question: weave me in. Causes: a direct link if there is a hole, and walks for the remaining holes."""

    free_slots: UInt
    neighbors: PeerIds


@message(6)
class JoinResponse(WireMessage):
    """Causes: the call becomes a link if `linked`; in the small regime the newcomer calls all members."""

    is_linked: Bool
    is_full_mesh: Bool
    diameter: UInt
    members: PeerInfos
    """Everyone in the small regime, but for the sender."""
    peer_sample: PeerInfos
    """For the address cache."""


@message(7)
class EdgeOffer(WireMessage):
    """Question: may my edge to `other` be pinned onto you? Causes: accepted, the call becomes a link."""

    walk_id: Hyper
    far_end: PeerInfoField
    splits_pair: Bool
    """The other end goes to the partner named in the walk, so only one place is needed."""
    near_neighbors: PeerIds
    """Neighbours of the offering end."""
    far_neighbors: PeerIds
    """Neighbours of the other end, as far as known: a newcomer does without edges that would make dense spots."""
    is_final: Bool
    """The walk has no steps left to look for a better one."""


@message(8)
class EdgeOfferResponse(WireMessage):
    """Causes: accepted, the offering peer cuts the edge and sends its other end to the newcomer."""

    result: Annotated[EdgeOfferResult, xdr.enum(EdgeOfferResult)]


@message(9)
class LinkRequest(WireMessage):
    """Question: may I fill a hole of yours? Causes: the call becomes a link if there is room."""


@message(10)
class LinkResponse(WireMessage):
    """Yes: the call is a link from here on. (No is a Refuse.)"""


@message(11)
class SeekerJoined(WireMessage):
    """Statement to a fellow seeker: I am in. Causes: the same word back; the fellow asks the sender to weave it in."""


@message(12)
class PartitionProbe(WireMessage):
    """Question: are we of one fabric? Causes: the two parts are joined if not; caches are refreshed either way.
    With `loosen`, edges are exchanged even if so, because the caller's edge makes a dense spot."""

    beacon: OptionalBeaconId
    free_slots: UInt
    neighbors: PeerIds
    edge: OptionalPeerInfo
    """Other end of an edge that the caller would give."""
    declusters: Bool
    peer_sample: PeerInfos


@message(13)
class PartitionProbeResponse(WireMessage):
    """Causes: the union that the answer names; the lower of the two beacons is then spread in the other part."""

    beacon: OptionalBeaconId
    merge_action: Annotated[MergeAction, xdr.enum(MergeAction)]
    edge: OptionalPeerInfo
    """Other end of the edge that the one who was called gives."""
    peer_sample: PeerInfos
