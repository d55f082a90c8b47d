"""`broadloom game`."""

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import broadloom
from broadloom.apps.game.game import Result
from broadloom.apps.game.games import PROGRAMS
from broadloom.apps.game.games.chain import Chain
from broadloom.apps.game.table import Table
from broadloom.apps.game.timeline import Timeline
from broadloom.apps.tape_log import TapeLog
from broadloom.cli.game_screen import table_text
from broadloom.cli.main import app
from broadloom.protocol import ChannelName
from broadloom.wire import PeerId
from tests.apps.game.test_package import PROGRAM
from tests.apps.tapes import payload_tape
from tests.cli.harness import CommandProcess, new_channel, run, running_command
from tests.support import wait_until


def monitored_players(lobby: str) -> dict[str, str] | None:
    code, out, _ = run("game", "show", lobby, "board-1", "--no-tls", "--json")
    assert code == 0
    activity = json.loads(out)["activity"]
    return dict(activity["players"]) if activity is not None else None


def test_program_is_published_and_downloaded_and_runs_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lobby, program, copy = new_channel(), tmp_path / "count.py", tmp_path / "copy.py"
    program.write_text(PROGRAM, encoding="utf-8")
    code, _, err = run("game", "publish", lobby, str(program), "--no-tls")
    assert code == 1
    assert "it would be forgotten" in err
    with running_command("game", "monitor", lobby, "--no-tls", "--program", str(program)) as monitor:
        monitor.wait_for_output("monitoring")
        code, out, err = run("game", "publish", lobby, str(program), "--no-tls", "--json")
        assert code == 0, err
        sha256 = json.loads(out)["sha256"]
        register = ("game", "register", lobby, "board-1", "count", "--program", str(program), "--no-tls", "--json")
        code, out, err = run(*register)
        assert code == 0, err
        assert json.loads(out)["program"] == sha256
        PROGRAMS.clear()
        (tmp_path / "ran").unlink()
        code, out, err = run("game", "download", lobby, "count", "--out", str(copy), "--no-tls", "--json")
        assert code == 0, err
        assert (json.loads(out)["sha256"], copy.read_text(encoding="utf-8")) == (sha256, PROGRAM)
        monkeypatch.chdir(tmp_path)
        code, _, err = run("game", "download", lobby, "count", "--no-tls")
        assert (code, "count.py exists: choose a file with --out" in err) == (2, True), err
        program.unlink()
        code, _, err = run("game", "download", lobby, "count", "--no-tls")
        assert (code, program.read_bytes()) == (0, copy.read_bytes()), err
        code, _, err = run("game", "watch", lobby, "board-1", "--no-tls")
        assert code == 1
        assert "load its program" in err
        assert not (tmp_path / "ran").exists()
        code, _, err = run("game", "watch", lobby, "board-1", "--no-tls", "--program", str(tmp_path / "missing.py"))
        assert (code, "missing.py" in err) == (2, True), err
        missing = str(tmp_path / "missing" / "file")
        for words in (
            ("publish", lobby, missing),
            ("download", lobby, "count", "--out", missing),
            ("watch", lobby, "board-1", "--program", str(program), "--log", missing),
        ):
            code, _, err = run("game", *words, "--no-tls")
            assert (code, f"{missing}: No such file" in err) == (2, True), err


