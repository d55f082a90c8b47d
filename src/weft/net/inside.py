"""Peers of one process on the same channel: what one of them hears, the others have at once, without a socket.

A set of peers acts as one (`peers=3`), on a machine that is better connected than others. Its members are strangers in
the fabric, with neighbours of their own; between them messages hop inside the process.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from weft.fabric.link import Link

if TYPE_CHECKING:
    from weft.fabric.peer import Peer
    from weft.fabric.seal import Identity
    from weft.fabric.world import LineOwner
    from weft.net.node import Node


class InsideLine:
    """One end of a line that is none: a frame is handed over in the next turn of the event loop."""

    owner: "LineOwner"
    other: "InsideLine"
    is_full = False
    queued_bytes = 0

    def __init__(self, soon: "Callable[[Callable[[], None]], None]") -> None:
        self.identity: Identity | None = None
        self._soon = soon

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        whole = frame if rest is None else b"".join((frame, rest))
        self._soon(lambda: self.other.owner.on_frame(whole))

    def close(self) -> None:
        """Nothing is held."""


def join_inside(nodes: "Sequence[Node]") -> None:
    """Messages hop between these from now on."""
    for one, other in combinations(nodes, 2):
        here, there = InsideLine(one.soon), InsideLine(other.soon)
        here.other, there.other = there, here
        _tie(one.peer, here, other.peer)
        _tie(other.peer, there, one.peer)


def _tie(peer: "Peer", line: InsideLine, other: "Peer") -> None:
    peer.stream.inside.append(Link(peer, line, other.me))
