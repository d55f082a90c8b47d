"""`GameRuntime`: everything that a participant needs from outside. There is one for a channel (play.py) and one for
simulated peers (tests/apps/game)."""

from collections.abc import Callable
from typing import Any, Protocol

from broadloom.apps.game.changes import Change
from broadloom.apps.game.entry import Entry


class GameRuntime(Protocol):
    @property
    def peer_id(self) -> int: ...

    def now(self) -> float:
        """Monotonic time in seconds."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Any: ...

    def broadcast(self, data: bytes) -> None: ...

    def request(self, peer_id: int, data: bytes, timeout_s: float, on_answer: Callable[[bytes | None], None]) -> None:
        """Ask one member. The answer, or None, never comes during this call."""

    def tell_member(self, peer_id: int, data: bytes) -> None: ...

    def submit(self, entry: Entry) -> None:
        """Agreed order: give it to the order."""

    def members(self) -> list[int] | None:
        """Members in the game that may send, this one included; None while the roster is not complete."""

    def sequencer(self) -> int | None:
        """Agreed order: the member that assigns it."""

    def on_other_game(self, identity: str) -> None:
        """Another game is played on this channel: the participant cannot join."""

    def emit(self, change: Change) -> None: ...

    def on_applied(self, entry: Entry, problem: str | None) -> None:
        """An entry has its place in the timeline; `problem` says why it has no effect. The tape keeps it."""

    def on_settled(self, number: int, problem: str) -> None:
        """An entry of this program has its place; `problem` says why it has no effect."""

    def on_input(self, kind: str, value: Any) -> None:
        """Something entered the timeline; the game log keeps it."""