@pytest.mark.long
def test_players_join_by_name_and_their_logs_replay(tmp_path: Path) -> None:
    lobby, logs = new_channel(), [tmp_path / name for name in ("ann", "bob", "ann.tape", "bob.tape")]
    join = ("game", "join", lobby, "board-1", "--game", "chain", "--no-tls", "--json")
    with (
        running_command("game", "monitor", lobby, "--no-tls") as monitor,
        running_command(*join, "--as", "Ann", "--log", str(logs[0]), "--tape", str(logs[2])) as ann,
    ):
        ann.wait_for_output('"Arrived", "role": "red", "name": "Ann"')
        with running_command(*join, "--as", "Bob", "--log", str(logs[1]), "--tape", str(logs[3])) as bob:
            ann.wait_for_output('"change": "Started"')
            bob.wait_for_output('"Arrived", "role": "blue", "name": "Bob"')
            for player, cell in ((ann, "a1"), (bob, "h6"), (ann, "a1")):
                player.type(f"{cell}\n")  # one of the first two is not on turn, and gets a message
            ann.wait_for_output('"change": "Acted"')
            bob.wait_for_output('"change": "Acted"')
            ann.type("say Bob,blue well played\n")
            bob.wait_for_output('"Said", "name": "Ann"')
            wait_until(lambda: monitored_players(lobby) == {"red": "Ann", "blue": "Bob"}, "the monitor reports players")
            for player in (bob, ann):
                player.type("quit\n")
                assert player.wait().code == 0
        monitor.wait_for_output("monitoring")
    for log in logs:
        code, out, err = run("game", "replay", str(log), "--json")
        assert (code, err) == (0, "")
        fields = json.loads(out)
        assert fields["hash"] == fields["recorded_hash"]


CHANGED_LOG = [
    ["game", {"version": 1, "name": "chain", "players": 2, "seed": "x"}],
    ["entry", [7, 1, 1, "sit", "red", "Ann", {}]],
    ["hash", "0" * 32],
]


def test_tapes_of_several_games_are_listed_and_replayed_by_number(tmp_path: Path) -> None:
    with payload_tape(tmp_path) as tape:
        for name in ("Ann", "Bob"):
            log = TapeLog(tape.observer(ChannelName.parse("games/cli"), PeerId(7)), "game")
            log.begin(json.dumps(CHANGED_LOG[0]) + "\n", player=name)
            log.write(json.dumps(["entry", [7, 1, 1, "sit", "red", name, {}]]) + "\n")
            log.end()
    result = CliRunner().invoke(app, ["game", "replay", str(tmp_path)])
    assert result.exit_code == 1
    assert "choose one game by its number" in result.output
    assert '2: {"player": "Bob"}, peer 0000000000000007' in result.output
    result = CliRunner().invoke(app, ["game", "replay", str(tmp_path), "--number", "2"])
    assert (result.exit_code, "1 sit red Bob" in result.output) == (0, True), result.output


@pytest.mark.parametrize("is_taped", [False, True], ids=["file", "tape"])
def test_log_that_was_changed_is_reported(tmp_path: Path, is_taped: bool) -> None:
    log, lines = tmp_path / "log", [json.dumps(each) + "\n" for each in CHANGED_LOG]
    if is_taped:
        with payload_tape(log) as tape:
            tape_log = TapeLog(tape.observer(ChannelName.parse("games/cli"), PeerId(7)), "game")
            tape_log.begin(lines[0])
            for line in lines[1:]:
                tape_log.write(line)
    else:
        log.write_text("".join(lines), encoding="utf-8")
    result = CliRunner().invoke(app, ["game", "replay", str(log)])
    assert result.exit_code == 1
    assert "1 sit red Ann" in result.output
    assert "the log or the rules were changed" in result.output


@pytest.mark.parametrize("options", [[], ["--as", "  "]], ids=["none", "spaces"])
def test_player_without_a_name_is_a_usage_error(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["game", "join", "games/x", "board-1", *options])
    assert result.exit_code == 2
    assert "--as NAME" in result.output


def test_line_that_cannot_be_acted_on_is_reported_and_the_game_goes_on(tmp_path: Path) -> None:
    lobby, program = new_channel(), tmp_path / "count.py"
    typed = "    def typed(self, state, role, text):\n        return {}[text]\n"
    program.write_text(f"{PROGRAM}\n{typed}", encoding="utf-8")
    join = ("game", "join", lobby, "board-1", "--game", "count", "--as", "Ann", "--program", str(program))
    with running_command(*join, "--no-tls", "--json") as ann:
        ann.wait_for_output('"change": "Arrived"')
        ann.type("start\n")
        ann.wait_for_output('"change": "Started"')
        ann.type("anything\n")
        ann.wait_for_output("cannot read 'anything': KeyError('anything')")
        for line in ("say", "say Ann"):
            ann.type(f"{line}\n")
            ann.wait_for_output("say NAME[,NAME] TEXT")
        ann.type("say Ann note to myself\n")
        ann.wait_for_output('"text": "note to myself"')
        ann.type("quit\n")
        result = ann.wait()
    assert (result.code, "Traceback" in result.err) == (0, False), result.err


