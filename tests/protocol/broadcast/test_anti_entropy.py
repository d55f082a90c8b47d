"""A link's first words: where a newcomer starts, and who sends what to whom, once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol import Peer, PeerState, Tuning
from broadloom.protocol.events import Missed
from broadloom.wire import Broadcast
from broadloom.wire.exchange_messages import LinkRequest
from broadloom.wire.fields import AUTHORS_MAX
from broadloom.wire.link_messages import Digest, LastKnown, Unavailable, UnavailableReason, Want
from broadloom.wire.types import AuthorState
from tests.protocol.fake_runtime import (
    EMPTY_DIGEST,
    NO_TIMEOUT,
    Cable,
    FakeConnection,
    FakeRuntime,
    broadcast_of,
    digest,
    digest_of,
    founder,
    hello,
    link,
    open_exchange,
    peer_info,
    seeker,
)

A, B = 71, 72
FRESH = digest(is_new=True)
BRIEF = Tuning(heartbeat_timeout_s=1e9, retention_s=10.0)
LONG_S = 100.0


def greeting_on(line: FakeConnection) -> Digest:
    (first_words,) = line.sent_messages(Digest)
    return first_words


# A newcomer.


def test_a_newcomer_says_that_it_is_one() -> None:
    said_first = greeting_on(link(seeker(FakeRuntime()), 2, None))
    assert (said_first.is_new, said_first.authors) == (True, ())


def test_a_founder_is_no_newcomer() -> None:
    said_first = greeting_on(link(founder(FakeRuntime()), 2))
    assert (said_first.is_new, said_first.authors) == (False, ())


def test_a_newcomer_starts_where_its_first_neighbour_is() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    line = link(peer, 2, None)
    line.remote_sends(digest_of((A, 1, 5), (B, 7, 6)))
    assert peer.state is PeerState.JOINING
    line.remote_sends(broadcast_of(A, 6), broadcast_of(B, 7, 7), broadcast_of(A, 4), broadcast_of(A, 7))
    assert world.delivered_ids() == [(A, 6), (B, 7), (A, 7)]
    world.advance(2 * NO_TIMEOUT.retention_s)
    assert (world.reported_missed, line.sent_messages(Want)) == ([], [])


def test_a_newcomer_passes_the_starting_point_on_as_it_is() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    link(peer, 2, digest_of((A, 3, 5), idle_ms=2000))
    world.advance(1)
    assert greeting_on(link(peer, 3)).authors == (AuthorState(A, 3, 5, 3000),)


def test_a_newcomer_lacks_what_its_second_neighbour_has_beyond_that() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    link(peer, 2, digest_of((A, 1, 5)))
    second = link(peer, 3, digest_of((A, 1, 8)))
    second.remote_sends(broadcast_of(A, 9))
    assert world.delivered == []
    second.remote_sends(broadcast_of(A, 6), broadcast_of(A, 7), broadcast_of(A, 8))
    assert world.delivered_ids() == [(A, 6), (A, 7), (A, 8), (A, 9)]


def test_the_answer_of_one_that_is_fresh_too_is_no_starting_point() -> None:
    peer = seeker(FakeRuntime())
    link(peer, 2, FRESH)
    assert not peer.broadcaster.has_position
    assert peer.state is PeerState.DISCOVERING


def test_a_newcomer_does_not_track_more_authors_than_its_limit() -> None:
    peer = seeker(FakeRuntime(), Tuning(heartbeat_timeout_s=1e9, authors_max=3))
    link(peer, 2, digest_of(*((author, 1, 5) for author in range(100, 110))))
    assert len(greeting_on(link(peer, 3)).authors) <= 3


@pytest.mark.long
def test_a_newcomer_that_is_told_of_as_many_authors_as_a_greeting_can_hold_can_still_greet() -> None:
    world = FakeRuntime()
    peer = seeker(world)
    link(peer, 2, digest_of(*((author, 1, 5) for author in range(10_000, 10_000 + AUTHORS_MAX))))
    world.advance(NO_TIMEOUT.join_timeout_s)
    assert peer.state is PeerState.CONNECTED
    peer.broadcast(b"one author more")
    assert greeting_on(link(peer, 3)).authors


# What is sent.


def holder(world: FakeRuntime, *held: Broadcast) -> Peer:
    """A peer that holds these, in this order of arrival, and whose neighbour 2 stays."""
    peer = founder(world)
    link(peer, 2).remote_sends(*held)
    return peer


HELD = [broadcast_of(A, 1), broadcast_of(B, 1), broadcast_of(A, 2), broadcast_of(A, 3), broadcast_of(B, 2)]


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (digest_of(), [(A, 1), (B, 1), (A, 2), (A, 3), (B, 2)]),
        (digest_of((A, 1, 1)), [(B, 1), (A, 2), (A, 3), (B, 2)]),
        (digest_of((A, 1, 2), (B, 1, 1)), [(A, 3), (B, 2)]),
        (digest_of((A, 1, 3), (B, 1, 2)), []),
        (digest_of((A, 1, 9), (B, 1, 9)), []),
        (digest_of((A, 3, 2), (B, 1, 2)), [(A, 3)]),
        (FRESH, []),
    ],
    ids=["nothing", "one of A", "some of both", "all", "more than we", "a run that begins later", "fresh"],
)
def test_exactly_what_the_other_lacks_is_sent_in_order(theirs: Digest, expected: list[tuple[int, int]]) -> None:
    peer = holder(FakeRuntime(), *HELD)
    line = link(peer, 3, None)
    assert line.broadcast_ids() == []
    line.remote_sends(theirs)
    assert line.broadcast_ids() == expected


def test_what_is_sent_later_is_older_and_one_hop_further() -> None:
    world = FakeRuntime()
    peer = holder(world, broadcast_of(A, 1)._replace(hops=3, age_ms=100))
    world.advance(1.5)
    (copy,) = link(peer, 3).broadcasts()
    assert copy == broadcast_of(A, 1)._replace(hops=4, age_ms=1600)


def test_own_messages_are_sent_later_too() -> None:
    peer = founder(FakeRuntime())
    sequence = peer.broadcast(b"e4")
    (copy,) = link(peer, 2).broadcasts()
    assert (copy.author, copy.sequence, copy.hops, copy.messages) == (peer.me.peer_id, sequence, 1, (b"e4",))


def test_what_comes_between_the_two_greetings_is_sent_once() -> None:
    peer = holder(FakeRuntime(), broadcast_of(A, 1))
    line = link(peer, 3, None)
    source = link(peer, 4)
    source.remote_sends(broadcast_of(A, 2))
    assert line.broadcast_ids() == [(A, 2)]
    line.remote_sends(EMPTY_DIGEST)
    assert line.broadcast_ids() == [(A, 2), (A, 1)]


def test_a_second_greeting_brings_nothing_again() -> None:
    peer = holder(FakeRuntime(), *HELD)
    line = link(peer, 3)
    line.remote_sends(EMPTY_DIGEST)
    assert line.broadcast_ids() == [(each.author, each.sequence) for each in HELD]


def test_a_fresh_newcomer_gets_only_what_is_above_our_marks() -> None:
    peer = holder(
        FakeRuntime(),
        broadcast_of(A, 1),
        broadcast_of(A, 2),
        broadcast_of(A, 4),
        broadcast_of(B, 1),
        broadcast_of(A, 6),
    )
    line = link(peer, 3, FRESH)
    assert {each.author: each.last_contiguous for each in greeting_on(line).authors} == {A: 2, B: 1}
    assert line.broadcast_ids() == [(A, 4), (A, 6)]


def test_a_fresh_newcomer_loses_nothing_when_our_marks_move_before_its_greeting_comes() -> None:
    # It was told the mark 1, and 3 was held above it; then 2 came. All of 2 and 3 are still to be sent to it.
    peer = holder(FakeRuntime(), broadcast_of(A, 1), broadcast_of(A, 3))
    line = link(peer, 3, None)
    assert greeting_on(line).authors == (AuthorState(A, 1, 1, 0),)
    link(peer, 4).remote_sends(broadcast_of(A, 2))
    line.remote_sends(FRESH)
    assert sorted(line.broadcast_ids()) == [(A, 2), (A, 3)]


def test_both_greetings_bring_addresses() -> None:
    peer = founder(FakeRuntime())
    link(peer, 2, digest(peer_sample=(peer_info(8), peer_info(9))))
    assert 8 in peer.peer_cache
    assert {each.peer_id for each in greeting_on(link(peer, 3)).peer_sample} >= {8, 9}


held = st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5)), unique=True, max_size=8)


@settings(max_examples=60, deadline=None)
@given(held, held, st.lists(st.integers(0, 1), max_size=30))
def test_two_peers_have_the_same_after_they_met(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], schedule: list[int]
) -> None:
    worlds = FakeRuntime(1), FakeRuntime(2)
    peers = [founder(world, peer_id=name) for world, name in zip(worlds, (1, 2), strict=True)]
    for peer, heard in zip(peers, (ours, theirs), strict=True):
        link(peer, 3).remote_sends(*(broadcast_of(*each) for each in heard))
    peers[0].join_protocol.request_link(peers[1].me)
    cable = Cable(worlds[0].dialed[0], peers[1])
    for number in schedule:
        cable.carry(number)
    cable.carry_all()
    union = set(ours) | set(theirs)
    for world in worlds:
        assert sorted(world.delivered_ids()) == sorted(
            (author, sequence)
            for author, sequence in union
            if all((author, earlier) in union for earlier in range(1, sequence))
        )
    # And nothing was sent that the other had said it has.
    near, far = cable.ends
    for end, other, mine, others in ((near, far, ours, theirs), (far, near, theirs, ours)):
        marks = {each.author: each.last_contiguous for each in greeting_on(other).authors}
        assert all(sequence > marks.get(author, 0) for author, sequence in end.broadcast_ids())
        assert set(mine) - set(others) <= set(end.broadcast_ids()) <= set(mine)


# What a greeting tells us that we lack.


def long_here(world: FakeRuntime, settings: Tuning = BRIEF) -> Peer:
    """A founder that has been here for long when the test begins."""
    peer = founder(world, settings)
    world.advance(LONG_S)
    return peer


def test_what_another_has_of_an_author_that_spoke_in_our_time_is_a_gap() -> None:
    world = FakeRuntime()
    line = link(long_here(world), 2, digest_of((A, 1, 3), idle_ms=5000))
    world.advance(BRIEF.gap_repair_delay_s)
    assert line.sent_messages(Want) == [Want(A, 1, 3)]
    line.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2), broadcast_of(A, 3))
    assert world.delivered_ids() == [(A, 1), (A, 2), (A, 3)]


def test_what_was_said_in_our_time_but_nobody_can_have_any_more_is_told_as_missed() -> None:
    world = FakeRuntime()
    line = link(long_here(world), 2, digest_of((A, 1, 3), idle_ms=int(LONG_S * 1000) - 1))
    world.advance(2 * BRIEF.retention_s)
    assert world.reported_missed == [Missed(A, 1, 3)]
    line.remote_sends(broadcast_of(A, 4, stream_start=4))
    assert world.delivered_ids() == [(A, 4)]


def test_an_author_unknown_and_silent_since_before_our_time_is_no_gap() -> None:
    world = FakeRuntime()
    line = link(long_here(world), 2, digest_of((A, 1, 5), idle_ms=int(LONG_S * 1000) + 1))
    world.advance(3 * BRIEF.author_eviction_s)
    assert (line.sent_messages(Want), world.reported_missed) == ([], [])
    line.remote_sends(broadcast_of(A, 5), broadcast_of(A, 6, stream_start=6))
    assert world.delivered_ids() == [(A, 6)]
    assert world.reported_missed == []


def test_a_newcomers_time_begins_with_its_starting_point() -> None:
    world = FakeRuntime()
    peer = seeker(world, BRIEF)
    world.advance(LONG_S)
    link(peer, 2, digest_of())
    world.advance(1)
    line = link(peer, 3, digest((AuthorState(A, 1, 5, 1001), AuthorState(B, 1, 2, 999))))
    world.advance(BRIEF.gap_repair_delay_s)
    wanted = [want for each in (line, *world.dialed) for want in each.sent_messages(Want)]
    assert [want for want in wanted if want.author == A] == []
    world.advance(3 * BRIEF.gap_repair_delay_s)
    assert Want(B, 1, 2) in line.sent_messages(Want)


def test_more_of_an_author_that_we_know_and_past_retention_is_told_as_missed() -> None:
    # Nobody can have it any more, so nobody is asked.
    world = FakeRuntime()
    peer = holder(world, broadcast_of(A, 1))
    line = link(peer, 3, digest_of((A, 1, 3), idle_ms=10**9))
    world.advance(4 * NO_TIMEOUT.gap_repair_delay_s)
    assert (world.reported_missed, line.sent_messages(Want)) == ([Missed(A, 2, 3)], [])


def test_recent_words_of_an_author_that_we_have_not_heard_for_long_are_asked_for() -> None:
    # After a split: we heard nothing of the author, but the other side did, a moment ago, and has it still.
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    link(peer, 2).remote_sends(broadcast_of(A, 1))
    world.advance(2 * BRIEF.retention_s)
    line = link(peer, 3, digest_of((A, 1, 3), idle_ms=1000))
    world.advance(4 * BRIEF.gap_repair_delay_s)
    assert world.reported_missed == []
    assert Want(A, 2, 3) in line.sent_messages(Want)


def test_authors_beyond_the_limit_are_no_gap() -> None:
    world = FakeRuntime()
    peer = long_here(world, Tuning(heartbeat_timeout_s=1e9, authors_max=1))
    line = link(peer, 2, digest_of((A, 1, 1), (B, 1, 1)))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert line.sent_messages(Want) == [Want(A, 1, 1)]


# After a long time apart.


def stranger(peer: Peer, name: int) -> FakeConnection:
    """Links one that has no starting point yet."""
    line = open_exchange(peer, hello(name, has_position=False), LinkRequest())
    line.remote_sends(FRESH)
    return line


def with_silent_author(world: FakeRuntime) -> tuple[Peer, FakeConnection]:
    """A peer that heard A long ago and B just now."""
    peer = founder(world, BRIEF)
    line = link(peer, 2)
    line.remote_sends(broadcast_of(A, 1))
    world.advance(BRIEF.author_eviction_s + 1)
    line.remote_sends(broadcast_of(B, 1))
    return peer, line


def authors_on(line: FakeConnection) -> list[int]:
    return [each.author for each in greeting_on(line).authors]


def test_members_do_not_speak_of_authors_that_were_silent_for_long() -> None:
    peer, _line = with_silent_author(FakeRuntime())
    line = link(peer, 3)
    assert authors_on(line) == [B]
    assert not greeting_on(line).is_complete
    assert line.sent_messages(LastKnown) == []


def test_a_newcomer_is_told_of_every_author() -> None:
    peer, _line = with_silent_author(FakeRuntime())
    line = stranger(peer, 3)
    assert sorted(authors_on(line)) == [A, B]
    assert greeting_on(line).is_complete


def test_one_that_was_alone_tells_all_and_asks_for_all_once() -> None:
    peer, line = with_silent_author(FakeRuntime())
    line.remote_closes()
    first, second = link(peer, 3), link(peer, 4)
    assert (sorted(authors_on(first)), greeting_on(first).is_complete) == ([A, B], True)
    assert (authors_on(second), greeting_on(second).is_complete) == ([B], False)


def test_one_that_was_apart_is_told_of_the_authors_that_were_silent_for_long() -> None:
    peer, _line = with_silent_author(FakeRuntime())
    line = link(peer, 3, digest(is_complete=True))
    assert [
        [(each.author, each.last_contiguous) for each in known.authors] for known in line.sent_messages(LastKnown)
    ] == [[(A, 1)]]


def test_what_is_said_to_exist_is_a_gap() -> None:
    world = FakeRuntime()
    line = link(founder(world), 2)
    line.remote_sends(broadcast_of(A, 1), LastKnown((AuthorState(A, 1, 3, 0),)))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert line.sent_messages(Want) == [Want(A, 2, 3)]


def test_news_of_what_does_not_come_is_passed_on_once() -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].remote_sends(broadcast_of(A, 1))
    for _ in range(3):
        lines[0].remote_sends(LastKnown((AuthorState(A, 1, 3, 0),)))
        world.advance(2 * NO_TIMEOUT.gap_repair_delay_s)
    assert [
        [(each.author, each.last_contiguous) for each in known.authors] for known in lines[1].sent_messages(LastKnown)
    ] == [[(A, 3)]]


def test_news_is_passed_on_as_no_older_than_it_is() -> None:
    # Else whoever hears of it takes it for past retention, or for said before its time, and does not ask.
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].remote_sends(broadcast_of(A, 1))
    world.advance(2 * BRIEF.retention_s)
    lines[0].remote_sends(LastKnown((AuthorState(A, 1, 3, 1000),)))
    world.advance(BRIEF.gap_repair_delay_s)
    assert [known.authors for known in lines[1].sent_messages(LastKnown)] == [(AuthorState(A, 1, 3, 1500),)]


def test_news_of_what_comes_in_time_is_not_passed_on() -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].remote_sends(broadcast_of(A, 1), LastKnown((AuthorState(A, 1, 2, 0),)), broadcast_of(A, 2))
    world.advance(4 * NO_TIMEOUT.gap_repair_delay_s)
    assert [line.sent_messages(LastKnown) for line in lines] == [[], []]


# Answering for gaps.


def test_what_is_wanted_and_held_is_sent() -> None:
    line = link(holder(FakeRuntime(), *HELD), 3, digest_of((A, 1, 9), (B, 1, 9)))
    line.remote_sends(Want(A, 2, 3))
    assert line.broadcast_ids() == [(A, 2), (A, 3)]
    assert line.sent_messages(Unavailable) == []


def test_what_may_still_come_here_is_not_gone_for_good() -> None:
    line = link(holder(FakeRuntime(), broadcast_of(A, 1)), 3)
    line.remote_sends(Want(A, 2, 4), Want(B, 1, 2))
    assert line.sent_messages(Unavailable) == [
        Unavailable(A, 2, 4, UnavailableReason.PENDING),
        Unavailable(B, 1, 2, UnavailableReason.PENDING),
    ]


def test_what_was_before_our_time_is_not_gone_for_good() -> None:
    # We never had it, so we cannot know that nobody has it.
    peer = seeker(FakeRuntime())
    link(peer, 2, digest_of((A, 1, 5)))
    line = link(peer, 3)
    line.remote_sends(Want(A, 2, 3))
    assert line.sent_messages(Unavailable) == [
        Unavailable(A, 2, 5, UnavailableReason.NEVER_HELD)
    ]  # nor the next ones, so that they need not be asked for


def test_what_was_here_and_is_past_retention_is_gone_for_good() -> None:
    world = FakeRuntime()
    peer = founder(world, Tuning(heartbeat_timeout_s=1e9, retention_s=10))
    source = link(peer, 2)
    source.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    world.advance(8)
    source.remote_sends(broadcast_of(A, 3))
    world.advance(4)
    line = link(peer, 3, digest_of((A, 1, 9)))
    line.remote_sends(Want(A, 1, 3))
    assert line.sent_messages(Unavailable) == [Unavailable(A, 1, 2, UnavailableReason.EXPIRED)]
    assert line.broadcast_ids() == [(A, 3)]


def test_a_want_of_everything_is_answered_in_bounds() -> None:
    line = link(holder(FakeRuntime(), broadcast_of(A, 1)), 3, digest_of((A, 1, 1)))
    line.remote_sends(Want(A, 1, (1 << 64) - 1), Want(A, 5, 2))
    assert line.broadcast_ids() == [(A, 1)]
    assert line.sent_messages(Unavailable) == [Unavailable(A, 2, (1 << 64) - 1, UnavailableReason.PENDING)]
