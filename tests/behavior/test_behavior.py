"""What a channel does, whichever world its peers live in."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import combinations

import pytest

from broadloom.protocol import PeerState, Tuning
from broadloom.transport.event_loop import run
from tests.behavior.harness import Harness, HarnessPeer, SimHarness, SocketHarness, is_converged

Scenario = Callable[[Harness], Awaitable[None]]
RUNTIMES = [
    "simulated",
    "plain sockets",
    pytest.param("TLS", marks=pytest.mark.long),  # between the other two: what it might find, one of them does
    "TLS, signed",
]


@pytest.fixture(params=RUNTIMES)
def plays(request: pytest.FixtureRequest) -> Callable[..., None]:
    def plays(play: Scenario, settings: Tuning | None = None) -> None:
        async def whole_play() -> None:
            made = settings or Tuning()
            world: str = request.param
            stage: Harness
            if world == "simulated":
                stage = SimHarness(made)
            else:
                stage = SocketHarness(made, tls=world.startswith("TLS"), signed=world.endswith("signed"))
            try:
                await play(stage)
                assert all(actor.links_max <= made.degree for actor in stage.peers)
            finally:  # what a failure leaves open would be warned of, as an error, and uvloop hang over it
                await stage.close()

        run(whole_play())

    return plays


def sent_messages(author: HarnessPeer, start: int = 0) -> list[tuple[int, bytes]]:
    return [(number + 1, data) for number, data in enumerate(author.sent)][start:]


def all_peers_have_all(harness: Harness, starts: dict[HarnessPeer, dict[HarnessPeer, int]] | None = None) -> bool:
    """Every message of everyone who is there, once and in order, from where each one started."""
    return all(
        reader.received_from(author) == sent_messages(author, (starts or {}).get(reader, {}).get(author, 0))
        for author in harness.peers
        for reader in harness.peers
        if reader is not author
    )


def has_last_message(reader: HarnessPeer, author: HarnessPeer) -> bool:
    return reader.received_from(author)[-1:] == sent_messages(author)[-1:]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_few_peers_are_all_linked_to_each_other(plays: Callable[..., None], count: int) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(count)
        await stage.until(lambda: all(b.id in a.neighbors for a, b in combinations(stage.peers, 2)))

    plays(play)


def test_everyone_gets_every_message_once_and_in_order(plays: Callable[..., None]) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(12)
        for number in range(20):
            for actor in stage.peers:
                actor.send(f"{number} of {actor.id}".encode())
        await stage.until(lambda: all_peers_have_all(stage))
        await stage.sleep(0.5)
        assert all_peers_have_all(stage)

    plays(play)


@pytest.mark.parametrize(("degree", "count"), [(4, 14), (3, 8), (3, 9), (6, 12)])
def test_a_fabric_grows_regular_and_connected(plays: Callable[..., None], degree: int, count: int) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(count)
        await stage.until(lambda: is_converged(stage))

    plays(play, Tuning(degree=degree))


def test_peers_that_start_at_the_same_moment_end_in_one_fabric(plays: Callable[..., None]) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(6, at_once=True)
        await stage.until(lambda: is_converged(stage))

    plays(play)


def test_a_newcomer_starts_cleanly_in_the_middle_of_traffic(plays: Callable[..., None]) -> None:
    async def play(stage: Harness) -> None:
        speaker, *_ = await stage.add(7)
        started: dict[HarnessPeer, dict[HarnessPeer, int]] = {}
        for _ in range(4):
            for number in range(25):
                speaker.send(b"%d" % number)
            (newcomer,) = await stage.add()
            sent_by_then = len(speaker.sent)
            for number in range(25):
                speaker.send(b"%d" % number)
            await stage.until(partial(has_last_message, newcomer, speaker))
            first = newcomer.received_from(speaker)[0][0]
            assert first <= sent_by_then + 1, "it misses nothing that was sent since it was connected"
            started[newcomer] = {speaker: first - 1}
        await stage.until(lambda: all_peers_have_all(stage, started))

    plays(play)


def test_who_leaves_takes_nothing_with_it(plays: Callable[..., None]) -> None:
    async def play(stage: Harness) -> None:
        leavers, stayers = (await stage.add(12))[:4], stage.peers[4:]
        for actor in [*leavers, *stayers]:
            actor.send(b"before")
        for leaver in leavers:
            leaver.send(b"my last word")
            leaver.peer.leave()
            stage.peers.remove(leaver)
        for actor in stayers:
            actor.send(b"after")
        await stage.until(lambda: all(leaver.peer.state is PeerState.LEFT for leaver in leavers))
        await stage.until(lambda: is_converged(stage) and all_peers_have_all(stage))
        assert all(reader.received_from(leaver) == sent_messages(leaver) for leaver in leavers for reader in stayers)

    plays(play)


@pytest.mark.parametrize(("count", "killed"), [(12, 4), (12, 9), (6, 5)])
def test_any_share_may_die_at_once(plays: Callable[..., None], count: int, killed: int) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(count)
        await stage.until(lambda: is_converged(stage))
        for actor in stage.peers:
            actor.send(b"before")
        dead = stage.peers[1 : 1 + killed]
        stage.kill(dead)
        for actor in stage.peers:
            actor.send(b"after")
        await stage.until(lambda: is_converged(stage) and all_peers_have_all(stage), 40)
        for author in dead:
            heard = [reader.received_from(author) for reader in stage.peers]
            assert all(each == heard[0] for each in heard), "what one survivor has of a dead author, all have"

    plays(play)


def test_two_parts_merge_and_have_everything(plays: Callable[..., None]) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(12)
        await stage.until(lambda: is_converged(stage))
        here = stage.peers[:5]
        stage.partition(here)
        for actor in stage.peers:
            actor.send(b"apart")
        await stage.until(lambda: not any(other.id in actor.neighbors for actor in here for other in stage.peers[5:]))
        stage.heal()
        for actor in stage.peers:
            actor.send(b"together")
        await stage.until(lambda: is_converged(stage) and all_peers_have_all(stage), 40)

    plays(play)


def test_what_cannot_be_had_any_more_is_told_exactly(plays: Callable[..., None]) -> None:
    """Apart for longer than messages are kept."""

    async def play(stage: Harness) -> None:
        await stage.add(6)
        await stage.until(lambda: is_converged(stage))
        lonely, speaker = stage.peers[0], stage.peers[-1]
        speaker.send(b"1")
        await stage.until(lambda: all_peers_have_all(stage))
        stage.partition([lonely])
        await stage.until(lambda: not lonely.neighbors)
        for number in range(2, 12):
            speaker.send(b"%d" % number)
        await stage.sleep(3.0)
        stage.heal()
        # Said only now: merging may take longer than a message is kept, and this one is to arrive.
        await stage.until(lambda: is_converged(stage), 40)
        speaker.send(b"12")
        await stage.until(lambda: lonely.received_from(speaker)[-1:] == [(12, b"12")], 40)
        told = [
            sequence for missed in lonely.missed for sequence in range(missed.first_sequence, missed.last_sequence + 1)
        ]
        got = [sequence for sequence, _ in lonely.received_from(speaker)]
        assert all(missed.author == speaker.id for missed in lonely.missed)
        assert sorted(told + got) == list(range(1, 13)), "each was delivered or told as missed, and none both"
        assert told, "ten of them were kept for one second only"

    plays(play, Tuning(retention_s=1.0))


def test_a_channel_can_be_closed_for_all(plays: Callable[..., None]) -> None:
    async def play(stage: Harness) -> None:
        await stage.add(8)
        await stage.until(lambda: is_converged(stage))
        stage.peers[3].peer.close_channel()
        await stage.until(lambda: all(actor.peer.state is PeerState.LEFT for actor in stage.peers))

    plays(play, Tuning(accept_channel_close=True))
