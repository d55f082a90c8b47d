"""`ChannelName` and what is derived from it: the channel id and the port order.

The port order is the sequence in which peers of a channel pick ports to listen on and seekers probe them: a keyed
permutation of the user ports, the same on every machine. It is a small Feistel network with cycle walking, so single
ports are computed without a table of all 63,000.
"""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broadloom.wire.fields import CHANNEL_ID_BYTES

if TYPE_CHECKING:
    from random import Random

FIRST_PORT = 2057
"""SWAN leaves the first 2,056 ports to other programs."""
LAST_PORT = 65535
PORTS = LAST_PORT - FIRST_PORT + 1
_HALF_BITS = 8
_HALF_MASK = (1 << _HALF_BITS) - 1
_ROUNDS = 6
SHUFFLED_PORTS = 8
"""The first ports are tried in random order, weighted to the front."""


class PortOrder:
    """The permutation of one channel: the first peer listens on `order[0]`."""

    def __init__(self, channel_id: bytes) -> None:
        # One table of round values per round: a port costs a few lookups, not a few hashes.
        self._rounds = [
            hashlib.shake_256(channel_id + bytes([round_number])).digest(_HALF_MASK + 1)
            for round_number in range(_ROUNDS)
        ]

    def __len__(self) -> int:
        return PORTS

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < PORTS:
            raise IndexError(index)
        value = self._permute(index)
        while value >= PORTS:  # about one step in 32
            value = self._permute(value)
        return FIRST_PORT + value

    def __iter__(self) -> Iterator[int]:
        return (self[index] for index in range(PORTS))

    def _permute(self, value: int) -> int:
        left, right = value >> _HALF_BITS, value & _HALF_MASK
        for table in self._rounds:
            left, right = right, left ^ table[right]
        return left << _HALF_BITS | right


def search_order(depth: int, random: "Random") -> list[int]:
    """Indices 0..depth-1 in the order in which one seeker tries them. Among the first eight, the next one is the first
    remaining with probability 1/2, the second with 1/4, and so on, so that concurrent seekers spread out."""
    left = list(range(min(SHUFFLED_PORTS, depth)))
    order = []
    while left:
        position = 0
        while position < len(left) - 1 and random.random() < 0.5:
            position += 1
        order.append(left.pop(position))
    return order + list(range(len(order), depth))


class ChannelName(NamedTuple):
    """Type (the application) and instance (the session, possibly secret), as in `chess/club-42`."""

    type: str
    instance: str

    @classmethod
    def parse(cls, text: str) -> "ChannelName":
        if not isinstance(text, str):
            raise TypeError(f"a channel name is text, as in chess/club-42, not {type(text).__name__}")
        kind, slash, instance = text.partition("/")
        if not (kind and slash and instance) or text != text.strip():
            raise ValueError(f"a channel is named TYPE/INSTANCE, as in chess/club-42, not {text!r}")
        return cls(kind, instance)

    @property
    def id(self) -> bytes:
        """A hash of the name: the same on every machine, and it does not reveal the name."""
        named = len(self.type.encode()).to_bytes(4, "big") + self.type.encode() + self.instance.encode()
        return hashlib.blake2b(named, digest_size=CHANNEL_ID_BYTES, person=b"bl channel").digest()

    def __str__(self) -> str:
        return f"{self.type}/{self.instance}"
