"""A member that lies: forged assignments, epochs, votes and logs; more of everything than is allowed."""

import pytest

from broadloom.order.catch_up import LIMIT, make_page
from broadloom.order.codec import encode
from broadloom.order.log import EpochStart, LogEntry
from broadloom.order.messages import (
    Ack,
    Assign,
    Enter,
    Fetch,
    NewEpoch,
    Page,
    Probe,
    Run,
    Status,
    Submit,
    Suspect,
    Takeover,
    Vote,
    WatchSequencer,
)
from broadloom.order.model import Epoch, Rewound, Skipped
from broadloom.order.policy import SafePolicy
from broadloom.order.settings import (
    NUMBER_STEP_MAX,
    PARTICIPANTS_MAX,
    PENDING_MAX,
    PENDING_PER_MEMBER_MAX,
    TAKEOVERS_PER_MEMBER,
    OrderSettings,
)
from broadloom.order.store import MemoryOrderStore
from broadloom.protocol.requests.outgoing import OutcomeKind
from tests.order.fake_runtime import CONVERSATION, EPOCH, HOSTILE, ME, OTHER, SEQUENCER, FakeOrderRuntime, log_of

VOTERS = ("a", "b", "c")
STORES = (11, 12, 13)


@pytest.fixture
def follower() -> FakeOrderRuntime:
    """It follows `SEQUENCER` and has two entries."""
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.order(b"one", b"two")
    assert [entry.data for entry in runtime.delivered] == [b"one", b"two"]
    return runtime


def assign(follower: FakeOrderRuntime, epoch: Epoch, text: bytes = b"forged") -> Assign:
    log = follower.replica.log
    entry = LogEntry(HOSTILE, 1, 0, b"", text)
    follower.replica.on_message(HOSTILE, Submit(CONVERSATION, 1, b"", text))
    return Assign(CONVERSATION, epoch, log.end + 1, (Run(HOSTILE, 1, 1, 0),), log.check([entry]), 0)


@pytest.mark.parametrize("epoch", [EPOCH, Epoch(0, HOSTILE), Epoch(9, HOSTILE), Epoch(9, SEQUENCER)])
def test_assignment_of_another_member_is_not_delivered(follower: FakeOrderRuntime, epoch: Epoch) -> None:
    follower.replica.on_message(HOSTILE, assign(follower, epoch))
    assert len(follower.delivered) == 2
    follower.order(b"three")
    assert [entry.data for entry in follower.delivered] == [b"one", b"two", b"three"]


def test_assignment_with_a_wrong_chain_is_not_delivered_but_fetched(follower: FakeOrderRuntime) -> None:
    message = assign(follower, EPOCH)
    forged = Assign(CONVERSATION, EPOCH, message.first_index, message.runs, b"x" * 16, 0)
    follower.requests.clear()
    follower.replica.on_message(SEQUENCER, forged)
    assert len(follower.delivered) == 2
    assert [(peer, type(request)) for peer, request, _ in follower.requests] == [(SEQUENCER, Fetch)]


def test_assignment_that_skips_submissions_of_an_author_is_not_delivered(follower: FakeOrderRuntime) -> None:
    follower.replica.on_message(OTHER, Submit(CONVERSATION, 4, b"", b"four"))
    runs = (Run(OTHER, 4, 1, 0),)
    follower.replica.on_message(SEQUENCER, Assign(CONVERSATION, EPOCH, 3, runs, bytes(16), 0))
    assert len(follower.delivered) == 2
    assert follower.replica.rejected["assignment"] == 1


def new_epoch(
    epoch: Epoch, cut: int, chain: bytes, *, counted: tuple[int, ...] = (), lineage: object = None
) -> NewEpoch:
    steps = lineage if lineage is not None else (EpochStart(epoch, cut + 1),)
    return NewEpoch(CONVERSATION, epoch, cut, chain, 0, steps, counted, (ME, HOSTILE), ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("author", "message"),
    [
        (HOSTILE, new_epoch(Epoch(2, SEQUENCER), 0, bytes(16))),
        (HOSTILE, new_epoch(Epoch(2, HOSTILE), 0, bytes(16))),
        (HOSTILE, new_epoch(Epoch(2, HOSTILE), 0, bytes(16), counted=(ME,))),
        (HOSTILE, new_epoch(Epoch(2, HOSTILE), 0, bytes(16), lineage=())),
        (HOSTILE, new_epoch(Epoch(2, HOSTILE), 1, bytes(16), lineage=(EpochStart(Epoch(2, HOSTILE), 7),))),
        (HOSTILE, new_epoch(Epoch(2 + NUMBER_STEP_MAX, HOSTILE), 0, bytes(16))),
    ],
)
def test_new_epoch_without_our_vote_revokes_nothing(follower: FakeOrderRuntime, author: int, message: NewEpoch) -> None:
    follower.replica.on_message(author, message)
    follower.run_for(0.2)
    assert follower.replica.log.epoch == EPOCH
    assert not any(isinstance(event, Rewound) for event in follower.events)
    assert len(follower.delivered) == 2


