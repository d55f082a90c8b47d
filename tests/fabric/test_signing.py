"""Signed channels: who an author is, is said before its first message."""

from tests.fabric.fake_world import ME, Cable, FakeWorld, call, greeting, has, hello
from tests.fabric.signed_world import AUTHOR, FakeSeal, credential, link, member, signed, story
from weft.fabric import Peer
from weft.fabric.seal import Identity
from weft.wire.calls import JoinRequest
from weft.wire.links import Credential, Gone, Introduce, Lack, Want

# Introductions.


def test_our_credential_goes_before_our_first_message_on_each_link_and_only_once() -> None:
    peer, _ = member(FakeWorld())
    lines = [link(peer, name) for name in (2, 3)]
    assert story(lines[0]) == [], "nobody need know who never says anything"
    for number in range(3):
        peer.broadcast(b"%d" % number)
    lines.append(link(peer, 4, has((ME, 1, 3))))
    peer.broadcast(b"last")
    assert story(lines[0]) == story(lines[1]) == [("credential", ME)] + [("message", ME)] * 4
    assert story(lines[2]) == [("credential", ME), ("message", ME)]


def test_an_author_is_introduced_wherever_its_messages_are_passed_on() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.says(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    assert world.names() == [(AUTHOR, 1), (AUTHOR, 2)]
    assert story(other) == [("credential", AUTHOR), ("message", AUTHOR), ("message", AUTHOR)]
    assert story(source) == []
    assert peer.stream.signing is not None
    assert peer.stream.signing.identity_of(AUTHOR) == Identity(AUTHOR, "peer 7")
    assert peer.stream.signing.identity_of(99) is None


def test_a_new_neighbour_is_told_who_the_authors_are_of_what_it_lacks() -> None:
    peer, _ = member(FakeWorld())
    link(peer, 2).says(credential(), signed(AUTHOR, 1), credential(8), signed(8, 1), signed(AUTHOR, 2))
    peer.broadcast(b"mine")
    told = story(link(peer, 3))
    assert sorted(told) == sorted(
        [("credential", AUTHOR), ("credential", 8), ("credential", ME)]
        + [("message", AUTHOR)] * 2
        + [("message", 8), ("message", ME)]
    )
    for author in (AUTHOR, 8, ME):
        assert told.index(("credential", author)) < told.index(("message", author))


def test_a_newcomer_is_told_who_the_authors_are_of_what_comes_next() -> None:
    peer, _ = member(FakeWorld())
    source = link(peer, 2)
    source.says(credential(), signed(AUTHOR, 1), signed(AUTHOR, 3))
    newcomer = call(peer, hello(5, settled=False, signed=True), JoinRequest(4, ()))
    newcomer.says(greeting(fresh=True))
    assert story(newcomer) == [("credential", AUTHOR), ("message", AUTHOR)], "the one above the mark"
    source.says(signed(AUTHOR, 2))
    assert story(newcomer)[2:] == [("message", AUTHOR)]


def test_an_answer_to_a_question_introduces_too() -> None:
    peer, _ = member(FakeWorld())
    link(peer, 2).says(credential(), signed(AUTHOR, 1))
    asking = link(peer, 3, has((AUTHOR, 1, 1)))
    assert story(asking) == []
    asking.says(Want(AUTHOR, 1, 1))
    assert story(asking) == [("credential", AUTHOR), ("message", AUTHOR)]


def test_who_lost_a_credential_is_told_again_with_the_message() -> None:
    peer, _ = member(FakeWorld())
    link(peer, 2).says(credential(), signed(AUTHOR, 1))
    forgetful = link(peer, 3)
    assert story(forgetful) == [("credential", AUTHOR), ("message", AUTHOR)]
    forgetful.says(Introduce(AUTHOR, 1))
    assert story(forgetful) == [("credential", AUTHOR), ("message", AUTHOR)] * 2


# Unknown authors.


def test_an_author_without_a_credential_is_asked_for_and_then_heard() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.says(signed(AUTHOR, 1))
    assert source.heard(Introduce) == [Introduce(AUTHOR, 1)]
    assert not world.delivered
    assert not other.copies()
    source.says(credential(), signed(AUTHOR, 1))
    assert world.names() == [(AUTHOR, 1)]
    assert story(other) == [("credential", AUTHOR), ("message", AUTHOR)]
    assert not source.closed


def test_an_author_that_was_withdrawn_is_not_asked_for_again_and_again() -> None:
    world = FakeWorld()
    peer, seal = member(world)
    seal.withdrawn.add(AUTHOR)
    source = link(peer, 2)
    source.says(credential())
    assert peer.counters.unproven == 1
    for sequence in range(1, 50):
        source.says(signed(AUTHOR, sequence), credential())
    assert not world.delivered
    assert not source.closed, "lists and clocks may differ a little between honest peers"
    assert not source.heard(Introduce), "it would be told the same again"


def test_nobody_is_muted_by_a_false_credential() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    cheat, source = link(peer, 2), link(peer, 3)
    cheat.says(Credential(AUTHOR, FakeSeal(8).credential))
    assert peer.counters.unproven == 1
    source.says(credential(), signed(AUTHOR, 1))
    assert world.names() == [(AUTHOR, 1)]


def test_introductions_are_asked_for_at_a_measured_rate() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source = link(peer, 2)
    for author in range(10_000, 12_000):
        source.says(signed(author, 1))
    asked = len(source.heard(Introduce))
    assert 0 < asked <= 256
    world.run(2)
    source.says(signed(AUTHOR, 1))
    assert len(source.heard(Introduce)) == asked + 1


def test_an_author_that_is_refused_may_be_better_later() -> None:
    world = FakeWorld()
    peer, seal = member(world)
    seal.withdrawn.add(AUTHOR)
    source = link(peer, 2)
    source.says(credential(), signed(AUTHOR, 1))
    seal.withdrawn.clear()
    world.run(60)
    source.says(signed(AUTHOR, 1))
    assert source.heard(Introduce) == [Introduce(AUTHOR, 1)]
    source.says(credential(), signed(AUTHOR, 1))
    assert world.names() == [(AUTHOR, 1)]


def test_nobody_introduces_us_to_ourselves() -> None:
    peer, _ = member(FakeWorld())
    source = link(peer, 2)
    source.says(credential(ME))
    assert peer.stream.signing is not None
    assert peer.stream.signing.identity_of(ME) is None


# Two that see it differently.


def two_that_are_linked() -> tuple[Peer, FakeSeal, Peer, FakeSeal, Cable, FakeWorld]:
    worlds = FakeWorld(1), FakeWorld(2)
    (here, here_seal), (there, there_seal) = member(worlds[0], name=1), member(worlds[1], name=2)
    here.joining.court(there.me)
    cable = Cable(worlds[0].dialled[-1], there)
    cable.carry_all()
    assert here.links.neighbours == (2,)
    return here, here_seal, there, there_seal, cable, worlds[1]


def test_an_author_that_only_the_sender_admits_is_no_endless_matter() -> None:
    here, _, there, there_seal, cable, there_world = two_that_are_linked()
    there_seal.withdrawn.add(AUTHOR)
    link(here, 5).says(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    before = [len(end.sent) for end in cable.ends]
    for _ in range(100):
        cable.carry(0)
        cable.carry(1)
    assert sum(len(end.sent) for end in cable.ends) - sum(before) < 10
    assert there.counters.unproven == 1
    assert not there_world.delivered


def test_an_author_that_the_sender_no_longer_admits_is_no_endless_matter() -> None:
    world = FakeWorld()
    peer, seal = member(world)
    source = link(peer, 2)
    source.says(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    seal.withdrawn.add(AUTHOR)
    world.run(2)
    late = link(peer, 3)
    assert story(late) == [], "what nobody can check is of no use"
    late.says(Introduce(AUTHOR, 1), Want(AUTHOR, 1, 2))
    assert story(late) == []
    assert [(gone.first, gone.last, gone.why) for gone in late.heard(Gone)] == [
        (1, 1, Lack.NO_MORE),
        (1, 2, Lack.NO_MORE),
    ]
