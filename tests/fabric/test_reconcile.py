"""A link's first words: where a newcomer starts, and who sends what to whom, once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fabric.fake_world import (
    NOTHING,
    PATIENT,
    Cable,
    FakeLine,
    FakeWorld,
    call,
    contact,
    founder,
    greeting,
    has,
    hello,
    link,
    said,
    seeker,
)
from weft.fabric import Peer, Settings, State
from weft.fabric.events import Missed
from weft.wire import Broadcast
from weft.wire.calls import PortRequest
from weft.wire.fields import AUTHORS_MAX
from weft.wire.links import Gone, Greeting, Known, Lack, Want
from weft.wire.types import Have

A, B = 71, 72
FRESH = greeting(fresh=True)
BRIEF = Settings(silence_s=1e9, retention_s=10.0)
LONG_S = 100.0


def greeting_on(line: FakeLine) -> Greeting:
    (first_words,) = line.heard(Greeting)
    return first_words


# A newcomer.


def test_a_newcomer_says_that_it_is_one() -> None:
    said_first = greeting_on(link(seeker(FakeWorld()), 2, None))
    assert (said_first.fresh, said_first.have) == (True, ())


def test_a_founder_is_no_newcomer() -> None:
    said_first = greeting_on(link(founder(FakeWorld()), 2))
    assert (said_first.fresh, said_first.have) == (False, ())


def test_a_newcomer_starts_where_its_first_neighbour_is() -> None:
    world = FakeWorld()
    peer = seeker(world)
    line = link(peer, 2, None)
    line.says(has((A, 1, 5), (B, 7, 6)))
    assert peer.state is State.PARTIAL
    line.says(said(A, 6), said(B, 7, 7), said(A, 4), said(A, 7))
    assert world.names() == [(A, 6), (B, 7), (A, 7)]
    world.run(2 * PATIENT.retention_s)
    assert (world.told_missed, line.heard(Want)) == ([], [])


def test_a_newcomer_passes_the_starting_point_on_as_it_is() -> None:
    world = FakeWorld()
    peer = seeker(world)
    link(peer, 2, has((A, 3, 5), silent_ms=2000))
    world.run(1)
    assert greeting_on(link(peer, 3)).have == (Have(A, 3, 5, 3000),)


def test_a_newcomer_lacks_what_its_second_neighbour_has_beyond_that() -> None:
    world = FakeWorld()
    peer = seeker(world)
    link(peer, 2, has((A, 1, 5)))
    second = link(peer, 3, has((A, 1, 8)))
    second.says(said(A, 9))
    assert world.delivered == []
    second.says(said(A, 6), said(A, 7), said(A, 8))
    assert world.names() == [(A, 6), (A, 7), (A, 8), (A, 9)]


def test_the_answer_of_one_that_is_fresh_too_is_no_starting_point() -> None:
    peer = seeker(FakeWorld())
    link(peer, 2, FRESH)
    assert not peer.stream.settled
    assert peer.state is State.SEEKING


def test_a_newcomer_does_not_track_more_authors_than_its_limit() -> None:
    peer = seeker(FakeWorld(), Settings(silence_s=1e9, authors_max=3))
    link(peer, 2, has(*((author, 1, 5) for author in range(100, 110))))
    assert len(greeting_on(link(peer, 3)).have) <= 3


@pytest.mark.long
def test_a_newcomer_that_is_told_of_as_many_authors_as_a_greeting_can_hold_can_still_greet() -> None:
    world = FakeWorld()
    peer = seeker(world)
    link(peer, 2, has(*((author, 1, 5) for author in range(10_000, 10_000 + AUTHORS_MAX))))
    world.run(PATIENT.join_s)
    assert peer.state is State.CONNECTED
    peer.broadcast(b"one author more")
    assert greeting_on(link(peer, 3)).have


# What is sent.


def holder(world: FakeWorld, *held: Broadcast) -> Peer:
    """A peer that holds these, in this order of arrival, and whose neighbour 2 stays."""
    peer = founder(world)
    link(peer, 2).says(*held)
    return peer


HELD = [said(A, 1), said(B, 1), said(A, 2), said(A, 3), said(B, 2)]


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (has(), [(A, 1), (B, 1), (A, 2), (A, 3), (B, 2)]),
        (has((A, 1, 1)), [(B, 1), (A, 2), (A, 3), (B, 2)]),
        (has((A, 1, 2), (B, 1, 1)), [(A, 3), (B, 2)]),
        (has((A, 1, 3), (B, 1, 2)), []),
        (has((A, 1, 9), (B, 1, 9)), []),
        (has((A, 3, 2), (B, 1, 2)), [(A, 3)]),
        (FRESH, []),
    ],
    ids=["nothing", "one of A", "some of both", "all", "more than we", "a run that begins later", "fresh"],
)
def test_exactly_what_the_other_lacks_is_sent_in_order(theirs: Greeting, expected: list[tuple[int, int]]) -> None:
    peer = holder(FakeWorld(), *HELD)
    line = link(peer, 3, None)
    assert line.names() == []
    line.says(theirs)
    assert line.names() == expected


def test_what_is_sent_later_is_older_and_one_hop_further() -> None:
    world = FakeWorld()
    peer = holder(world, said(A, 1)._replace(hops=3, age_ms=100))
    world.run(1.5)
    (copy,) = link(peer, 3).broadcasts()
    assert copy == said(A, 1)._replace(hops=4, age_ms=1600)


def test_own_messages_are_sent_later_too() -> None:
    peer = founder(FakeWorld())
    sequence = peer.broadcast(b"e4")
    (copy,) = link(peer, 2).broadcasts()
    assert (copy.author, copy.sequence, copy.hops, copy.messages) == (peer.me.peer, sequence, 1, (b"e4",))


def test_what_comes_between_the_two_greetings_is_sent_once() -> None:
    peer = holder(FakeWorld(), said(A, 1))
    line = link(peer, 3, None)
    source = link(peer, 4)
    source.says(said(A, 2))
    assert line.names() == [(A, 2)]
    line.says(NOTHING)
    assert line.names() == [(A, 2), (A, 1)]


def test_a_second_greeting_brings_nothing_again() -> None:
    peer = holder(FakeWorld(), *HELD)
    line = link(peer, 3)
    line.says(NOTHING)
    assert line.names() == [(each.author, each.sequence) for each in HELD]


def test_a_fresh_newcomer_gets_only_what_is_above_our_marks() -> None:
    peer = holder(FakeWorld(), said(A, 1), said(A, 2), said(A, 4), said(B, 1), said(A, 6))
    line = link(peer, 3, FRESH)
    assert {each.author: each.mark for each in greeting_on(line).have} == {A: 2, B: 1}
    assert line.names() == [(A, 4), (A, 6)]


def test_a_fresh_newcomer_loses_nothing_when_our_marks_move_before_its_greeting_comes() -> None:
    # It was told the mark 1, and 3 was held above it; then 2 came. All of 2 and 3 are still to be sent to it.
    peer = holder(FakeWorld(), said(A, 1), said(A, 3))
    line = link(peer, 3, None)
    assert greeting_on(line).have == (Have(A, 1, 1, 0),)
    link(peer, 4).says(said(A, 2))
    line.says(FRESH)
    assert sorted(line.names()) == [(A, 2), (A, 3)]


def test_both_greetings_bring_addresses() -> None:
    peer = founder(FakeWorld())
    link(peer, 2, greeting(sample=(contact(8), contact(9))))
    assert 8 in peer.contacts
    assert {each.peer for each in greeting_on(link(peer, 3)).sample} >= {8, 9}


held = st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5)), unique=True, max_size=8)


@settings(max_examples=60, deadline=None)
@given(held, held, st.lists(st.integers(0, 1), max_size=30))
def test_two_peers_have_the_same_after_they_met(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], schedule: list[int]
) -> None:
    worlds = FakeWorld(1), FakeWorld(2)
    peers = [founder(world, name=name) for world, name in zip(worlds, (1, 2), strict=True)]
    for peer, heard in zip(peers, (ours, theirs), strict=True):
        link(peer, 3).says(*(said(*each) for each in heard))
    peers[0].joining.court(peers[1].me)
    cable = Cable(worlds[0].dialled[0], peers[1])
    for number in schedule:
        cable.carry(number)
    cable.carry_all()
    union = set(ours) | set(theirs)
    for world in worlds:
        assert sorted(world.names()) == sorted(
            (author, sequence)
            for author, sequence in union
            if all((author, earlier) in union for earlier in range(1, sequence))
        )
    # And nothing was sent that the other had said it has.
    near, far = cable.ends
    for end, other, mine, others in ((near, far, ours, theirs), (far, near, theirs, ours)):
        marks = {each.author: each.mark for each in greeting_on(other).have}
        assert all(sequence > marks.get(author, 0) for author, sequence in end.names())
        assert set(mine) - set(others) <= set(end.names()) <= set(mine)


# What a greeting tells us that we lack.


def long_here(world: FakeWorld, settings: Settings = BRIEF) -> Peer:
    """A founder that has been here for long when the test begins."""
    peer = founder(world, settings)
    world.run(LONG_S)
    return peer


def test_what_another_has_of_an_author_that_spoke_in_our_time_is_a_gap() -> None:
    world = FakeWorld()
    line = link(long_here(world), 2, has((A, 1, 3), silent_ms=5000))
    world.run(BRIEF.gap_s)
    assert line.heard(Want) == [Want(A, 1, 3)]
    line.says(said(A, 1), said(A, 2), said(A, 3))
    assert world.names() == [(A, 1), (A, 2), (A, 3)]


def test_what_was_said_in_our_time_but_nobody_can_have_any_more_is_told_as_missed() -> None:
    world = FakeWorld()
    line = link(long_here(world), 2, has((A, 1, 3), silent_ms=int(LONG_S * 1000) - 1))
    world.run(2 * BRIEF.retention_s)
    assert world.told_missed == [Missed(A, 1, 3)]
    line.says(said(A, 4, run_start=4))
    assert world.names() == [(A, 4)]


def test_an_author_unknown_and_silent_since_before_our_time_is_no_gap() -> None:
    world = FakeWorld()
    line = link(long_here(world), 2, has((A, 1, 5), silent_ms=int(LONG_S * 1000) + 1))
    world.run(3 * BRIEF.forget_s)
    assert (line.heard(Want), world.told_missed) == ([], [])
    line.says(said(A, 5), said(A, 6, run_start=6))
    assert world.names() == [(A, 6)]
    assert world.told_missed == []


def test_a_newcomers_time_begins_with_its_starting_point() -> None:
    world = FakeWorld()
    peer = seeker(world, BRIEF)
    world.run(LONG_S)
    link(peer, 2, has())
    world.run(1)
    line = link(peer, 3, greeting((Have(A, 1, 5, 1001), Have(B, 1, 2, 999))))
    world.run(BRIEF.gap_s)
    wanted = [want for each in (line, *world.dialled) for want in each.heard(Want)]
    assert [want for want in wanted if want.author == A] == []
    world.run(3 * BRIEF.gap_s)
    assert Want(B, 1, 2) in line.heard(Want)


def test_more_of_an_author_that_we_know_and_past_retention_is_told_as_missed() -> None:
    # Nobody can have it any more, so nobody is asked.
    world = FakeWorld()
    peer = holder(world, said(A, 1))
    line = link(peer, 3, has((A, 1, 3), silent_ms=10**9))
    world.run(4 * PATIENT.gap_s)
    assert (world.told_missed, line.heard(Want)) == ([Missed(A, 2, 3)], [])


def test_recent_words_of_an_author_that_we_have_not_heard_for_long_are_asked_for() -> None:
    # After a split: we heard nothing of the author, but the other side did, a moment ago, and has it still.
    world = FakeWorld()
    peer = founder(world, BRIEF)
    link(peer, 2).says(said(A, 1))
    world.run(2 * BRIEF.retention_s)
    line = link(peer, 3, has((A, 1, 3), silent_ms=1000))
    world.run(4 * BRIEF.gap_s)
    assert world.told_missed == []
    assert Want(A, 2, 3) in line.heard(Want)


def test_authors_beyond_the_limit_are_no_gap() -> None:
    world = FakeWorld()
    peer = long_here(world, Settings(silence_s=1e9, authors_max=1))
    line = link(peer, 2, has((A, 1, 1), (B, 1, 1)))
    world.run(PATIENT.gap_s)
    assert line.heard(Want) == [Want(A, 1, 1)]


# After a long time apart.


def stranger(peer: Peer, name: int) -> FakeLine:
    """Links one that has no starting point yet."""
    line = call(peer, hello(name, settled=False), PortRequest())
    line.says(FRESH)
    return line


def with_silent_author(world: FakeWorld) -> tuple[Peer, FakeLine]:
    """A peer that heard A long ago and B just now."""
    peer = founder(world, BRIEF)
    line = link(peer, 2)
    line.says(said(A, 1))
    world.run(BRIEF.forget_s + 1)
    line.says(said(B, 1))
    return peer, line


def authors_on(line: FakeLine) -> list[int]:
    return [each.author for each in greeting_on(line).have]


def test_members_do_not_speak_of_authors_that_were_silent_for_long() -> None:
    peer, _line = with_silent_author(FakeWorld())
    line = link(peer, 3)
    assert authors_on(line) == [B]
    assert not greeting_on(line).complete
    assert line.heard(Known) == []


def test_a_newcomer_is_told_of_every_author() -> None:
    peer, _line = with_silent_author(FakeWorld())
    line = stranger(peer, 3)
    assert sorted(authors_on(line)) == [A, B]
    assert greeting_on(line).complete


def test_one_that_was_alone_tells_all_and_asks_for_all_once() -> None:
    peer, line = with_silent_author(FakeWorld())
    line.hangs_up()
    first, second = link(peer, 3), link(peer, 4)
    assert (sorted(authors_on(first)), greeting_on(first).complete) == ([A, B], True)
    assert (authors_on(second), greeting_on(second).complete) == ([B], False)


def test_one_that_was_apart_is_told_of_the_authors_that_were_silent_for_long() -> None:
    peer, _line = with_silent_author(FakeWorld())
    line = link(peer, 3, greeting(complete=True))
    assert [[(each.author, each.mark) for each in known.have] for known in line.heard(Known)] == [[(A, 1)]]


def test_what_is_said_to_exist_is_a_gap() -> None:
    world = FakeWorld()
    line = link(founder(world), 2)
    line.says(said(A, 1), Known((Have(A, 1, 3, 0),)))
    world.run(PATIENT.gap_s)
    assert line.heard(Want) == [Want(A, 2, 3)]


def test_news_of_what_does_not_come_is_passed_on_once() -> None:
    world = FakeWorld()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].says(said(A, 1))
    for _ in range(3):
        lines[0].says(Known((Have(A, 1, 3, 0),)))
        world.run(2 * PATIENT.gap_s)
    assert [[(each.author, each.mark) for each in known.have] for known in lines[1].heard(Known)] == [[(A, 3)]]


def test_news_is_passed_on_as_no_older_than_it_is() -> None:
    # Else whoever hears of it takes it for past retention, or for said before its time, and does not ask.
    world = FakeWorld()
    peer = founder(world, BRIEF)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].says(said(A, 1))
    world.run(2 * BRIEF.retention_s)
    lines[0].says(Known((Have(A, 1, 3, 1000),)))
    world.run(BRIEF.gap_s)
    assert [known.have for known in lines[1].heard(Known)] == [(Have(A, 1, 3, 1500),)]


def test_news_of_what_comes_in_time_is_not_passed_on() -> None:
    world = FakeWorld()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].says(said(A, 1), Known((Have(A, 1, 2, 0),)), said(A, 2))
    world.run(4 * PATIENT.gap_s)
    assert [line.heard(Known) for line in lines] == [[], []]


# Answering for gaps.


def test_what_is_wanted_and_held_is_sent() -> None:
    line = link(holder(FakeWorld(), *HELD), 3, has((A, 1, 9), (B, 1, 9)))
    line.says(Want(A, 2, 3))
    assert line.names() == [(A, 2), (A, 3)]
    assert line.heard(Gone) == []


def test_what_may_still_come_here_is_not_gone_for_good() -> None:
    line = link(holder(FakeWorld(), said(A, 1)), 3)
    line.says(Want(A, 2, 4), Want(B, 1, 2))
    assert line.heard(Gone) == [Gone(A, 2, 4, Lack.NOT_YET), Gone(B, 1, 2, Lack.NOT_YET)]


def test_what_was_before_our_time_is_not_gone_for_good() -> None:
    # We never had it, so we cannot know that nobody has it.
    peer = seeker(FakeWorld())
    link(peer, 2, has((A, 1, 5)))
    line = link(peer, 3)
    line.says(Want(A, 2, 3))
    assert line.heard(Gone) == [Gone(A, 2, 5, Lack.NEVER)]  # nor the next ones, so that they need not be asked for


def test_what_was_here_and_is_past_retention_is_gone_for_good() -> None:
    world = FakeWorld()
    peer = founder(world, Settings(silence_s=1e9, retention_s=10))
    source = link(peer, 2)
    source.says(said(A, 1), said(A, 2))
    world.run(8)
    source.says(said(A, 3))
    world.run(4)
    line = link(peer, 3, has((A, 1, 9)))
    line.says(Want(A, 1, 3))
    assert line.heard(Gone) == [Gone(A, 1, 2, Lack.NO_MORE)]
    assert line.names() == [(A, 3)]


def test_a_want_of_everything_is_answered_in_bounds() -> None:
    line = link(holder(FakeWorld(), said(A, 1)), 3, has((A, 1, 1)))
    line.says(Want(A, 1, (1 << 64) - 1), Want(A, 5, 2))
    assert line.names() == [(A, 1)]
    assert line.heard(Gone) == [Gone(A, 2, (1 << 64) - 1, Lack.NOT_YET)]
