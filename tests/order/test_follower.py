"""A follower that misses something fetches it, until it has it."""

import pytest

from broadloom.order.catch_up import make_page
from broadloom.order.codec import encode
from broadloom.order.log import LogEntry
from broadloom.order.messages import (
    Assign,
    Enter,
    Fetch,
    NewEpoch,
    Run,
    Status,
    Submit,
    Suspect,
    Takeover,
    WatchSequencer,
)
from broadloom.order.settings import PARTICIPANTS_MAX
from broadloom.protocol.requests.outgoing import OutcomeKind
from tests.order.fake_runtime import CONVERSATION, EPOCH, ME, OTHER, SEQUENCER, FakeOrderRuntime, log_of

ENTRIES = [LogEntry(OTHER, number, 0, b"", b"%d" % number) for number in range(1, 5)]


def assign(first: int, count: int) -> Assign:
    chain = log_of(*ENTRIES[: first + count - 1]).chain
    return Assign(CONVERSATION, EPOCH, first, (Run(OTHER, first, count, 0),), chain, 0)


def submit(runtime: FakeOrderRuntime, *numbers: int) -> None:
    for number in numbers:
        runtime.replica.on_message(OTHER, Submit(CONVERSATION, number, b"", b"%d" % number))


def fetches(runtime: FakeOrderRuntime) -> list[tuple[int, Fetch]]:
    return [(peer, request) for peer, request, _ in runtime.requests if isinstance(request, Fetch)]


def answer(runtime: FakeOrderRuntime, end: int) -> None:
    """The sequencer, whose log ends here, answers the last fetch."""
    _, fetch, on_outcome = next(each for each in reversed(runtime.requests) if isinstance(each[1], Fetch))
    assert isinstance(fetch, Fetch)
    page = make_page(CONVERSATION, log_of(*ENTRIES[:end]), fetch, 0, ())
    assert page is not None
    on_outcome(OutcomeKind.REPLIED, encode(page))


def texts(runtime: FakeOrderRuntime) -> list[bytes]:
    return [entry.data for entry in runtime.delivered]


def test_assignment_waits_for_its_submissions() -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.replica.on_message(SEQUENCER, assign(1, 2))
    submit(runtime, 2)
    assert not runtime.delivered
    submit(runtime, 1)
    assert texts(runtime) == [b"1", b"2"]
    assert not fetches(runtime)


def test_submissions_that_do_not_come_are_fetched() -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.replica.on_message(SEQUENCER, assign(1, 2))
    runtime.run_for(1)
    assert [peer for peer, _ in fetches(runtime)] == [SEQUENCER]
    answer(runtime, 2)
    assert texts(runtime) == [b"1", b"2"]


def test_fetch_that_fails_is_repeated() -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    submit(runtime, 3)
    runtime.replica.on_message(SEQUENCER, assign(3, 1))
    assert len(fetches(runtime)) == 1
    runtime.requests[-1][2](OutcomeKind.GONE, b"")
    runtime.run_for(1)
    assert len(fetches(runtime)) > 1
    answer(runtime, 2)
    assert texts(runtime) == [b"1", b"2", b"3"]


def test_assignments_that_come_during_a_fetch_are_kept() -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    submit(runtime, 2, 3)
    runtime.replica.on_message(SEQUENCER, assign(2, 1))
    runtime.replica.on_message(SEQUENCER, assign(3, 1))
    answer(runtime, 1)
    assert texts(runtime) == [b"1", b"2", b"3"]


def test_status_shows_missing_entries() -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    everyone = (ME, SEQUENCER, OTHER)
    runtime.replica.on_message(SEQUENCER, Status(CONVERSATION, EPOCH, 3, log_of(*ENTRIES[:3]).chain, 0, everyone))
    answer(runtime, 4)
    assert texts(runtime) == [b"1", b"2", b"3", b"4"]


def test_repeated_assignment_is_ignored() -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    submit(runtime, 1, 2)
    for _ in range(2):
        runtime.replica.on_message(SEQUENCER, assign(1, 2))
    assert texts(runtime) == [b"1", b"2"]
    assert not fetches(runtime)


def test_replica_that_closes_gives_up_its_watch_of_the_sequencer() -> None:
    """A channel waits for open requests when it is left."""
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.run_for(1)
    watches = [request for _, request, _ in runtime.requests if isinstance(request, WatchSequencer)]
    assert len(watches) == 1
    assert not runtime.given_up
    runtime.replica.close()
    assert runtime.given_up == watches


def test_follower_enters_again_only_if_the_list_of_participants_has_room() -> None:
    """The sequencer answers each `Enter` with its list: in a larger conversation both would go on for ever."""
    runtime = FakeOrderRuntime()
    runtime.follow()
    sent_before = len(runtime.sent(Enter))
    for count, entered in ((PARTICIPANTS_MAX, 0), (PARTICIPANTS_MAX - 1, 1)):
        others = tuple(range(10_000, 10_000 + count))
        runtime.replica.on_message(SEQUENCER, Status(CONVERSATION, EPOCH, 0, log_of().chain, 0, others))
        assert len(runtime.sent(Enter)) - sent_before == entered


@pytest.mark.parametrize("age_s", [0.05, 0.3, 0.55, 0.8, 0.95])
def test_pause_of_a_program_that_enters_is_not_silence_of_the_others(age_s: float) -> None:
    """What they sent meanwhile is read after the timers have run. It took over, and the log forked."""
    runtime = FakeOrderRuntime()
    runtime.run_for(age_s)
    runtime.pause(5)
    runtime.run_for(0.1)
    assert not runtime.sent(Takeover)
    runtime.run_for(1.5)
    assert runtime.sent(Takeover), "they are silent"


@pytest.mark.parametrize("age_s", [0.3, 1.5, 2.6, 2.8, 2.95])
def test_pause_of_the_program_is_not_silence_of_the_sequencer(age_s: float) -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.replica.submit(b"mine")
    runtime.run_for(age_s)
    runtime.pause(5)
    runtime.run_for(0.1)
    assert not runtime.sent(Suspect)
    runtime.run_for(5)
    assert len(runtime.sent(Suspect)) > 1, "it is silent"


@pytest.mark.parametrize("age_s", [0.3, 1.0, 1.6, 1.8, 1.95])
def test_candidate_that_was_paused_waits_for_votes_that_it_has_not_read(age_s: float) -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.present.remove(SEQUENCER)
    runtime.replica.on_member_gone(SEQUENCER)
    while not runtime.sent(Takeover):
        runtime.run_for(0.01)
    runtime.run_for(age_s)
    runtime.pause(5)
    runtime.run_for(0.1)
    assert not runtime.sent(NewEpoch)
    runtime.run_for(2.5)
    assert runtime.sent(NewEpoch), "the other one did not vote"
