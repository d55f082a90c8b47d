"""Peers and messages that several tests of the broadcast protocol share."""

from broadloom.protocol import Peer, Tuning
from broadloom.wire import Broadcast
from broadloom.wire.link_messages import Want
from tests.protocol.fake_runtime import FakeConnection, FakeRuntime, broadcast_of, creator, link

A, B = 71, 72
"""Authors that are not neighbors."""
SHORT_RETENTION = Tuning(heartbeat_timeout_s=1e9, retention_s=10.0)
HELD = [broadcast_of(A, 1), broadcast_of(B, 1), broadcast_of(A, 2), broadcast_of(A, 3), broadcast_of(B, 2)]


def holder(runtime: FakeRuntime, *held: Broadcast) -> Peer:
    """A peer that received these, in this order, from neighbor 2."""
    peer = creator(runtime)
    link(peer, 2).remote_sends(*held)
    return peer


def wants(*connections: FakeConnection) -> list[Want]:
    return [want for connection in connections for want in connection.sent_messages(Want)]
