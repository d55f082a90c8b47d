"""`broadloom --version` and `broadloom sim`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from broadloom import __version__
from broadloom.cli.main import app
from broadloom.protocol.broadcast.broadcaster import Broadcaster
from broadloom.testing.sim.scenario import builtin_names


def broadloom(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def test_version_option_prints_version() -> None:
    assert broadloom("--version").output.strip() == f"broadloom {__version__}"


def test_help_of_sim_run_shows_examples() -> None:
    result = broadloom("sim", "run", "--help")
    assert result.exit_code == 0
    assert "broadloom sim run kill --peers 200" in " ".join(result.output.split())


def test_sim_list_names_every_scenario() -> None:
    result = broadloom("sim", "list")
    assert result.exit_code == 0
    words = result.output.split()
    assert all(name in words for name in builtin_names())
    listed = [json.loads(line)["scenario"] for line in broadloom("sim", "list", "--json").output.splitlines()]
    assert listed == list(builtin_names())


def test_sim_run_prints_summary_table() -> None:
    result = broadloom("sim", "run", "cold-start", "--seeds", "1..2", "--jobs", "1")
    assert result.exit_code == 0
    assert "2 of 2" in result.output


def test_sim_run_prints_one_json_object_per_seed() -> None:
    result = broadloom(
        "sim", "run", "kill", "--peers", "12,14", "--seeds", "3", "--json", "--degree", "3", "--jobs", "1"
    )
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert [(row["scenario"], row["peers"], row["seed"], row["problem"]) for row in rows] == [
        ("kill", 12, 3, None),
        ("kill", 14, 3, None),
    ]
    assert all(row["messages"] > 0 and row["deliveries"] > 0 for row in rows)


def test_guarantee_violation_prints_replay_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broadcaster, "send_to_links", lambda *_, **__: None)
    result = broadloom("sim", "run", "kill", "--peers", "12", "--seeds", "4", "--jobs", "1")
    assert result.exit_code == 1
    output = " ".join(result.output.split())
    assert "guarantee 1" in output
    assert "broadloom sim run kill --peers 12 --seeds 4 --degree 4 --trace" in output
    replayed = broadloom("sim", "run", "kill", "--peers", "12", "--seeds", "4", "--degree", "4", "--trace")
    assert replayed.exit_code == 1
    assert "guarantee 1" in replayed.output.splitlines()[-1]
    assert any(" receives " in line for line in replayed.output.splitlines())


def test_sim_run_draws_final_fabric(tmp_path: Path) -> None:
    picture = tmp_path / "fabric.svg"
    result = broadloom("sim", "run", "grow", "--peers", "12", "--seeds", "1", "--jobs", "1", "--draw", str(picture))
    assert result.exit_code == 0
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nonsense",), "unknown scenario 'nonsense'"),
        (("missing.toml",), "cannot read missing.toml"),
        (("kill", "--seeds", "x"), "--seeds: expected a number or a range such as 1..20, not 'x'"),
        (("kill", "--seeds", "5..4"), "--seeds: 5..4 is an empty range"),
        (("kill", "--peers", "many"), "--peers must be a number"),
        (("kill", "--peers", "0"), "must be at least 1"),
        (("kill", "--degree", "2"), "degree must be between"),
        (("cold-start", "--seeds", "1", "--jobs", "1", "--draw", "x.svg"), "nothing to draw"),
    ],
)
def test_sim_run_reports_usage_error_without_traceback(args: tuple[str, ...], message: str) -> None:
    result = broadloom("sim", "run", *args)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
