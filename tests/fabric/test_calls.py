"""Calls that come to nothing: each is refused for the right reason, counted where it is held against somebody, and
leaves nothing behind."""

from dataclasses import replace

import pytest

from tests.fabric.fake_world import CHANNEL, ME, PATIENT, Cable, FakeLine, FakeWorld, Said, call, contact, hello
from weft.fabric import ChannelName, Peer, Settings
from weft.fabric.calls import Call, Outgoing
from weft.wire.calls import MAGIC, VERSION, Hello, JoinAnswer, PortAnswer, Refusal, Refuse, Seek, SeekAnswer
from weft.wire.codec import Message
from weft.wire.links import Heartbeat

OTHER_CHANNEL = ChannelName("test", "another").id
QUESTION = Seek(connected=False, depth=0, fellows=())
ANSWER = SeekAnswer(True, 0, ())


def idle_peer(world: FakeWorld, settings: Settings = PATIENT) -> Peer:
    """Connected, but not started: no timer runs but those of the calls under test."""
    peer = Peer(world, contact(ME), CHANNEL, (), settings)
    peer.found_channel()
    assert world.planned == 0
    return peer


def assert_nothing_is_left(world: FakeWorld, peer: Peer, line: FakeLine) -> None:
    assert line.closed
    assert world.planned == 0
    assert len(peer._calls) == 0
    assert len(peer.links) == 0


# We are called.


REFUSED: dict[str, tuple[list[Said], Refusal, str, int]] = {
    "wrong magic": (
        [replace(hello(2), magic=MAGIC + 1), QUESTION],
        Refusal.NOT_WEFT,
        "this is a Weft peer; you speak something else",
        0,
    ),
    "wrong version": (
        [replace(hello(2), version=VERSION + 1), QUESTION],
        Refusal.WRONG_VERSION,
        f"this peer speaks version {VERSION}, you {VERSION + 1}",
        0,
    ),
    "wrong channel": (
        [replace(hello(2), channel=OTHER_CHANNEL), QUESTION],
        Refusal.WRONG_CHANNEL,
        "this peer is on another channel; check type and instance",
        0,
    ),
    "from ourselves": ([hello(ME), QUESTION], Refusal.MYSELF, "you called yourself", 0),
    "garbage": ([b"GET / HTTP/1.1\r\n\r\n"], Refusal.BAD_MESSAGE, "not known here", 1),
    "garbage in Hello": ([bytes([0, 0, 0, 8, 0, 0, 0, 1]) + b"WEFT"], Refusal.BAD_MESSAGE, "Hello", 1),
    "no Hello first": ([QUESTION, hello(2)], Refusal.BAD_MESSAGE, "a call that starts with Seek", 1),
    "Hello twice": ([hello(2), hello(2)], Refusal.BAD_MESSAGE, "Hello is no question", 1),
    "garbage for a question": ([hello(2), bytes(8)], Refusal.BAD_MESSAGE, "not known here", 1),
    "an answer for a question": ([hello(2), PortAnswer()], Refusal.BAD_MESSAGE, "PortAnswer is no question", 1),
    "a link's message": ([hello(2), Heartbeat()], Refusal.BAD_MESSAGE, "Heartbeat is no question", 1),
}


@pytest.mark.parametrize(("said", "reason", "text", "malformed"), REFUSED.values(), ids=list(REFUSED))
def test_a_call_that_is_wrong_is_refused_with_reason_and_text(
    said: list[Said], reason: Refusal, text: str, malformed: int
) -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    line = call(peer, *said)
    (refuse,) = line.heard(Refuse)
    assert refuse.reason is reason
    assert text in refuse.text
    # Hello and Refuse can be read by every version, and nothing else is said.
    assert line.heard(Hello) == [hello(ME)]
    assert len(line.sent) == 2
    assert peer.counters.malformed == malformed
    assert len(peer.contacts) == 0
    assert_nothing_is_left(world, peer, line)


