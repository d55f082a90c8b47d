"""The tape of any one player, with payloads, gives the final state again."""

from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from broadloom.apps import game
from broadloom.apps.game import Rewound
from broadloom.apps.game.game_log import log_line
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.games.gems import Gems
from broadloom.record import Tape, read
from tests.apps.game.histories import History
from tests.apps.game.test_play import OPTIONS, all_equal
from tests.apps.tapes import change_lines, payload_tape, simulated_tape
from tests.channel.joined import unique_name
from tests.histories import run_history
from tests.support import eventually


def line_kinds(folder: Path) -> list[str]:
    """The kinds of line on a tape."""
    payloads = read(folder, kinds=["app_log"], columns=["payload"])["payload"].to_pylist()
    return [each.split(b'"')[1].decode() for each in payloads if each is not None]


@pytest.mark.parametrize("kind", [Chain, Gems])
async def test_tape_of_any_player_replays_to_the_final_state(kind: type[Chain] | type[Gems], tmp_path: Path) -> None:
    channel, names = unique_name(), ("Anna", "Ben", "late")
    tapes = {name: payload_tape(tmp_path / name) for name in names}
    async with AsyncExitStack() as stack:

        async def join(name: str, role: str = "*") -> game.Play:
            joining = game.join(channel, of=kind(2), name=name, role=role, tape=tapes[name], **OPTIONS)
            return await stack.enter_async_context(joining)

        plays = [await join("Anna"), await join("Ben")]

        async def act() -> None:
            for _ in range(4):
                play = plays[0] if plays[0].game.turn(plays[0].state) in (None, "red") else plays[1]
                action = play.game.stand_in(play.state, str(play.role), game.Chance(1))
                if action is not None:
                    await play.do(action.name, **action.values)
                await all_equal(plays)

        await eventually(lambda: all(each.table.phase is game.Phase.RUNNING for each in plays), "the game starts")
        await act()
        plays.append(await join("late", role=""))
        await act()
        live = plays[0].state_hash()
        for play in plays:
            play.channel.abort()  # leaving would change the state
    for tape in tapes.values():
        tape.close()
    for name in names:
        *_, last = game.replay(tmp_path / name)
        assert last.timeline.tip.hash() == last.recorded_hash == live
    assert ("snapshot" in line_kinds(tmp_path / "late")) is (kind is Gems)


def test_changed_tape_gives_another_hash_than_the_player_had(tmp_path: Path) -> None:
    with simulated_tape(tmp_path) as make:
        history = History(1, tape_factory=make)
        history.run_for(6.0)
        finish(history)
    change_lines(tmp_path, lambda rows: [row for row in rows if row["peer"] == rows[0]["peer"]])
    *_, last = game.replay(tmp_path, history.game)
    assert last.timeline.tip.hash() == last.recorded_hash
    change_lines(
        tmp_path,
        lambda rows: [row | {"payload": row["payload"] and row["payload"].replace(b'"x":1', b'"x":2')} for row in rows],
    )
    *_, last = game.replay(tmp_path, history.game)
    assert last.timeline.tip.hash() != last.recorded_hash


def finish(history: History) -> None:
    """As `Play` ends the log."""
    for program in history.alive:
        program.tape_log.write(log_line("hash", program.participant.table.hash()))
        program.tape_log.end()


def check_tape(history: History, folder: Path) -> None:
    """Programs are on the tape in the order in which they joined. Those that were killed have no last line."""
    final = {each.participant.table.hash() for each in history.alive}
    for number, program in enumerate(history.programs, 1):
        *_, last = game.replay(folder, history.game, number=number)
        if program in history.alive:
            assert {last.timeline.tip.hash()} == {last.recorded_hash} == final


def run_taped_seed(seed: int) -> History:
    """Raises `AssertionError`."""
    with TemporaryDirectory() as folder:
        with simulated_tape(Path(folder)) as make:
            history = run_history(History(seed, tape_factory=make))
            finish(history)
        check_tape(history, Path(folder))
    return history


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6])
def test_every_tape_of_a_history_with_faults_replays_to_the_same_state(seed: int) -> None:
    history = run_taped_seed(seed)
    if seed in (1, 3):  # members of an agreed game are rewound, and late joiners get the state of another member
        assert {"rewound", "snapshot"} <= {kind for each in history.programs for kind, _ in each.inputs}


def test_tape_of_a_side_that_was_rewound_replays_to_the_state_of_the_others(tmp_path: Path) -> None:
    with simulated_tape(tmp_path) as make:
        history = History(2, is_free=False, tape_factory=make)
        history.run_for(4.0)
        history.sim.partition([history.alive[0].node])
        history.run_for(15.0)
        history.sim.heal()
        history.run_for(5.0)
        history.check()
        finish(history)
    assert any(isinstance(change, Rewound) for each in history.programs for change in each.changes)
    assert "rewound" in line_kinds(tmp_path)
    check_tape(history, tmp_path)


async def test_tape_without_payloads_has_no_log(tmp_path: Path) -> None:
    with Tape(tmp_path) as tape:
        async with game.join(unique_name(), of=Chain(2), name="Anna", tape=tape, **OPTIONS) as play:
            await play.start()
    with pytest.raises(game.GameError, match="has figures of the game, but not its entries: record"):
        list(game.replay(tmp_path))
