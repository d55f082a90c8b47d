"""What a channel does, whichever world its peers live in."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import combinations

import pytest

from tests.behaviour.stage import Actor, SimStage, SocketStage, Stage, whole
from weft.fabric import Settings, State
from weft.net.loop import run

Play = Callable[[Stage], Awaitable[None]]
WORLDS = [
    "simulated",
    "plain sockets",
    pytest.param("TLS", marks=pytest.mark.long),  # between the other two: what it might find, one of them does
    "TLS, signed",
]


@pytest.fixture(params=WORLDS)
def plays(request: pytest.FixtureRequest) -> Callable[..., None]:
    def plays(play: Play, settings: Settings | None = None) -> None:
        async def whole_play() -> None:
            made = settings or Settings()
            world: str = request.param
            stage: Stage
            if world == "simulated":
                stage = SimStage(made)
            else:
                stage = SocketStage(made, tls=world.startswith("TLS"), signed=world.endswith("signed"))
            try:
                await play(stage)
                assert all(actor.most_links <= made.degree for actor in stage.actors)
            finally:  # what a failure leaves open would be warned of, as an error, and uvloop hang over it
                await stage.close()

        run(whole_play())

    return plays


def all_of(author: Actor, start: int = 0) -> list[tuple[int, bytes]]:
    return [(number + 1, data) for number, data in enumerate(author.said)][start:]


def everyone_has_all(stage: Stage, starts: dict[Actor, dict[Actor, int]] | None = None) -> bool:
    """Every message of everyone who is there, once and in order, from where each one started."""
    return all(
        reader.heard_of(author) == all_of(author, (starts or {}).get(reader, {}).get(author, 0))
        for author in stage.actors
        for reader in stage.actors
        if reader is not author
    )


def has_the_last(reader: Actor, author: Actor) -> bool:
    return reader.heard_of(author)[-1:] == all_of(author)[-1:]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_few_peers_are_all_linked_to_each_other(plays: Callable[..., None], count: int) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(count)
        await stage.until(lambda: all(b.id in a.neighbours for a, b in combinations(stage.actors, 2)))

    plays(play)


def test_everyone_gets_every_message_once_and_in_order(plays: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(12)
        for number in range(20):
            for actor in stage.actors:
                actor.says(f"{number} of {actor.id}".encode())
        await stage.until(lambda: everyone_has_all(stage))
        await stage.passes(0.5)
        assert everyone_has_all(stage)

    plays(play)


@pytest.mark.parametrize(("degree", "count"), [(4, 14), (3, 8), (3, 9), (6, 12)])
def test_a_fabric_grows_regular_and_connected(plays: Callable[..., None], degree: int, count: int) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(count)
        await stage.until(lambda: whole(stage))

    plays(play, Settings(degree=degree))


def test_peers_that_start_at_the_same_moment_end_in_one_fabric(plays: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(6, at_once=True)
        await stage.until(lambda: whole(stage))

    plays(play)


def test_a_newcomer_starts_cleanly_in_the_middle_of_traffic(plays: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        speaker, *_ = await stage.add(7)
        started: dict[Actor, dict[Actor, int]] = {}
        for _ in range(4):
            for number in range(25):
                speaker.says(b"%d" % number)
            (newcomer,) = await stage.add()
            sent_by_then = len(speaker.said)
            for number in range(25):
                speaker.says(b"%d" % number)
            await stage.until(partial(has_the_last, newcomer, speaker))
            first = newcomer.heard_of(speaker)[0][0]
            assert first <= sent_by_then + 1, "it misses nothing that was sent since it was connected"
            started[newcomer] = {speaker: first - 1}
        await stage.until(lambda: everyone_has_all(stage, started))

    plays(play)


def test_who_leaves_takes_nothing_with_it(plays: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        leavers, stayers = (await stage.add(12))[:4], stage.actors[4:]
        for actor in [*leavers, *stayers]:
            actor.says(b"before")
        for leaver in leavers:
            leaver.says(b"my last word")
            leaver.peer.leave()
            stage.actors.remove(leaver)
        for actor in stayers:
            actor.says(b"after")
        await stage.until(lambda: all(leaver.peer.state is State.LEFT for leaver in leavers))
        await stage.until(lambda: whole(stage) and everyone_has_all(stage))
        assert all(reader.heard_of(leaver) == all_of(leaver) for leaver in leavers for reader in stayers)

    plays(play)


@pytest.mark.parametrize(("count", "killed"), [(12, 4), (12, 9), (6, 5)])
def test_any_share_may_die_at_once(plays: Callable[..., None], count: int, killed: int) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(count)
        await stage.until(lambda: whole(stage))
        for actor in stage.actors:
            actor.says(b"before")
        dead = stage.actors[1 : 1 + killed]
        stage.kill(dead)
        for actor in stage.actors:
            actor.says(b"after")
        await stage.until(lambda: whole(stage) and everyone_has_all(stage), 40)
        for author in dead:
            heard = [reader.heard_of(author) for reader in stage.actors]
            assert all(each == heard[0] for each in heard), "what one survivor has of a dead author, all have"

    plays(play)


def test_two_parts_merge_and_have_everything(plays: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(12)
        await stage.until(lambda: whole(stage))
        here = stage.actors[:5]
        stage.split(here)
        for actor in stage.actors:
            actor.says(b"apart")
        await stage.until(lambda: not any(other.id in actor.neighbours for actor in here for other in stage.actors[5:]))
        stage.heal()
        for actor in stage.actors:
            actor.says(b"together")
        await stage.until(lambda: whole(stage) and everyone_has_all(stage), 40)

    plays(play)


def test_what_cannot_be_had_any_more_is_told_exactly(plays: Callable[..., None]) -> None:
    """Apart for longer than messages are kept."""

    async def play(stage: Stage) -> None:
        await stage.add(6)
        await stage.until(lambda: whole(stage))
        lonely, speaker = stage.actors[0], stage.actors[-1]
        speaker.says(b"1")
        await stage.until(lambda: everyone_has_all(stage))
        stage.split([lonely])
        await stage.until(lambda: not lonely.neighbours)
        for number in range(2, 12):
            speaker.says(b"%d" % number)
        await stage.passes(3.0)
        stage.heal()
        # Said only now: merging may take longer than a message is kept, and this one is to arrive.
        await stage.until(lambda: whole(stage), 40)
        speaker.says(b"12")
        await stage.until(lambda: lonely.heard_of(speaker)[-1:] == [(12, b"12")], 40)
        told = [sequence for missed in lonely.missed for sequence in range(missed.first, missed.last + 1)]
        got = [sequence for sequence, _ in lonely.heard_of(speaker)]
        assert all(missed.author == speaker.id for missed in lonely.missed)
        assert sorted(told + got) == list(range(1, 13)), "each was delivered or told as missed, and none both"
        assert told, "ten of them were kept for one second only"

    plays(play, Settings(retention_s=1.0))


def test_a_channel_can_be_closed_for_all(plays: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.add(8)
        await stage.until(lambda: whole(stage))
        stage.actors[3].peer.shut_down()
        await stage.until(lambda: all(actor.peer.state is State.LEFT for actor in stage.actors))

    plays(play, Settings(obey_shutdown=True))
