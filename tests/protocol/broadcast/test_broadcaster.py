"""The stream of messages: new or duplicate, passed on, put in order, delivered, or told as missed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.events import LinkDown, LinkDownReason, Message, Missed
from broadloom.wire import Broadcast, WireError
from broadloom.wire.broadcast_frame import decode_broadcast, encode_broadcast
from broadloom.wire.framing import FRAME_BYTES_MAX
from broadloom.wire.link_messages import Digest, Unavailable, UnavailableReason, Want
from broadloom.wire.types import AuthorState
from tests.protocol.fake_runtime import ME, NO_TIMEOUT, FakeConnection, FakeRuntime, broadcast_of, founder, link
from tests.wire.wire_strategies import resized

A, B = 71, 72
"""Authors somewhere in the fabric."""

BRIEF = Tuning(heartbeat_timeout_s=1e9, retention_s=10.0)


def wants(*lines: FakeConnection) -> list[Want]:
    return [want for line in lines for want in line.sent_messages(Want)]


# In order, once.


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Two authors' messages in any order, some of them again, each over one of three links."""
    last_a, last_b = draw(st.integers(1, 8)), draw(st.integers(0, 4))
    once = [(A, sequence) for sequence in range(1, last_a + 1)] + [(B, sequence) for sequence in range(1, last_b + 1)]
    again = draw(st.lists(st.sampled_from(once), max_size=8))
    order = draw(st.permutations(once + again))
    return [(author, sequence, draw(st.integers(0, 2))) for author, sequence in order]


@settings(deadline=None)
@given(arrivals())
def test_any_order_of_arrival_gives_each_message_once_and_in_order(order: list[tuple[int, int, int]]) -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3, 4)]
    for author, sequence, number in order:
        lines[number].remote_sends(broadcast_of(author, sequence))
    for author in (A, B):
        delivered = [sequence for name, sequence in world.delivered_ids() if name == author]
        assert delivered == sorted({sequence for name, sequence, _ in order if name == author})
    assert all(message.data == b"%d" % message.sequence for message in world.delivered)
    assert peer.counters.duplicates == len(order) - len(world.delivered)
    # Nobody is sent a message twice, and whoever was not the first to bring it is sent it.
    for number, line in enumerate(lines):
        firsts = [next(each[2] for each in order if each[:2] == name) for name in world.delivered_ids()]
        expected = [name for name, first in zip(world.delivered_ids(), firsts, strict=True) if first != number]
        assert sorted(line.broadcast_ids()) == sorted(expected)


def test_the_application_gets_author_sequence_data_and_hops() -> None:
    world = FakeRuntime()
    link(founder(world), 2).remote_sends(broadcast_of(A, 1, hops=7))
    assert world.delivered == [Message(A, 1, b"1", 7)]


def test_a_message_before_its_turn_is_passed_on_at_once_and_delivered_in_turn() -> None:
    world = FakeRuntime()
    peer = founder(world)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(broadcast_of(A, 2))
    assert (other.broadcast_ids(), world.delivered_ids()) == ([(A, 2)], [])
    one.remote_sends(broadcast_of(A, 1))
    assert world.delivered_ids() == [(A, 1), (A, 2)]


# Passing on.


def test_the_first_copy_goes_to_all_other_links_as_the_same_bytes() -> None:
    peer = founder(FakeRuntime())
    source, *others = (link(peer, name) for name in (2, 3, 4, 5))
    source.remote_sends(broadcast_of(A, 1, hops=4, age_ms=30))
    assert source.broadcast_frames() == []
    (first,), *rest = (line.broadcast_frames() for line in others)
    assert all(copies[0] is first and len(copies) == 1 for copies in rest)
    assert decode_broadcast(first) == broadcast_of(A, 1, hops=5, age_ms=30)


def test_further_copies_are_dropped_and_counted() -> None:
    world = FakeRuntime()
    peer = founder(world)
    one, other = link(peer, 2), link(peer, 3)
    for line in (one, other, other, one):
        line.remote_sends(broadcast_of(A, 1))
    assert (one.broadcast_ids(), other.broadcast_ids(), world.delivered_ids()) == ([], [(A, 1)], [(A, 1)])
    assert peer.counters.duplicates == 3


