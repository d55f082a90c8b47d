"""Signed channels: what an author did not say dies here, and who may not speak any more is not heard."""

from typing import Any

import pytest

from tests.fabric.fake_world import CHANNEL, FakeWorld
from tests.fabric.signed_world import AUTHOR, credential, link, member, signed, story
from weft.fabric import Settings, State
from weft.fabric.seal import Role
from weft.wire.links import Introduce

# Forgeries.


def test_a_forged_message_costs_the_link_and_goes_nowhere() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.says(credential(), signed(AUTHOR, 1)._replace(signature=b"x" * 32))
    assert source.closed
    assert peer.counters.forged == peer.counters.malformed == 1
    assert not world.delivered
    assert not other.copies()
    assert peer.links.neighbours == (3,)


ALTERED: dict[str, Any] = {
    "author": 8,
    "sequence": 3,
    "run_start": 2,
    "messages": (b"3",),
    "kind": 1,
    "priority": 2,
    "lifetime_ms": 1,
    "signature": b"",
}


@pytest.mark.parametrize("field", ALTERED)
def test_whatever_an_author_said_cannot_be_altered(field: str) -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source = link(peer, 2)
    source.says(credential(), credential(8), signed(AUTHOR, 1))
    source.says(signed(AUTHOR, 2)._replace(**{field: ALTERED[field]}))
    assert source.closed
    assert peer.counters.forged == 1
    assert world.names() == [(AUTHOR, 1)]


def test_what_was_said_on_another_channel_was_not_said_here() -> None:
    peer, _ = member(FakeWorld())
    source = link(peer, 2)
    source.says(credential(), signed(AUTHOR, 1, channel=bytes(len(CHANNEL))))
    assert source.closed
    assert peer.counters.forged == 1


def test_relays_may_change_hops_and_age() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source = link(peer, 2)
    source.says(credential(), signed(AUTHOR, 1)._replace(hops=9, age_ms=1234))
    assert world.names() == [(AUTHOR, 1)]
    assert world.delivered[0].hops == 9


def test_who_may_only_listen_is_not_listened_to() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.says(credential(role=Role.CONSUMER), signed(AUTHOR, 1, role=Role.CONSUMER))
    assert source.closed
    assert peer.counters.forbidden == 1
    assert peer.counters.forged == 0
    assert not world.delivered
    assert not other.copies()
    assert peer.state is State.CONNECTED


# Forgetting.


def test_who_is_no_longer_admitted_is_not_listened_to_any_more() -> None:
    world = FakeWorld()
    peer, seal = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.says(credential(), signed(AUTHOR, 1))
    seal.withdrawn.add(AUTHOR)
    world.run(2)
    source.says(signed(AUTHOR, 2), credential(), signed(AUTHOR, 2))
    assert world.names() == [(AUTHOR, 1)]
    assert len(other.copies()) == 1
    assert not source.closed
    assert peer.stream.signing is not None
    assert peer.stream.signing.identity_of(AUTHOR) is None


def test_all_credentials_are_looked_at_again_in_turn() -> None:
    world = FakeWorld()
    peer, seal = member(world)
    source = link(peer, 2)
    authors = range(100, 400)
    source.says(*map(credential, authors))
    seal.withdrawn.update(authors)
    world.run(10)
    assert peer.stream.signing is not None
    assert not any(map(peer.stream.signing.identity_of, authors))


def test_who_never_said_anything_makes_room_first() -> None:
    world = FakeWorld()
    peer, _ = member(world, Settings(silence_s=1e9, authors_max=3))
    source = link(peer, 2)
    source.says(credential(11), signed(11, 1), credential(12), credential(13), signed(13, 1), credential(14))
    assert peer.stream.signing is not None
    known = [author for author in range(11, 15) if peer.stream.signing.identity_of(author) is not None]
    assert known == [11, 13, 14]
    source.says(signed(14, 1), credential(15), signed(15, 1))
    assert peer.counters.authors_refused > 0
    assert world.names() == [(11, 1), (13, 1), (14, 1)]
    assert not source.closed


def test_an_author_for_whom_there_is_no_room_is_no_endless_matter() -> None:
    world = FakeWorld()
    peer, _ = member(world, Settings(silence_s=1e9, authors_max=1))
    source = link(peer, 2)
    source.says(credential(11), signed(11, 1))
    for _ in range(100):
        source.says(credential(12), signed(12, 1))
    assert not source.heard(Introduce)
    assert world.names() == [(11, 1)]


def test_who_was_silent_for_long_makes_room_too() -> None:
    world = FakeWorld()
    peer, _ = member(world, Settings(silence_s=1e9, authors_max=2))
    source = link(peer, 2)
    source.says(credential(11), signed(11, 1), credential(12), signed(12, 1))
    world.run(peer.settings.forget_s + 1)
    source.says(credential(13), signed(13, 1))
    assert world.names() == [(11, 1), (12, 1), (13, 1)]


def test_who_was_forgotten_is_introduced_again() -> None:
    world = FakeWorld()
    peer, _ = member(world)
    source, other = link(peer, 2), link(peer, 3)
    source.says(credential(), signed(AUTHOR, 1))
    assert peer.stream.signing is not None
    peer.stream.signing.forget(AUTHOR)
    source.says(signed(AUTHOR, 2))
    assert source.heard(Introduce) == [Introduce(AUTHOR, 2)]
    source.says(credential(), signed(AUTHOR, 2))
    assert story(other) == [("credential", AUTHOR), ("message", AUTHOR)] * 2