def test_result_of_a_game_cannot_control_the_terminal() -> None:
    table = replace(Table.new(Chain(2)), result=Result("red", "won\x1b[2J\x07"))
    assert "won" in table_text(Chain(2), table)
    assert not {"\x1b", "\x07"} & set(table_text(Chain(2), table))


def test_state_of_another_game_in_a_log_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "game.log"
    path.write_bytes(
        changed_snapshot(base={**Table.new(Chain(2)).as_dict(), "phase": "running", "state": {"cells": []}})
    )
    result = CliRunner().invoke(app, ["game", "replay", str(path)])
    assert (result.exit_code, "does not end with a state of this game" in result.output) == (1, True), result.output


async def test_player_learns_that_the_channel_of_the_game_was_closed() -> None:
    lobby = new_channel()
    with running_command("game", "join", lobby, "board-1", "--game", "chain", "--no-tls", "--as", "Ann") as ann:
        await asyncio.to_thread(ann.wait_for_output, "arrived")
        code, out, err = await asyncio.to_thread(run, "game", "show", lobby, "board-1", "--no-tls", "--json")
        assert code == 0, err
        async with broadloom.connect(json.loads(out)["channel"], tls=False) as member:
            await member.close_channel()
        code, _, err = await asyncio.to_thread(ann.wait)
        assert (code, "closed for all members" in err) == (0, True), err


@pytest.mark.long
def test_stand_in_plays_for_a_killed_player_until_it_is_back() -> None:
    lobby = new_channel()
    join = ("game", "join", lobby, "board-1", "--game", "chain", "--no-tls", "--json")
    with running_command(*join, "--as", "Ann") as ann:
        ann.wait_for_output('"Arrived", "role": "red", "name": "Ann"')
        with running_command(*join, "--as", "Bob") as bob:
            ann.wait_for_output('"Arrived", "role": "blue", "name": "Bob"')
            bob.signal(signal.SIGKILL)
            ann.wait_for_output('"change": "StoodIn", "role": "blue"')
        with running_command(*join, "--as", "Bob"):
            ann.wait_for_output('"change": "Back", "role": "blue", "name": "Bob"')


@pytest.mark.long
def test_game_is_drawn_and_played_with_keys_at_a_terminal() -> None:
    lobby = new_channel()
    player = CommandProcess("game", "join", lobby, "maze", "--game", "gems", "--no-tls", "--as", "Ann", terminal=True)
    try:
        player.wait_for_output("You are red")
        player.type("r")
        player.wait_for_output("(R)")
        player.wait_for_output("stand-in")
        player.type("s")  # from a1 to a2
        player.wait_for_output("\r\n 2 (R)")
        player.type("\x1b[A")
        player.type("\x1b[A")
        player.wait_for_output("that cell is not free")
        player.type("q")
        assert player.wait().code == 0
    finally:
        player.close()


def changed_snapshot(**changed: object) -> bytes:
    """A log with a snapshot that no player has written."""
    snapshot = Timeline(Chain(2), "x").snapshot() | changed
    return b"".join(json.dumps(each).encode() + b"\n" for each in (CHANGED_LOG[0], ["snapshot", snapshot]))


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x88\xff\x00", b"", b'["game",{"version":1,"game":"chain","players":"x"}]\n'),
        *(changed_snapshot(key=key) for key in ([float("inf"), 0, 0], ["x", 0, 0])),
        changed_snapshot(tip={**Table.new(Chain(2)).as_dict(), "seats": {}}),
        *(json.dumps(CHANGED_LOG[0]).encode() + b'\n["entry",%s]\n' % value for value in (b"[]", b'""', b"[7]")),
    ],
)
def test_file_that_is_no_game_log_is_reported_in_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "game.log"
    path.write_bytes(data)
    result = CliRunner().invoke(app, ["game", "replay", str(path)])
    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "not a game log" in result.output or "is empty" in result.output