def test_a_right_call_is_answered_and_remembered() -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    line = call(peer, hello(2), QUESTION)
    assert line.heard(SeekAnswer) == [ANSWER]
    assert line.heard(Refuse) == []
    assert 2 in peer.contacts
    assert_nothing_is_left(world, peer, line)


@pytest.mark.parametrize("said", [[], [hello(2)]], ids=["not a word", "Hello and no question"])
def test_a_caller_that_says_too_little_is_hung_up_on_in_time(said: list[Said]) -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    line = call(peer, *said)
    world.run(PATIENT.call_s - 0.1)
    assert not line.closed
    assert len(peer._calls) == 1
    world.run(0.2)
    assert_nothing_is_left(world, peer, line)


@pytest.mark.parametrize("said", [[], [hello(2)]], ids=["not a word", "Hello and no question"])
def test_a_caller_that_hangs_up_leaves_nothing(said: list[Said]) -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    line = call(peer, *said)
    line.hangs_up()
    assert_nothing_is_left(world, peer, line)


@pytest.mark.parametrize("said", [[], [hello(2)]], ids=["not a word", "Hello and no question"])
def test_of_too_many_calls_at_once_the_oldest_makes_room(said: list[Said]) -> None:
    world = FakeWorld()
    peer = idle_peer(world, Settings(calls_max=3))
    idle = [call(peer, *said) for _ in range(3)]
    newcomer = call(peer, hello(2), QUESTION)
    assert newcomer.heard(SeekAnswer) == [ANSWER]
    assert [line.closed for line in idle] == [True, False, False]
    assert peer.counters.refused_calls == 1
    # The newcomer was answered and has gone, so the next one finds room.
    assert call(peer, hello(4), QUESTION).heard(SeekAnswer) == [ANSWER]
    assert peer.counters.refused_calls == 1
    world.run(PATIENT.call_s)
    assert_nothing_is_left(world, peer, idle[-1])


def test_one_that_has_left_answers_no_calls() -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    peer.leave()
    world.run(PATIENT.drain_s)
    line = call(peer, hello(2), QUESTION)
    assert line.sent == []
    assert peer.counters.refused_calls == 1
    assert_nothing_is_left(world, peer, line)


# We call.


class Asked:
    """One call of ours and what became of it."""

    def __init__(self, to: int = 2, *, cached: bool = True) -> None:
        self.world = FakeWorld()
        self.peer = idle_peer(self.world)
        self.answers: list[Message] = []
        self.failures: list[Refusal | None] = []
        if cached:
            self.peer.contacts.add(contact(to))
        Outgoing(self.peer, contact(to), QUESTION, self._on_answer, self.failures.append)
        (self.line,) = self.world.dialled

    def _on_answer(self, _call: Call, answer: Message) -> None:
        self.answers.append(answer)

    def assert_failed(self, reason: Refusal | None) -> None:
        assert (self.answers, self.failures) == ([], [reason])
        assert_nothing_is_left(self.world, self.peer, self.line)


def test_a_caller_says_hello_and_its_question_in_one_breath() -> None:
    asked = Asked()
    assert asked.line.sent == []
    asked.line.opens()
    assert asked.line.heard(Message) == [hello(ME), QUESTION]


def test_an_answer_ends_the_call() -> None:
    asked = Asked(cached=False)
    asked.line.opens()
    asked.line.says(hello(2), ANSWER)
    assert (asked.answers, asked.failures) == ([ANSWER], [])
    assert 2 in asked.peer.contacts
    assert_nothing_is_left(asked.world, asked.peer, asked.line)


def test_a_refusal_is_told_to_who_asked() -> None:
    asked = Asked()
    asked.line.opens()
    asked.line.says(hello(2), Refuse(Refusal.NO_ROOM, "full"))
    asked.assert_failed(Refusal.NO_ROOM)
    assert 2 in asked.peer.contacts


