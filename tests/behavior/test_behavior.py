"""The behavior of a channel, the same on the simulator and on real sockets."""

from functools import partial
from itertools import combinations

import pytest

from broadloom.protocol import PeerState, Tuning
from tests.behavior.harness import Harness, HarnessPeer, OpenHarness, is_converged


def sent_messages(author: HarnessPeer, start: int = 0) -> list[tuple[int, bytes]]:
    return [(number + 1, data) for number, data in enumerate(author.sent)][start:]


def all_peers_have_all(harness: Harness, starts: dict[HarnessPeer, dict[HarnessPeer, int]] | None = None) -> bool:
    """Whether every peer has every message once and in order, from its starting position."""
    return all(
        reader.received_from(author) == sent_messages(author, (starts or {}).get(reader, {}).get(author, 0))
        for author in harness.peers
        for reader in harness.peers
        if reader is not author
    )


def has_last_message(reader: HarnessPeer, author: HarnessPeer) -> bool:
    return reader.received_from(author)[-1:] == sent_messages(author)[-1:]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
async def test_few_peers_form_a_full_mesh(open_harness: OpenHarness, count: int) -> None:
    harness = open_harness()
    await harness.add(count)
    await harness.until(lambda: all(b.id in a.neighbors for a, b in combinations(harness.peers, 2)))


async def test_every_peer_receives_every_message_once_and_in_order(open_harness: OpenHarness) -> None:
    harness = open_harness()
    await harness.add(12)
    for number in range(20):
        for peer in harness.peers:
            peer.send(f"{number} of {peer.id}".encode())
    await harness.until(lambda: all_peers_have_all(harness))
    for peer in harness.peers:  # a duplicate of the others would arrive before or with these
        peer.send(b"last")
    await harness.until(lambda: all_peers_have_all(harness))


@pytest.mark.parametrize(("degree", "count"), [(4, 14), (3, 8), (3, 9), (6, 12)])
async def test_fabric_grows_regular_and_connected(open_harness: OpenHarness, degree: int, count: int) -> None:
    harness = open_harness(Tuning(degree=degree))
    await harness.add(count)
    await harness.until(lambda: is_converged(harness))


async def test_peers_that_start_at_once_form_one_fabric(open_harness: OpenHarness) -> None:
    harness = open_harness()
    await harness.add(6, at_once=True)
    await harness.until(lambda: is_converged(harness))


async def test_late_joiner_receives_no_gap(open_harness: OpenHarness) -> None:
    harness = open_harness()
    author, *_ = await harness.add(7)
    starts: dict[HarnessPeer, dict[HarnessPeer, int]] = {}
    for _ in range(4):
        for number in range(25):
            author.send(b"%d" % number)
        (joiner,) = await harness.add()
        sent_by_then = len(author.sent)
        for number in range(25):
            author.send(b"%d" % number)
        await harness.until(partial(has_last_message, joiner, author))
        first = joiner.received_from(author)[0][0]
        assert first <= sent_by_then + 1, "the joiner has every message sent since it was connected"
        starts[joiner] = {author: first - 1}
    await harness.until(lambda: all_peers_have_all(harness, starts))


async def test_leaving_peers_lose_no_message(open_harness: OpenHarness) -> None:
    harness = open_harness()
    leaving, remaining = (await harness.add(12))[:4], harness.peers[4:]
    for peer in [*leaving, *remaining]:
        peer.send(b"before")
    for peer in leaving:
        peer.send(b"my last message")
        peer.peer.leave()
        harness.peers.remove(peer)
    for peer in remaining:
        peer.send(b"after")
    await harness.until(lambda: all(peer.peer.state is PeerState.LEFT for peer in leaving))
    await harness.until(lambda: is_converged(harness) and all_peers_have_all(harness))
    assert all(reader.received_from(author) == sent_messages(author) for author in leaving for reader in remaining)


