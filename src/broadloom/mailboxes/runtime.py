"""`MailboxRuntime`: what the core needs from outside: a channel, its roster, time, randomness and the application.

There is one for a real channel (channel_runtime.py) and one for a simulated peer (tests/mailboxes/sim_runtime.py).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from random import Random

    from broadloom.mailboxes.model import Change, MailboxEvent
    from broadloom.mailboxes.record import Record, RecordSigner
    from broadloom.protocol.runtime import Observer, Timer
    from broadloom.wire import PeerId


class Answer(NamedTuple):
    """How a direct request ended."""

    data: bytes
    error: Exception | None = None
    """Why there is no reply."""


class MailboxRuntime(Protocol):
    random: "Random"

    @property
    def peer_id(self) -> "PeerId":
        """Our peer on the channel: a new one for every connection."""

    @property
    def signer(self) -> "RecordSigner | None":
        """Signs and verifies records; None if the channel has no tickets."""

    @property
    def observer(self) -> "Observer | None":
        """Who records the channel."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def wall_time_s(self) -> float:
        """Unix time."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> "Timer": ...

    def peers(self) -> "list[PeerId]":
        """The other members that have mailboxes, according to the roster, sorted."""

    def keepers(self) -> "list[PeerId]":
        """Those of them that are keepers, sorted."""

    def members_of(self, owner: str) -> "list[PeerId]":
        """Those of them whose ticket has this name and lets them write; none on a channel without tickets."""

    def is_member(self, peer_id: "PeerId") -> bool:
        """Whether the roster lists this peer; also for ourselves."""

    def broadcast(self, data: bytes) -> None:
        """Send to all other members. They receive it once, in our order, or learn that they missed it."""

    def request(self, peer_id: "PeerId", data: bytes, timeout_s: float, on_answer: Callable[[Answer], None]) -> None:
        """Send a direct request; `on_answer` is called once, not during this call."""

    def on_change(self, change: "Change") -> None:
        """A fetchable value has changed."""

    def emit(self, event: "MailboxEvent") -> None:
        """Report an event to the application."""


class MailboxStore(Protocol):
    """Where a keeper stores records (store.py)."""

    def load(self) -> "list[Record]": ...

    def put(self, record: "Record") -> None:
        """Replace the record of its mailbox. On disk after the next `commit`."""

    def remove(self, owner: str, name: str) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...
