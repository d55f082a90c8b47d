"""A simulated process with one peer in it: the peer's world, and what can befall a process."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from weft.fabric import ChannelName, Peer, Settings
from weft.fabric.port_order import PortOrder
from weft.wire import Address, Contact

if TYPE_CHECKING:
    from weft.fabric.events import Batch, Event, Missed
    from weft.fabric.observer import Tape
    from weft.fabric.world import LineOwner
    from weft.sim.clock import Clock
    from weft.sim.network import Network, SimLine
    from weft.sim.watch import Watch


class SimTimer:
    __slots__ = ("_act", "_args", "_node")

    def __init__(self, node: "Node", act: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._node: Node | None = node
        self._act = act
        self._args = args

    def cancel(self) -> None:
        self._node = None

    def fire(self) -> None:
        node = self._node
        if node is None or not node.alive:
            return
        if node.is_behind:
            node.run(self._fire_late)
        else:
            self._act(*self._args)

    def _fire_late(self) -> None:
        """When a process that was frozen or slow gets to it, if it still wants it then."""
        if self._node is not None:
            self._act(*self._args)


class Node:
    """World of one peer. A dead one does nothing any more; a frozen one does everything later."""

    def __init__(
        self,
        number: int,
        host: str,
        clock: "Clock",
        network: "Network",
        watch: "Watch",
        seed: int,
        *,
        channel: ChannelName,
        portals: tuple[Address, ...],
        settings: Settings,
        tape: "Tape | None" = None,
    ) -> None:
        self.number = number
        self.host = host
        self.clock = clock
        self.network = network
        self.watch = watch
        self.random = Random(seed)
        self.alive = True
        self.frozen = False
        self.bytes_per_s = 0.0
        """Upload of this host; 0 is without limit."""
        self.frame_cost_s = 0.0
        """Time this process takes for each frame that it reads."""
        self.lines: dict[SimLine, None] = {}
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...], float]] = deque()
        self._uplink_free_at = 0.0
        self._busy = False
        self.address = self._listen(channel.id)
        me = Contact(self.random.getrandbits(64), self.address)
        observer = tape.observer(channel, me.peer) if tape is not None else None
        self.peer = Peer(self, me, channel.id, portals, settings, observer=observer)

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

    def dial(self, address: Address, owner: "LineOwner") -> "SimLine":
        return self.network.dial(self, address, owner)

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> SimTimer:
        timer = SimTimer(self, act, args)
        self.clock.at(self.clock.now + delay_s, timer.fire)
        return timer

    def soon(self, act: Callable[[], None]) -> None:
        self.clock.at(self.clock.now, SimTimer(self, act, ()).fire)

    def deliver(self, batch: "Batch") -> None:
        for message in batch:
            self.watch.delivered(self, message)

    def missed(self, missed: "Missed") -> None:
        self.watch.missed(self, missed)

    def observe(self, event: "Event") -> None:
        self.watch.observed(self, event)

    # -- the process

    @property
    def is_behind(self) -> bool:
        """Frozen, or with frames to read that came before."""
        return self.frozen or bool(self._backlog)

    def run(self, act: Callable[..., None], *args: Any, cost_s: float = 0.0) -> None:
        """Do something now, or when the process is thawed, or when a slow one gets to it; in order."""
        if not self.alive:
            return
        if self.frozen or self._busy or cost_s:
            self._backlog.append((act, args, cost_s))
            self._work()
        else:
            act(*args)

    def _work(self) -> None:
        if self._busy or self.frozen or not self._backlog:
            return
        self._busy = True
        self.clock.at(self.clock.now + self._backlog[0][2], self._done)

    def _done(self) -> None:
        self._busy = False
        if not self.alive or self.frozen:
            return
        act, args, _ = self._backlog.popleft()
        act(*args)
        self._work()

    def sending_takes(self, size: int, now: float) -> float:
        """Seconds until a frame of this size has left a host with limited upload."""
        self._uplink_free_at = max(self._uplink_free_at, now) + size / self.bytes_per_s
        return self._uplink_free_at - now

    def answer(self, line: "SimLine") -> None:
        if not line.closed:
            self.peer.on_call(line)

    def kill(self, *, host: bool = False) -> None:
        """The process dies without a word; with its host, not even a reset is sent."""
        self.alive = False
        self._stop_listening()
        if host:
            self.network.host_down(self.host)
        for line in list(self.lines):
            if host:
                line.closed = True
            else:
                line.reset()
        self.lines.clear()

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self._work()

    def retire(self) -> None:
        """The peer has left: the process ends in good order."""
        self.alive = False
        self._stop_listening()
        for line in list(self.lines):
            line.close()

    def _stop_listening(self) -> None:
        if self.network.listening.get(self.address) is self:
            del self.network.listening[self.address]
