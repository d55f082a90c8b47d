"""Signed channels: an author's credential is sent before its first message."""

from broadloom.protocol import Peer
from broadloom.protocol.identity import Identity
from broadloom.wire.exchange_messages import JoinRequest
from broadloom.wire.link_messages import Credential, CredentialRequest, Unavailable, UnavailableReason, Want
from tests.protocol.fake_runtime import ME, Cable, FakeRuntime, digest, digest_of, hello, open_exchange
from tests.protocol.signed_runtime import AUTHOR, FakeSigner, credential, link, member, sent_items, signed

# Sending credentials.


def test_own_credential_precedes_first_message_once_per_link() -> None:
    peer, _ = member(FakeRuntime())
    connections = [link(peer, name) for name in (2, 3)]
    assert sent_items(connections[0]) == [], "not sent before the first message"
    for number in range(3):
        peer.broadcast(b"%d" % number)
    connections.append(link(peer, 4, digest_of((ME, 1, 3))))
    peer.broadcast(b"last")
    assert sent_items(connections[0]) == sent_items(connections[1]) == [("credential", ME)] + [("message", ME)] * 4
    assert sent_items(connections[2]) == [("credential", ME), ("message", ME)]


def test_credential_is_relayed_before_first_message_of_author() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    assert runtime.delivered_ids() == [(AUTHOR, 1), (AUTHOR, 2)]
    assert sent_items(other) == [("credential", AUTHOR), ("message", AUTHOR), ("message", AUTHOR)]
    assert sent_items(source) == []
    assert peer.broadcaster.verifier is not None
    assert peer.broadcaster.verifier.identity_of(AUTHOR) == Identity(AUTHOR, "peer 7")
    assert peer.broadcaster.verifier.identity_of(99) is None


def test_new_neighbor_gets_credentials_before_missing_messages() -> None:
    peer, _ = member(FakeRuntime())
    link(peer, 2).remote_sends(credential(), signed(AUTHOR, 1), credential(8), signed(8, 1), signed(AUTHOR, 2))
    peer.broadcast(b"mine")
    sent = sent_items(link(peer, 3))
    assert sorted(sent) == sorted(
        [("credential", AUTHOR), ("credential", 8), ("credential", ME)]
        + [("message", AUTHOR)] * 2
        + [("message", 8), ("message", ME)]
    )
    for author in (AUTHOR, 8, ME):
        assert sent.index(("credential", author)) < sent.index(("message", author))


def test_joiner_gets_credential_before_next_message() -> None:
    peer, _ = member(FakeRuntime())
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 3))
    joiner = open_exchange(peer, hello(5, has_position=False, signed=True), JoinRequest(4, ()))
    joiner.remote_sends(digest(is_new=True))
    assert sent_items(joiner) == [("credential", AUTHOR), ("message", AUTHOR)], "the buffered message"
    source.remote_sends(signed(AUTHOR, 2))
    assert sent_items(joiner)[2:] == [("message", AUTHOR)]


def test_response_to_want_includes_credential() -> None:
    peer, _ = member(FakeRuntime())
    link(peer, 2).remote_sends(credential(), signed(AUTHOR, 1))
    requester = link(peer, 3, digest_of((AUTHOR, 1, 1)))
    assert sent_items(requester) == []
    requester.remote_sends(Want(AUTHOR, 1, 1))
    assert sent_items(requester) == [("credential", AUTHOR), ("message", AUTHOR)]


def test_credential_request_is_answered_with_credential_and_message() -> None:
    peer, _ = member(FakeRuntime())
    link(peer, 2).remote_sends(credential(), signed(AUTHOR, 1))
    requester = link(peer, 3)
    assert sent_items(requester) == [("credential", AUTHOR), ("message", AUTHOR)]
    requester.remote_sends(CredentialRequest(AUTHOR, 1))
    assert sent_items(requester) == [("credential", AUTHOR), ("message", AUTHOR)] * 2


# Unknown authors.