def test_own_messages_go_to_all_links_as_the_same_bytes() -> None:
    peer = founder(FakeRuntime())
    lines = [link(peer, name) for name in (2, 3, 4)]
    assert peer.broadcast(b"e4") == 1
    (first,), *rest = (line.broadcast_frames() for line in lines)
    assert all(copies[0] is first and len(copies) == 1 for copies in rest)
    assert decode_broadcast(first) == Broadcast(ME, 1, 1, (b"e4",), hops=1, age_ms=0)


def test_own_messages_are_not_echoed() -> None:
    world = FakeRuntime()
    peer = founder(world)
    one, other = link(peer, 2), link(peer, 3)
    peer.broadcast(b"e4")
    other.remote_sends(one.broadcasts()[0]._replace(hops=3))
    assert world.delivered == []
    assert (one.broadcast_ids(), other.broadcast_ids()) == ([(ME, 1)], [(ME, 1)])


def test_nobody_can_disturb_my_own_numbers() -> None:
    # A stranger's message in my name: my application is not told that I said it, and I go on as if it were not there.
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(broadcast_of(ME, 2))
    assert [peer.broadcast(b"mine") for _ in range(3)] == [1, 2, 3]
    assert [each.messages for each in other.broadcasts()] == [(b"mine",)] * 3
    assert world.delivered == []
    world.advance(2 * BRIEF.retention_s)
    assert (world.reported_missed, wants(one, other)) == ([], [])


def test_a_message_that_is_too_large_leaves_no_hole_in_the_numbers() -> None:
    peer = founder(FakeRuntime())
    line = link(peer, 2)
    assert peer.broadcast(b"e4") == 1
    with pytest.raises(WireError):
        peer.broadcast(bytes(FRAME_BYTES_MAX))
    assert peer.broadcast(b"e5") == 2
    assert line.broadcast_ids() == [(ME, 1), (ME, 2)]


def test_a_peer_that_is_not_connected_cannot_broadcast() -> None:
    peer = founder(FakeRuntime())
    peer.leave()
    with pytest.raises(RuntimeError, match="left"):
        peer.broadcast(b"e4")


# Malformed.


def cut_short() -> bytes:
    return resized(encode_broadcast(broadcast_of(A, 1)._replace(messages=(b"12345678",)))[:-4])


WHOLE = encode_broadcast(broadcast_of(A, 1))
MALFORMED = {
    "cut short": cut_short(),
    "cut in the middle": resized(WHOLE[:30]),
    "nothing but a head": resized(WHOLE[:8]),
    "bytes behind it": resized(WHOLE + bytes(4)),
    "another length": (len(WHOLE)).to_bytes(4, "big") + WHOLE[4:],
    "sequence of zero": WHOLE[:24] + bytes(8) + WHOLE[32:],
    "before its run": WHOLE[:32] + (1).to_bytes(4, "big") + WHOLE[36:],
    "padding not zero": WHOLE[:-1] + b"\1",
}


def test_the_message_that_is_spoilt_below_is_good() -> None:
    world = FakeRuntime()
    link(founder(world), 2).remote_sends(WHOLE)
    assert world.delivered_ids() == [(A, 1)]


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_broadcast_dies_here_and_its_link_with_it(frame: bytes) -> None:
    world = FakeRuntime()
    peer = founder(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(frame)
    assert (world.delivered, other.broadcast_frames()) == ([], [])
    assert source.closed
    assert not other.closed
    assert peer.links.neighbors == (3,)
    assert peer.counters.malformed_frames == 1
    assert [event.reason for event in world.events if isinstance(event, LinkDown)] == [LinkDownReason.PROTOCOL_ERROR]
    # It left no trace: the true message is still new.
    other.remote_sends(broadcast_of(A, 1))
    assert world.delivered_ids() == [(A, 1)]


# Expired.


def test_a_copy_older_than_retention_is_neither_delivered_nor_passed_on() -> None:
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    one, other = link(peer, 2), link(peer, 3)
    one.remote_sends(broadcast_of(A, 1, age_ms=10_001))
    assert (world.delivered, other.broadcast_frames(), peer.counters.expired_copies) == ([], [], 1)
    one.remote_sends(broadcast_of(B, 1, age_ms=10_000))
    assert (world.delivered_ids(), other.broadcast_ids()) == ([(B, 1)], [(B, 1)])


# Gaps.


def test_a_gap_that_stays_is_asked_for() -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3, 4)]
    lines[0].remote_sends(broadcast_of(A, 1), broadcast_of(A, 4), broadcast_of(A, 6))
    world.advance(NO_TIMEOUT.gap_repair_delay_s - 0.01)
    assert wants(*lines) == []
    world.advance(0.02)
    assert wants(*lines) == [Want(A, 2, 3)]


