"""A channel's name and what is derived from it."""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broadloom.wire.fields import CHANNEL_ID_BYTES

if TYPE_CHECKING:
    from random import Random


# The order in which a channel's peers take ports and its seekers try them.
#
# A keyed permutation of the user ports: the same on every machine for the same channel, each port once, computed one
# by one. It is a small Feistel network over a power of two, walked until it lands in range (cycle walking), so no
# table of 63,000 ports is ever made.


FIRST_PORT = 2057
"""The documents leave the first 2056 ports to others."""
LAST_PORT = 65535
PORTS = LAST_PORT - FIRST_PORT + 1
_HALF_BITS = 8
_HALF_MASK = (1 << _HALF_BITS) - 1
_ROUNDS = 6
SHUFFLED_PORTS = 8
"""So many of the first ports are tried in a random order, weighted to the front."""


class PortOrder:
    """The permutation of one channel: `order[0]` is where its first peer listens."""

    def __init__(self, channel_id: bytes) -> None:
        # One table of round values per round: a port costs a few look-ups, not a few hashes.
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
        while value >= PORTS:  # one step in thirty-two
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
    """Indices 0..depth-1 as one seeker tries them: of the first eight, each next one is the first that is left with
    probability 1/2, the second with 1/4, and so on; so many seekers do not knock at the same door at once."""
    left = list(range(min(SHUFFLED_PORTS, depth)))
    order = []
    while left:
        position = 0
        while position < len(left) - 1 and random.random() < 0.5:
            position += 1
        order.append(left.pop(position))
    return order + list(range(len(order), depth))


class ChannelName(NamedTuple):
    """Type (the application) and instance (the session, which may be a secret): `chess/club-42`."""

    type: str
    instance: str

    @classmethod
    def parse(cls, text: str) -> "ChannelName":
        kind, slash, instance = text.partition("/")
        if not (kind and slash and instance):
            raise ValueError(f"a channel is named TYPE/INSTANCE, as in chess/club-42, not {text!r}")
        return cls(kind, instance)

    @property
    def id(self) -> bytes:
        """The same on every machine; says nothing about the name to those who do not know it."""
        named = len(self.type.encode()).to_bytes(4, "big") + self.type.encode() + self.instance.encode()
        return hashlib.blake2b(named, digest_size=CHANNEL_ID_BYTES, person=b"bl channel").digest()

    def __str__(self) -> str:
        return f"{self.type}/{self.instance}"
