"""Signed channels: who an author is, is said before its first message."""

from broadloom.protocol import Peer
from broadloom.protocol.identity import Identity
from broadloom.wire.exchange_messages import JoinRequest
from broadloom.wire.link_messages import Credential, CredentialRequest, Unavailable, UnavailableReason, Want
from tests.protocol.fake_runtime import ME, Cable, FakeRuntime, digest, digest_of, hello, open_exchange
from tests.protocol.signed_runtime import AUTHOR, FakeSigner, credential, link, member, sent_items, signed

# Introductions.


def test_our_credential_goes_before_our_first_message_on_each_link_and_only_once() -> None:
    peer, _ = member(FakeRuntime())
    lines = [link(peer, name) for name in (2, 3)]
    assert sent_items(lines[0]) == [], "nobody need know who never says anything"
    for number in range(3):
        peer.broadcast(b"%d" % number)
    lines.append(link(peer, 4, digest_of((ME, 1, 3))))
    peer.broadcast(b"last")
    assert sent_items(lines[0]) == sent_items(lines[1]) == [("credential", ME)] + [("message", ME)] * 4
    assert sent_items(lines[2]) == [("credential", ME), ("message", ME)]


def test_an_author_is_introduced_wherever_its_messages_are_passed_on() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    assert world.delivered_ids() == [(AUTHOR, 1), (AUTHOR, 2)]
    assert sent_items(other) == [("credential", AUTHOR), ("message", AUTHOR), ("message", AUTHOR)]
    assert sent_items(source) == []
    assert peer.broadcaster.verifier is not None
    assert peer.broadcaster.verifier.identity_of(AUTHOR) == Identity(AUTHOR, "peer 7")
    assert peer.broadcaster.verifier.identity_of(99) is None


def test_a_new_neighbour_is_told_who_the_authors_are_of_what_it_lacks() -> None:
    peer, _ = member(FakeRuntime())
    link(peer, 2).remote_sends(credential(), signed(AUTHOR, 1), credential(8), signed(8, 1), signed(AUTHOR, 2))
    peer.broadcast(b"mine")
    told = sent_items(link(peer, 3))
    assert sorted(told) == sorted(
        [("credential", AUTHOR), ("credential", 8), ("credential", ME)]
        + [("message", AUTHOR)] * 2
        + [("message", 8), ("message", ME)]
    )
    for author in (AUTHOR, 8, ME):
        assert told.index(("credential", author)) < told.index(("message", author))


def test_a_newcomer_is_told_who_the_authors_are_of_what_comes_next() -> None:
    peer, _ = member(FakeRuntime())
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 3))
    newcomer = open_exchange(peer, hello(5, has_position=False, signed=True), JoinRequest(4, ()))
    newcomer.remote_sends(digest(is_new=True))
    assert sent_items(newcomer) == [("credential", AUTHOR), ("message", AUTHOR)], "the one above the mark"
    source.remote_sends(signed(AUTHOR, 2))
    assert sent_items(newcomer)[2:] == [("message", AUTHOR)]


def test_an_answer_to_a_question_introduces_too() -> None:
    peer, _ = member(FakeRuntime())
    link(peer, 2).remote_sends(credential(), signed(AUTHOR, 1))
    asking = link(peer, 3, digest_of((AUTHOR, 1, 1)))
    assert sent_items(asking) == []
    asking.remote_sends(Want(AUTHOR, 1, 1))
    assert sent_items(asking) == [("credential", AUTHOR), ("message", AUTHOR)]


def test_who_lost_a_credential_is_told_again_with_the_message() -> None:
    peer, _ = member(FakeRuntime())
    link(peer, 2).remote_sends(credential(), signed(AUTHOR, 1))
    forgetful = link(peer, 3)
    assert sent_items(forgetful) == [("credential", AUTHOR), ("message", AUTHOR)]
    forgetful.remote_sends(CredentialRequest(AUTHOR, 1))
    assert sent_items(forgetful) == [("credential", AUTHOR), ("message", AUTHOR)] * 2


# Unknown authors.


