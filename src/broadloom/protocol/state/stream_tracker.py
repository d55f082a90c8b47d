"""`StreamTracker`: how far a reader is, exactly; and where it starts after it has fetched state.

A position maps each author to a sequence number. Everything up to it was read, or was reported as missed; authors that
are not listed are at 0. Nothing is counted per message: the position is what has arrived, without what is unread.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from broadloom.protocol.events import Batch, Missed
from broadloom.wire import PeerId
from broadloom.wire.state_messages import MISSED_RANGES_MAX

if TYPE_CHECKING:
    from broadloom.protocol.peer import Peer

Position = Mapping[PeerId, int]


def covers(position: Position, required: Position) -> bool:
    return all(position.get(author, 0) >= sequence for author, sequence in required.items())


class UnreadMessages(Protocol):
    def unread(self) -> Sequence[Batch]:
        """In the order in which they will be read."""

    def cut(self, through: Position) -> None:
        """Drop the messages of each author up to this sequence number."""


class TrackedReader(Protocol):
    """A reader with an inbox: a subscription, or its counterpart in the simulator."""

    _is_in_hand: bool
    """The program has taken a message and not yet asked for the next one."""
    _when_between: Callable[[], None] | None
    """Called once when it asks for the next one."""

    @property
    def _inbox(self) -> UnreadMessages: ...


class PeerStream:
    """What has arrived at a peer."""

    def __init__(self, peer: "Callable[[], Peer]") -> None:
        self._get_peer = peer
        """A channel has one only when it has started."""

    @property
    def _peer(self) -> "Peer":
        return self._get_peer()

    def now(self) -> float:
        return self._peer.runtime.now()

    def arrived(self) -> dict[PeerId, int]:
        """Everything up to here has arrived, or is known to be lost. Lists all authors known here."""
        return self._peer.broadcaster.receiver.positions()

    def floors(self) -> dict[PeerId, int]:
        """Messages up to here never arrived, and are not reported as missed: they were sent before."""
        return self._peer.broadcaster.receiver.floors()

    def begin_state(self) -> None:
        """Deliver, from now on, what was sent before this peer was connected and has not arrived yet."""
        self._peer.broadcaster.receiver.begin_state()

    @property
    def copies_s(self) -> float:
        """How long copies of a message may arrive."""
        return self._peer.settings.author_eviction_s


class StreamTracker:
    """The position of one reader, for the member that serves state and for the newcomer that fetches it."""

    def __init__(self, reader: TrackedReader, stream: PeerStream) -> None:
        self._reader = reader
        self._stream = stream
        self._lost: dict[PeerId, int] = {}
        """Of each author, the last message that was missed or dropped since the fetch began."""
        self._missed: list[Missed] = []
        self._start: dict[PeerId, int] = {}
        """Where this reader began when the fetch began."""
        self._skip_through: dict[PeerId, int] = {}
        """The fetched state contains messages that had not arrived here: they are dropped when they do."""
        self._skip_until = 0.0
        self.is_fetching = False
        self._was_in_hand = False

    # -- positions

    def position(self) -> dict[PeerId, int]:
        """What the program has taken. Valid until the event loop runs something else."""
        position = self._passed()
        for batch in reversed(self._reader._inbox.unread()):
            position[batch.author] = batch.first_sequence - 1
        return position

    def _passed(self) -> dict[PeerId, int]:
        return _highest(self._stream.arrived(), self._skip_through)

    def arrived(self) -> dict[PeerId, int]:
        return self._stream.arrived()

    def missed(self) -> tuple[Missed, ...]:
        """What the state lacks up to its position."""
        return tuple(self._missed)

    def when_between(self, callback: Callable[[], None]) -> None:
        """Call back once, now or later, when the program is not in the middle of a message: only then is its state that
        of a position."""
        if self._reader._is_in_hand:
            self._reader._when_between = callback
        else:
            callback()

    # -- what the reader reports

    def admit(self, batch: Batch) -> Batch:
        """Without the messages that the fetched state contains."""
        through = self._skip_through.get(batch.author)
        if through is None:
            return batch
        if self._stream.now() >= self._skip_until:
            self._skip_through.clear()
            return batch
        if batch.last_sequence >= through:
            del self._skip_through[batch.author]
        return batch.after(through)

    def on_lost(self, lost: Missed) -> None:
        """These messages will not be read here."""
        author = PeerId(lost.author)
        last = self._missed[-1] if self._missed else None
        if last is not None and (last.author, last.last_sequence + 1) == (author, lost.first_sequence):
            self._missed[-1] = last._replace(last_sequence=lost.last_sequence)
        else:
            self._missed = [*self._missed, lost._replace(author=author)][-MISSED_RANGES_MAX:]
        if self.is_fetching:
            self._lost[author] = max(self._lost.get(author, 0), lost.last_sequence)

    # -- fetching

    def begin_fetch(self) -> None:
        """From now on, all messages wait until `end_fetch`."""
        self._stream.begin_state()
        self.is_fetching = True
        self._was_in_hand, self._reader._is_in_hand = self._reader._is_in_hand, True
        self._start, self._lost = self._passed(), {}

    def required(self) -> dict[PeerId, int]:
        """The state must contain everything up to here, because this reader does not."""
        required = _highest(_highest(self._start, self._stream.floors()), self._lost)
        return {author: sequence for author, sequence in required.items() if sequence}

    def end_fetch(self, position: Position | None, missed: tuple[Missed, ...]) -> None:
        """Drop the messages up to `position`, also those that arrive later; None: the fetch has failed."""
        self.is_fetching = False
        self._start, self._lost = {}, {}
        if position is None:
            self._reader._is_in_hand = self._was_in_hand
            return
        # The state itself is in hand now, until the program asks for the next message.
        self._missed = list(missed)
        arrived = self._stream.arrived()
        self._skip_through = {
            author: sequence for author, sequence in position.items() if sequence > arrived.get(author, 0)
        }
        self._skip_until = self._stream.now() + self._stream.copies_s
        self._reader._inbox.cut(position)


def _highest(one: Mapping[PeerId, int], other: Mapping[PeerId, int]) -> dict[PeerId, int]:
    return {**one, **{author: max(sequence, one.get(author, 0)) for author, sequence in other.items()}}
