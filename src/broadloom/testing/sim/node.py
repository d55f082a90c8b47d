"""`SimNode`: a simulated process with one peer. It is the peer's runtime, and the handle that tests hold."""

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from broadloom.protocol import ChannelName, Peer, PeerState, Tuning
from broadloom.protocol.channel_name import PortOrder
from broadloom.protocol.receipts.receipts import Receipt
from broadloom.wire import Address, PeerInfo
from broadloom.wire.payload_kind import WANTS_RECEIPT

if TYPE_CHECKING:
    from broadloom.protocol.events import Batch, Event, Message, Missed
    from broadloom.protocol.identity import Signer
    from broadloom.protocol.runtime import ConnectionHandler, ObserverFactory
    from broadloom.testing.sim.network import SimConnection, SimNetwork
    from broadloom.testing.sim.owner import SimOwner
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
            node.defer(self._fire_deferred)
        else:
            self._callback(*self._args)

    def _fire_deferred(self) -> None:
        if self._node is not None:
            self._callback(*self._args)


CHANNEL_ID = bytes.fromhex("9bae618a73998c1eea0c1c86689abcf7")
"""The id of every simulated channel. It decides the port order, so histories do not depend on how names are hashed."""


START_TIME_S = 1_767_225_600.0
"""Wall time at virtual time 0: the beginning of 2026, UTC."""


