"""Games over real sockets: both orders, late joiners, stand-ins, illegal actions, game logs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import broadloom
from broadloom.apps import game
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.games.gems import Gems
from broadloom.order import OrderSettings
from tests.channel.joined import QUICK, unique_name
from tests.channel.owned import owned_channel, ticket_of
from tests.support import eventually

OPTIONS: dict[str, Any] = {"tls": False, "settings": QUICK}


@asynccontextmanager
async def playing(of: Callable[[int], game.Game], *names: str, **options: Any) -> AsyncIterator[list[game.Play]]:
    """Players with these names, in the roles of the game in order."""
    channel = unique_name()
    async with AsyncExitStack() as stack:
        plays = []
        for name in names:
            plays.append(await stack.enter_async_context(game.join(channel, of=of(2), name=name, **OPTIONS, **options)))
        yield plays
        for play in plays:
            play.channel.abort()  # leaving would take time


async def all_equal(plays: list[game.Play]) -> None:
    await eventually(lambda: len({each.state_hash() for each in plays}) == 1, "all states are equal")


def legal_cell(play: game.Play) -> dict[str, int]:
    cells = play.state["cells"]
    found = [(x, y) for y, row in enumerate(cells) for x, cell in enumerate(row) if cell[0] in ("", play.role)]
    # The colors begin in opposite corners, so that nobody loses soon.
    return dict(zip(("x", "y"), found[0 if play.role == "red" else -1], strict=True))


async def test_players_of_an_agreed_game_have_the_same_state() -> None:
    async with playing(Chain, "Anna", "Ben") as plays:
        await eventually(lambda: all(each.table.phase is game.Phase.RUNNING for each in plays), "the game starts")
        for _ in range(6):
            mover = next(each for each in plays if each.state["turn"] == each.role)
            await mover.do("place", **legal_cell(mover))
            await all_equal(plays)
        assert sum(plays[0].game.score(plays[0].state).values()) == 6


async def test_illegal_action_is_reported_to_its_sender_and_has_no_effect() -> None:
    async with playing(Chain, "Anna", "Ben") as plays:
        await eventually(lambda: all(each.table.phase is game.Phase.RUNNING for each in plays), "the game starts")
        waiting = next(each for each in plays if each.state["turn"] != each.role)
        before = waiting.state_hash()
        with pytest.raises(game.IllegalActionError, match="it is the turn of"):
            await waiting.do("place", x=0, y=0)
        await all_equal(plays)
        assert plays[0].state_hash() == before


async def test_late_joiner_has_the_state_of_the_others() -> None:
    async with playing(Chain, "Anna", "Ben") as plays:
        await eventually(lambda: plays[0].table.phase is game.Phase.RUNNING, "the game starts")
        mover = next(each for each in plays if plays[0].state["turn"] == each.role)
        await mover.do("place", x=3, y=3)
        async with game.join(plays[0].channel.name, of=Chain(2), role="", **OPTIONS) as spectator:
            await all_equal([*plays, spectator])
            with pytest.raises(game.GameError, match="take a role"):
                await spectator.do("place", x=0, y=0)


@pytest.mark.parametrize("kind", [Chain, Gems])
async def test_game_for_another_number_of_players_is_refused_on_the_same_channel(
    kind: type[Chain] | type[Gems],
) -> None:
    async with playing(kind, "Anna", "Ben") as plays:
        await eventually(lambda: all(not each.table.open_roles() for each in plays), "both are here")
        with pytest.raises(game.GameError, match=f"{kind.name} for 2 players is played here, not {kind.name} for 4"):
            async with game.join(plays[0].channel.name, of=kind(4), name="Dan", **OPTIONS):
                pass
        assert {seat.name for seat in plays[0].table.seats.values()} == {"Anna", "Ben"}
        assert not any(each.is_ended for each in plays)


async def test_role_that_is_taken_is_refused() -> None:
    async with playing(Chain, "Anna", "Ben") as plays:
        with pytest.raises(game.RoleTakenError, match="taken: red: Anna"):
            async with game.join(plays[0].channel.name, of=Chain(2), name="Carla", role="red", **OPTIONS):
                pass


async def test_name_that_a_present_player_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broadloom.apps.game.seating.NAMESAKE_S", 0.3)
    async with playing(Chain, "Anna") as [anna]:
        for role in ("*", "red"):
            with pytest.raises(game.RoleTakenError, match="Anna is in the game already: choose another name"):
                async with game.join(anna.channel.name, of=Chain(2), name="Anna", role=role, **OPTIONS):
                    pass
        assert anna.table.seats["red"].player == anna.peer_id
        await anna.start()


async def test_player_with_a_ticket_has_the_name_on_it() -> None:
    async with owned_channel(2) as owned:
        one, two = owned.members
        async with game.Play(one, Chain(2), name="Anna", role="*") as play, game.Play(two, Chain(2)) as other:
            await other.arrived(name="Anna")
            names = {"red": "member 0", "blue": "member 1"}
            await eventually(lambda: {role: seat.name for role, seat in play.table.seats.items()} == names, "both")
        ticket = ticket_of(owned.owner, "Carla")
        async with game.join(unique_name(), of=Chain(2), name="Anna", ticket=ticket, settings=QUICK) as play:
            assert play.table.seats["red"].name == "Carla"


async def test_players_of_a_free_game_have_the_same_state() -> None:
    async with playing(Gems, "Anna", "Ben") as plays:
        await eventually(lambda: all(each.table.phase is game.Phase.RUNNING for each in plays), "the game starts")
        for text in "sdsd":
            for play in plays:
                try:
                    await play.typed(text if play.role == "red" else {"s": "w", "d": "a"}[text])
                except game.IllegalActionError:
                    continue
        await all_equal(plays)
        assert plays[0].state["at"]["red"] != [0, 0]
        async with game.join(plays[0].channel.name, of=Gems(2), role="", **OPTIONS) as spectator:
            await all_equal([*plays, spectator])


class Arena(game.Game):
    """Keeps what the players report."""

    name, title, about, help = "arena", "Arena", "", ""
    order = game.GameOrder.AGREED

    def __init__(self, players: int) -> None:
        self.roles = {"player": players}

    def begin(self, players: Sequence[str], chance: game.Chance) -> game.State:
        return {"reports": []}

    def apply(self, state: game.State, action: game.Action, by: str, chance: game.Chance) -> game.State:
        return {"reports": [*state["reports"], [by, action.name, action.values]]}

    def over(self, state: game.State) -> game.Result | None:
        scored = any(name == "scored" for _, name, _ in state["reports"])
        return game.Result("player 1", "the score is reached") if scored else None


async def test_players_report_moves_shots_scores_arrival_and_departure() -> None:
    async with playing(Arena, "Anna", "Ben") as (anna, ben):
        await eventually(lambda: anna.table.phase is ben.table.phase is game.Phase.RUNNING, "the game starts")
        await anna.moved(3, 4)
        await anna.shot(1, 0)
        await ben.departed()
        assert ben.role is None
        await ben.arrived()
        assert ben.role == "player 2"
        await anna.scored(2)
        expected = [["moved", {"x": 3, "y": 4}], ["shot", {"dx": 1, "dy": 0}], ["scored", {"points": 2}]]
        await eventually(lambda: ben.table.phase is game.Phase.OVER, "the score ends the game")
        assert ben.state == {"reports": [["player 1", *each] for each in expected]}


async def test_late_joiner_of_a_long_agreed_game_has_the_state_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(OrderSettings, log_entries_max=32, unread_max=8)
    monkeypatch.setattr("broadloom.order.order.OrderSettings", small)
    async with playing(Arena, "Anna", "Ben") as (anna, ben):
        await eventually(lambda: anna.table.phase is ben.table.phase is game.Phase.RUNNING, "the game starts")
        for number in range(50):
            await anna.moved(number, number)
        async with game.join(anna.channel.name, of=Arena(2), role="", **OPTIONS) as spectator:
            await all_equal([anna, ben, spectator])
            await ben.moved(1, 1)
            await all_equal([anna, ben, spectator])


@pytest.mark.parametrize("kind", [Chain, pytest.param(Gems, marks=pytest.mark.long)])
async def test_stand_in_plays_for_a_killed_player_until_it_is_back(kind: type[Chain] | type[Gems]) -> None:
    async with playing(kind, "Anna", "Ben") as plays:
        anna, ben = plays
        await eventually(lambda: all(each.table.phase is game.Phase.RUNNING for each in plays), "the game starts")
        ben.channel.abort()
        await eventually(lambda: anna.table.seats["blue"].actor == anna.channel.peer_id, "Anna stands in for blue")
        assert anna.table.seats["blue"].name == "Ben"
        async with game.join(anna.channel.name, of=kind(2), name="Ben", **OPTIONS) as back:
            assert back.role == "blue"
            await eventually(lambda: anna.table.seats["blue"].actor == back.channel.peer_id, "Ben is back")
            await all_equal([anna, back])


async def test_stand_in_acts_for_a_role_without_a_player() -> None:
    async with playing(Chain, "Anna") as [anna]:
        await anna.start()
        await eventually(lambda: anna.table.seats["blue"].actor == anna.channel.peer_id, "a stand-in for blue")
        await eventually(lambda: anna.state["turn"] == "red", "the turn of red")
        await anna.do("place", **legal_cell(anna))
        await eventually(lambda: sum(anna.game.score(anna.state).values()) >= 2, "the stand-in acts")


async def heard(play: game.Play) -> tuple[str, str]:
    """The next message to this player."""
    async with asyncio.timeout(10):
        said = await anext(each async for each in play if isinstance(each, game.Said))
    return said.name, said.text


async def test_player_tells_one_or_more_others_something_that_the_rest_does_not_get() -> None:
    async with playing(lambda _: Chain(4), "Anna", "Ben", "Carla", "Dan") as plays:
        anna, ben, carla, dan = plays
        await eventually(lambda: all(not each.table.open_roles() for each in plays), "all are here")
        await anna.tell("Ben", "flank left")
        assert await heard(ben) == ("Anna", "flank left")
        with pytest.raises(game.GameError, match="Eve is not in the game"):
            await anna.tell(["Ben", "Eve"], "never sent")
        await anna.tell(["Ben", "blue", str(carla.role)], "flank right")  # Ben has the role blue: he gets it once
        await dan.tell(["Ben", "Carla"], "now")
        assert [await heard(ben), await heard(ben)] == [("Anna", "flank right"), ("Dan", "now")]
        assert [await heard(carla), await heard(carla)] == [("Anna", "flank right"), ("Dan", "now")]
        assert not any(isinstance(each, game.Said) for each in iter(dan.receive_nowait, None))


async def test_message_to_a_role_is_not_for_a_player_of_that_name() -> None:
    async with playing(Chain, "blue", "Ben") as [blue, ben]:
        await eventually(lambda: not blue.table.open_roles(), "all are here")
        await blue.tell("blue", "for the role")
        assert (blue.role, await heard(ben)) == ("red", ("blue", "for the role"))


async def test_player_that_cannot_change_its_role_keeps_it() -> None:
    async with playing(Chain, "Anna", "Ben") as [anna, ben]:
        await eventually(lambda: not anna.table.open_roles(), "all are here")
        with pytest.raises(game.RoleTakenError):
            await ben.arrived("red")
        ben._seating.sit([int(anna.peer_id), int(ben.peer_id)])
        assert ("leave", "blue") not in ben._participant._tried
        assert (ben._seating.wanted, ben.role) == ("blue", "blue")


async def test_role_that_was_canceled_is_given_up_although_it_was_asked_for() -> None:
    async with playing(Chain, "Anna") as [anna], game.join(anna.channel.name, of=Chain(2), role="", **OPTIONS) as ben:
        arriving = asyncio.create_task(ben.arrived("blue", name="Ben"))
        await eventually(lambda: ("sit", "blue") in ben._participant._tried, "it has asked for the role", poll_s=0)
        arriving.cancel()
        with suppress(asyncio.CancelledError):
            await arriving
        await eventually(lambda: ("leave", "blue") in ben._participant._tried, "it gives up the role")
        await eventually(lambda: ben.role is None and not anna.table.seats["blue"].player, "the role is free")


@pytest.mark.parametrize("to", ["Anna", "red", ["Anna", "Ben"]], ids=["name", "role", "list"])
async def test_message_to_oneself_is_delivered(to: str | list[str]) -> None:
    async with playing(Chain, "Anna", "Ben") as [anna, ben]:
        await eventually(lambda: not anna.table.open_roles(), "all are here")
        await anna.tell(to, "think")
        assert await heard(anna) == ("Anna", "think")
        if "Ben" in to:
            assert await heard(ben) == ("Anna", "think")


async def test_message_reaches_the_others_although_one_is_gone() -> None:
    async with playing(lambda _: Chain(3), "Anna", "Ben", "Carla") as [anna, ben, carla]:
        await eventually(lambda: not anna.table.open_roles(), "all are here")
        ben.channel.abort()
        await eventually(lambda: ben.peer_id not in (anna.members() or [ben.peer_id]), "Ben is gone")
        with pytest.raises(broadloom.RequestError):
            await anna.tell(["Ben", "Carla"], "hold")
        assert await heard(carla) == ("Anna", "hold")


async def test_latest_round_is_replayed_action_by_action() -> None:
    async with playing(Chain, "Anna", "Ben") as plays:
        await eventually(lambda: all(each.table.phase is game.Phase.RUNNING for each in plays), "the game starts")
        first = next(each for each in plays if each.role == each.state["turn"])
        other = next(each for each in plays if each is not first)
        seen = [first.table]
        for mover, x in ((first, 0), (other, 1), (first, 0)):
            await mover.do("place", x=x, y=0)
            await all_equal(plays)
            seen.append(mover.table)
        assert first.table.phase is game.Phase.OVER
        begun, *actions = first.latest_round()
        assert [first.table_at(each) for each in (begun, *actions)] == seen
        await first.start()
        assert [first.table_at(each) for each in first.latest_round()] == [first.table]
        assert first.table.round == 2


@pytest.mark.parametrize("kind", [Chain, Gems])
async def test_game_log_of_any_player_replays_to_the_same_state(kind: type[Chain] | type[Gems], tmp_path: Path) -> None:
    channel = unique_name()
    async with (
        game.join(channel, of=kind(2), name="Anna", log_file=str(tmp_path / "Anna"), **OPTIONS) as anna,
        game.join(channel, of=kind(2), name="Ben", log_file=tmp_path / "Ben", **OPTIONS) as ben,
    ):
        await eventually(lambda: ben.table.phase is game.Phase.RUNNING, "the game starts")
        for _ in range(8):
            play = anna if anna.game.turn(anna.state) in (None, "red") else ben
            action = play.game.stand_in(play.state, str(play.role), game.Chance(1))
            if action is not None:
                await play.do(action.name, **action.values)
            await all_equal([anna, ben])
        await ben.departed()
        await all_equal([anna, ben])
        hashes = {anna.state_hash()}
    for name in ("Anna", "Ben"):
        *_, before, last = game.replay(tmp_path / name)
        assert last.recorded_hash == last.timeline.tip.hash() == before.timeline.tip.hash()
    *_, last = game.replay(str(tmp_path / "Ben"))
    assert last.timeline.tip.hash() in hashes
