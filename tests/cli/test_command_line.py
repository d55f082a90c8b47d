"""The command `broadloom`, as a person or a program runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from broadloom import __version__
from broadloom.cli.main import app
from broadloom.protocol.broadcast.broadcaster import Broadcaster
from broadloom.testing.sim.scenario import builtin_names


def broadloom(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_version() -> None:
    assert broadloom("--version").output.strip() == f"broadloom {__version__}"


def test_help_teaches_with_examples() -> None:
    result = broadloom("sim", "--help")
    assert result.exit_code == 0
    assert "broadloom sim kill --peers 200" in " ".join(result.output.split())


def test_list_names_every_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    result = broadloom("sim", "list")
    assert result.exit_code == 0
    words = result.output.split()
    assert all(name in words for name in builtin_names())


def test_a_table_for_people() -> None:
    result = broadloom("sim", "cold-start", "--seeds", "1..2", "--jobs", "1")
    assert result.exit_code == 0
    assert "2 of 2" in result.output


def test_json_for_programs() -> None:
    result = broadloom("sim", "kill", "--peers", "12,14", "--seeds", "3", "--json", "--degree", "3", "--jobs", "1")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert [(row["scenario"], row["peers"], row["seed"], row["problem"]) for row in rows] == [
        ("kill", 12, 3, None),
        ("kill", 14, 3, None),
    ]
    assert all(row["messages"] > 0 and row["deliveries"] > 0 for row in rows)


def test_a_broken_promise_is_told_with_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broadcaster, "_send_to_links", lambda *_: None)
    result = broadloom("sim", "kill", "--peers", "12", "--seeds", "4", "--jobs", "1")
    assert result.exit_code == 1
    told = " ".join(result.output.split())
    assert "guarantee 1" in told
    assert "broadloom sim run kill --peers 12 --seeds 4 --degree 4 --trace" in told
    replayed = broadloom("sim", "kill", "--peers", "12", "--seeds", "4", "--degree", "4", "--trace")
    assert replayed.exit_code == 1
    assert "guarantee 1" in replayed.output.splitlines()[-1]
    assert any(" receives " in line for line in replayed.output.splitlines())


def test_drawing(tmp_path: Path) -> None:
    picture = tmp_path / "fabric.svg"
    result = broadloom("sim", "grow", "--peers", "12", "--seeds", "1", "--jobs", "1", "--draw", str(picture))
    assert result.exit_code == 0
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nonsense",), "unknown scenario 'nonsense'"),
        (("missing.toml",), "cannot read"),
        (("kill", "--seeds", "x"), "--seeds: expected a number or a range"),
        (("kill", "--seeds", "5..4"), "5..4 is an empty range"),
        (("kill", "--peers", "many"), "--peers takes numbers"),
        (("kill", "--peers", "0"), "at least one peer"),
        (("kill", "--degree", "2"), "degree 2"),
        (("cold-start", "--seeds", "1", "--jobs", "1", "--draw", "x.svg"), "nothing to draw"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(words: tuple[str, ...], told: str) -> None:
    result = broadloom("sim", *words)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert "Traceback" not in result.output
