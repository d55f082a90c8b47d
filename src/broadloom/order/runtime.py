"""`OrderRuntime`: everything a replica needs from outside: a channel with roster and direct requests, time, and the
application.

There is one for a real channel (channel_runtime.py) and one for a simulated peer (testing/sim/order_runtime.py). The
runtime drives the replica through `on_message`, `on_request`, `on_member_joined`, `on_member_gone` and `on_missed`.
"""

from collections.abc import Callable
from typing import Any, Protocol

from broadloom.order.model import Entry, OrderEvent, Placed
from broadloom.protocol.requests.outgoing import OutcomeKind
from broadloom.protocol.runtime import Timer
from broadloom.wire import PeerId

Reply = Callable[[bytes | None], None]
"""Answers a direct request; None refuses it."""
GiveUp = Callable[[], None]
"""Gives a request up, if it is still open."""


class OrderRuntime(Protocol):
    @property
    def peer_id(self) -> PeerId: ...

    @property
    def is_alone(self) -> bool:
        """Whether the roster is complete, and this program is the only member."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer: ...

    def broadcast(self, data: bytes) -> None:
        """Send to all other members. They receive it once, in our order, or learn that they missed it.

        A member that may not broadcast sends `Enter` and `Exit` to some participants directly, and nothing else."""

    def tell(self, peer_id: PeerId, data: bytes) -> None:
        """Send to one member, without an answer. It may get lost."""

    def request(
        self, peer_id: PeerId, data: bytes, timeout_s: float, on_outcome: Callable[[OutcomeKind, bytes], None]
    ) -> GiveUp:
        """Ask one member. The outcome follows, never during this call, unless the request is given up."""

    def is_present(self, peer_id: PeerId) -> bool:
        """Whether this member is in the roster."""

    def may_send(self, peer_id: PeerId) -> bool:
        """Whether this member may broadcast: its ticket does not have the role consumer."""

    def name_of(self, peer_id: PeerId) -> str:
        """The name on the ticket of this member; without tickets the name that it chose. Empty if it is unknown."""

    def deliver(self, entry: Entry) -> None:
        """Hand an entry to the application."""

    def on_placed(self, number: int, placed: Placed) -> None:
        """Our own submission with this number is in the order."""

    def emit(self, event: OrderEvent) -> None:
        """Report an event to the application."""
