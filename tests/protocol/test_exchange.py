"""Calls that come to nothing: each is refused for the right reason, counted where it is held against somebody, and
leaves nothing behind."""

from dataclasses import replace

import pytest

from broadloom.protocol import ChannelName, Peer, Tuning
from broadloom.protocol.exchange import Exchange, OutgoingExchange
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import (
    MAGIC,
    VERSION,
    DiscoverRequest,
    DiscoverResponse,
    Hello,
    JoinResponse,
    LinkResponse,
    Reject,
    RejectReason,
)
from broadloom.wire.link_messages import Heartbeat
from tests.protocol.fake_runtime import (
    CHANNEL,
    ME,
    NO_TIMEOUT,
    Cable,
    FakeConnection,
    FakeRuntime,
    Sendable,
    hello,
    open_exchange,
    peer_info,
)

OTHER_CHANNEL = ChannelName("test", "another").id
QUESTION = DiscoverRequest(is_connected=False, search_depth=0, seekers=())
ANSWER = DiscoverResponse(True, 0, ())


def idle_peer(world: FakeRuntime, settings: Tuning = NO_TIMEOUT) -> Peer:
    """Connected, but not started: no timer runs but those of the calls under test."""
    peer = Peer(world, peer_info(ME), CHANNEL, (), settings)
    peer.found_channel()
    assert world.pending_timers == 0
    return peer


def assert_nothing_is_left(world: FakeRuntime, peer: Peer, line: FakeConnection) -> None:
    assert line.closed
    assert world.pending_timers == 0
    assert len(peer._exchanges) == 0
    assert len(peer.links) == 0


# We are called.


REFUSED: dict[str, tuple[list[Sendable], RejectReason, str, int]] = {
    "wrong magic": (
        [replace(hello(2), magic=MAGIC + 1), QUESTION],
        RejectReason.WRONG_PROTOCOL,
        "this is a Broadloom peer; you speak something else",
        0,
    ),
    "wrong version": (
        [replace(hello(2), version=VERSION + 1), QUESTION],
        RejectReason.WRONG_VERSION,
        f"this peer speaks version {VERSION}, you {VERSION + 1}",
        0,
    ),
    "wrong channel": (
        [replace(hello(2), channel=OTHER_CHANNEL), QUESTION],
        RejectReason.WRONG_CHANNEL,
        "this peer is on another channel; check type and instance",
        0,
    ),
    "from ourselves": ([hello(ME), QUESTION], RejectReason.SELF_CONNECTION, "you called yourself", 0),
    "garbage": ([b"GET / HTTP/1.1\r\n\r\n"], RejectReason.MALFORMED_MESSAGE, "is unknown", 1),
    "garbage in Hello": ([bytes([0, 0, 0, 8, 0, 0, 0, 1]) + b"BLOM"], RejectReason.MALFORMED_MESSAGE, "Hello", 1),
    "no Hello first": (
        [QUESTION, hello(2)],
        RejectReason.MALFORMED_MESSAGE,
        "a call that starts with DiscoverRequest",
        1,
    ),
    "Hello twice": ([hello(2), hello(2)], RejectReason.MALFORMED_MESSAGE, "Hello is no question", 1),
    "garbage for a question": ([hello(2), bytes(8)], RejectReason.MALFORMED_MESSAGE, "is unknown", 1),
    "an answer for a question": (
        [hello(2), LinkResponse()],
        RejectReason.MALFORMED_MESSAGE,
        "LinkResponse is no question",
        1,
    ),
    "a link's message": ([hello(2), Heartbeat()], RejectReason.MALFORMED_MESSAGE, "Heartbeat is no question", 1),
}


@pytest.mark.parametrize(("said", "reason", "text", "malformed"), REFUSED.values(), ids=list(REFUSED))
def test_a_call_that_is_wrong_is_refused_with_reason_and_text(
    said: list[Sendable], reason: RejectReason, text: str, malformed: int
) -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    line = open_exchange(peer, *said)
    (refuse,) = line.sent_messages(Reject)
    assert refuse.reason is reason
    assert text in refuse.text
    # Hello and Refuse can be read by every version, and nothing else is said.
    assert line.sent_messages(Hello) == [hello(ME)]
    assert len(line.sent) == 2
    assert peer.counters.malformed_frames == malformed
    assert len(peer.peer_cache) == 0
    assert_nothing_is_left(world, peer, line)


