"""Signed channels: what an author did not say dies here, and who may not speak any more is not heard."""

from typing import Any

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.protocol.identity import Role
from broadloom.wire.link_messages import CredentialRequest
from tests.protocol.fake_runtime import CHANNEL, FakeRuntime
from tests.protocol.signed_runtime import AUTHOR, credential, link, member, sent_items, signed

# Forgeries.


def test_a_forged_message_costs_the_link_and_goes_nowhere() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1)._replace(signature=b"x" * 32))
    assert source.closed
    assert peer.counters.bad_signatures == peer.counters.malformed_frames == 1
    assert not world.delivered
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
def test_whatever_an_author_said_cannot_be_altered(field: str) -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source = link(peer, 2)
    source.remote_sends(credential(), credential(8), signed(AUTHOR, 1))
    source.remote_sends(signed(AUTHOR, 2)._replace(**{field: ALTERED[field]}))
    assert source.closed
    assert peer.counters.bad_signatures == 1
    assert world.delivered_ids() == [(AUTHOR, 1)]


def test_what_was_said_on_another_channel_was_not_said_here() -> None:
    peer, _ = member(FakeRuntime())
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1, channel=bytes(len(CHANNEL))))
    assert source.closed
    assert peer.counters.bad_signatures == 1


def test_relays_may_change_hops_and_age() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1)._replace(hops=9, age_ms=1234))
    assert world.delivered_ids() == [(AUTHOR, 1)]
    assert world.delivered[0].hops == 9


def test_who_may_only_listen_is_not_listened_to() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(role=Role.CONSUMER), signed(AUTHOR, 1, role=Role.CONSUMER))
    assert source.closed
    assert peer.counters.role_violations == 1
    assert peer.counters.bad_signatures == 0
    assert not world.delivered
    assert not other.broadcast_frames()
    assert peer.state is PeerState.CONNECTED


# Forgetting.


def test_who_is_no_longer_admitted_is_not_listened_to_any_more() -> None:
    world = FakeRuntime()
    peer, seal = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    seal.revoked.add(AUTHOR)
    world.advance(2)
    source.remote_sends(signed(AUTHOR, 2), credential(), signed(AUTHOR, 2))
    assert world.delivered_ids() == [(AUTHOR, 1)]
    assert len(other.broadcast_frames()) == 1
    assert not source.closed
    assert peer.broadcaster.verifier is not None
    assert peer.broadcaster.verifier.identity_of(AUTHOR) is None


def test_all_credentials_are_looked_at_again_in_turn() -> None:
    world = FakeRuntime()
    peer, seal = member(world)
    source = link(peer, 2)
    authors = range(100, 400)
    source.remote_sends(*map(credential, authors))
    seal.revoked.update(authors)
    world.advance(10)
    assert peer.broadcaster.verifier is not None
    assert not any(map(peer.broadcaster.verifier.identity_of, authors))


def test_who_never_said_anything_makes_room_first() -> None:
    world = FakeRuntime()
    peer, _ = member(world, Tuning(heartbeat_timeout_s=1e9, authors_max=3))
    source = link(peer, 2)
    source.remote_sends(credential(11), signed(11, 1), credential(12), credential(13), signed(13, 1), credential(14))
    assert peer.broadcaster.verifier is not None
    known = [author for author in range(11, 15) if peer.broadcaster.verifier.identity_of(author) is not None]
    assert known == [11, 13, 14]
    source.remote_sends(signed(14, 1), credential(15), signed(15, 1))
    assert peer.counters.authors_rejected > 0
    assert world.delivered_ids() == [(11, 1), (13, 1), (14, 1)]
    assert not source.closed


def test_an_author_for_whom_there_is_no_room_is_no_endless_matter() -> None:
    world = FakeRuntime()
    peer, _ = member(world, Tuning(heartbeat_timeout_s=1e9, authors_max=1))
    source = link(peer, 2)
    source.remote_sends(credential(11), signed(11, 1))
    for _ in range(100):
        source.remote_sends(credential(12), signed(12, 1))
    assert not source.sent_messages(CredentialRequest)
    assert world.delivered_ids() == [(11, 1)]


def test_who_was_silent_for_long_makes_room_too() -> None:
    world = FakeRuntime()
    peer, _ = member(world, Tuning(heartbeat_timeout_s=1e9, authors_max=2))
    source = link(peer, 2)
    source.remote_sends(credential(11), signed(11, 1), credential(12), signed(12, 1))
    world.advance(peer.settings.author_eviction_s + 1)
    source.remote_sends(credential(13), signed(13, 1))
    assert world.delivered_ids() == [(11, 1), (12, 1), (13, 1)]


def test_who_was_forgotten_is_introduced_again() -> None:
    world = FakeRuntime()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    assert peer.broadcaster.verifier is not None
    peer.broadcaster.verifier.evict(AUTHOR)
    source.remote_sends(signed(AUTHOR, 2))
    assert source.sent_messages(CredentialRequest) == [CredentialRequest(AUTHOR, 2)]
    source.remote_sends(credential(), signed(AUTHOR, 2))
    assert sent_items(other) == [("credential", AUTHOR), ("message", AUTHOR)] * 2