def test_a_gap_that_closes_by_itself_is_not_asked_for() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line = link(peer, 2)
    line.remote_sends(broadcast_of(A, 2))
    world.advance(NO_TIMEOUT.gap_repair_delay_s / 2)
    line.remote_sends(broadcast_of(A, 1))
    world.advance(10 * NO_TIMEOUT.gap_repair_delay_s)
    assert wants(line) == []
    # And the next one is seen just as well.
    line.remote_sends(broadcast_of(A, 4))
    world.advance(2 * NO_TIMEOUT.gap_repair_delay_s)
    assert Want(A, 3, 3) in wants(line)


def test_what_was_asked_for_closes_the_gap() -> None:
    world = FakeRuntime()
    peer = founder(world)
    line = link(peer, 2)
    line.remote_sends(broadcast_of(A, 3))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    (want,) = wants(line)
    line.remote_sends(*(broadcast_of(A, sequence) for sequence in range(want.first, want.last + 1)))
    assert world.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
    world.advance(10 * NO_TIMEOUT.gap_repair_delay_s)
    assert wants(line) == [want]


def test_a_neighbour_that_cannot_help_is_not_asked_again_but_the_others_are() -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3, 4)]
    lines[0].remote_sends(broadcast_of(A, 3))
    asked = []
    for _ in lines:
        world.advance(NO_TIMEOUT.gap_repair_delay_s)
        (line,) = [line for line in lines if line not in asked and wants(line)]
        asked.append(line)
        line.remote_sends(Unavailable(A, 1, 2, UnavailableReason.EXPIRED))
    assert [len(wants(line)) for line in lines] == [1, 1, 1]


def test_gone_for_good_everywhere_is_told_as_missed_and_delivery_goes_on_behind() -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].remote_sends(broadcast_of(A, 1), broadcast_of(A, 5), broadcast_of(A, 6))
    lines[0].remote_sends(Unavailable(A, 2, 4, UnavailableReason.EXPIRED))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert world.reported_missed == []
    lines[1].remote_sends(Unavailable(A, 2, 4, UnavailableReason.EXPIRED))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert world.reported_missed == [Missed(A, 2, 4)]
    assert world.delivered_ids() == [(A, 1), (A, 5), (A, 6)]
    assert peer.counters.missed == 3
    # What was given up is not delivered behind what came after it.
    lines[0].remote_sends(broadcast_of(A, 3), broadcast_of(A, 7))
    assert world.delivered_ids()[3:] == [(A, 7)]


def test_only_what_is_gone_everywhere_is_given_up() -> None:
    world = FakeRuntime()
    peer = founder(world)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].remote_sends(broadcast_of(A, 6))
    lines[0].remote_sends(Unavailable(A, 1, 5, UnavailableReason.EXPIRED))
    lines[1].remote_sends(Unavailable(A, 1, 3, UnavailableReason.EXPIRED))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert world.reported_missed == [Missed(A, 1, 3)]
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert set(wants(*lines)) == {Want(A, 4, 5)}


def test_what_may_still_come_is_not_given_up_before_retention() -> None:
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    lines = [link(peer, name) for name in (2, 3)]
    lines[0].remote_sends(broadcast_of(A, 2))
    while world.time < BRIEF.retention_s - BRIEF.gap_repair_delay_s:
        world.advance(BRIEF.gap_repair_delay_s)
        for line in lines:
            line.remote_sends(Unavailable(A, 1, 1, UnavailableReason.PENDING))
    assert (world.reported_missed, world.delivered) == ([], [])
    world.advance(2 * BRIEF.gap_repair_delay_s + 0.01)
    assert world.reported_missed == [Missed(A, 1, 1)]
    assert world.delivered_ids() == [(A, 2)]


def test_a_late_gap_is_not_given_up_with_an_early_one() -> None:
    # Message 1 never comes; message 3 is missing only since a moment ago when the first is given up.
    world = FakeRuntime()
    line = link(founder(world, BRIEF), 2)
    line.remote_sends(broadcast_of(A, 2))
    world.advance(BRIEF.retention_s)
    line.remote_sends(broadcast_of(A, 4))
    world.advance(4 * BRIEF.gap_repair_delay_s)
    assert world.reported_missed == [Missed(A, 1, 1)]
    line.remote_sends(broadcast_of(A, 3))
    assert world.delivered_ids() == [(A, 2), (A, 3), (A, 4)]


