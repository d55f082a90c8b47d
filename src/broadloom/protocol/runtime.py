"""The whole outside of a peer: what it may do, and how it is told what happened.

There are two worlds: `net` (asyncio, real clock) and `sim` (virtual network and clock). A peer never learns which.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broadloom.protocol.events import Batch, Event, Missed
from broadloom.protocol.identity import Identity
from broadloom.wire import Address
from broadloom.wire.exchange_messages import RejectReason

if TYPE_CHECKING:
    from random import Random

    from broadloom.protocol.channel_name import ChannelName
    from broadloom.wire import Broadcast, PeerId


class ConnectionHandler(Protocol):
    """Who is told what happens on a line: a call, or the link that it was turned into."""

    def on_open(self) -> None:
        """A dialled line was answered."""

    def on_frame(self, frame: bytes) -> None:
        """One whole frame arrived, in the order in which it was sent."""

    def on_disconnect(self, reason: RejectReason | None = None) -> None:
        """The line is gone: not answered, closed by the other side after its last frame, or broken. Said once;
        never after our own `close`. A refusal is given if the two ends could not agree on keys."""

    def on_writable(self) -> None:
        """The line was full, and the other end has read most of what waited."""

    def on_send_overflow(self) -> None:
        """The other end reads so slowly that more waits for it than is allowed. The line is gone."""


class Connection(Protocol):
    """One connection. Frames arrive whole and in order, or the line is lost."""

    handler: ConnectionHandler
    identity: Identity | None
    """Who the other end has proved to be; None on plain lines, where anybody may claim anything."""

    @property
    def is_congested(self) -> bool:
        """Whether so much waits already that more should be kept back; `owner.on_room` follows."""

    @property
    def queued_bytes(self) -> int:
        """Waiting on our side for the other end to read."""

    def send(self, frame: bytes, rest: memoryview | None = None) -> None:
        """Queue a frame, or its front and its rest; never blocks, never fails (a line that is gone swallows it)."""

    def close(self) -> None:
        """Hang up after what was sent has gone out."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Runtime(Protocol):
    """What a peer may do."""

    random: "Random"

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def dial(self, address: Address, handler: ConnectionHandler) -> Connection:
        """Open a line; `owner.on_open` or `owner.on_lost` follows, never within this call."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call `act` later, once, unless cancelled."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `act` as soon as what happens now is done."""

    def deliver(self, batch: Batch) -> None:
        """Hand messages to the application: each once, an author's in order."""

    def report_missed(self, missed: Missed) -> None:
        """Tell the application exactly what it will not get."""

    def emit(self, event: Event) -> None:
        """Something worth recording happened to this peer."""


# Who records what a peer sees. A peer without an observer pays one comparison a message for it.


class Observer(Protocol):
    """Told of everything at the moment it happens; must return quickly and never raise."""

    def sent(self, sequence: int, data: bytes) -> None:
        """This peer broadcast a message."""

    def received(self, message: "Broadcast", neighbor: "PeerId") -> None:
        """The first copy of one or more messages came, from this neighbour."""

    def delivered(self, batch: "Batch") -> None:
        """The application was handed messages."""

    def missed(self, missed: "Missed") -> None:
        """The application was told what it will not get."""

    def on_event(self, event: "Event") -> None:
        """State and neighbours."""

    def duplicates(self, count: int) -> None:
        """So many further copies came since this was told last (about once a second, not if none)."""


class ObserverFactory(Protocol):
    """What makes observers: the recorder (`broadloom.record.Tape`), or anything that does the same."""

    def observer(self, channel: "ChannelName", me: "PeerId") -> Observer: ...
