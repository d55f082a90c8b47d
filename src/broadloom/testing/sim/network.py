"""The virtual network: connections with latency and bandwidth, and their faults.

As with TCP, frames arrive whole and in order, or the connection is lost. A partition holds frames back, as TCP does by
retransmitting, until it heals or one side gives up. All randomness comes from one seeded source.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broadloom.wire import Address, Frame
from broadloom.wire.broadcast_frame import BROADCAST

if TYPE_CHECKING:
    from random import Random

    from broadloom.protocol.identity import Identity
    from broadloom.protocol.runtime import ConnectionHandler
    from broadloom.testing.sim.node import SimNode
    from broadloom.testing.sim.virtual_clock import VirtualClock


@dataclass(frozen=True, slots=True)
class SimNetworkSettings:
    latency_ms: tuple[float, float] = (2.0, 40.0)
    """Range of the one-way latency; drawn once per connection."""
    jitter_ms: float = 2.0
    """Mean of the exponential delay added to each frame."""
    dial_timeout_s: float = 3.0
    """Time after which a dial to a host that does not respond fails."""
    socket_buffer_bytes: int = 512 << 10
    """A connection with more unread bytes than this is congested."""


class SimNetwork:
    def __init__(self, clock: "VirtualClock", random: "Random", settings: SimNetworkSettings) -> None:
        self.clock = clock
        self.random = random
        self.settings = settings
        self.listening: dict[Address, SimNode] = {}
        self._hosts_down: dict[str, None] = {}
        self._sides: dict[str, int] = {}
        self._blocked_pairs: frozenset[tuple[int, int]] = frozenset()
        self._partitioned_at = 0.0
        self.healed_at = -math.inf
        self._held: dict[SimConnection, None] = {}
        self.frames_sent = 0
        self.bytes_sent = 0
        self.broadcast_frames_sent = 0

    # -- connections

    def dial(self, node: "SimNode", address: Address, handler: "ConnectionHandler") -> "SimConnection":
        low, high = self.settings.latency_ms
        latency_s = (low + (high - low) * self.random.random()) / 1000
        near, far = SimConnection(self, node, latency_s, handler), SimConnection(self, None, latency_s, None)
        near.remote, far.remote = far, near
        near.remote_host = address.host
        node.connections[near] = None
        self.clock.call_at(self.clock.now + latency_s, self._on_dial_arrival, near, far, address)
        return near

    def _on_dial_arrival(self, near: "SimConnection", far: "SimConnection", address: Address) -> None:
        """The dial reaches the remote host, unless the network is partitioned."""
        here, there = near.host, address.host
        if self.is_blocked(here, there) or self.is_blocked(there, here) or there in self._hosts_down:
            remaining_s = self.settings.dial_timeout_s - near.latency_s
            self.clock.call_at(self.clock.now + remaining_s, near.disconnect)
            return
        node = self.listening.get(address)
        if node is None:
            self.clock.call_at(self.clock.now + near.latency_s, near.disconnect)
            return
        far.node = node
        far.remote_host = here
        near.identity, far.identity = node.identity, near.node.identity if near.node is not None else None
        node.connections[far] = None
        self.clock.call_at(self.clock.now + near.latency_s, near.complete_dial)
        node.run(node.accept, far, cost_s=node.handshake_cost_s)

    # -- partitions

    def partition(self, sides: dict[str, int], blocked: frozenset[tuple[int, int]]) -> None:
        """Assign hosts to sides (0 by default) and block frames between these (source, destination) pairs of sides."""
        self._sides = sides
        self._blocked_pairs = blocked
        self._partitioned_at = self.clock.now

    def heal(self) -> float:
        """Returns how long frames were held."""
        self._sides, self._blocked_pairs = {}, frozenset()
        self.healed_at = self.clock.now
        held, self._held = list(self._held), {}
        for connection in held:
            connection.release_held()
        return self.clock.now - self._partitioned_at if held else 0.0

    @property
    def is_partitioned(self) -> bool:
        return bool(self._blocked_pairs)

    def is_blocked(self, source: str, destination: str) -> bool:
        if not self._blocked_pairs:
            return False
        return (self._sides.get(source, 0), self._sides.get(destination, 0)) in self._blocked_pairs

    def hold(self, connection: "SimConnection") -> None:
        self._held[connection] = None

    def take_host_down(self, host: str) -> None:
        """The host no longer responds: no answer, no reset."""
        self._hosts_down[host] = None


class SimConnection:
    """One end of a connection."""

    __slots__ = (
        "_held",
        "_is_congested",
        "_last_arrival_at",
        "_unread",
        "handler",
        "identity",
        "is_closed",
        "is_reset",
        "latency_s",
        "network",
        "node",
        "remote",
        "remote_host",
        "unread_bytes",
    )

    remote: "SimConnection"
    handler: "ConnectionHandler"

    def __init__(
        self, network: SimNetwork, node: "SimNode | None", latency_s: float, handler: "ConnectionHandler | None"
    ) -> None:
        self.network = network
        self.node = node
        self.latency_s = latency_s
        self.is_closed = self.is_reset = False
        self.remote_host = ""
        self.identity: Identity | None = None
        self._last_arrival_at = 0.0
        self._held: list[Frame | None] | None = None
        self._is_congested = False
        self._unread: list[Frame | None] | None = None
        """What arrived while reading is paused."""
        self.unread_bytes = 0
        """Sent from this end and not yet read by the remote end."""
        if handler is not None:
            self.handler = handler

    @property
    def host(self) -> str:
        assert self.node is not None, "only an end that belongs to a node can send"
        return self.node.host

    @property
    def _is_blocked(self) -> bool:
        return self.network.is_blocked(self.host, self.remote_host)

    @property
    def queued_bytes(self) -> int:
        return sum(len(frame) for frame in self._held or () if frame is not None)

    @property
    def is_congested(self) -> bool:
        return self._is_congested

    def send(self, frame: Frame, rest: memoryview | None = None) -> None:
        if not self.is_closed:
            if rest is not None:
                frame = bytearray().join((frame, rest))  # as sockets read large frames
            self.unread_bytes += len(frame)
            if self.unread_bytes > self.network.settings.socket_buffer_bytes:
                self._is_congested = True
            self._transmit(frame)

    def send_now(self, frame: bytes) -> bool:
        if self._is_congested or self.is_closed:
            return False
        self.send(frame)
        return True

    def on_read(self, size: int) -> None:
        """The remote end has read `size` bytes."""
        self.unread_bytes -= size
        if self._is_congested and 2 * self.unread_bytes < self.network.settings.socket_buffer_bytes:
            self._is_congested = False
            if self.node is not None:
                self.node.run(self._notify_writable)

    def _notify_writable(self) -> None:
        if not self.is_closed:
            self.handler.on_writable()

    def close(self) -> None:
        """Close gracefully: the remote end receives everything sent before."""
        if not self.is_closed:
            self.is_closed = True
            if self.node is not None:
                self.node.connections.pop(self, None)
            self._transmit(None)

    def pause_reading(self) -> None:
        if self._unread is None:
            self._unread = []

    def resume_reading(self) -> None:
        unread, self._unread = self._unread or [], None
        for index, frame in enumerate(unread):
            if self._unread is not None:  # paused again
                self._unread += unread[index:]
                break
            self.receive(frame)

    def _transmit(self, frame: Frame | None) -> None:
        network = self.network
        if self._held is not None or self._is_blocked:
            if self._held is None:
                self._held = []
                network.hold(self)
            self._held.append(frame)
            return
        now = network.clock.now
        at = now + self.latency_s + network.random.expovariate(1000 / network.settings.jitter_ms)
        if frame is not None:
            network.frames_sent += 1
            network.bytes_sent += len(frame)
            if frame[7] == BROADCAST:
                network.broadcast_frames_sent += 1
            node = self.node
            if node is not None and node.bytes_per_s:
                at += node.transmit_delay_s(len(frame), now)
        if at < self._last_arrival_at:
            at = self._last_arrival_at
        self._last_arrival_at = at
        network.clock.call_at(at, self.remote.receive, frame)

    def release_held(self) -> None:
        """The partition healed: what TCP kept retransmitting goes through."""
        held, self._held = self._held or [], None
        for frame in held:
            self._transmit(frame)

    def complete_dial(self) -> None:
        if not self.is_closed and self.node is not None:
            self.node.run(self._notify_open, cost_s=self.node.handshake_cost_s)

    def receive(self, frame: Frame | None) -> None:
        """A frame arrives, or None for a graceful close."""
        node = self.node
        if self.is_closed or node is None:
            if self.is_reset and not self._is_blocked:  # the remote end goes on if the reset was lost in a partition
                self.network.clock.call_at(self.network.clock.now + self.latency_s, self.remote.disconnect)
            return
        if self._unread is not None:
            self._unread.append(frame)
            return
        if node.is_delayed or node.frame_cost_s:
            node.run(self._dispatch_frame, frame, cost_s=node.frame_cost_s)
        elif frame is None:
            self._notify_disconnect()
        else:
            self.remote.on_read(len(frame))
            self.handler.on_frame(frame)

    def disconnect(self) -> None:
        """The dial failed, or the remote end reset the connection."""
        if not self.is_closed and self.node is not None:
            self.node.run(self._notify_disconnect)

    def reset(self) -> None:
        """Close abruptly: the remote end is disconnected, and some frames in flight are lost."""
        self.is_closed = self.is_reset = True
        if self.node is not None:
            self.node.connections.pop(self, None)
        if self._held is None and not self._is_blocked:
            clock = self.network.clock
            latest = max(self._last_arrival_at, clock.now + self.latency_s)
            clock.call_at(clock.now + (latest - clock.now) * self.network.random.random(), self.remote.disconnect)

    def _dispatch_frame(self, frame: Frame | None) -> None:
        if frame is None:
            self._notify_disconnect()
        elif not self.is_closed:
            self.remote.on_read(len(frame))
            self.handler.on_frame(frame)

    def _notify_open(self) -> None:
        if not self.is_closed:
            self.handler.on_open()

    def _notify_disconnect(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self.node is not None:
                self.node.connections.pop(self, None)
            self.handler.on_disconnect()
