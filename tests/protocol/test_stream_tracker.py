"""The exact position of a reader, and what it skips after a fetch."""

from collections import deque
from collections.abc import Callable

from broadloom.protocol.events import Batch, Missed
from broadloom.protocol.state.stream_tracker import PeerStream, Position, StreamTracker
from broadloom.wire import PeerId
from broadloom.wire.state_messages import MISSED_RANGES_MAX

A, B, C = PeerId(1), PeerId(2), PeerId(3)
COPIES_S = 100.0


class FakeStream(PeerStream):
    def __init__(self) -> None:
        self.time = 0.0
        self.at: dict[PeerId, int] = {}
        self.never_held: dict[PeerId, int] = {}
        self.has_begun = False

    def now(self) -> float:
        return self.time

    def arrived(self) -> dict[PeerId, int]:
        return dict(self.at)

    def floors(self) -> dict[PeerId, int]:
        return dict(self.never_held)

    def begin_state(self) -> None:
        self.has_begun = True

    @property
    def copies_s(self) -> float:
        return COPIES_S


class FakeReader:
    _is_in_hand = False
    _when_between: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.tracker = StreamTracker(self, self.stream)
        self.batches: deque[Batch] = deque()

    @property
    def _inbox(self) -> "FakeReader":
        return self

    def unread(self) -> list[Batch]:
        return list(self.batches)

    def cut(self, through: Position) -> None:
        rest = (batch.after(through.get(batch.author, 0)) for batch in self.batches)
        self.batches = deque(batch for batch in rest if batch.data)

    def arrive(self, author: PeerId, first: int, last: int) -> None:
        self.stream.at[author] = last
        batch = self.tracker.admit(Batch(author, first, [b"x"] * (last - first + 1), 1))
        if batch.data:
            self.batches.append(batch)

    def unread_numbers(self) -> list[tuple[int, int]]:
        return [(message.author, message.sequence) for batch in self.batches for message in batch]


def test_unread_messages_do_not_count_for_the_position() -> None:
    reader = FakeReader()
    reader.arrive(A, 1, 5)
    reader.arrive(B, 7, 7)
    reader.arrive(A, 6, 8)
    assert reader.tracker.position() == {A: 0, B: 6}
    reader.batches.popleft()
    assert reader.tracker.position() == {A: 5, B: 6}
    reader.batches.clear()
    assert reader.tracker.position() == {A: 8, B: 7}


def test_state_is_made_only_between_messages() -> None:
    reader = FakeReader()
    made: list[int] = []
    reader.tracker.when_between(lambda: made.append(1))
    assert made == [1]
    reader._is_in_hand = True
    reader.tracker.when_between(lambda: made.append(2))
    assert made == [1]
    assert reader._when_between is not None


def test_required_covers_messages_that_the_reader_lacks() -> None:
    reader = FakeReader()
    reader.stream.at = {A: 4, B: 0}
    reader.tracker.begin_fetch()
    assert reader.stream.has_begun
    assert reader._is_in_hand
    assert reader.tracker.required() == {A: 4}
    reader.arrive(A, 5, 9)
    reader.stream.never_held = {C: 3}  # learned of an author whose messages were sent before
    reader.tracker.on_lost(Missed(B, 1, 2))
    assert reader.tracker.required() == {A: 4, B: 2, C: 3}
    reader.tracker.end_fetch({A: 7, B: 2, C: 3}, ())
    assert reader.unread_numbers() == [(A, 8), (A, 9)]
    assert reader._is_in_hand, "the state itself is in hand"


def test_failed_fetch_leaves_the_reader_as_it_was() -> None:
    reader = FakeReader()
    reader.arrive(A, 1, 3)
    reader.tracker.begin_fetch()
    reader.tracker.end_fetch(None, ())
    assert reader.unread_numbers() == [(A, 1), (A, 2), (A, 3)]
    assert not reader._is_in_hand


def test_messages_of_the_state_that_arrive_later_are_skipped_for_a_while() -> None:
    reader = FakeReader()
    reader.tracker.begin_fetch()
    reader.tracker.end_fetch({A: 3, B: 1 << 62}, (Missed(C, 1, 1),))
    assert reader.tracker.position() == {A: 3, B: 1 << 62}
    assert reader.tracker.missed() == (Missed(C, 1, 1),)
    reader.arrive(A, 1, 2)
    reader.arrive(A, 3, 5)
    reader.arrive(A, 6, 6)
    reader.arrive(B, 1, 1)
    assert reader.unread_numbers() == [(A, 4), (A, 5), (A, 6)]
    reader.stream.time = COPIES_S  # a false position is forgotten
    reader.arrive(B, 2, 2)
    assert reader.unread_numbers()[-1] == (B, 2)
    assert reader.tracker.position()[B] == 1


def test_missed_ranges_are_joined_and_bounded() -> None:
    reader = FakeReader()
    for first in range(1, 11):
        reader.tracker.on_lost(Missed(A, first, first))
    assert reader.tracker.missed() == (Missed(A, 1, 10),)
    for first in range(20, 20 + 2 * MISSED_RANGES_MAX, 2):
        reader.tracker.on_lost(Missed(A, first, first))
    assert len(reader.tracker.missed()) == MISSED_RANGES_MAX
    assert reader.tracker.missed()[-1].first_sequence == 18 + 2 * MISSED_RANGES_MAX
