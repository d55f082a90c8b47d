"""Types that many messages share."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    # Every integer of 64 bits is a valid id, so ids decoded from frames stay plain integers until the application
    # gets them.
    PeerId = int
else:

    class PeerId(int):
        """The id of a peer: 64 bits, new at each connect. `str()` gives 16 hexadecimal digits."""

        __slots__ = ()

        def __str__(self) -> str:
            return f"{self:016x}"

        def __repr__(self) -> str:
            return f"PeerId(0x{self:016x})"


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


class AuthorState(NamedTuple):
    """What a peer has of one author: all messages up to `last_contiguous` were delivered, reported as missed, or sent
    before it joined."""

    author: PeerId
    stream_start: int
    last_contiguous: int
    idle_ms: int
    """Time since the author's last message. Members ignore gaps of authors that have been idle since before they
    joined."""