def test_an_author_that_goes_on_talking_does_not_keep_a_gap_open_for_ever() -> None:
    world = FakeRuntime()
    lines = [link(peer, name) for peer in [founder(world, BRIEF)] for name in (2, 3)]
    sequence = 2
    while world.time < 2 * BRIEF.retention_s:
        lines[0].remote_sends(broadcast_of(A, sequence))
        for line in lines:
            line.remote_sends(Unavailable(A, 1, 1, UnavailableReason.PENDING))
        world.advance(BRIEF.gap_repair_delay_s)
        sequence += 1
    assert world.reported_missed == [Missed(A, 1, 1)]
    assert world.delivered_ids() == [(A, each) for each in range(2, sequence)]


def test_an_author_whose_messages_keep_overtaking_each_other_loses_none() -> None:
    # There is always some gap, but each closes soon: however long that goes on, it is no reason to give one up.
    world = FakeRuntime()
    line = link(founder(world, BRIEF), 2)
    line.remote_sends(broadcast_of(A, 2))
    sequence = 2
    while world.time < 3 * BRIEF.retention_s:
        world.advance(0.1)
        line.remote_sends(broadcast_of(A, sequence + 2), broadcast_of(A, sequence - 1))
        sequence += 2
    line.remote_sends(broadcast_of(A, sequence - 1))
    assert world.reported_missed == []
    assert world.delivered_ids() == [(A, each) for each in range(1, sequence + 1)]


# Authors come and go.


def test_an_author_that_we_never_heard_begins_with_its_first_message() -> None:
    # Whatever was said before our time is in the starting point: so this was not.
    world = FakeRuntime()
    line = link(founder(world), 2)
    line.remote_sends(broadcast_of(A, 5, stream_start=5))
    world.advance(NO_TIMEOUT.gap_repair_delay_s)
    assert wants(line) == [Want(A, 1, 4)]


def test_an_author_is_remembered_however_long_it_is_silent() -> None:
    world = FakeRuntime()
    line = link(founder(world, BRIEF), 2)
    line.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    world.advance(10 * BRIEF.author_eviction_s)
    line.remote_sends(broadcast_of(A, 3, stream_start=3))
    assert world.delivered_ids() == [(A, 1), (A, 2), (A, 3)]
    line.remote_sends(broadcast_of(A, 6, stream_start=6))
    world.advance(BRIEF.gap_repair_delay_s)
    assert wants(line) == [Want(A, 4, 5)]


def test_something_lacking_is_told_even_if_there_was_nobody_to_ask_for_long() -> None:
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    line = link(peer, 2)
    line.remote_sends(broadcast_of(A, 1), broadcast_of(A, 3))
    line.remote_closes()
    world.advance(2 * BRIEF.author_eviction_s)
    assert (world.delivered_ids(), world.reported_missed) == ([(A, 1)], [])
    link(peer, 3)
    world.advance(2 * BRIEF.gap_repair_delay_s)
    assert world.reported_missed == [Missed(A, 2, 2)]
    assert world.delivered_ids() == [(A, 1), (A, 3)]


def test_neighbours_are_told_where_the_present_run_began() -> None:
    # Whoever had to forget the author begins there; the run before is past retention and nobody's gap.
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    line = link(peer, 2)
    line.remote_sends(broadcast_of(A, 1), broadcast_of(A, 2))
    world.advance(BRIEF.retention_s + 2)
    line.remote_sends(broadcast_of(A, 3, stream_start=3))
    (first_words,) = link(peer, 9).sent_messages(Digest)
    assert first_words.authors == (AuthorState(A, 3, 3, 0),)


def test_an_author_starts_a_new_run_after_retention_and_not_before() -> None:
    world = FakeRuntime()
    peer = founder(world, BRIEF)
    line = link(peer, 2)
    peer.broadcast(b"")
    world.advance(BRIEF.retention_s - 0.1)
    peer.broadcast(b"")
    world.advance(BRIEF.retention_s + 0.1)
    peer.broadcast(b"")
    assert [(each.sequence, each.stream_start) for each in line.broadcasts()] == [(1, 1), (2, 1), (3, 3)]


