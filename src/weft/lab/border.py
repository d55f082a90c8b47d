"""Two sides that cannot reach each other, on one machine and without root.

A real split drops packets between networks. Here every peer of the lab looks before it dials and before it takes a
call, and the links across are broken off at both ends. So a split is noticed at once, where one of the network would be
noticed by silence after some seconds; all that follows (two fabrics, which merge when they can) is the same.
(`weft trial partition` does it with network namespaces, which need root.)

The rule: whoever is not named as of the far side is of the near one, be it somebody else's peer (a page's) or one that
came during the split. So no stranger bridges the two.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.channel.connect import Connecting
from weft.net.line import TcpLine
from weft.net.node import Node

if TYPE_CHECKING:
    from weft.fabric import Settings
    from weft.fabric.observer import Tape
    from weft.fabric.world import LineOwner
    from weft.wire import Address, PeerId

LOOPBACK = "127.0.0.1"


class Border:
    """One for all peers of a process."""

    def __init__(self) -> None:
        self._far_peers: frozenset[int] = frozenset()
        self._far_ports: frozenset[int] = frozenset()

    def draw(self, peers: Iterable[int], ports: Iterable[int]) -> None:
        """These are of the far side from now on; none, and there is no border."""
        self._far_peers, self._far_ports = frozenset(peers), frozenset(ports)

    def parts(self, me: "PeerId", other: "PeerId") -> bool:
        return bool(self._far_peers) and (me in self._far_peers) != (other in self._far_peers)

    def parts_from(self, me: "PeerId", port: int) -> bool:
        return bool(self._far_peers) and (me in self._far_peers) != (port in self._far_ports)


class BorderedNode(Node):
    """A node that keeps to its side."""

    border: Border

    def dial(self, address: "Address", owner: "LineOwner") -> TcpLine:
        if not self.border.parts_from(self.id, address.port):
            return super().dial(address, owner)
        line = TcpLine(self, dialled=True)
        line.owner = owner
        self._loop.call_soon(line.unanswered)
        return line

    def called(self, line: TcpLine) -> None:
        if line.identity is not None and self.border.parts(self.id, line.identity.peer):
            line.abort()
            return
        super().called(line)

    def break_off_across(self) -> None:
        """The border has moved: lines that cross it end, as if the other end had gone."""
        for line in list(self._lines):
            if line.identity is not None and self.border.parts(self.id, line.identity.peer):
                line.eof_received()


class Crossing(Connecting):
    """Like `weft.connect`, with a border."""

    _makes = BorderedNode

    def __init__(
        self,
        name: str,
        border: Border,
        *,
        portals: list[str],
        timeout_s: float,
        tape: "Tape",
        settings: "Settings",
    ) -> None:
        super().__init__(
            name,
            portals=portals,
            key=None,
            ticket=None,
            revoked=None,
            plain=False,
            signed=None,
            host=LOOPBACK,
            port=0,
            peers=1,
            behind="drop",
            inbox_messages_max=100_000,
            inbox_bytes_max=64 << 20,
            timeout_s=timeout_s,
            tape=tape,
            settings=settings,
            limits=None,
        )
        self._border = border

    def _node(self, host: str, port: int, portals: tuple["Address", ...]) -> Node:
        node = super()._node(host, port, portals)
        assert isinstance(node, BorderedNode)
        node.border = self._border
        return node
