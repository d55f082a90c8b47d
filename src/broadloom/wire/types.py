"""Types that many messages share."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    # Every integer of 64 bits is a valid id, so ids decoded from frames stay plain integers until the application
    # gets them.
    HexId = int
    PeerId = int
else:

    class HexId(int):
        """An id of 64 bits. `str()` gives 16 hexadecimal digits."""

        __slots__ = ()

        def __str__(self) -> str:
            return f"{self:016x}"

        def __repr__(self) -> str:
            return f"{type(self).__name__}(0x{self:016x})"

    class PeerId(HexId):
        """The id of a peer, new at each connect."""

        __slots__ = ()


class Address(NamedTuple):
    """Where a peer listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PeerInfo(NamedTuple):
    """The id and the address of a peer."""

    peer_id: PeerId
    address: Address

    def __str__(self) -> str:
        return f"{self.peer_id:016x}@{self.address}"


class BeaconId(NamedTuple):
    """The latest beacon that a peer has received: nearly the same for all peers of one fabric."""

    origin: PeerId
    nonce: int


class TreePosition(NamedTuple):
    """What a peer has of one author, and how many links away from the author it is in its tree."""

    author: PeerId
    stream_start: int
    last_contiguous: int
    hops: int


class SignedRecord(NamedTuple):
    """A record of the roster (`roster_messages.py`) as its member signed it."""

    record: bytes
    signature: bytes
    """Empty on a channel without TLS."""
    credential: bytes
    """The member's certificate; empty if the receiver has it already, and on a channel without TLS."""


class SignedReport(NamedTuple):
    """A `DeliveryReport` (`receipt_messages.py`) as its member signed it."""

    report: bytes
    signature: bytes
    """Empty on a channel without TLS."""


class RecordVersion(NamedTuple):
    """Names one record of a member. The higher one is valid."""

    peer_id: PeerId
    incarnation: int
    record_hash: int


class AuthorState(NamedTuple):
    """What a peer has of one author: all messages up to `last_contiguous` were delivered, reported as missed, or sent
    before it joined."""

    author: PeerId
    stream_start: int
    last_contiguous: int
    idle_ms: int
    """Time since the author's last message. Members ignore gaps of authors that have been idle since before they
    joined."""