def test_number_of_epochs_cannot_be_used_up(follower: FakeOrderRuntime) -> None:
    follower.replica.on_message(HOSTILE, Takeover(CONVERSATION, Epoch(2**64 - 1, HOSTILE)))
    follower.replica.on_message(HOSTILE, Status(CONVERSATION, Epoch(2**63, HOSTILE), 9, bytes(16), 0, ()))
    assert follower.replica.fence == EPOCH
    assert follower.replica.rejected["epoch"] == 2
    assert follower.replica.elections.highest.number < 10


def test_takeovers_of_one_member_are_limited(follower: FakeOrderRuntime) -> None:
    for number in range(2, 100):
        follower.replica.on_message(HOSTILE, Takeover(CONVERSATION, Epoch(number, HOSTILE)))
    votes = [message for _, message in follower.tells if isinstance(message, Vote)]
    assert len(votes) == TAKEOVERS_PER_MEMBER
    assert follower.replica.rejected["too many takeovers"] == 98 - TAKEOVERS_PER_MEMBER
    follower.replica.on_message(OTHER, Takeover(CONVERSATION, Epoch(100, OTHER)))
    assert follower.replica.fence == Epoch(100, OTHER)


def test_candidate_that_does_nothing_is_replaced_and_distrusted(follower: FakeOrderRuntime) -> None:
    follower.replica.on_message(HOSTILE, Takeover(CONVERSATION, Epoch(2, HOSTILE)))
    assert follower.replica.is_fenced
    follower.run_for(6)
    assert follower.sent(Takeover)
    assert follower.sent(Takeover)[0].epoch > Epoch(2, HOSTILE)
    assert follower.replica.participants.is_distrusted(HOSTILE)


def test_other_sequencers_cannot_make_ours_take_over_without_end() -> None:
    runtime = FakeOrderRuntime()
    runtime.replica.elections.start_takeover()
    runtime.run_for(3)
    assert runtime.replica.is_sequencing
    takeovers = 0
    for number in range(2, 400):
        runtime.replica.on_message(HOSTILE, Status(CONVERSATION, Epoch(number + 1000, HOSTILE), 9, bytes(16), 0, ()))
        runtime.run_for(0.3)
        takeovers = len({message.epoch for message in runtime.sent(Takeover)})
    assert takeovers < TAKEOVERS_PER_MEMBER + 2 + 120 / 5


def test_one_complaint_is_not_enough_and_the_sequencer_cannot_complain(follower: FakeOrderRuntime) -> None:
    follower.replica.on_message(OTHER, Enter(CONVERSATION))
    follower.replica.on_message(HOSTILE, Enter(CONVERSATION))
    for _ in range(5):
        follower.replica.on_message(HOSTILE, Suspect(CONVERSATION, EPOCH))
        follower.replica.on_message(SEQUENCER, Suspect(CONVERSATION, EPOCH))
    assert not follower.replica.elections.is_suspected
    follower.replica.on_message(OTHER, Suspect(CONVERSATION, EPOCH))
    assert follower.replica.elections.is_suspected


def test_sequencer_whose_chain_is_not_ours_is_replaced(follower: FakeOrderRuntime) -> None:
    honest = Status(CONVERSATION, EPOCH, 2, follower.replica.log.chain, 0, (ME, SEQUENCER, OTHER))
    follower.replica.on_message(SEQUENCER, honest)
    assert not follower.replica.elections.is_suspected
    follower.replica.on_message(SEQUENCER, Status(CONVERSATION, EPOCH, 2, b"x" * 16, 0, (ME, SEQUENCER, OTHER)))
    follower.run_for(3)
    assert follower.sent(Takeover)
    assert follower.replica.rejected["chain"] == 1


