"""The whole outside of a peer: what it may do, and how it is told what happened.

There are two worlds: `net` (asyncio, real clock) and `sim` (virtual network and clock). A peer never learns which.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from weft.fabric.events import Batch, Event, Missed
from weft.fabric.seal import Identity
from weft.wire import Address
from weft.wire.calls import Refusal

if TYPE_CHECKING:
    from random import Random


class LineOwner(Protocol):
    """Who is told what happens on a line: a call, or the link that it was turned into."""

    def on_open(self) -> None:
        """A dialled line was answered."""

    def on_frame(self, frame: bytes) -> None:
        """One whole frame arrived, in the order in which it was sent."""

    def on_lost(self, refusal: Refusal | None = None) -> None:
        """The line is gone: not answered, closed by the other side after its last frame, or broken. Said once;
        never after our own `close`. A refusal is given if the two ends could not agree on keys."""

    def on_room(self) -> None:
        """The line was full, and the other end has read most of what waited."""

    def on_choked(self) -> None:
        """The other end reads so slowly that more waits for it than is allowed. The line is gone."""


class Line(Protocol):
    """One connection. Frames arrive whole and in order, or the line is lost."""

    owner: LineOwner
    identity: Identity | None
    """Who the other end has proved to be; None on plain lines, where anybody may claim anything."""

    @property
    def is_full(self) -> bool:
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


class World(Protocol):
    """What a peer may do."""

    random: "Random"

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def dial(self, address: Address, owner: LineOwner) -> Line:
        """Open a line; `owner.on_open` or `owner.on_lost` follows, never within this call."""

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> Timer:
        """Call `act` later, once, unless cancelled."""

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` as soon as what happens now is done."""

    def deliver(self, batch: Batch) -> None:
        """Hand messages to the application: each once, an author's in order."""

    def missed(self, missed: Missed) -> None:
        """Tell the application exactly what it will not get."""

    def observe(self, event: Event) -> None:
        """Something worth recording happened to this peer."""
