"""`GroupRuntime`: everything a participant needs from outside: a channel, time, randomness and the application.
`DelayedCall`: the timers of a participant.

There is one for a real channel (channel_runtime.py) and one for a simulated peer (tests/groups/sim_runtime.py). The
runtime drives the participant through `on_message`, `on_missed` and `on_neighbor_lost`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broadloom.groups.model import GroupEvent, GroupMessage
from broadloom.groups.proofs import PostSigner
from broadloom.protocol.events import LinkDownReason
from broadloom.protocol.runtime import Timer
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from random import Random


SUSPECT_REASONS = (LinkDownReason.CONNECTION_LOST, LinkDownReason.HEARTBEAT_TIMEOUT)
"""A neighbor lost for one of these reasons may have died: `on_neighbor_lost`."""


class GroupRuntime(Protocol):
    random: "Random"

    @property
    def peer_id(self) -> PeerId:
        """Our peer on the channel: a new one for every connection."""

    @property
    def is_congested(self) -> bool:
        """Whether our links are congested. History then yields to live messages."""

    @property
    def known_peer_count(self) -> int | None:
        """Number of peers while the channel is a full mesh, where it is known exactly; else None."""

    @property
    def post_signer(self) -> PostSigner | None:
        """Signs and verifies posts; None if the channel has no tickets."""

    def verified_name(self, peer_id: PeerId) -> str:
        """The name on a peer's ticket; empty if the channel has no tickets."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def wall_time_s(self) -> float:
        """Unix time, for timestamps only."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer: ...

    def broadcast(self, data: bytes) -> None:
        """Send to all other peers. They receive it once, in our order, or learn that they missed it."""

    def deliver(self, message: GroupMessage) -> None:
        """Hand a message to the application. Messages that this program sent are not delivered to it."""

    def emit(self, event: GroupEvent) -> None:
        """Report an event to the application."""


class DelayedCall:
    """At most one pending call. Starting it again replaces it."""

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime
        self._timer: Timer | None = None

    @property
    def is_pending(self) -> bool:
        return self._timer is not None

    def start(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self.cancel()
        self._timer = self._runtime.call_later(delay_s, self._call, callback, args)

    def _call(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._timer = None
        callback(*args)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