def test_messages_for_one_member_are_ignored_as_broadcasts_and_vice_versa(follower: FakeOrderRuntime) -> None:
    replies: list[bytes | None] = []
    follower.replica.on_message(HOSTILE, Vote(CONVERSATION, EPOCH, (), 0, bytes(16), 0))
    follower.replica.on_message(HOSTILE, Ack(CONVERSATION, EPOCH, 2, 0))
    follower.replica.on_request(HOSTILE, new_epoch(Epoch(2, HOSTILE), 0, bytes(16)), replies.append)
    assert follower.replica.rejected["misplaced message"] == 3
    assert replies == [b""]


# -- mode safe


@pytest.fixture
def voter() -> FakeOrderRuntime:
    runtime = FakeOrderRuntime(voters=VOTERS, store=MemoryOrderStore(STORES[0]))
    runtime.follow(STORES)
    return runtime


def test_only_voters_lead(voter: FakeOrderRuntime) -> None:
    voter.replica.on_message(HOSTILE, Takeover(CONVERSATION, Epoch(2, HOSTILE)))
    voter.replica.on_message(HOSTILE, new_epoch(Epoch(2, HOSTILE), 0, bytes(16), counted=(ME,)))
    assert voter.replica.fence == EPOCH
    assert voter.replica.rejected["not the sequencer"] == 2


def lead(voter: FakeOrderRuntime) -> None:
    """It becomes the sequencer with the vote of `OTHER`."""
    voter.replica.participants.add((SEQUENCER, OTHER))
    voter.replica.elections.start_takeover()
    epoch = voter.replica.fence
    for forged in (Vote(CONVERSATION, epoch, (), 0, bytes(16), 77), Vote(CONVERSATION, EPOCH, (), 0, bytes(16), 13)):
        voter.replica.on_request(OTHER, forged, lambda _data: None)
    voter.replica.on_request(HOSTILE, Vote(CONVERSATION, epoch, (), 0, bytes(16), 13), lambda _data: None)
    assert not voter.replica.is_sequencing
    voter.replica.on_request(
        OTHER, Vote(CONVERSATION, epoch, voter.replica.log.lineage, 0, bytes(16), 13), lambda _data: None
    )
    assert voter.replica.is_sequencing


def test_votes_and_acknowledgements_count_only_from_enrolled_stores_of_voters(voter: FakeOrderRuntime) -> None:
    lead(voter)
    voter.replica.submit(b"bid")
    voter.run_for(0.01)
    epoch = voter.replica.log.epoch
    for peer_id, ack in (
        (HOSTILE, Ack(CONVERSATION, epoch, 1, 13)),
        (OTHER, Ack(CONVERSATION, epoch, 1, 77)),
        (OTHER, Ack(CONVERSATION, epoch, 2, 13)),
        (OTHER, Ack(CONVERSATION, EPOCH, 1, 13)),
    ):
        voter.replica.on_request(peer_id, ack, lambda _data: None)
    assert not voter.delivered
    voter.replica.on_request(OTHER, Ack(CONVERSATION, epoch, 1, 13), lambda _data: None)
    assert [entry.data for entry in voter.delivered] == [b"bid"]


def test_virgin_store_cannot_found_a_conversation_that_exists() -> None:
    runtime = FakeOrderRuntime(voters=VOTERS, store=MemoryOrderStore(99))
    policy = runtime.replica.policy
    assert isinstance(policy, SafePolicy)
    votes = {peer: Vote(CONVERSATION, EPOCH, (), 0, bytes(16), peer) for peer in (ME, SEQUENCER, OTHER)}
    assert policy.can_decide(votes, [], is_late=True)
    votes[OTHER] = Vote(CONVERSATION, EPOCH, (EpochStart(EPOCH, 1),), 5, bytes(16), OTHER)
    assert not policy.can_decide(votes, [], is_late=True)


# -- limits


def test_pending_submissions_are_limited(follower: FakeOrderRuntime) -> None:
    for number in range(1, 3000):
        follower.replica.on_message(HOSTILE, Submit(CONVERSATION, number, b"", b"x"))
    assert follower.replica.submissions.count == PENDING_PER_MEMBER_MAX
    for author in range(1000, 1030):
        for number in range(1, PENDING_PER_MEMBER_MAX + 1):
            follower.replica.on_message(author, Submit(CONVERSATION, number, b"", b"x"))
    assert follower.replica.submissions.count == PENDING_MAX
    follower.run_for(130)
    assert follower.replica.submissions.count == 0