def test_missing_credential_is_requested_and_message_then_delivered() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(signed(AUTHOR, 1))
    assert source.sent_messages(CredentialRequest) == [CredentialRequest(AUTHOR, 1)]
    assert not runtime.delivered
    assert not other.broadcast_frames()
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert runtime.delivered_ids() == [(AUTHOR, 1)]
    assert sent_items(other) == [("credential", AUTHOR), ("message", AUTHOR)]
    assert not source.closed


def test_credential_of_revoked_author_is_not_requested_again() -> None:
    runtime = FakeRuntime()
    peer, signer = member(runtime)
    signer.revoked.add(AUTHOR)
    source = link(peer, 2)
    source.remote_sends(credential())
    assert peer.counters.bad_credentials == 1
    for sequence in range(1, 50):
        source.remote_sends(signed(AUTHOR, sequence), credential())
    assert not runtime.delivered
    assert not source.closed, "revocation lists and clocks of honest peers may differ"
    assert not source.sent_messages(CredentialRequest), "the response would be the same"


def test_false_credential_does_not_mute_author() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    liar, source = link(peer, 2), link(peer, 3)
    liar.remote_sends(Credential(AUTHOR, FakeSigner(8).credential))
    assert peer.counters.bad_credentials == 1
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert runtime.delivered_ids() == [(AUTHOR, 1)]


def test_credential_requests_are_rate_limited() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source = link(peer, 2)
    for author in range(10_000, 12_000):
        source.remote_sends(signed(author, 1))
    requests = len(source.sent_messages(CredentialRequest))
    assert 0 < requests <= 256
    runtime.advance(2)
    source.remote_sends(signed(AUTHOR, 1))
    assert len(source.sent_messages(CredentialRequest)) == requests + 1


def test_rejected_author_is_tried_again_later() -> None:
    runtime = FakeRuntime()
    peer, signer = member(runtime)
    signer.revoked.add(AUTHOR)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    signer.revoked.clear()
    runtime.advance(60)
    source.remote_sends(signed(AUTHOR, 1))
    assert source.sent_messages(CredentialRequest) == [CredentialRequest(AUTHOR, 1)]
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert runtime.delivered_ids() == [(AUTHOR, 1)]


def test_credential_in_own_name_is_ignored() -> None:
    peer, _ = member(FakeRuntime())
    source = link(peer, 2)
    source.remote_sends(credential(ME))
    assert peer.broadcaster.verifier is not None
    assert peer.broadcaster.verifier.identity_of(ME) is None


# Peers that disagree about an author.


def linked_members() -> tuple[Peer, FakeSigner, Peer, FakeSigner, Cable, FakeRuntime]:
    runtimes = FakeRuntime(1), FakeRuntime(2)
    (here, here_signer), (there, there_signer) = member(runtimes[0], peer_id=1), member(runtimes[1], peer_id=2)
    here.join_protocol.request_link(there.me)
    cable = Cable(runtimes[0].dialed[-1], there)
    cable.carry_all()
    assert here.links.neighbors == (2,)
    return here, here_signer, there, there_signer, cable, runtimes[1]


def test_author_rejected_by_receiver_only_causes_no_message_loop() -> None:
    here, _, there, there_signer, cable, there_runtime = linked_members()
    there_signer.revoked.add(AUTHOR)
    link(here, 5).remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    before = [len(end.sent) for end in cable.ends]
    for _ in range(100):
        cable.carry(0)
        cable.carry(1)
    assert sum(len(end.sent) for end in cable.ends) - sum(before) < 10
    assert there.counters.bad_credentials == 1
    assert not there_runtime.delivered


def test_messages_of_rejected_author_are_reported_unavailable() -> None:
    runtime = FakeRuntime()
    peer, signer = member(runtime)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    signer.revoked.add(AUTHOR)
    runtime.advance(2)
    late = link(peer, 3)
    assert sent_items(late) == [], "messages that cannot be verified are not sent"
    late.remote_sends(CredentialRequest(AUTHOR, 1), Want(AUTHOR, 1, 2))
    assert sent_items(late) == []
    assert [(each.first, each.last, each.reason) for each in late.sent_messages(Unavailable)] == [
        (1, 1, UnavailableReason.DROPPED),
        (1, 2, UnavailableReason.DROPPED),
    ]