def test_a_right_call_is_answered_and_remembered() -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    line = open_exchange(peer, hello(2), QUESTION)
    assert line.sent_messages(DiscoverResponse) == [ANSWER]
    assert line.sent_messages(Reject) == []
    assert 2 in peer.peer_cache
    assert_nothing_is_left(world, peer, line)


@pytest.mark.parametrize("said", [[], [hello(2)]], ids=["not a word", "Hello and no question"])
def test_a_caller_that_says_too_little_is_hung_up_on_in_time(said: list[Sendable]) -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    line = open_exchange(peer, *said)
    world.advance(NO_TIMEOUT.exchange_timeout_s - 0.1)
    assert not line.closed
    assert len(peer._exchanges) == 1
    world.advance(0.2)
    assert_nothing_is_left(world, peer, line)


@pytest.mark.parametrize("said", [[], [hello(2)]], ids=["not a word", "Hello and no question"])
def test_a_caller_that_hangs_up_leaves_nothing(said: list[Sendable]) -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    line = open_exchange(peer, *said)
    line.remote_closes()
    assert_nothing_is_left(world, peer, line)


@pytest.mark.parametrize("said", [[], [hello(2)]], ids=["not a word", "Hello and no question"])
def test_of_too_many_calls_at_once_the_oldest_makes_room(said: list[Sendable]) -> None:
    world = FakeRuntime()
    peer = idle_peer(world, Tuning(exchanges_max=3))
    idle = [open_exchange(peer, *said) for _ in range(3)]
    newcomer = open_exchange(peer, hello(2), QUESTION)
    assert newcomer.sent_messages(DiscoverResponse) == [ANSWER]
    assert [line.closed for line in idle] == [True, False, False]
    assert peer.counters.exchanges_rejected == 1
    # The newcomer was answered and has gone, so the next one finds room.
    assert open_exchange(peer, hello(4), QUESTION).sent_messages(DiscoverResponse) == [ANSWER]
    assert peer.counters.exchanges_rejected == 1
    world.advance(NO_TIMEOUT.exchange_timeout_s)
    assert_nothing_is_left(world, peer, idle[-1])


def test_one_that_has_left_answers_no_calls() -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    peer.leave()
    world.advance(NO_TIMEOUT.unlink_timeout_s)
    line = open_exchange(peer, hello(2), QUESTION)
    assert line.sent == []
    assert peer.counters.exchanges_rejected == 1
    assert_nothing_is_left(world, peer, line)


# We call.


class Asked:
    """One call of ours and what became of it."""

    def __init__(self, to: int = 2, *, cached: bool = True) -> None:
        self.world = FakeRuntime()
        self.peer = idle_peer(self.world)
        self.answers: list[WireMessage] = []
        self.failures: list[RejectReason | None] = []
        if cached:
            self.peer.peer_cache.add(peer_info(to))
        OutgoingExchange(self.peer, peer_info(to), QUESTION, self._on_answer, self.failures.append)
        (self.line,) = self.world.dialed

    def _on_answer(self, _call: Exchange, answer: WireMessage) -> None:
        self.answers.append(answer)

    def assert_failed(self, reason: RejectReason | None) -> None:
        assert (self.answers, self.failures) == ([], [reason])
        assert_nothing_is_left(self.world, self.peer, self.line)


def test_a_caller_says_hello_and_its_question_in_one_breath() -> None:
    asked = Asked()
    assert asked.line.sent == []
    asked.line.remote_accepts()
    assert asked.line.sent_messages(WireMessage) == [hello(ME), QUESTION]


def test_an_answer_ends_the_call() -> None:
    asked = Asked(cached=False)
    asked.line.remote_accepts()
    asked.line.remote_sends(hello(2), ANSWER)
    assert (asked.answers, asked.failures) == ([ANSWER], [])
    assert 2 in asked.peer.peer_cache
    assert_nothing_is_left(asked.world, asked.peer, asked.line)


def test_a_refusal_is_told_to_who_asked() -> None:
    asked = Asked()
    asked.line.remote_accepts()
    asked.line.remote_sends(hello(2), Reject(RejectReason.NO_FREE_SLOT, "full"))
    asked.assert_failed(RejectReason.NO_FREE_SLOT)
    assert 2 in asked.peer.peer_cache