def test_no_answer_in_time() -> None:
    asked = Asked()
    asked.line.opens()
    asked.world.run(PATIENT.call_s - 0.1)
    assert asked.failures == []
    asked.world.run(0.2)
    asked.assert_failed(None)


def test_nobody_there() -> None:
    asked = Asked()
    asked.line.hangs_up()
    asked.assert_failed(None)


@pytest.mark.parametrize("how", ["no answer", "nobody there"])
def test_an_address_that_did_not_answer_is_remembered_as_such(how: str) -> None:
    asked = Asked()
    assert asked.peer.contacts.sample(1) == (contact(2),)
    if how == "nobody there":
        asked.line.hangs_up()
    asked.world.run(PATIENT.call_s)
    assert asked.peer.contacts.sample(1) == ()


def test_garbage_for_an_answer() -> None:
    asked = Asked()
    asked.line.opens()
    asked.line.says(b"HTTP/1.1 400 Bad Request\r\n")
    asked.assert_failed(Refusal.BAD_MESSAGE)
    assert asked.peer.counters.malformed == 1


def test_a_different_peer_at_a_cached_address() -> None:
    asked = Asked(to=2)
    asked.line.opens()
    asked.line.says(replace(hello(3), address=contact(2).address), ANSWER)
    asked.assert_failed(None)
    assert 2 not in asked.peer.contacts


@pytest.mark.parametrize(
    "wrong",
    [{"magic": MAGIC + 1}, {"version": VERSION + 1}, {"channel": OTHER_CHANNEL}],
    ids=["magic", "version", "channel"],
)
def test_one_that_is_not_of_our_channel_is_not_remembered_as_if_it_were(wrong: dict[str, int]) -> None:
    # Ports of a portal are shared with other channels: who searches there meets their peers.
    world = FakeWorld()
    peer = idle_peer(world)
    failures: list[Refusal | None] = []
    answers: list[Message] = []
    Outgoing(peer, contact(2).address, QUESTION, lambda _call, answer: answers.append(answer), failures.append)
    (line,) = world.dialled
    line.opens()
    line.says(replace(hello(2), **wrong), Refuse(Refusal.WRONG_CHANNEL, "another channel"))  # type: ignore[arg-type]
    assert (answers, len(failures)) == ([], 1)
    assert 2 not in peer.contacts
    assert_nothing_is_left(world, peer, line)


def test_a_peer_that_calls_itself_finds_out() -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    failures: list[Refusal | None] = []
    Outgoing(peer, contact(ME).address, QUESTION, lambda _call, _answer: None, failures.append)
    cable = Cable(world.dialled[0], peer)
    cable.carry_all()
    assert failures == [Refusal.MYSELF]
    for line in cable.ends:
        assert_nothing_is_left(world, peer, line)


def test_one_that_answers_in_my_name_is_not_believed() -> None:
    world = FakeWorld()
    peer = idle_peer(world)
    failures: list[Refusal | None] = []
    answers: list[Message] = []
    Outgoing(peer, contact(2).address, QUESTION, lambda _call, answer: answers.append(answer), failures.append)
    (line,) = world.dialled
    line.opens()
    line.says(hello(ME), ANSWER)
    assert (answers, failures) == ([], [Refusal.MYSELF])
    assert_nothing_is_left(world, peer, line)


def test_what_comes_after_the_end_of_a_call_is_not_heard() -> None:
    asked = Asked()
    owner = asked.line.owner
    asked.line.opens()
    asked.line.says(hello(2), ANSWER)
    # A world may have read further frames before it was told to hang up.
    asked.line.closed = False
    asked.line.says(JoinAnswer(True, False, 1, (), ()), b"garbage and more")
    owner.on_lost()
    asked.world.run(PATIENT.call_s)
    assert (asked.answers, asked.failures) == ([ANSWER], [])
    assert asked.peer.counters.malformed == 0
