"""Two sides that cannot reach each other, on one machine and without root.

A real split drops packets between networks. Here every peer of the lab looks before it dials and before it takes a
call, and the links across are broken off at both ends. So a split is noticed at once, where one of the network would be
noticed by silence after some seconds; all that follows (two fabrics, which merge when they can) is the same.
(`broadloom chaos partition` does it with network namespaces, which need root.)

The rule: whoever is not named as of the far side is of the near one, be it somebody else's peer (a page's) or one that
came during the split. So no stranger bridges the two.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broadloom.channel.connect import PendingConnection
from broadloom.transport.connection import TcpConnection
from broadloom.transport.node import TcpNode

if TYPE_CHECKING:
    from broadloom.protocol import ChannelSettings
    from broadloom.protocol.runtime import ConnectionHandler, ObserverFactory
    from broadloom.wire import Address, PeerId

LOOPBACK = "127.0.0.1"


class Partition:
    """One for all peers of a process."""

    def __init__(self) -> None:
        self._far_peers: frozenset[int] = frozenset()
        self._far_ports: frozenset[int] = frozenset()

    def set_far_side(self, peers: Iterable[int], ports: Iterable[int]) -> None:
        """These are of the far side from now on; none, and there is no border."""
        self._far_peers, self._far_ports = frozenset(peers), frozenset(ports)

    def separates(self, peer_id: "PeerId", other_id: "PeerId") -> bool:
        return bool(self._far_peers) and (peer_id in self._far_peers) != (other_id in self._far_peers)

    def separates_port(self, peer_id: "PeerId", port: int) -> bool:
        return bool(self._far_peers) and (peer_id in self._far_peers) != (port in self._far_ports)


class PartitionedNode(TcpNode):
    """A node that keeps to its side."""

    partition: Partition

    def dial(self, address: "Address", handler: "ConnectionHandler") -> TcpConnection:
        if not self.partition.separates_port(self.id, address.port):
            return super().dial(address, handler)
        connection = TcpConnection(self, is_initiator=True)
        connection.handler = handler
        self._loop.call_soon(connection.on_connect_failed)
        return connection

    def on_accept(self, connection: TcpConnection) -> None:
        if connection.identity is not None and self.partition.separates(self.id, connection.identity.peer_id):
            connection.abort()
            return
        super().on_accept(connection)

    def drop_crossing_connections(self) -> None:
        """The border has moved: lines that cross it end, as if the other end had gone."""
        for connection in list(self._connections):
            if connection.identity is not None and self.partition.separates(self.id, connection.identity.peer_id):
                connection.eof_received()


class PartitionedConnect(PendingConnection):
    """Like `broadloom.connect`, with a border."""

    _node_class = PartitionedNode

    def __init__(
        self,
        name: str,
        partition: Partition,
        *,
        bootstrap: list[str],
        timeout_s: float,
        tape: "ObserverFactory",
        settings: "ChannelSettings",
    ) -> None:
        super().__init__(
            name,
            bootstrap=bootstrap,
            key=None,
            ticket=None,
            revocation_list=None,
            tls=True,
            signed=None,
            advertise_host=LOOPBACK,
            port=0,
            local_peers=1,
            overflow="drop_oldest",
            inbox_messages_max=100_000,
            inbox_bytes_max=64 << 20,
            timeout_s=timeout_s,
            tape=tape,
            settings=settings,
            limits=None,
        )
        self._partition = partition

    def _node(self, advertise_host: str, port: int, bootstrap: tuple["Address", ...]) -> TcpNode:
        node = super()._node(advertise_host, port, bootstrap)
        assert isinstance(node, PartitionedNode)
        node.partition = self._partition
        return node
