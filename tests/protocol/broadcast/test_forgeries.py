"""Signed channels: forged messages are not relayed, and revoked authors are ignored."""

from typing import Any

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.protocol.identity import Role
from broadloom.wire.link_messages import CredentialRequest
from tests.protocol.fake_runtime import CHANNEL, FakeRuntime
from tests.protocol.signed_runtime import AUTHOR, credential, link, member, sent_items, signed

# Forgeries.


def test_forged_message_closes_link_and_is_not_relayed() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1)._replace(signature=b"x" * 32))
    assert source.closed
    assert peer.counters.bad_signatures == peer.counters.malformed_frames == 1
    assert not runtime.delivered
    assert not other.broadcast_frames()
    assert peer.links.neighbors == (3,)


ALTERED: dict[str, Any] = {
    "author": 8,
    "sequence": 3,
    "stream_start": 2,
    "messages": (b"3",),
    "kind": 1,
    "priority": 2,
    "ttl_ms": 1,
    "signature": b"",
}


@pytest.mark.parametrize("field", ALTERED)
def test_altered_field_invalidates_signature(field: str) -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source = link(peer, 2)
    source.remote_sends(credential(), credential(8), signed(AUTHOR, 1))
    source.remote_sends(signed(AUTHOR, 2)._replace(**{field: ALTERED[field]}))
    assert source.closed
    assert peer.counters.bad_signatures == 1
    assert runtime.delivered_ids() == [(AUTHOR, 1)]


def test_message_of_another_channel_has_invalid_signature() -> None:
    peer, _ = member(FakeRuntime())
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1, channel=bytes(len(CHANNEL))))
    assert source.closed
    assert peer.counters.bad_signatures == 1


def test_signature_is_valid_after_relay_changes_hops_and_age() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1)._replace(hops=9, age_ms=1234))
    assert runtime.delivered_ids() == [(AUTHOR, 1)]
    assert runtime.delivered[0].hops == 9


def test_message_of_consumer_closes_link() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(role=Role.CONSUMER), signed(AUTHOR, 1, role=Role.CONSUMER))
    assert source.closed
    assert peer.counters.role_violations == 1
    assert peer.counters.bad_signatures == 0
    assert not runtime.delivered
    assert not other.broadcast_frames()
    assert peer.state is PeerState.CONNECTED


# Eviction.


def test_messages_of_revoked_author_are_ignored() -> None:
    runtime = FakeRuntime()
    peer, signer = member(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    signer.revoked.add(AUTHOR)
    runtime.advance(2)
    source.remote_sends(signed(AUTHOR, 2), credential(), signed(AUTHOR, 2))
    assert runtime.delivered_ids() == [(AUTHOR, 1)]
    assert len(other.broadcast_frames()) == 1
    assert not source.closed
    assert peer.broadcaster.verifier is not None
    assert peer.broadcaster.verifier.identity_of(AUTHOR) is None


def test_all_credentials_are_rechecked_in_turn() -> None:
    runtime = FakeRuntime()
    peer, signer = member(runtime)
    source = link(peer, 2)
    authors = range(100, 400)
    source.remote_sends(*map(credential, authors))
    signer.revoked.update(authors)
    runtime.advance(10)
    assert peer.broadcaster.verifier is not None
    assert not any(map(peer.broadcaster.verifier.identity_of, authors))


def test_credential_of_silent_author_is_evicted_first() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, Tuning(heartbeat_timeout_s=1e9, authors_max=3))
    source = link(peer, 2)
    source.remote_sends(credential(11), signed(11, 1), credential(12), credential(13), signed(13, 1), credential(14))
    assert peer.broadcaster.verifier is not None
    verified = [author for author in range(11, 15) if peer.broadcaster.verifier.identity_of(author) is not None]
    assert verified == [11, 13, 14]
    source.remote_sends(signed(14, 1), credential(15), signed(15, 1))
    assert peer.counters.authors_rejected > 0
    assert runtime.delivered_ids() == [(11, 1), (13, 1), (14, 1)]
    assert not source.closed


def test_author_beyond_limit_causes_no_repeated_requests() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, Tuning(heartbeat_timeout_s=1e9, authors_max=1))
    source = link(peer, 2)
    source.remote_sends(credential(11), signed(11, 1))
    for _ in range(100):
        source.remote_sends(credential(12), signed(12, 1))
    assert not source.sent_messages(CredentialRequest)
    assert runtime.delivered_ids() == [(11, 1)]


def test_credential_of_idle_author_is_evicted() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, Tuning(heartbeat_timeout_s=1e9, authors_max=2))
    source = link(peer, 2)
    source.remote_sends(credential(11), signed(11, 1), credential(12), signed(12, 1))
    runtime.advance(peer.settings.author_eviction_s + 1)
    source.remote_sends(credential(13), signed(13, 1))
    assert runtime.delivered_ids() == [(11, 1), (12, 1), (13, 1)]


def test_evicted_credential_is_requested_again() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert peer.broadcaster.verifier is not None
    peer.broadcaster.verifier.evict(AUTHOR)
    source.remote_sends(signed(AUTHOR, 2))
    assert source.sent_messages(CredentialRequest) == [CredentialRequest(AUTHOR, 2)]
    source.remote_sends(credential(), signed(AUTHOR, 2))
    assert sent_items(other) == [("credential", AUTHOR), ("message", AUTHOR)] * 2
