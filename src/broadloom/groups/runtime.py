"""The whole outside of a member: a channel to broadcast on, time, randomness, and the application.

There are several media: a real channel (`over_channel.py`), a simulated peer (`over_sim.py`), and whatever a test makes
up. A member never learns which. It is driven by calls: `on_message`, `on_missed`, `on_neighbour_lost`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broadloom.groups.model import GroupEvent, GroupMessage
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from random import Random


class Timer(Protocol):
    def cancel(self) -> None: ...


class GroupRuntime(Protocol):
    """What a member may do."""

    random: "Random"

    @property
    def peer_id(self) -> PeerId:
        """Our peer on the channel: another one at each connect."""

    @property
    def is_congested(self) -> bool:
        """Whether our links are behind: history waits then, so that live messages get through."""

    @property
    def known_peer_count(self) -> int | None:
        """How many peers there are, if so few that the channel knows; else None."""

    def verified_name(self, peer_id: PeerId) -> str:
        """The name on the ticket of a peer, whose word a message of the channel is; empty if nothing is proven."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def wall_time_s(self) -> float:
        """Seconds since 1970: stands on messages, decides nothing."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call `act` later, once, unless cancelled."""

    def broadcast(self, data: bytes) -> None:
        """Send to all others of the channel. They get it once, in our order, unless told that they missed it."""

    def deliver(self, message: GroupMessage) -> None:
        """Hand a message to the application."""

    def emit(self, event: GroupEvent) -> None:
        """Tell the application what happened."""
