"""Requests of this peer: their states and outcomes.

| state | event | result |
|---|---|---|
| QUEUED | a connection has room, and the quota allows it | SENT: its first byte is handed to the connection |
| QUEUED | the connection is lost | dialed again once: nothing was sent |
| QUEUED | the peer cannot be dialed, or its address is unknown | `GONE` or `UNKNOWN_PEER`, not sent |
| SENT | reply | `REPLIED`, or `REFUSED` with the status |
| SENT | the connection is lost or silent | `GONE`, sent: what the callee did is unknown |
| QUEUED | deadline, while the quota is used up | `BUSY`, not sent |
| any | deadline | `NO_ANSWER`; `Cancel` if it was sent |
| any | the caller gives up | no outcome; `Cancel` if it was sent |

After the first byte a request is never sent again. So its handler runs at most once.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from broadloom.wire import PeerId
from broadloom.wire.direct_messages import RequestStatus

if TYPE_CHECKING:
    from broadloom.protocol.requests.direct_connection import DirectConnection


class RequestState(Enum):
    QUEUED = auto()
    """Nothing was sent: the peer is being dialed, its connection has no room, or the quota does not allow it yet."""
    SENT = auto()
    """The first byte was handed to the connection."""
    ENDED = auto()


class OutcomeKind(Enum):
    REPLIED = auto()
    """The handler has replied; for a one-way message, the connection took it."""
    REFUSED = auto()
    GONE = auto()
    NO_ANSWER = auto()
    UNKNOWN_PEER = auto()
    TOO_LARGE = auto()
    BUSY = auto()
    """Too many requests of this peer wait, or its quota does not allow this one in time."""
    LEFT = auto()
    """This peer has left the channel."""


class Outcome(NamedTuple):
    """How a request ended. There is exactly one for each request, except for those that the caller gave up."""

    kind: OutcomeKind
    data: bytes = b""
    """The reply."""
    text: str = ""
    """Why there is none."""
    sent: bool = False
    """Whether the request was sent: if there is no reply, a handler may have run."""
    status: RequestStatus = RequestStatus.OK


class OutgoingRequest:
    """One request or one-way message of this peer."""

    __slots__ = (
        "connection",
        "data",
        "deadline_at",
        "flags",
        "id",
        "is_tell",
        "layer",
        "on_outcome",
        "parts",
        "peer_id",
        "state",
        "was_lost",
    )

    def __init__(
        self,
        peer_id: PeerId,
        data: bytes,
        layer: int,
        flags: int,
        deadline_at: float,
        on_outcome: Callable[[Outcome], None],
        *,
        is_tell: bool,
    ) -> None:
        self.peer_id = peer_id
        self.data = data
        self.layer = layer
        self.flags = flags
        self.deadline_at = deadline_at
        self.on_outcome = on_outcome
        self.is_tell = is_tell
        self.state = RequestState.QUEUED
        self.was_lost = False
        """Its connection was lost while it was queued: the peer is dialed once more."""
        self.id = 0
        """On its connection."""
        self.connection: DirectConnection | None = None
        self.parts: list[bytes] | None = None
        """The reply so far, if it comes in parts."""

    def end(self, outcome: Outcome) -> None:
        assert self.state is not RequestState.ENDED, "a request has one outcome"
        on_outcome = self.on_outcome
        self.discard()
        on_outcome(outcome)

    def discard(self) -> None:
        """End without an outcome. The request stays with its deadline for a while, so it keeps nothing large."""
        self.state = RequestState.ENDED
        self.connection = self.parts = None
        self.data = b""
        self.on_outcome = _ignore


def _ignore(_outcome: Outcome) -> None:
    """The request has ended."""