def test_an_author_without_a_credential_is_asked_for_and_then_heard() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(signed(AUTHOR, 1))
    assert source.sent_messages(CredentialRequest) == [CredentialRequest(AUTHOR, 1)]
    assert not world.delivered
    assert not other.broadcast_frames()
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert world.delivered_ids() == [(AUTHOR, 1)]
    assert sent_items(other) == [("credential", AUTHOR), ("message", AUTHOR)]
    assert not source.closed


def test_an_author_that_was_withdrawn_is_not_asked_for_again_and_again() -> None:
    world = FakeRuntime()
    peer, seal = member(world)
    seal.revoked.add(AUTHOR)
    source = link(peer, 2)
    source.remote_sends(credential())
    assert peer.counters.bad_credentials == 1
    for sequence in range(1, 50):
        source.remote_sends(signed(AUTHOR, sequence), credential())
    assert not world.delivered
    assert not source.closed, "lists and clocks may differ a little between honest peers"
    assert not source.sent_messages(CredentialRequest), "it would be told the same again"


def test_nobody_is_muted_by_a_false_credential() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    cheat, source = link(peer, 2), link(peer, 3)
    cheat.remote_sends(Credential(AUTHOR, FakeSigner(8).credential))
    assert peer.counters.bad_credentials == 1
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert world.delivered_ids() == [(AUTHOR, 1)]


def test_introductions_are_asked_for_at_a_measured_rate() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source = link(peer, 2)
    for author in range(10_000, 12_000):
        source.remote_sends(signed(author, 1))
    asked = len(source.sent_messages(CredentialRequest))
    assert 0 < asked <= 256
    world.advance(2)
    source.remote_sends(signed(AUTHOR, 1))
    assert len(source.sent_messages(CredentialRequest)) == asked + 1


def test_an_author_that_is_refused_may_be_better_later() -> None:
    world = FakeRuntime()
    peer, seal = member(world)
    seal.revoked.add(AUTHOR)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    seal.revoked.clear()
    world.advance(60)
    source.remote_sends(signed(AUTHOR, 1))
    assert source.sent_messages(CredentialRequest) == [CredentialRequest(AUTHOR, 1)]
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert world.delivered_ids() == [(AUTHOR, 1)]


def test_nobody_introduces_us_to_ourselves() -> None:
    peer, _ = member(FakeRuntime())
    source = link(peer, 2)
    source.remote_sends(credential(ME))
    assert peer.broadcaster.verifier is not None
    assert peer.broadcaster.verifier.identity_of(ME) is None


# Two that see it differently.


def two_that_are_linked() -> tuple[Peer, FakeSigner, Peer, FakeSigner, Cable, FakeRuntime]:
    worlds = FakeRuntime(1), FakeRuntime(2)
    (here, here_seal), (there, there_seal) = member(worlds[0], peer_id=1), member(worlds[1], peer_id=2)
    here.join_protocol.request_link(there.me)
    cable = Cable(worlds[0].dialed[-1], there)
    cable.carry_all()
    assert here.links.neighbors == (2,)
    return here, here_seal, there, there_seal, cable, worlds[1]


def test_an_author_that_only_the_sender_admits_is_no_endless_matter() -> None:
    here, _, there, there_seal, cable, there_world = two_that_are_linked()
    there_seal.revoked.add(AUTHOR)
    link(here, 5).remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    before = [len(end.sent) for end in cable.ends]
    for _ in range(100):
        cable.carry(0)
        cable.carry(1)
    assert sum(len(end.sent) for end in cable.ends) - sum(before) < 10
    assert there.counters.bad_credentials == 1
    assert not there_world.delivered


def test_an_author_that_the_sender_no_longer_admits_is_no_endless_matter() -> None:
    world = FakeRuntime()
    peer, seal = member(world)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    seal.revoked.add(AUTHOR)
    world.advance(2)
    late = link(peer, 3)
    assert sent_items(late) == [], "what nobody can check is of no use"
    late.remote_sends(CredentialRequest(AUTHOR, 1), Want(AUTHOR, 1, 2))
    assert sent_items(late) == []
    assert [(gone.first, gone.last, gone.reason) for gone in late.sent_messages(Unavailable)] == [
        (1, 1, UnavailableReason.EXPIRED),
        (1, 2, UnavailableReason.EXPIRED),
    ]
