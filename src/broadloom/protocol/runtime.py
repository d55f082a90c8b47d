"""Everything outside a peer: the runtime and connections that it uses, and the interfaces that they call back.

There are two runtimes, `TcpNode` (asyncio) and `SimNode` (virtual network and clock). A peer cannot tell them apart.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broadloom.protocol.events import Batch, Event, LayerEvent, Missed
from broadloom.protocol.identity import Identity
from broadloom.wire import Address, Frame
from broadloom.wire.exchange_messages import RejectReason

if TYPE_CHECKING:
    from random import Random

    from broadloom.protocol.channel_name import ChannelName
    from broadloom.wire import Broadcast, PeerId


class ConnectionHandler(Protocol):
    """Receives what happens on a connection: an exchange, or the link that it became."""

    def on_open(self) -> None:
        """A dialed connection is established."""

    def on_frame(self, frame: Frame) -> None:
        """A complete frame arrived; frames arrive in order."""

    def on_disconnect(self, reason: RejectReason | None = None, foreign: str = "") -> None:
        """The connection failed, was closed by the remote side after its last frame, or broke. Called at most once,
        and never after our own `close`. The reason is set if the TLS handshake failed; `foreign` says what the remote
        side is, if it is not a member: another program, or a peer whose ticket we do not accept (any more)."""

    def on_writable(self) -> None:
        """The connection was congested, and its queue has drained below the low-water mark."""

    def on_send_overflow(self) -> None:
        """The remote side reads too slowly and the queue exceeded its limit. The connection is closed."""


class Connection(Protocol):
    """Frames arrive complete and in order, or the connection is lost."""

    handler: ConnectionHandler
    identity: Identity | None
    """The authenticated identity of the remote side; None without TLS, where any id can be claimed."""

    @property
    def is_congested(self) -> bool:
        """Whether the caller should hold back further frames until `handler.on_writable`."""

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting on our side for the remote side to read."""

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        """Queue a frame, given whole or in two pieces. Never blocks and never fails; a closed connection drops it."""

    def send_now(self, frame: bytes) -> bool:
        """Send a frame without queueing it. False if others wait before it, or if the connection is congested or
        closed: then nothing was sent."""

    def close(self) -> None:
        """Close after all queued frames are sent."""

    def pause_reading(self) -> None:
        """Let frames wait at the remote side. For direct connections, and for all links of a peer whose application
        does not keep up (`Peer.is_paused`)."""

    def resume_reading(self) -> None: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Runtime(Protocol):
    """The services that a peer uses."""

    random: "Random"

    def now(self) -> float:
        """Seconds on a monotonic clock."""

    def wall_time_s(self) -> float:
        """Seconds since 1970. Only signed channels use it: to date signatures and to recognize replayed messages."""

    def dial(self, address: Address, handler: ConnectionHandler) -> Connection:
        """Connect; `handler.on_open` or `handler.on_disconnect` follows, never during this call."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call `callback` once after the delay, unless the timer is cancelled."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the current event has been handled."""

    def deliver(self, batch: Batch) -> None:
        """Deliver messages to the application: each exactly once, and in order per author."""

    def report_missed(self, missed: Missed) -> None:
        """Report exactly the messages that the application will not get."""

    def emit(self, event: Event) -> None:
        """Report an event of this peer."""


class Observer(Protocol):
    """Called at the moment something happens; must return quickly and never raise. Without an observer, a message costs
    one comparison."""

    def sent(self, sequence: int, data: bytes, kind: int) -> None:
        """This peer broadcast a message of this kind."""

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        """The first copy of one or more messages arrived from this neighbor."""

    def delivered(self, batch: "Batch") -> None:
        """Messages were delivered to the application."""

    def missed(self, missed: "Missed") -> None:
        """Messages were reported as missed to the application."""

    def on_event(self, event: "Event | LayerEvent") -> None:
        """The state or the neighbors changed, or a layer above the channel reports something."""

    def duplicates(self, count: int) -> None:
        """This many duplicates arrived since the last call; about once a second, not if there were none."""


class ObserverFactory(Protocol):
    """Creates observers: a tape (`broadloom.record.Tape`), or anything with this method."""

    def observer(
        self, channel: "ChannelName", me: "PeerId", *, name: str = "", identity: Identity | None = None
    ) -> Observer:
        """`name` is what the peer calls itself, `identity` what its certificate states."""