def test_no_answer_in_time() -> None:
    asked = Asked()
    asked.line.remote_accepts()
    asked.world.advance(NO_TIMEOUT.exchange_timeout_s - 0.1)
    assert asked.failures == []
    asked.world.advance(0.2)
    asked.assert_failed(None)


def test_nobody_there() -> None:
    asked = Asked()
    asked.line.remote_closes()
    asked.assert_failed(None)


@pytest.mark.parametrize("how", ["no answer", "nobody there"])
def test_an_address_that_did_not_answer_is_remembered_as_such(how: str) -> None:
    asked = Asked()
    assert asked.peer.peer_cache.sample(1) == (peer_info(2),)
    if how == "nobody there":
        asked.line.remote_closes()
    asked.world.advance(NO_TIMEOUT.exchange_timeout_s)
    assert asked.peer.peer_cache.sample(1) == ()


def test_garbage_for_an_answer() -> None:
    asked = Asked()
    asked.line.remote_accepts()
    asked.line.remote_sends(b"HTTP/1.1 400 Bad Request\r\n")
    asked.assert_failed(RejectReason.MALFORMED_MESSAGE)
    assert asked.peer.counters.malformed_frames == 1


def test_a_different_peer_at_a_cached_address() -> None:
    asked = Asked(to=2)
    asked.line.remote_accepts()
    asked.line.remote_sends(replace(hello(3), address=peer_info(2).address), ANSWER)
    asked.assert_failed(None)
    assert 2 not in asked.peer.peer_cache


@pytest.mark.parametrize(
    "wrong",
    [{"magic": MAGIC + 1}, {"version": VERSION + 1}, {"channel": OTHER_CHANNEL}],
    ids=["magic", "version", "channel"],
)
def test_one_that_is_not_of_our_channel_is_not_remembered_as_if_it_were(wrong: dict[str, int]) -> None:
    # Ports of a portal are shared with other channels: who searches there meets their peers.
    world = FakeRuntime()
    peer = idle_peer(world)
    failures: list[RejectReason | None] = []
    answers: list[WireMessage] = []
    OutgoingExchange(
        peer, peer_info(2).address, QUESTION, lambda _call, answer: answers.append(answer), failures.append
    )
    (line,) = world.dialed
    line.remote_accepts()
    line.remote_sends(replace(hello(2), **wrong), Reject(RejectReason.WRONG_CHANNEL, "another channel"))  # type: ignore[arg-type]
    assert (answers, len(failures)) == ([], 1)
    assert 2 not in peer.peer_cache
    assert_nothing_is_left(world, peer, line)


def test_a_peer_that_calls_itself_finds_out() -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    failures: list[RejectReason | None] = []
    OutgoingExchange(peer, peer_info(ME).address, QUESTION, lambda _call, _answer: None, failures.append)
    cable = Cable(world.dialed[0], peer)
    cable.carry_all()
    assert failures == [RejectReason.SELF_CONNECTION]
    for line in cable.ends:
        assert_nothing_is_left(world, peer, line)


def test_one_that_answers_in_my_name_is_not_believed() -> None:
    world = FakeRuntime()
    peer = idle_peer(world)
    failures: list[RejectReason | None] = []
    answers: list[WireMessage] = []
    OutgoingExchange(
        peer, peer_info(2).address, QUESTION, lambda _call, answer: answers.append(answer), failures.append
    )
    (line,) = world.dialed
    line.remote_accepts()
    line.remote_sends(hello(ME), ANSWER)
    assert (answers, failures) == ([], [RejectReason.SELF_CONNECTION])
    assert_nothing_is_left(world, peer, line)


def test_what_comes_after_the_end_of_a_call_is_not_heard() -> None:
    asked = Asked()
    owner = asked.line.handler
    asked.line.remote_accepts()
    asked.line.remote_sends(hello(2), ANSWER)
    # A world may have read further frames before it was told to hang up.
    asked.line.closed = False
    asked.line.remote_sends(JoinResponse(True, False, 1, (), ()), b"garbage and more")
    owner.on_disconnect()
    asked.world.advance(NO_TIMEOUT.exchange_timeout_s)
    assert (asked.answers, asked.failures) == ([ANSWER], [])
    assert asked.peer.counters.malformed_frames == 0
