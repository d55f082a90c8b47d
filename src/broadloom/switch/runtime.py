"""`SwitchRuntime`: everything the switch needs from outside: a channel, time, programs and the application.

There is one for a real channel (channel_runtime.py) and one for a simulated peer (tests/switch/sim_runtime.py). The
runtime drives the core through `on_broadcast`, `on_request`, `on_member_gone` and `on_missed`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broadloom.protocol.requests.outgoing import Outcome
from broadloom.protocol.roster.member import Member
from broadloom.protocol.runtime import Observer, Timer
from broadloom.wire import PeerId

if TYPE_CHECKING:
    from broadloom.switch.handlers import HandlerCall
    from broadloom.switch.program_types import ProgramType


class RunningProgram(Protocol):
    @property
    def last_lines(self) -> str:
        """The end of what it wrote to its standard error."""

    def terminate(self) -> None:
        """Ask it to end, and kill it if it does not. Its `on_exit` is not called any more."""


class SwitchRuntime(Protocol):
    @property
    def peer_id(self) -> PeerId:
        """Our peer on the channel: a new one for every connection."""

    @property
    def is_connected(self) -> bool:
        """Whether we are a member of the channel."""

    @property
    def observer(self) -> Observer | None:
        """Records what happens; None if nothing does."""

    @property
    def has_whole_roster(self) -> bool:
        """Whether the roster is complete."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def wall_time_ms(self) -> int:
        """Unix time, for queues on disk and for the times of joins."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer: ...

    def members(self) -> tuple[Member, ...]:
        """The members of the roster, this program included."""

    def member(self, peer_id: PeerId) -> Member | None: ...

    def sign(self, data: bytes) -> bytes:
        """Our signature; empty on a channel without TLS."""

    def is_signed_by(self, peer_id: PeerId, data: bytes, signature: bytes) -> bool:
        """Whether a member of the roster has signed this. Always true for members of a channel without TLS."""

    def broadcast(self, data: bytes) -> None:
        """Send to all other members, in our order."""

    def request(self, peer_id: PeerId, data: bytes, timeout_s: float, on_outcome: Callable[[Outcome], None]) -> object:
        """Send a direct request. `on_outcome` is called exactly once, unless the request is given up."""

    def give_up(self, request: object) -> None: ...

    def tell(self, peer_id: PeerId, data: bytes) -> None:
        """Send a one-way message; it may be lost with its receiver."""

    def invoke(self, call: "HandlerCall") -> None:
        """Run a handler of the application. It ends with a method of the call."""

    def start_program(self, program: "ProgramType", on_exit: Callable[[str], None]) -> RunningProgram:
        """Start a program. `on_exit` is called once, and not during this call: with the exit status and the last lines
        of its standard error, or the reason why it could not be started."""