@pytest.mark.parametrize(("count", "killed"), [(12, 4), (12, 9), (6, 5)])
async def test_fabric_recovers_when_any_share_is_killed(open_harness: OpenHarness, count: int, killed: int) -> None:
    harness = open_harness()
    await harness.add(count)
    await harness.until(lambda: is_converged(harness))
    for peer in harness.peers:
        peer.send(b"before")
    dead = harness.peers[1 : 1 + killed]
    harness.kill(dead)
    for peer in harness.peers:
        peer.send(b"after")
    await harness.until(lambda: is_converged(harness) and all_peers_have_all(harness), 40)
    for author in dead:
        received = [reader.received_from(author) for reader in harness.peers]
        assert all(each == received[0] for each in received), "all survivors have the same messages of a dead author"


async def test_partitioned_parts_merge_and_exchange_all_messages(open_harness: OpenHarness) -> None:
    harness = open_harness()
    await harness.add(12)
    await harness.until(lambda: is_converged(harness))
    part = harness.peers[:5]
    harness.partition(part)
    for peer in harness.peers:
        peer.send(b"apart")
    await harness.until(lambda: not any(other.id in peer.neighbors for peer in part for other in harness.peers[5:]))
    harness.heal()
    for peer in harness.peers:
        peer.send(b"together")
    await harness.until(lambda: is_converged(harness) and all_peers_have_all(harness), 40)


async def test_messages_past_retention_are_reported_as_missed_exactly(open_harness: OpenHarness) -> None:
    harness = open_harness(Tuning(retention_s=1.0))
    await harness.add(6)
    await harness.until(lambda: is_converged(harness))
    isolated, author = harness.peers[0], harness.peers[-1]
    author.send(b"1")
    await harness.until(lambda: all_peers_have_all(harness))
    harness.partition([isolated])
    await harness.until(lambda: not isolated.neighbors)
    for number in range(2, 12):
        author.send(b"%d" % number)
    expired_at = author.peer.runtime.now() + 3 * harness.settings.retention_s
    await harness.until(lambda: author.peer.runtime.now() > expired_at)
    harness.heal()
    # Sent only now, because merging may take longer than retention and this message must arrive.
    await harness.until(lambda: is_converged(harness), 40)
    author.send(b"12")
    await harness.until(lambda: isolated.received_from(author)[-1:] == [(12, b"12")], 40)
    missed = [
        sequence for missed in isolated.missed for sequence in range(missed.first_sequence, missed.last_sequence + 1)
    ]
    received = [sequence for sequence, _ in isolated.received_from(author)]
    assert all(missed.author == author.id for missed in isolated.missed)
    assert sorted(missed + received) == list(range(1, 13)), "each message is either delivered or missed"
    assert missed, "ten messages were retained for one second only"


async def test_channel_is_closed_for_all_peers(open_harness: OpenHarness) -> None:
    harness = open_harness(Tuning(accept_channel_close=True))
    await harness.add(8)
    await harness.until(lambda: is_converged(harness))
    harness.peers[3].peer.close_channel()
    await harness.until(lambda: all(peer.peer.state is PeerState.LEFT for peer in harness.peers))


async def test_paused_peer_reads_no_messages_from_links_that_are_made_meanwhile(open_harness: OpenHarness) -> None:
    harness = open_harness()
    paused, other = await harness.add(2)
    await harness.until(lambda: is_converged(harness))
    harness.pause_reading([paused])
    (newcomer,) = await harness.add()
    await harness.until(lambda: {paused.id, other.id} <= set(newcomer.neighbors) and newcomer.id in paused.neighbors)
    for number in range(20):  # the paused peer has time to read
        newcomer.send(b"%d" % number)
        await harness.until(lambda number=number: len(other.received) == number + 1)  # type: ignore[misc]
    assert not paused.received
    harness.resume_reading([paused])
    await harness.until(lambda: len(paused.received) == 20)
    assert not paused.missed
