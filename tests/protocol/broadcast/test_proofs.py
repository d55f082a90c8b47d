"""Signed channels: what a neighbor says about the messages of an author counts only as far as the author's signature
proves it."""

import pytest

from broadloom.protocol import Peer, Tuning
from broadloom.protocol.broadcast.author_warnings import CLOCK_SKEW_S
from broadloom.protocol.events import Missed
from broadloom.wire import Broadcast
from broadloom.wire.broadcast_frame import AGE_MS_MAX, encode_broadcast, signed_part
from broadloom.wire.codec import WireMessage
from broadloom.wire.exchange_messages import LinkRequest, LinkResponse
from broadloom.wire.link_messages import (
    Digest,
    Heartbeat,
    IHave,
    LastKnown,
    PositionProof,
    Unavailable,
    UnavailableReason,
    Want,
)
from broadloom.wire.types import AuthorState, TreePosition
from tests.protocol.fake_runtime import CHANNEL, ME, FakeConnection, FakeRuntime, hello, open_exchange, peer_info
from tests.protocol.signed_runtime import AUTHOR, FakeSigner, credential, link, member, signed

START_S = FakeRuntime.START_TIME_S
LONG_AGO_MS = 10**9
SETTINGS = Tuning(retention_s=60)


def proof_of(message: Broadcast) -> PositionProof:
    return PositionProof(signed_part(encode_broadcast(message)) + message.signature)


def wait(runtime: FakeRuntime, seconds: int, *connections: FakeConnection) -> None:
    """Let time pass while all neighbors send heartbeats."""
    for _ in range(seconds):
        for connection in connections:
            connection.remote_sends(Heartbeat())
        runtime.advance(1)


def joiner(runtime: FakeRuntime, *first: PositionProof | Digest) -> tuple[Peer, FakeConnection]:
    """A peer without a position, and its first neighbor, which sends these messages. Then it is connected."""
    peer = Peer(runtime, peer_info(ME), CHANNEL, (), SETTINGS, signer=FakeSigner(ME))
    peer.start()
    connection = open_exchange(peer, hello(2, signed=True), LinkRequest())
    assert connection.sent_messages(LinkResponse)
    connection.remote_sends(*first)
    peer.on_enough_links()
    return peer, connection


def test_false_claim_with_early_relay_loses_no_message() -> None:
    """The liar is on the shorter path and relays only what makes its claim look true; the rest arrives as usual."""
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(credential(), signed(AUTHOR, 1))
    liar.remote_sends(LastKnown((AuthorState(AUTHOR, 1, 3, LONG_AGO_MS),)))
    wait(runtime, 3, liar, honest)
    liar.remote_sends(signed(AUTHOR, 4, sent_at=START_S + 3))
    liar.remote_sends(Unavailable(AUTHOR, 2, 3, UnavailableReason.DROPPED))
    honest.remote_sends(*(signed(AUTHOR, sequence, sent_at=START_S + 3) for sequence in (2, 3, 4)))
    assert runtime.delivered_ids() == [(AUTHOR, 1), (AUTHOR, 2), (AUTHOR, 3), (AUTHOR, 4)]
    assert runtime.reported_missed == []


@pytest.mark.parametrize("claimed", [1, 2, 1000])
@pytest.mark.parametrize("idle_ms", [0, LONG_AGO_MS])
def test_author_that_has_not_sent_anything_cannot_be_muted(claimed: int, idle_ms: int) -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    liar, honest = link(peer, 2), link(peer, 3)
    liar.remote_sends(
        LastKnown((AuthorState(AUTHOR, 1, claimed, idle_ms),)),
        IHave((TreePosition(AUTHOR, 1, claimed, 1),)),
        Unavailable(AUTHOR, 1, claimed, UnavailableReason.DROPPED),
    )
    wait(runtime, 15, liar, honest)
    honest.remote_sends(credential(), *(signed(AUTHOR, sequence, sent_at=START_S + 15) for sequence in range(1, 51)))
    assert runtime.delivered_ids() == [(AUTHOR, sequence) for sequence in range(1, 51)]
    assert runtime.reported_missed == []


@pytest.mark.parametrize("claimed", [1, 2, 1000])
def test_joiner_is_not_muted_by_false_position_of_first_neighbor(claimed: int) -> None:
    runtime = FakeRuntime()
    digest = Digest(is_new=False, is_complete=True, authors=(AuthorState(AUTHOR, 1, claimed, 0),), peer_sample=())
    peer, _ = joiner(runtime, digest)
    honest = link(peer, 3)
    honest.remote_sends(credential(), *(signed(AUTHOR, sequence) for sequence in range(1, 6)))
    assert runtime.delivered_ids() == [(AUTHOR, sequence) for sequence in range(1, 6)]
    assert peer.counters.false_positions == 1


def test_joiner_starts_at_proven_position() -> None:
    runtime = FakeRuntime()
    digest = Digest(is_new=False, is_complete=True, authors=(AuthorState(AUTHOR, 1, 7, 0),), peer_sample=())
    peer, first = joiner(runtime, proof_of(signed(AUTHOR, 7)), digest)
    first.remote_sends(credential(), signed(AUTHOR, 7), signed(AUTHOR, 8), signed(AUTHOR, 6))
    assert runtime.delivered_ids() == [(AUTHOR, 8)]
    assert peer.counters.false_positions == 0


