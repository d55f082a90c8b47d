"""What happens to a game when something around it fails: callbacks, log files, readers, slow programs."""

import asyncio
import errno
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broadloom.apps import game
from broadloom.apps.game import Chance, IllegalActionError, Phase
from broadloom.apps.game.entry import Entry, Kind, decode_entry
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.table import STATE_NESTING_MAX, Table
from broadloom.channel.layer import Layer
from broadloom.errors import NoMajorityError, NotConnectedError
from tests.apps.game.sim_runtime import FreeRelay, Relay
from tests.apps.game.test_attacks import nested
from tests.apps.game.test_play import OPTIONS, Arena
from tests.channel.joined import unique_name
from tests.support import TIMEOUT_S, eventually


class FullFile(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_game_goes_on_without_a_log_or_a_callback_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_change: game.Change) -> None:
        raise RuntimeError("the callback is broken")

    async with game.join(unique_name(), of=Chain(2), name="Anna", log_file=tmp_path / "log", **OPTIONS) as play:
        play.on_event(fail)
        assert play._log is not None
        play._log._file.close()
        play._log._file = FullFile()
        await play.start()
        assert play.table.phase is Phase.RUNNING
    assert "the game log ends here: [Errno 28] No space left on device" in caplog.text
    assert "an event callback failed" in caplog.text


class FreeArena(Arena):
    order = game.GameOrder.FREE