def test_bytes_of_pending_submissions_are_limited() -> None:
    runtime = FakeOrderRuntime(settings=OrderSettings(pending_bytes_max=1_000_000))
    for author in range(1000, 1100):
        runtime.replica.on_message(author, Submit(CONVERSATION, 1, b"", bytes(60_000)))
    assert runtime.replica.submissions.size_bytes <= 1_000_000
    assert runtime.replica.submissions.dropped_count == 84


def test_participants_are_limited(follower: FakeOrderRuntime) -> None:
    follower.present = set(range(10_000))
    for author in range(5000):
        follower.replica.on_message(author, Enter(CONVERSATION))
    assert len(follower.replica.participants.all) == PARTICIPANTS_MAX


def test_log_is_limited_and_a_late_member_learns_what_it_skipped() -> None:
    runtime = FakeOrderRuntime(settings=OrderSettings(log_entries_max=100))
    runtime.follow()
    runtime.order(b"first")
    late = FakeOrderRuntime(from_index=1)
    late.follow()
    for number in range(1000):
        runtime.order(b"%d" % number)
    log = runtime.replica.log
    assert log.end == 1001
    assert log.end - log.base <= 100 + 100 // 16 + 1
    late.replica.joining.fetch_from_sequencer()
    peer, fetch, on_outcome = late.requests[-1]
    assert (peer, type(fetch)) == (SEQUENCER, Fetch)
    page = make_page(CONVERSATION, log, fetch, 0, ())  # type: ignore[arg-type]
    assert page is not None
    on_outcome(OutcomeKind.REPLIED, encode(page))
    assert late.events[-1] == Skipped(1, log.base)
    assert late.delivered[0].index == log.base + 1
    assert late.replica.log.chain == log.chain


@pytest.mark.parametrize(
    "entries",
    [
        (LogEntry(OTHER, 2, 0, b"", b"a gap"),),
        (LogEntry(OTHER, 1, 0, b"", b"x"), LogEntry(OTHER, 1, 0, b"", b"twice")),
    ],
)
def test_fetched_log_with_wrong_numbers_is_not_taken(entries: tuple[LogEntry, ...]) -> None:
    runtime = FakeOrderRuntime(from_index=1)
    runtime.follow()
    runtime.replica.joining.fetch_from_sequencer()
    log = log_of(*entries)
    page = make_page(CONVERSATION, log, Fetch(CONVERSATION, log.lineage, 0, 0), 0, ())
    assert page is not None
    runtime.requests[-1][2](OutcomeKind.REPLIED, encode(page))
    assert not runtime.delivered
    assert runtime.replica.log.end == 0


@pytest.mark.parametrize("reply", [b"", b"\x01", b"\x01\xff", encode(Probe(CONVERSATION))])
def test_malformed_reply_ends_a_fetch(reply: bytes) -> None:
    runtime = FakeOrderRuntime()
    runtime.follow()
    runtime.replica.joining.fetch_from_sequencer()
    runtime.requests[-1][2](OutcomeKind.REPLIED, reply)
    assert not runtime.replica.catch_up.is_running


def test_endless_log_is_not_fetched() -> None:
    runtime = FakeOrderRuntime(settings=OrderSettings(log_entries_max=100))
    runtime.follow()
    runtime.requests.clear()
    runtime.replica.joining.fetch_from_sequencer()
    number, chain = 0, bytes(16)
    for _ in range(100):
        if not runtime.replica.catch_up.is_running:
            break
        batch = log_of()
        batch.restart(number, chain, {OTHER: number})
        batch.set_lineage((EpochStart(EPOCH, 1),))
        for _ in range(20):
            number += 1
            batch.append(LogEntry(OTHER, number, 0, b"", b"x"))
        entries = batch.slice(number - 19, 1 << 20, 100)
        page = Page(CONVERSATION, batch.lineage, number - 19, chain, entries, 1 << 40, 0, False, (), ())
        chain = batch.chain
        runtime.requests.pop()[2](OutcomeKind.REPLIED, encode(page))
    assert not runtime.replica.catch_up.is_running
    assert number <= LIMIT * 100 + 20
    assert not runtime.delivered


def test_watchers_are_limited() -> None:
    runtime = FakeOrderRuntime()
    runtime.replica.elections.start_takeover()
    runtime.run_for(3)
    replies: list[bytes | None] = []
    for peer_id in range(40):
        runtime.replica.on_request(peer_id, WatchSequencer(CONVERSATION, runtime.replica.log.epoch), replies.append)
    assert replies == [None] * 24
    runtime.replica.close()
    assert replies == [None] * 24 + [b""] * 16