def test_joiner_ignores_forged_proof() -> None:
    runtime = FakeRuntime()
    forged = signed(AUTHOR, 1000)
    forged = forged._replace(signature=forged.signature[:-1] + b"x")
    digest = Digest(is_new=False, is_complete=True, authors=(AuthorState(AUTHOR, 1, 1000, 0),), peer_sample=())
    peer, first = joiner(runtime, proof_of(forged), digest)
    first.remote_sends(credential(), signed(AUTHOR, 1), signed(AUTHOR, 2))
    assert runtime.delivered_ids() == [(AUTHOR, 1), (AUTHOR, 2)]
    assert peer.counters.false_positions == 1


def test_messages_that_are_proven_and_gone_are_reported_as_missed() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    one, two, three = (link(peer, number) for number in (2, 3, 4))
    one.remote_sends(credential(), signed(AUTHOR, 1))
    gone = credential(), proof_of(signed(AUTHOR, 5)), Unavailable(AUTHOR, 2, 5, UnavailableReason.DROPPED)
    one.remote_sends(*gone)
    two.remote_sends(*gone)
    wait(runtime, 5, one, two, three)
    assert runtime.reported_missed == [], "two neighbors may lie"
    three.remote_sends(*gone)
    wait(runtime, 5, one, two, three)
    assert runtime.reported_missed == [Missed(AUTHOR, 2, 5)]
    one.remote_sends(signed(AUTHOR, 6, sent_at=START_S + 5))
    assert runtime.delivered_ids() == [(AUTHOR, 1), (AUTHOR, 6)]


def test_claims_without_proof_are_forgotten_and_not_passed_on() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    liar, honest = link(peer, 2), link(peer, 3)
    honest.remote_sends(credential(), signed(AUTHOR, 1))
    liar.remote_sends(LastKnown((AuthorState(AUTHOR, 1, 9, 0),)))
    for neighbor in (liar, honest):
        neighbor.remote_sends(Unavailable(AUTHOR, 2, 9, UnavailableReason.DROPPED))
    wait(runtime, 3, liar, honest)
    assert runtime.reported_missed == []
    assert peer.counters.claims_unproven == 1
    assert [each.last_contiguous for sent in honest.sent_messages(LastKnown) for each in sent.authors] in ([], [1])


def test_overstated_age_does_not_expire_a_message() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    source = link(peer, 2)
    source.remote_sends(credential(), signed(AUTHOR, 1))
    runtime.advance(5)
    source.remote_sends(signed(AUTHOR, 2, sent_at=START_S + 5)._replace(age_ms=AGE_MS_MAX))
    assert runtime.delivered_ids() == [(AUTHOR, 1), (AUTHOR, 2)]
    assert peer.counters.expired_copies == 0


@pytest.mark.parametrize(
    "claims",
    [
        (),
        (LastKnown((AuthorState(AUTHOR, 1, 5, 0),)),),
        (IHave((TreePosition(AUTHOR, 1, 5, 1),)),),
        (Unavailable(AUTHOR, 1, 5, UnavailableReason.DROPPED),),
    ],
)
def test_replayed_message_of_unknown_author_is_ignored(claims: tuple[WireMessage, ...]) -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    source = link(peer, 2)
    source.remote_sends(*claims)
    long_ago = START_S - SETTINGS.retention_s - CLOCK_SKEW_S
    source.remote_sends(credential(), signed(AUTHOR, 1, sent_at=long_ago - 1))
    assert runtime.delivered_ids() == []
    assert peer.counters.stale_messages == 1
    source.remote_sends(signed(AUTHOR, 1, sent_at=long_ago + 1))
    assert runtime.delivered_ids() == [(AUTHOR, 1)]


def test_message_announced_after_a_long_pause_is_requested() -> None:
    """The age of the author's last message says nothing about the one that is announced."""
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    first, second = link(peer, 2), link(peer, 3)
    first.remote_sends(credential(), signed(AUTHOR, 1))
    wait(runtime, int(SETTINGS.retention_s) + 5, first, second)
    second.remote_sends(IHave((TreePosition(AUTHOR, 2, 2, 1),)))
    wait(runtime, 2, first, second)
    assert Want(AUTHOR, 2, 2) in second.sent_messages(Want)


@pytest.mark.parametrize("sequence", [1, 2])
def test_overstated_age_does_not_exceed_a_ttl(sequence: int) -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    source = link(peer, 2)
    source.remote_sends(credential(), *(signed(AUTHOR, each) for each in range(1, sequence)))
    source.remote_sends(signed(AUTHOR, sequence, ttl_ms=500)._replace(age_ms=119_000))
    assert runtime.reported_missed == []
    assert runtime.delivered_ids()[-1] == (AUTHOR, sequence)


def test_time_of_sending_is_signed() -> None:
    runtime = FakeRuntime()
    peer, _ = member(runtime, SETTINGS)
    source = link(peer, 2)
    message = signed(AUTHOR, 1)
    source.remote_sends(credential(), message._replace(signature=bytes(8) + message.signature[8:]))
    assert source.closed
    assert peer.counters.bad_signatures == 1


@pytest.mark.parametrize("proof", [b"", b"x" * 72, b"x" * 256, bytes(144)])
def test_malformed_proof_closes_link(proof: bytes) -> None:
    peer, _ = member(FakeRuntime(), SETTINGS)
    source = link(peer, 2)
    source.remote_sends(PositionProof(proof))
    assert source.closed
