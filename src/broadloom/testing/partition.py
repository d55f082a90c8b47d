"""A network partition on one machine, without root.

A real partition drops packets. Here every peer checks before it dials and before it accepts a connection, and
connections across the partition are closed at both ends. So peers notice at once instead of after a heartbeat timeout;
what follows, two fabrics that merge after healing, is the same. (`broadloom chaos partition` uses network namespaces,
which need root.)

Peers not listed on the far side are on the near side: external peers, and peers that join during the partition. So none
of them can bridge the two sides.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broadloom.channel.connect import PendingConnection
from broadloom.channel.options import ConnectOptions
from broadloom.transport.connection import TcpConnection
from broadloom.transport.node import TcpNode

if TYPE_CHECKING:
    from broadloom.protocol.runtime import ConnectionHandler
    from broadloom.wire import Address, PeerId


class Partition:
    """The partition as all peers of a process see it."""

    def __init__(self) -> None:
        self._far_peers: frozenset[int] = frozenset()
        self._far_ports: frozenset[int] = frozenset()

    def set_far_side(self, peers: Iterable[int], ports: Iterable[int]) -> None:
        """Set the far side; without peers there is no partition."""
        self._far_peers, self._far_ports = frozenset(peers), frozenset(ports)

    def separates(self, peer_id: "PeerId", other_id: "PeerId") -> bool:
        return bool(self._far_peers) and (peer_id in self._far_peers) != (other_id in self._far_peers)

    def separates_port(self, peer_id: "PeerId", port: int) -> bool:
        return bool(self._far_peers) and (peer_id in self._far_peers) != (port in self._far_ports)


class PartitionedNode(TcpNode):
    """A node that talks to its own side only."""

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
        """Close the connections across a new partition as if the other end were gone."""
        for connection in list(self._connections):
            if connection.identity is not None and self.partition.separates(self.id, connection.identity.peer_id):
                connection.eof_received()


class PartitionedConnect(PendingConnection):
    """`broadloom.connect` with a partition."""

    _node_class = PartitionedNode

    def __init__(self, name: str, partition: Partition, options: ConnectOptions) -> None:
        super().__init__(name, options)
        self._partition = partition

    def _node(self, advertise_host: str, port: int, *, is_secondary: bool = False) -> TcpNode:
        node = super()._node(advertise_host, port, is_secondary=is_secondary)
        assert isinstance(node, PartitionedNode)
        node.partition = self._partition
        return node
