"""Logs on tapes: which lines are found, and what is said about a tape that does not have them."""

import sys
from pathlib import Path

import polars as pl
import pytest

from broadloom.apps.tape_log import TapeLog, log_lines
from broadloom.errors import BroadloomError
from broadloom.pipeline.row_checks import row_problem
from broadloom.protocol import ChannelName
from broadloom.protocol.events import LayerEvent
from broadloom.record import Tape, TapeSettings, read
from broadloom.wire import PeerId
from tests.apps.tapes import change_lines, payload_tape, tape_file

CHANNEL = ChannelName.parse("games/tape-log")
ME, OTHER = PeerId(0xAB), PeerId(0xCD)


def begin(tape: Tape, *lines: str, peer: PeerId = ME, what: str = "game") -> TapeLog:
    log = TapeLog(tape.observer(CHANNEL, peer), what)
    log.begin("head\n", game="chain")
    for line in lines:
        log.write(line)
    return log


def lines_of(path: Path, number: int | None = None) -> list[bytes]:
    return list(log_lines(path, "game", BroadloomError, number))


def problem_of(path: Path, number: int | None = None) -> str:
    with pytest.raises(BroadloomError) as caught:
        lines_of(path, number)
    return str(caught.value)


def test_lines_are_read_from_a_file_a_directory_with_tapes_and_a_tape_file(tmp_path: Path) -> None:
    with payload_tape(tmp_path / "tapes") as tape:
        log = begin(tape, "one\n", "two\n")
        begin(tape, "of an auction\n", what="auction")
        log.end()
        log.end()
        assert not log.is_open
    (tmp_path / "log").write_text("head\none\ntwo\n")
    for path in (tmp_path / "log", tmp_path / "tapes", tape_file(tmp_path / "tapes")):
        assert lines_of(path) == [b"head\n", b"one\n", b"two\n"]
    assert lines_of(tape_file(tmp_path / "tapes").rename(tmp_path / "moved")) == [b"head\n", b"one\n", b"two\n"]


def test_pipeline_accepts_the_rows_of_a_log(tmp_path: Path) -> None:
    with payload_tape(tmp_path) as tape:
        begin(tape, "one\n").end()
    rows = pl.from_arrow(read(tmp_path))
    assert isinstance(rows, pl.DataFrame)
    assert rows["sequence"].to_list() == [1, 2, 3]
    assert rows.select(row_problem(rows.columns)).to_series().to_list() == [None] * 3


def test_log_of_a_killed_program_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    with payload_tape(tmp_path) as tape:
        begin(tape, "one\n")
    assert lines_of(tmp_path) == [b"head\n", b"one\n"]


def test_several_logs_on_one_tape_are_listed_and_chosen_by_number(tmp_path: Path) -> None:
    with payload_tape(tmp_path) as tape:
        begin(tape, "one\n").end()
        begin(tape, "two\n").end()
        begin(tape, "three\n", peer=OTHER)
    for number in (None, 0, 4):
        problem = problem_of(tmp_path, number)
        assert "choose one game by its number (`--number`):" in problem
        listed = problem.splitlines()[1:]
        assert [each[: each.rindex(",")] for each in listed] == [
            '1: {"game": "chain"}, peer 00000000000000ab',
            '2: {"game": "chain"}, peer 00000000000000ab',
            '3: {"game": "chain"}, peer 00000000000000cd',
        ]
    assert [lines_of(tmp_path, number)[1] for number in (1, 2, 3)] == [b"one\n", b"two\n", b"three\n"]


def test_tape_without_payloads_or_without_a_game_names_the_remedy(tmp_path: Path) -> None:
    with Tape(tmp_path / "figures") as tape:
        assert not begin(tape, "one\n").is_open
        tape.observer(CHANNEL, ME).on_event(LayerEvent("app_entry", ME, 1, name="game", status="act"))
    assert "figures has figures of the game, but not its entries: record" in problem_of(tmp_path / "figures")
    with payload_tape(tmp_path / "other") as tape:
        begin(tape, what="auction")
    assert "other has no game: record a program that takes part" in problem_of(tmp_path / "other")
    assert "include_payload=True" in problem_of(tmp_path / "other")


@pytest.mark.parametrize("place", [1, 2, 3])
def test_line_that_is_missing_is_named_with_the_remedy(tmp_path: Path, place: int) -> None:
    with payload_tape(tmp_path) as tape:
        begin(tape, "one\n", "two\n").end()
    change_lines(tmp_path, lambda rows: rows[: place - 1] + rows[place:])
    problem = problem_of(tmp_path)
    assert f"line {place} of this game is not on the tape: rows were dropped, or a file is missing" in problem
    assert "the tape of another member" in problem


def test_line_without_payload_and_a_damaged_file_are_reported(tmp_path: Path) -> None:
    with payload_tape(tmp_path) as tape:
        begin(tape, "one\n").end()
    change_lines(tmp_path, lambda rows: [row | {"payload": None} for row in rows])
    assert "line 1 of this game is not on the tape" in problem_of(tmp_path)
    tape_file(tmp_path).write_bytes(b"PAR1 and nothing else")
    assert "cannot be read" in problem_of(tape_file(tmp_path))


def test_rows_dropped_at_the_end_are_noticed_unless_the_log_has_its_end(tmp_path: Path) -> None:
    settings = TapeSettings(include_payload=True, queue_bytes_max=10_000, batch_bytes_max=5_000)
    for is_ended in (False, True):
        folder = tmp_path / str(is_ended)
        with Tape(folder, settings=settings) as tape:
            log = begin(tape, "one\n")
            if is_ended:
                log.end()
            # One row that is larger than the queue is always dropped.
            tape.observer(CHANNEL, ME).sent(1, bytes(20_000))
        assert tape.dropped_rows == 1
        if is_ended:
            assert lines_of(folder) == [b"head\n", b"one\n"]
        else:
            assert "line 3 of this game is not on the tape" in problem_of(folder)


def test_missing_pyarrow_is_reported_with_the_extra_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("broadloom.record.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert problem_of(tmp_path).startswith("pyarrow is not installed; ")
    assert ".[record]" in problem_of(tmp_path)
