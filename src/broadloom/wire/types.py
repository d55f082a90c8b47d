"""The nouns that stand in many messages: who a peer is and where it answers."""

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
    """Where a peer listens for calls."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PeerInfo(NamedTuple):
    """A peer and where it answers: all that one peer needs to know of another."""

    peer_id: PeerId
    address: Address

    def __str__(self) -> str:
        return f"{self.peer_id:016x}@{self.address}"


class BeaconId(NamedTuple):
    """The newest beacon that a peer has heard: two peers of one fabric have heard (nearly) the same."""

    origin: PeerId
    nonce: int


class TreePosition(NamedTuple):
    """How far a peer is with one author: what it can be asked for, and how many links away from the author it is."""

    author: PeerId
    stream_start: int
    last_contiguous: int
    hops: int


class AuthorState(NamedTuple):
    """Up to where a peer has had one author: everything up to `mark` was delivered, given up, or before its time."""

    author: PeerId
    stream_start: int
    last_contiguous: int
    idle_ms: int
    """For how long the author has not been heard: a newcomer takes all, a member learns only of recent authors."""
