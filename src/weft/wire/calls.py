"""Messages of calls: short connections between two peers that need not be neighbours.

A call begins with `Hello` and a question from the caller, then `Hello` and an answer (or `Refuse`) from the other
side. Questions that ask for a link turn the call into one if the answer is yes.
"""

from enum import IntEnum
from typing import Annotated

from weft.wire import xdr
from weft.wire.codec import Message, message
from weft.wire.fields import (
    AddressField,
    Bool,
    ChannelId,
    ContactField,
    Contacts,
    Hyper,
    OptionalBeacon,
    OptionalContact,
    Peers,
    Text,
    UInt,
)

MAGIC = 0x57454654
"""The letters WEFT."""

VERSION = 1


class Refusal(IntEnum):
    """Why a call was refused, for programs; the text beside it is for people."""

    NOT_WEFT = 1
    WRONG_VERSION = 2
    WRONG_CHANNEL = 3
    NOT_CONNECTED = 4
    NO_ROOM = 5
    ALREADY_NEIGHBOURS = 6
    NOT_READY = 7
    BUSY = 8
    LEAVING = 9
    BAD_MESSAGE = 10
    MYSELF = 11
    WRONG_KEY = 12
    """Of the same channel, but its certificate is of another authority."""
    EXPIRED = 13
    """The ticket is past its time."""
    REVOKED = 14
    """The ticket was withdrawn."""
    IMPOSTOR = 15
    """The certificate belongs to another peer id than the one that was claimed."""
    WRONG_MODE = 16
    """One side uses TLS, the other plain TCP."""
    WRONG_SIGNING = 17
    """One side signs its messages, the other does not."""


class Verdict(IntEnum):
    """What a newcomer says to an offered edge."""

    ACCEPTED = 1
    UNUSABLE = 2
    """One of the ends is a neighbour already, or too close to one: the walk may go on for another edge."""
    FULL = 3
    """No more edges are wanted: the walk is over."""


class Union(IntEnum):
    """How two peers that found themselves in different parts join them. All but NOTHING turn the call into a link."""

    NOTHING = 1
    LINK = 2
    """Both have a hole."""
    PIN_CALLER = 3
    """The one who was called cuts an edge of its own; the other end of it calls the caller."""
    PIN_CALLED = 4
    """The caller cuts an edge of its own; the other end of it calls the one who was called."""
    EXCHANGE = 5
    """Both cut an edge; the two other ends link: the end of the caller calls."""


@message(1)
class Hello(Message):
    """First frame of either side. Causes: a check of magic, version, channel; then the question is read."""

    magic: UInt
    version: UInt
    channel: ChannelId
    peer: Hyper
    address: AddressField
    """Where the sender listens for calls."""
    settled: Bool
    """Whether the sender has a starting point in the stream of messages: two that have none do not link."""
    signed: Bool
    """Whether the sender signs its messages and takes none that are not signed."""


@message(2)
class Refuse(Message):
    """The call is over. Causes: the caller gives up or tries elsewhere, by the reason."""

    reason: Annotated[Refusal, xdr.enum(Refusal)]
    text: Text


@message(3)
class Seek(Message):
    """Question: are you connected? Causes: the answer; two seekers remember each other and share what they know."""

    connected: Bool
    """The sender is a member that looks for others of its kind; a seeker may join through it."""
    depth: UInt
    """Port depth to which the sender has searched all portals without finding the fabric."""
    fellows: Contacts


@message(4)
class SeekAnswer(Message):
    """Causes: a join request if connected; else the seeker skips the depths that the other has searched."""

    connected: Bool
    depth: UInt
    fellows: Contacts


@message(5)
class JoinRequest(Message):
    """Question: weave me in. Causes: a direct link if there is a hole, and walks for the remaining holes."""

    holes: UInt
    neighbours: Peers


@message(6)
class JoinAnswer(Message):
    """Causes: the call becomes a link if `linked`; in the small regime the newcomer calls all members."""

    linked: Bool
    small: Bool
    diameter: UInt
    members: Contacts
    """Everyone in the small regime, but for the sender."""
    sample: Contacts
    """For the address cache."""


@message(7)
class Offer(Message):
    """Question: may my edge to `other` be pinned onto you? Causes: accepted, the call becomes a link."""

    walk: Hyper
    other: ContactField
    pair: Bool
    """The other end goes to the partner named in the walk, so only one place is needed."""
    near: Peers
    """Neighbours of the offering end."""
    far: Peers
    """Neighbours of the other end, as far as known: a newcomer does without edges that would make dense spots."""
    last_chance: Bool
    """The walk has no steps left to look for a better one."""


@message(8)
class OfferAnswer(Message):
    """Causes: accepted, the offering peer cuts the edge and sends its other end to the newcomer."""

    verdict: Annotated[Verdict, xdr.enum(Verdict)]


@message(9)
class PortRequest(Message):
    """Question: may I fill a hole of yours? Causes: the call becomes a link if there is room."""


@message(10)
class PortAnswer(Message):
    """Yes: the call is a link from here on. (No is a Refuse.)"""


@message(11)
class Connected(Message):
    """Statement to a fellow seeker: I am in. Causes: the same word back; the fellow asks the sender to weave it in."""


@message(12)
class Probe(Message):
    """Question: are we of one fabric? Causes: the two parts are joined if not; caches are refreshed either way.
    With `loosen`, edges are exchanged even if so, because the caller's edge makes a dense spot."""

    beacon: OptionalBeacon
    holes: UInt
    neighbours: Peers
    edge: OptionalContact
    """Other end of an edge that the caller would give."""
    loosen: Bool
    sample: Contacts


@message(13)
class ProbeAnswer(Message):
    """Causes: the union that the answer names; the lower of the two beacons is then spread in the other part."""

    beacon: OptionalBeacon
    union: Annotated[Union, xdr.enum(Union)]
    edge: OptionalContact
    """Other end of the edge that the one who was called gives."""
    sample: Contacts
