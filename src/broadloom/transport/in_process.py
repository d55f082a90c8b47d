"""Links between the local peers of one channel (`local_peers=3`), without sockets.

In the fabric the local peers are ordinary peers with neighbors of their own. In addition, each message that one of them
receives is passed to the others inside the process.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from broadloom.protocol.link import Link

if TYPE_CHECKING:
    from broadloom.protocol.identity import Identity
    from broadloom.protocol.peer import Peer
    from broadloom.protocol.runtime import ConnectionHandler
    from broadloom.transport.node import TcpNode


class InProcessConnection:
    """One end of a link inside the process. A frame is delivered in the next iteration of the event loop."""

    handler: "ConnectionHandler"
    other_end: "InProcessConnection"
    is_congested = False
    queued_bytes = 0

    def __init__(self, call_soon: "Callable[[Callable[[], None]], None]") -> None:
        self.identity: Identity | None = None
        self._call_soon = call_soon

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        data = frame if rest is None else b"".join((frame, rest))
        self._call_soon(lambda: self.other_end.handler.on_frame(data))

    def send_now(self, frame: bytes) -> bool:
        self.send(frame)
        return True

    def close(self) -> None:
        """Nothing to release."""

    def pause_reading(self) -> None:
        """Never called: it is a link."""

    def resume_reading(self) -> None:
        """Never called."""


def link_in_process(nodes: "Sequence[TcpNode]") -> None:
    """Link every pair of these peers."""
    for one, other in combinations(nodes, 2):
        here, there = InProcessConnection(one.call_soon), InProcessConnection(other.call_soon)
        here.other_end, there.other_end = there, here
        _add_link(one.peer, here, other.peer)
        _add_link(other.peer, there, one.peer)


def _add_link(peer: "Peer", connection: InProcessConnection, other: "Peer") -> None:
    peer.broadcaster.in_process_links.append(Link(peer, connection, other.me))
