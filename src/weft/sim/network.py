"""The virtual network: lines with latency and bandwidth, and all that can happen to them.

Frames on a line arrive whole and in order, as over TCP, or the line is lost. A split holds frames back, as TCP does
by repeating them, until it heals or one side gives up. Everything random comes from one seeded source.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.wire import Address
from weft.wire.broadcast import BROADCAST

if TYPE_CHECKING:
    from random import Random

    from weft.fabric.seal import Identity
    from weft.fabric.world import LineOwner
    from weft.sim.clock import Clock
    from weft.sim.node import Node


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    latency_ms: tuple[float, float] = (2.0, 40.0)
    """One way, for a line: drawn once per line between these."""
    jitter_ms: float = 2.0
    """Mean of what is added to each frame (exponential)."""
    dial_timeout_s: float = 3.0
    """A call to a host that does not answer at all is given up after this."""
    window_bytes: int = 512 << 10
    """On a line, sent and not yet read; with more than this, it is full."""


class Network:
    def __init__(self, clock: "Clock", random: "Random", settings: NetworkSettings) -> None:
        self.clock = clock
        self.random = random
        self.settings = settings
        self.listening: dict[Address, Node] = {}
        self._hosts_down: dict[str, None] = {}
        self._side: dict[str, int] = {}
        self._blocked: frozenset[tuple[int, int]] = frozenset()
        self._held: dict[SimLine, None] = {}
        self.frames = 0
        self.bytes = 0
        self.copies = 0
        """Frames that carry a broadcast."""

    # -- lines

    def dial(self, node: "Node", address: Address, owner: "LineOwner") -> "SimLine":
        low, high = self.settings.latency_ms
        latency_s = (low + (high - low) * self.random.random()) / 1000
        near, far = SimLine(self, node, latency_s, owner), SimLine(self, None, latency_s, None)
        near.other, far.other = far, near
        near.far_host = address.host
        node.lines[near] = None
        self.clock.at(self.clock.now + latency_s, self._ring, near, far, address)
        return near

    def _ring(self, near: "SimLine", far: "SimLine", address: Address) -> None:
        """The call reaches the other host, if the network lets it."""
        here, there = near.host, address.host
        if self.is_blocked(here, there) or self.is_blocked(there, here) or there in self._hosts_down:
            waited_s = self.settings.dial_timeout_s - near.latency_s
            self.clock.at(self.clock.now + waited_s, near.lose)
            return
        node = self.listening.get(address)
        if node is None:
            self.clock.at(self.clock.now + near.latency_s, near.lose)
            return
        far.node = node
        far.far_host = here
        node.lines[far] = None
        self.clock.at(self.clock.now + near.latency_s, near.opened)
        node.run(node.answer, far)

    # -- splits

    def split(self, sides: dict[str, int], blocked: frozenset[tuple[int, int]]) -> None:
        """Hosts by side; frames from one side to another pass unless that pair is blocked."""
        self._side = sides
        self._blocked = blocked

    def heal(self) -> None:
        self._side, self._blocked = {}, frozenset()
        held, self._held = list(self._held), {}
        for line in held:
            line.release_held()

    @property
    def is_split(self) -> bool:
        return bool(self._blocked)

    def is_blocked(self, here: str, there: str) -> bool:
        if not self._blocked:
            return False
        return (self._side.get(here, 0), self._side.get(there, 0)) in self._blocked

    def hold(self, line: "SimLine") -> None:
        self._held[line] = None

    # -- hosts

    def host_down(self, host: str) -> None:
        """Gone without a word: no answer, no reset."""
        self._hosts_down[host] = None


class SimLine:
    """One end of a connection."""

    __slots__ = (
        "_arrives_at",
        "_held",
        "_was_full",
        "closed",
        "far_host",
        "identity",
        "latency_s",
        "network",
        "node",
        "other",
        "owner",
        "unread_bytes",
    )

    other: "SimLine"
    owner: "LineOwner"

    def __init__(self, network: Network, node: "Node | None", latency_s: float, owner: "LineOwner | None") -> None:
        self.network = network
        self.node = node
        self.latency_s = latency_s
        self.closed = False
        self.far_host = ""
        self.identity: Identity | None = None
        self._arrives_at = 0.0
        self._held: list[bytes | None] | None = None
        self._was_full = False
        self.unread_bytes = 0
        """Sent from here, and not yet read at the other end."""
        if owner is not None:
            self.owner = owner

    @property
    def host(self) -> str:
        assert self.node is not None, "only an end that belongs to a node sends"
        return self.node.host

    @property
    def queued_bytes(self) -> int:
        return sum(len(frame) for frame in self._held or () if frame is not None)

    @property
    def is_full(self) -> bool:
        return self._was_full

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        if not self.closed:
            if rest is not None:
                frame = b"".join((frame, rest))
            self.unread_bytes += len(frame)
            if self.unread_bytes > self.network.settings.window_bytes:
                self._was_full = True
            self._transmit(frame)

    def read(self, size: int) -> None:
        """The other end has read so much."""
        self.unread_bytes -= size
        if self._was_full and 2 * self.unread_bytes < self.network.settings.window_bytes:
            self._was_full = False
            if self.node is not None:
                self.node.run(self._tell_room)

    def _tell_room(self) -> None:
        if not self.closed:
            self.owner.on_room()

    def close(self) -> None:
        """The other end is told after all that was sent before."""
        if not self.closed:
            self.closed = True
            if self.node is not None:
                self.node.lines.pop(self, None)
            self._transmit(None)

    def _transmit(self, frame: bytes | None) -> None:
        network = self.network
        if self._held is not None or network.is_blocked(self.host, self.far_host):
            if self._held is None:
                self._held = []
                network.hold(self)
            self._held.append(frame)
            return
        now = network.clock.now
        at = now + self.latency_s + network.random.expovariate(1000 / network.settings.jitter_ms)
        if frame is not None:
            network.frames += 1
            network.bytes += len(frame)
            if frame[7] == BROADCAST:
                network.copies += 1
            node = self.node
            if node is not None and node.bytes_per_s:
                at += node.sending_takes(len(frame), now)
        if at < self._arrives_at:
            at = self._arrives_at
        self._arrives_at = at
        network.clock.at(at, self.other.arrive, frame)

    def release_held(self) -> None:
        """The split healed: what TCP kept trying to send goes through now."""
        held, self._held = self._held or [], None
        for frame in held:
            self._transmit(frame)

    def opened(self) -> None:
        if not self.closed and self.node is not None:
            self.node.run(self._tell_opened)

    def arrive(self, frame: bytes | None) -> None:
        """A frame, or None for the end, reaches this end."""
        node = self.node
        if self.closed or node is None:
            return
        if node.frozen or node.frame_cost_s:
            node.run(self._tell, frame, cost_s=node.frame_cost_s)
        elif frame is None:
            self._tell_lost()
        else:
            self.other.read(len(frame))
            self.owner.on_frame(frame)

    def lose(self) -> None:
        """Not answered, refused, or reset."""
        if not self.closed and self.node is not None:
            self.node.run(self._tell_lost)

    def reset(self) -> None:
        """This end vanishes: the other end hears of it, and some of what was under way is lost with it."""
        self.closed = True
        if self.node is not None:
            self.node.lines.pop(self, None)
        if self._held is None and not self.network.is_blocked(self.host, self.far_host):
            clock = self.network.clock
            latest = max(self._arrives_at, clock.now + self.latency_s)
            clock.at(clock.now + (latest - clock.now) * self.network.random.random(), self.other.lose)

    def _tell(self, frame: bytes | None) -> None:
        if frame is None:
            self._tell_lost()
        elif not self.closed:
            self.other.read(len(frame))
            self.owner.on_frame(frame)

    def _tell_opened(self) -> None:
        if not self.closed:
            self.owner.on_open()

    def _tell_lost(self) -> None:
        if not self.closed:
            self.closed = True
            if self.node is not None:
                self.node.lines.pop(self, None)
            self.owner.on_lost()
