"""The command line: verdicts by exit code, tables as people and programs want them, and mistakes told in one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.testing import CliRunner

from broadloom.cli import exit_codes
from broadloom.cli.main import app
from broadloom.pipeline.synthetic.fault_injection import FaultKind, InjectedFault, inject
from broadloom.pipeline.synthetic.generate import SyntheticConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = SyntheticConfig(rows=6_000, peers=16, arrivals=0, leaves=0, crashes=0, machines=2, seconds=60)


class TapeFolders(NamedTuple):
    good: Path
    bad: Path
    injected: list[InjectedFault]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> TapeFolders:
    folder = tmp_path_factory.mktemp("command")
    generate(folder / "good", CONFIG)
    return TapeFolders(
        folder / "good",
        folder / "bad",
        inject(folder / "good", folder / "bad", [FaultKind.REMOVED, FaultKind.REPORTED_MISSED]),
    )


def broadloom(*arguments: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["pipeline", *(str(each) for each in arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_clean_tape_ends_with_0(place: TapeFolders, spark: "SparkSession") -> None:
    code, out, _ = broadloom("audit", "--tapes", place.good)
    assert code == 0
    assert ": passed: " in out
    assert "every guarantee held" in out
    assert "to start Spark" in out


def test_tapes_that_cannot_be_judged_are_not_called_clean(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then the disk was full")
    code, out, _ = broadloom("audit", "--tapes", tmp_path)
    assert code == 3
    assert "nothing could be judged" in out
    assert "unreadable" in out


def test_a_broken_promise_ends_with_1_and_the_guilty(place: TapeFolders, spark: "SparkSession", tmp_path: Path) -> None:
    code, out, _ = broadloom("audit", "--tapes", place.bad, "--out", tmp_path, "--json")
    assert code == 1
    told = json.loads(out)
    assert told["clean"] is False
    removed = place.injected[0]
    (guilty,) = told["guilty"]
    assert (guilty["finding"], guilty["author"], guilty["sequence"]) == ("missing", removed.author, removed.sequence)
    (verdict,) = told["verdicts"]
    assert (verdict["missing"], verdict["missed_reported"]) == (1, 1)
    assert told["start_s"] <= told["total_s"]
    code, out, _ = broadloom("audit", "--tapes", place.bad, "--out", tmp_path)
    assert code == 1
    assert "VIOLATIONS" in out
    assert removed.receiver in out
    assert "unchanged" in out


def test_a_run_and_its_tables(place: TapeFolders, spark: "SparkSession", tmp_path: Path) -> None:
    code, out, _ = broadloom("run", "--tapes", place.bad, "--out", tmp_path, "--only", "audit", "--json")
    assert code == 0
    told = json.loads(out)
    assert "verdict" not in told["built"]
    messages = told["tables"]["messages"]["rows"]
    code, out, _ = broadloom("show", "messages", "--out", tmp_path, "--limit", "0", "--json")
    assert code == 0
    assert len(out.splitlines()) == messages
    assert set(json.loads(out.splitlines()[0])) >= {"author", "sequence", "time"}
    where = "finding = 'missing' AND guilty"
    code, out, _ = broadloom(
        "show", "audit", "--out", tmp_path, "--where", where, "--columns", "author,sequence", "--csv"
    )
    removed = place.injected[0]
    assert out.splitlines() == ["author,sequence", f"{removed.author},{removed.sequence}"]
    code, out, _ = broadloom("show", "audit", "--out", tmp_path, "--limit", "1")
    assert (code, "Was every message delivered" in out) == (0, True)
    code, out, _ = broadloom("show", "accounts", "--out", tmp_path, "--limit", "2", "--csv")
    assert len(out.splitlines()) == 3
    code, _, error = broadloom("show", "verdict", "--out", tmp_path)
    assert code == 2
    assert "there is no table 'verdict'" in error
    for wrong in (["--where", "nonsense ="], ["--where", "nonsense = 1"], ["--columns", "nonsense"]):
        code, _, error = broadloom("show", "audit", "--out", tmp_path, *wrong)
        assert code == 2
        assert "cannot select rows" in error
        assert len(error.splitlines()) == 1


def test_mistakes_end_with_2(tmp_path: Path, place: TapeFolders) -> None:
    for words, told in (
        (["run", "--tapes", tmp_path / "nowhere", "--out", tmp_path / "out"], "there is no folder of tapes"),
        (["audit", "--tapes", tmp_path], "there are no tapes in"),
        (["run", "--tapes", place.good, "--out", tmp_path / "out", "--only", "all"], "there is no table 'all'"),
        (["run", "--tapes", place.good, "--out", tmp_path / "out", "--set", "x"], "NAME=VALUE"),
        (["run", "--tapes", place.good, "--out", tmp_path / "out", "--set", "x=1"], "there is no setting 'x'"),
        (["show", "nonsense", "--out", tmp_path], "there is no table 'nonsense'"),
    ):
        code, out, error = broadloom(*words)
        assert (code, out) == (2, "")
        assert told in error
        assert len(error.splitlines()) == 1


def test_the_tables_are_listed() -> None:
    code, out, _ = broadloom("tables")
    assert code == 0
    assert "Did every promise hold?" in out
    code, out, _ = broadloom("tables", "--json")
    told = {each["table"]: each for each in map(json.loads, out.splitlines())}
    assert told["members"]["settings"][0]["name"] == "settle_s"
    assert all(column["about"] for each in told.values() for column in each["columns"])


def test_showing_starts_no_java() -> None:
    code = "import sys; from broadloom.cli.pipeline import tables; tables(); print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


def test_without_the_extra_it_says_what_to_install(
    place: TapeFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_codes, "find_spec", lambda name: None if name == "pyspark" else True)
    code, _, error = broadloom("run", "--tapes", place.good, "--out", tmp_path)
    assert code == 3
    assert "pip install 'broadloom[pipeline]'" in error