async def test_player_in_free_order_lets_other_tasks_run() -> None:
    async with game.join(unique_name(), of=FreeArena(1), name="Anna", **OPTIONS) as play:
        has_run = asyncio.Event()
        asyncio.get_running_loop().call_soon(has_run.set)
        await play.moved(0, 0)
        assert has_run.is_set()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Nothing is sent before this event."""
    is_open, broadcast = asyncio.Event(), Layer.broadcast

    async def wait_and_broadcast(self: Layer, data: bytes, **options: Any) -> int:
        await is_open.wait()
        return await broadcast(self, data, **options)

    monkeypatch.setattr(Layer, "broadcast", wait_and_broadcast)
    monkeypatch.setattr("broadloom.channel.layer_runtime.PAUSE_BYTES", 1000)
    monkeypatch.setattr(game.Play, "_drain_timeout_s", 0.1)
    monkeypatch.setattr("broadloom.apps.game.play.LEAVE_TIMEOUT_S", 0.1)
    return is_open


async def test_player_in_free_order_acts_no_faster_than_the_channel_sends(stuck: asyncio.Event) -> None:
    async with game.join(unique_name(), of=FreeArena(1), name="Anna", **OPTIONS) as play:

        async def act() -> None:
            for number in range(100):
                await play.moved(number, 0)

        acting = asyncio.create_task(act())
        await eventually(lambda: play.is_congested, "the queue is full")
        before = len(play.state["reports"])
        with pytest.raises(game.GameError, match=r"nothing could be sent within 0\.01 s"):
            await play._submit(Kind.START, timeout_s=0.01)
        assert (len(play.state["reports"]), play.queued_bytes < 2000) == (before, True)
        stuck.set()
        await acting
        assert len(play.state["reports"]) == 100
        assert [each.number for each in play._participant.timeline.entries] == list(range(1, 102)), "no gap"


async def test_game_is_left_although_nothing_can_be_sent(
    stuck: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with game.join(unique_name(), of=FreeArena(1), name="Anna", **OPTIONS) as play:
        while not play.is_congested:
            await play.moved(0, 0)
        acting = asyncio.create_task(play.moved(1, 0))
        async with asyncio.timeout(TIMEOUT_S):
            await play.leave()
            with pytest.raises(NotConnectedError, match="was left"):
                await acting
    assert not stuck.is_set()
    assert "bytes were not sent in time" in caplog.text


async def test_reader_that_fails_ends_the_game_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("broken rules")

    async with game.join(unique_name(), of=Chain(2), name="Anna", **OPTIONS) as play:
        monkeypatch.setattr(play._participant, "on_entry", fail)
        with pytest.raises(game.GameError, match="broken rules"):
            await play.start()
        with pytest.raises(game.GameError, match="broken rules"):
            await play.start()
        assert play.is_ended


async def test_message_to_a_member_that_is_gone_and_a_failed_entry_do_not_end_the_game(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[bytes] = []

    async def fail(data: bytes) -> None:
        failed.append(data)
        raise NoMajorityError("a fault")

    async with game.join(unique_name(), of=Chain(2), name="Anna", **OPTIONS) as play:
        before = len(play._tasks)
        play.tell_member(12345, b"{}")
        with monkeypatch.context() as patch:
            patch.setattr(play._order, "submit", fail)
            play.submit(Entry(int(play.peer_id), 99, Kind.START))
            await eventually(lambda: bool(failed) and len(play._tasks) <= before, "both have failed")
        await play.start()
        assert play.table.phase is Phase.RUNNING


async def test_program_that_reads_too_slowly_learns_how_many_changes_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(game.Play, "_events_max", 3)
    async with game.join(unique_name(), of=Chain(2), role="", **OPTIONS) as play:
        for number in range(5):
            play.emit(game.Started(number))
        received = [await play.receive(timeout_s=5) for _ in range(4)]
        assert received == [game.Missed(2), game.Started(2), game.Started(3), game.Started(4)]


async def test_line_that_a_game_cannot_turn_into_an_action_is_illegal() -> None:
    class Odd(FreeArena):
        def typed(self, state: game.State, role: str, text: str) -> Any:
            return answers[text]

    answers = {"nothing": None, "no values": ("run", None), "a list": ("run", [1]), "number as key": ("run", {1: 2})}
    async with game.join(unique_name(), of=Odd(1), name="Anna", **OPTIONS) as play:
        for text in answers:
            with pytest.raises(game.IllegalActionError, match=f"Arena cannot read '{text}'"):
                await play.typed(text)


async def test_role_that_the_game_does_not_have_is_named() -> None:
    with pytest.raises(game.NoRoleError, match="choose one of red, blue"):
        async with game.join(unique_name(), of=Chain(2), name="Anna", role="pink", **OPTIONS):
            pass


async def test_name_that_cannot_be_sent_is_refused() -> None:
    async with game.join(unique_name(), of=Chain(2), role="", **OPTIONS) as play:
        for name in ("\ud800", "x" * 300):
            with pytest.raises(ValueError, match="the name of a player"):
                await play.arrived(name=name)
        with pytest.raises(game.GameError, match="a player needs a name"):
            await play.arrived(name="  ")
    with pytest.raises(ValueError, match="a player needs a name"):
        game.join(unique_name(), of=Chain(2), name="  ")


def test_class_of_a_game_is_not_a_game() -> None:
    with pytest.raises(TypeError, match=r"such as Chain\(players=2\)"):
        game.join(unique_name(), of=Chain, name="Anna")  # type: ignore[arg-type]


def test_game_that_cannot_begin_is_refused_like_an_illegal_action() -> None:
    class Broken(FreeRelay):
        def begin(self, players: Sequence[str], chance: Chance) -> game.State:
            raise KeyError("no board")

    table = Table.new(Broken()).apply(Broken(), Entry(1, 1, Kind.SIT, "runner 1", "Ann"), "")
    with pytest.raises(IllegalActionError, match="cannot begin"):
        table.apply(Broken(), Entry(1, 2, Kind.START), "")


@pytest.mark.parametrize(
    "state",
    [
        *({"x": object()}, {"x": float("nan")}, {"x": "\ud800"}, None, {"x": nested(STATE_NESTING_MAX)}),
        *({"x": {1: "a", "b": 2}}, {"x": (1, 2)}),
    ],
    ids=["object", "nan", "surrogate", "none", "deep", "key", "tuple"],
)
def test_action_whose_state_is_not_json_is_illegal_at_all_players(state: game.State) -> None:
    class Broken(FreeRelay):
        def apply(self, state: game.State, action: game.Action, by: str, chance: Chance) -> game.State:
            return states[0]

    states, made = [state], Broken()
    table = Table.new(made).apply(made, Entry(1, 1, Kind.SIT, "runner 1", "Ann"), "")
    table = table.apply(made, Entry(1, 2, Kind.START), "")
    with pytest.raises(IllegalActionError, match="Relay cannot apply 'run'"):
        table.apply(made, Entry(1, 3, Kind.ACT, "runner 1", "run"), "")
    states[0] = {**table.state, "x": 1}
    assert table.apply(made, Entry(1, 3, Kind.ACT, "runner 1", "run"), "").state["x"] == 1


def test_player_cannot_choose_its_dice_by_the_number_of_its_action() -> None:
    table = Table.new(Relay()).apply(Relay(), Entry(1, 1, Kind.SIT, "runner 1", "Ann", time=1), "")
    begun = {table.apply(Relay(), Entry(1, number, Kind.START, time=2), "").hash() for number in range(2, 30)}
    assert len(begun) == 1
    others = {table.apply(Relay(), Entry(1, 2, Kind.START, time=time), "").hash() for time in range(2, 30)}
    assert len(others) > 1, "but each place in the order has its own"


def test_text_that_is_not_unicode_never_enters_a_table() -> None:
    with pytest.raises(ValueError, match="not an entry"):
        decode_entry(1, b'[1,1,"sit","red","\\ud800",{}]')
    with pytest.raises(ValueError, match="Unicode"):
        decode_entry(1, b'[1,1,"act","red","run",{"x":["\\ud800"]}]')
    with pytest.raises(ValueError, match="Unicode"):
        Table.parse({**Table.new(Chain(2)).as_dict(), "state": {"x": "\ud800"}})