class SimNode:
    """A simulated peer and its process.

    Tests use `broadcast`, `leave`, `kill`, `pause`, `resume` and `received`. An application under test sets
    `on_message`, `on_missed` and `on_event`; they are called as the peer's events happen.
    """

    is_hostile = False
    """A hostile member (`hostile.py`): what it receives is not checked."""

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
        keep_received: bool = True,
        signer: "Callable[[int], Signer] | None" = None,
        roster_signer: "Callable[[int], Signer] | None" = None,
        owner: "SimOwner | None" = None,
    ) -> None:
        self.number = number
        self.host = host
        self.clock = clock
        self.network = network
        self.checker = checker
        self.random = Random(seed)
        self.is_alive = True
        self.is_paused = False
        self._paused_at = 0.0
        self.resumed_at = -math.inf
        self.bytes_per_s = 0.0
        """Upload bandwidth of this host; 0 is unlimited."""
        self.frame_cost_s = 0.0
        """Time that this process takes to read one frame."""
        self.handshake_cost_s = 0.0
        """Time that this process takes to open or accept one connection, as for the keys of a TLS handshake."""
        self.received: list[Message] = []
        """Messages delivered to this peer, in order (not with `SimulationSettings.keep_received=False`)."""
        self.receipts: list[Receipt] = []
        self.on_message: Callable[[Message], None] | None = None
        self.on_missed: Callable[[Missed], None] | None = None
        self.on_event: Callable[[Event], None] | None = None
        self.connections: dict[SimConnection, None] = {}
        self._work_queue: deque[tuple[Callable[..., None], tuple[Any, ...], float]] = deque()
        self._late_timers: list[Callable[[], None]] = []
        """Due while the process was paused."""
        self._uplink_free_at = 0.0
        self._busy = False
        self._waits_for_quota = False
        self._keep_received = keep_received
        self.address = self._listen(CHANNEL_ID)
        me = PeerInfo(self.random.getrandbits(64), self.address)
        observer = tape.observer(channel, me.peer_id) if tape is not None else None
        owner_verifier = owner.verifier(number, me.peer_id) if owner is not None else None
        self.identity = owner_verifier.identity if owner_verifier is not None else None
        """What its certificate would state, if there are tickets."""
        self.bootstrap = bootstrap
        own_signer = signer(me.peer_id) if signer is not None else None
        self.peer = Peer(
            self,
            me,
            CHANNEL_ID,
            bootstrap,
            settings,
            signer=own_signer,
            observer=observer,
            roster_signer=roster_signer(me.peer_id) if roster_signer is not None else None,
            name=f"peer {number}",
            owner_verifier=owner_verifier,
        )

    def _listen(self, channel_id: bytes) -> Address:
        """Take the first free port in the channel's port order."""
        for port in PortOrder(channel_id):
            address = Address(self.host, port)
            if address not in self.network.listening:
                self.network.listening[address] = self
                return address
        raise RuntimeError(f"no free port on {self.host}")

    def __str__(self) -> str:
        return f"peer {self.number}"

    def __repr__(self) -> str:
        return f"<SimNode {self.number}, {self.peer.state.value if self.is_alive else 'dead'}>"

    # -- what tests use

    @property
    def is_connected(self) -> bool:
        return self.is_alive and self.peer.state is PeerState.CONNECTED

    def broadcast(self, data: bytes, *, kind: int = 0, receipt_timeout_s: float | None = None) -> int:
        """Broadcast from this peer; return the sequence number. With a timeout, a receipt is checked and kept."""
        sequence = self.peer.broadcast(data, kind=kind if receipt_timeout_s is None else kind | WANTS_RECEIPT)
        self.checker.on_sent(self, sequence, data)
        if receipt_timeout_s is not None:
            receipts = self.peer.receipts
            receipts.open(receipts.prepare(None), sequence, receipt_timeout_s, self._on_receipt)
        return sequence

    def send(self, data: bytes, *, receipt_timeout_s: float | None = None) -> None:
        """Broadcast, after a wait if the quota of this member requires it. Its program sends nothing else meanwhile."""
        pacer = self.peer.owner.pacer
        if pacer is not None:
            delay_s = pacer.delay_s(len(data))
            if self._waits_for_quota or delay_s == math.inf:
                return
            if delay_s > 0:
                self._waits_for_quota = True
                self.call_later(delay_s, self._send_after_wait, data, receipt_timeout_s)
                return
            pacer.take(len(data))
        self.broadcast(data, receipt_timeout_s=receipt_timeout_s)

    def _send_after_wait(self, data: bytes, receipt_timeout_s: float | None) -> None:
        self._waits_for_quota = False
        if self.is_connected:
            self.send(data, receipt_timeout_s=receipt_timeout_s)

    def _on_receipt(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)
        self.checker.on_receipt(self, receipt)

    def leave(self) -> None:
        """Leave the channel gracefully."""
        self.checker.on_departed(self, "leaves")
        self.peer.leave()

    def kill(self, *, host: bool = False) -> None:
        """Crash the process; with `host`, the whole machine, which sends no reset either."""
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
        self.checker.on_departed(self, "host crashes" if host else "crashes")

    def pause(self) -> None:
        """Stop the process, as with SIGSTOP: everything happens after `resume`. Then the timers that are due run before
        anything is read, as in uvloop."""
        self.is_paused = True
        self._paused_at = self.clock.now

    def resume(self) -> None:
        if self.is_paused:
            self.checker.on_delay(self.clock.now - self._paused_at)
            self.resumed_at = self.clock.now
        self.is_paused = False
        self._work_queue.extendleft((timer, (), 0.0) for timer in reversed(self._late_timers))
        self._late_timers.clear()
        self._process_next()

    # -- the runtime of the peer

    def now(self) -> float:
        return self.clock.now

    def wall_time_s(self) -> float:
        return START_TIME_S + self.clock.now

    def dial(self, address: Address, handler: "ConnectionHandler") -> "SimConnection":
        return self.network.dial(self, address, handler)

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> SimTimer:
        timer = SimTimer(self, callback, args)
        self.clock.call_at(self.clock.now + delay_s, timer.fire)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.now, SimTimer(self, callback, ()).fire)

    def deliver(self, batch: "Batch") -> None:
        for message in () if self.is_hostile else batch:
            self.checker.on_delivered(self, message)
            if self._keep_received:
                self.received.append(message)
            if self.on_message is not None:
                self.on_message(message)

    def report_missed(self, missed: "Missed") -> None:
        if not self.is_hostile:
            self.checker.on_missed(self, missed)
        if self.on_missed is not None:
            self.on_missed(missed)

    def emit(self, event: "Event") -> None:
        self.checker.on_event(self, event)
        if self.on_event is not None:
            self.on_event(event)

    # -- the process

    @property
    def is_delayed(self) -> bool:
        """Paused, or busy with earlier frames."""
        return self.is_paused or bool(self._work_queue)

    def run(self, callback: Callable[..., None], *args: Any, cost_s: float = 0.0) -> None:
        """Call back now, or in order once the process is resumed and has read its earlier frames."""
        if not self.is_alive:
            return
        if self.is_paused or self._busy or cost_s:
            self._work_queue.append((callback, args, cost_s))
            self._process_next()
        else:
            callback(*args)

    def defer(self, timer: Callable[[], None]) -> None:
        """A timer is due while the process is paused or busy."""
        if self.is_paused:
            self._late_timers.append(timer)
        else:
            self.run(timer)

    def _process_next(self) -> None:
        if self._busy or self.is_paused or not self._work_queue:
            return
        self._busy = True
        self.checker.on_delay(self._work_queue[0][2] * len(self._work_queue))
        self.clock.call_at(self.clock.now + self._work_queue[0][2], self._on_processed)

    def _on_processed(self) -> None:
        self._busy = False
        if not self.is_alive or self.is_paused:
            return
        callback, args, _ = self._work_queue.popleft()
        callback(*args)
        self._process_next()

    def transmit_delay_s(self, size: int, now: float) -> float:
        """Return the time until a frame of this size has left the host."""
        self._uplink_free_at = max(self._uplink_free_at, now) + size / self.bytes_per_s
        self.checker.on_delay(self._uplink_free_at - now)
        return self._uplink_free_at - now

    def accept(self, connection: "SimConnection") -> None:
        if not connection.is_closed:
            self.peer.on_accept(connection)

    def stop(self) -> None:
        """End the process after its peer has left."""
        self.is_alive = False
        self._stop_listening()
        for connection in list(self.connections):
            connection.close()

    def _stop_listening(self) -> None:
        if self.network.listening.get(self.address) is self:
            del self.network.listening[self.address]
