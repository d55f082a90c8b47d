"""A simulated process with one peer in it: the peer's world, and what can befall a process."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.protocol import ChannelName, Peer, Tuning
from broadloom.protocol.channel_name import PortOrder
from broadloom.wire import Address, PeerInfo

if TYPE_CHECKING:
    from broadloom.protocol.events import Batch, Event, Missed
    from broadloom.protocol.runtime import ConnectionHandler, ObserverFactory
    from broadloom.testing.sim.network import SimConnection, SimNetwork
    from broadloom.testing.sim.step_checker import StepChecker
    from broadloom.testing.sim.virtual_clock import VirtualClock


class SimTimer:
    __slots__ = ("_args", "_callback", "_node")

    def __init__(self, node: "SimNode", callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._node: SimNode | None = node
        self._callback = callback
        self._args = args

    def cancel(self) -> None:
        self._node = None

    def fire(self) -> None:
        node = self._node
        if node is None or not node.is_alive:
            return
        if node.is_delayed:
            node.run(self._fire_deferred)
        else:
            self._callback(*self._args)

    def _fire_deferred(self) -> None:
        """When a process that was frozen or slow gets to it, if it still wants it then."""
        if self._node is not None:
            self._callback(*self._args)


CHANNEL_ID = bytes.fromhex("9bae618a73998c1eea0c1c86689abcf7")
"""Every simulated channel has this id: the port order follows from it, so seeds keep their histories however names are
hashed."""


class SimNode:
    """World of one peer. A dead one does nothing any more; a frozen one does everything later."""

    def __init__(
        self,
        number: int,
        host: str,
        clock: "VirtualClock",
        network: "SimNetwork",
        checker: "StepChecker",
        seed: int,
        *,
        channel: ChannelName,
        bootstrap: tuple[Address, ...],
        settings: Tuning,
        tape: "ObserverFactory | None" = None,
    ) -> None:
        self.number = number
        self.host = host
        self.clock = clock
        self.network = network
        self.checker = checker
        self.random = Random(seed)
        self.is_alive = True
        self.is_paused = False
        self.bytes_per_s = 0.0
        """Upload of this host; 0 is without limit."""
        self.frame_cost_s = 0.0
        """Time this process takes for each frame that it reads."""
        self.connections: dict[SimConnection, None] = {}
        self._work_queue: deque[tuple[Callable[..., None], tuple[Any, ...], float]] = deque()
        self._uplink_free_at = 0.0
        self._busy = False
        self.address = self._listen(CHANNEL_ID)
        me = PeerInfo(self.random.getrandbits(64), self.address)
        observer = tape.observer(channel, me.peer_id) if tape is not None else None
        self.peer = Peer(self, me, CHANNEL_ID, bootstrap, settings, observer=observer)

    def _listen(self, channel_id: bytes) -> Address:
        """The first free port in the channel's order."""
        for port in PortOrder(channel_id):
            address = Address(self.host, port)
            if address not in self.network.listening:
                self.network.listening[address] = self
                return address
        raise RuntimeError("all ports are taken")

    def __str__(self) -> str:
        return f"peer {self.number}"

    # -- the world of the peer

    def now(self) -> float:
        return self.clock.now

    def dial(self, address: Address, handler: "ConnectionHandler") -> "SimConnection":
        return self.network.dial(self, address, handler)

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> SimTimer:
        timer = SimTimer(self, callback, args)
        self.clock.call_at(self.clock.now + delay_s, timer.fire)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.now, SimTimer(self, callback, ()).fire)

    def deliver(self, batch: "Batch") -> None:
        for message in batch:
            self.checker.on_delivered(self, message)

    def report_missed(self, missed: "Missed") -> None:
        self.checker.on_missed(self, missed)

    def emit(self, event: "Event") -> None:
        self.checker.on_event(self, event)

    # -- the process

    @property
    def is_delayed(self) -> bool:
        """Frozen, or with frames to read that came before."""
        return self.is_paused or bool(self._work_queue)

    def run(self, callback: Callable[..., None], *args: Any, cost_s: float = 0.0) -> None:
        """Do something now, or when the process is thawed, or when a slow one gets to it; in order."""
        if not self.is_alive:
            return
        if self.is_paused or self._busy or cost_s:
            self._work_queue.append((callback, args, cost_s))
            self._process_next()
        else:
            callback(*args)

    def _process_next(self) -> None:
        if self._busy or self.is_paused or not self._work_queue:
            return
        self._busy = True
        self.clock.call_at(self.clock.now + self._work_queue[0][2], self._on_processed)

    def _on_processed(self) -> None:
        self._busy = False
        if not self.is_alive or self.is_paused:
            return
        act, args, _ = self._work_queue.popleft()
        act(*args)
        self._process_next()

    def transmit_delay_s(self, size: int, now: float) -> float:
        """Seconds until a frame of this size has left a host with limited upload."""
        self._uplink_free_at = max(self._uplink_free_at, now) + size / self.bytes_per_s
        return self._uplink_free_at - now

    def accept(self, connection: "SimConnection") -> None:
        if not connection.is_closed:
            self.peer.on_accept(connection)

    def kill(self, *, host: bool = False) -> None:
        """The process dies without a word; with its host, not even a reset is sent."""
        self.is_alive = False
        self._stop_listening()
        if host:
            self.network.take_host_down(self.host)
        for connection in list(self.connections):
            if host:
                connection.is_closed = True
            else:
                connection.reset()
        self.connections.clear()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._process_next()

    def stop(self) -> None:
        """The peer has left: the process ends in good order."""
        self.is_alive = False
        self._stop_listening()
        for connection in list(self.connections):
            connection.close()

    def _stop_listening(self) -> None:
        if self.network.listening.get(self.address) is self:
            del self.network.listening[self.address]