def test_an_author_does_not_forget_itself() -> None:
    world = FakeRuntime()
    peer = founder(world, FEW_AUTHORS)
    line = link(peer, 2)
    assert peer.broadcast(b"") == 1
    for author in range(200, 220):
        world.advance(2 * FEW_AUTHORS.author_eviction_s)
        line.remote_sends(broadcast_of(author, 1))
    assert peer.broadcast(b"") == 2


# More authors than are tracked.

FEW_AUTHORS = Tuning(heartbeat_timeout_s=1e9, retention_s=10.0, authors_max=3)
C, D = 73, 74


def full(world: FakeRuntime) -> tuple[Peer, FakeConnection, FakeConnection]:
    """A peer that tracks as many authors as it may; C was heard last."""
    peer = founder(world, FEW_AUTHORS)
    line, other = link(peer, 2), link(peer, 3)
    for author in (A, B, C):
        line.remote_sends(broadcast_of(author, 1))
        world.advance(1)
    return peer, line, other


def test_authors_beyond_the_limit_are_dropped_and_counted() -> None:
    world = FakeRuntime()
    peer, line, other = full(world)
    line.remote_sends(broadcast_of(D, 1), broadcast_of(75, 1), broadcast_of(A, 2))
    assert world.delivered_ids() == [(A, 1), (B, 1), (C, 1), (A, 2)] == other.broadcast_ids()
    assert peer.counters.authors_rejected == 2
    assert peer.broadcast(b"my own word is not refused") == 1


def test_the_author_that_was_silent_for_longest_makes_room_when_no_copy_is_left() -> None:
    world = FakeRuntime()
    peer, line, other = full(world)
    world.advance(FEW_AUTHORS.author_eviction_s - 3.1)
    line.remote_sends(broadcast_of(D, 1))
    assert peer.counters.authors_rejected == 1
    world.advance(0.2)
    line.remote_sends(broadcast_of(D, 1))
    assert world.delivered_ids()[3:] == [(D, 1)]
    # B is still known, A is not: an old copy of it is not taken for new all the same.
    line.remote_sends(broadcast_of(B, 1), broadcast_of(A, 1, age_ms=int(FEW_AUTHORS.author_eviction_s * 1000)))
    assert world.delivered_ids()[4:] == []
    assert (peer.counters.duplicates, peer.counters.expired_copies) == (1, 1)
    assert other.broadcast_ids() == world.delivered_ids()


def test_an_author_that_was_forgotten_begins_without_a_gap_where_its_new_run_does() -> None:
    world = FakeRuntime()
    _peer, line, _other = full(world)
    world.advance(FEW_AUTHORS.author_eviction_s)
    line.remote_sends(broadcast_of(D, 1))
    world.advance(FEW_AUTHORS.author_eviction_s)
    line.remote_sends(broadcast_of(A, 5, stream_start=5), broadcast_of(A, 6, stream_start=5))
    world.advance(2 * FEW_AUTHORS.retention_s)
    assert world.delivered_ids()[4:] == [(A, 5), (A, 6)]
    assert (world.reported_missed, wants(line)) == ([], [])


def test_an_author_of_whom_something_is_lacking_does_not_make_room() -> None:
    world = FakeRuntime()
    peer = founder(world, FEW_AUTHORS)
    line = link(peer, 2)
    line.remote_sends(broadcast_of(A, 2), broadcast_of(B, 1), broadcast_of(C, 1))
    line.remote_closes()  # nobody to ask, so the gap stays
    world.advance(FEW_AUTHORS.author_eviction_s + 1)
    link(peer, 3).remote_sends(broadcast_of(B, 2), broadcast_of(D, 1), broadcast_of(A, 1))
    assert world.delivered_ids() == [(B, 1), (C, 1), (B, 2), (D, 1), (A, 1), (A, 2)]


def test_that_we_ourselves_were_silent_for_longest_keeps_nobody_out() -> None:
    world = FakeRuntime()
    peer = founder(world, FEW_AUTHORS)
    line = link(peer, 2)
    peer.broadcast(b"first of all")
    world.advance(1)
    line.remote_sends(broadcast_of(A, 1), broadcast_of(B, 1))
    world.advance(FEW_AUTHORS.author_eviction_s)
    line.remote_sends(broadcast_of(C, 1))
    assert world.delivered_ids() == [(A, 1), (B, 1), (C, 1)]
