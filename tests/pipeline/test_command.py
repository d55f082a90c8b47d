"""`broadloom pipeline`: exit codes of the audit, output formats, and usage errors in one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest
from typer.testing import CliRunner

from broadloom.cli import exit_codes
from broadloom.cli.main import app
from broadloom.pipeline import build
from broadloom.pipeline.build import BuildError
from broadloom.pipeline.java import JavaNotFoundError
from broadloom.record import read
from broadloom.testing.checks.settling import Verdict, combined_verdict
from tests.pipeline.test_audit_settling import partitioned
from tests.pipeline.without_spark import frame
from tools.synthetic.fault_injection import FaultKind, InjectedFault, full_channel_ids, inject, write
from tools.synthetic.generate import SyntheticConfig, generate

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


def test_audit_exits_0_when_every_guarantee_held(place: TapeFolders, spark: "SparkSession") -> None:
    code, out, _ = broadloom("audit", "--tapes", place.good)
    assert code == 0
    assert ": held: " in out
    assert "verdict: held (" in out
    assert "to start Spark" in out


def test_audit_does_not_pass_when_nothing_can_be_judged(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then the disk was full")
    code, out, _ = broadloom("audit", "--tapes", tmp_path)
    assert code == 3
    assert "verdict: unjudged (" in out
    assert "unreadable" in out


def test_audit_exits_3_while_a_partition_is_not_over(spark: "SparkSession", tmp_path: Path) -> None:
    write(frame(partitioned(279.0).table()), tmp_path / "tapes", {"c" * 16: "c" * 64})
    code, out, _ = broadloom("audit", "--tapes", tmp_path / "tapes", "--out", tmp_path / "out")
    assert code == 3
    assert ": unsettled: " in out
    assert "2 deliveries wait for the merge of 2 components, repairing for 4 min 29 s" in out
    code, out, _ = broadloom("audit", "--tapes", tmp_path / "tapes", "--out", tmp_path / "out", "--json")
    assert (code, json.loads(out)["verdict"]) == (3, "unsettled")


def test_audit_exits_1_and_lists_violations(place: TapeFolders, spark: "SparkSession", tmp_path: Path) -> None:
    code, out, _ = broadloom("audit", "--tapes", place.bad, "--out", tmp_path, "--json")
    assert code == 1
    report = json.loads(out)
    assert report["verdict"] == "broken"
    removed = place.injected[0]
    (violation,) = report["violations"]
    found = violation["finding"], violation["author"], violation["sequence"]
    assert found == ("missing", removed.author, removed.sequence)
    (summary,) = report["audit_summary"]
    assert (summary["missing_count"], summary["reported_missed_count"]) == (1, 1)
    assert report["start_s"] <= report["total_s"]
    code, out, _ = broadloom("audit", "--tapes", place.bad, "--out", tmp_path)
    assert code == 1
    assert ": broken: " in out
    assert removed.receiver in out
    assert out.index("Findings") < out.index("Violations (at most")
    assert report["finding_counts"] == {"missing": 1, "reported_missed": 1}
    assert "unchanged" in out


def test_audit_exits_3_when_nothing_was_due(place: TapeFolders, spark: "SparkSession", tmp_path: Path) -> None:
    """Of one peer alone no delivery can be judged."""
    rows = frame(read(place.good)).filter(pl.col("kind").is_in(["joined", "sent"]))
    author = rows.filter(pl.col("kind") == "sent")["author"][0]
    write(rows.filter(pl.col("peer") == author), tmp_path, full_channel_ids(place.good))
    code, out, _ = broadloom("audit", "--tapes", tmp_path, "--json")
    report = json.loads(out)
    assert (code, report["verdict"], report["audit_summary"][0]["verdict"]) == (3, "unjudged", "unjudged")


def test_audit_exits_2_when_it_fails(place: TapeFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not 1, which says that a guarantee was broken, nor 3, which says that the audit is undecided."""
    for problem in (BuildError("no"), OSError(28, "No space left on device"), JavaNotFoundError("no"), KeyError("bug")):

        def fail(*_: object, problem: Exception = problem, **__: object) -> None:
            raise problem

        monkeypatch.setattr(build, "build_tables", fail)
        assert broadloom("audit", "--tapes", place.good, "--out", tmp_path)[0] == 2
    monkeypatch.setattr(exit_codes, "find_spec", lambda name: None if name == "pyspark" else True)
    assert broadloom("audit", "--tapes", place.good)[0] == 2


@pytest.mark.parametrize(
    ("verdicts", "combined", "code"),
    [
        (["held"], "held", 0),
        (["held", "unjudged"], "unjudged", 3),
        (["unjudged"], "unjudged", 3),
        (["held", "unsettled", "unjudged"], "unsettled", 3),
        (["held", "unsettled", "broken"], "broken", 1),
        ([], "unjudged", 3),
    ],
)
def test_exit_code_of_audit_follows_the_verdicts(verdicts: list[str], combined: str, code: int) -> None:
    assert combined_verdict(verdicts) == combined
    assert exit_codes.VERDICT_CODES[combined] == code


def test_every_verdict_has_an_exit_code() -> None:
    assert list(exit_codes.VERDICT_CODES) == list(Verdict)


def test_run_builds_tables_that_show_prints(place: TapeFolders, spark: "SparkSession", tmp_path: Path) -> None:
    code, out, error = broadloom("run", "--tapes", place.bad, "--out", tmp_path, "--only", "audit_findings", "--json")
    assert code == 0
    phases = [line.partition(" s  ")[2] for line in error.splitlines()]  # there is no terminal here
    assert phases == ["starting Spark", "examining the tapes", "building the tables"]
    report = json.loads(out)
    assert "audit_summary" not in report["built"]
    messages = report["tables"]["messages"]["rows"]
    code, out, _ = broadloom("show", "messages", "--out", tmp_path, "--limit", "0", "--json")
    assert code == 0
    assert len(out.splitlines()) == messages
    assert set(json.loads(out.splitlines()[0])) >= {"author", "sequence", "sent_time"}
    where = "finding = 'missing' AND is_violation"
    code, out, _ = broadloom(
        "show", "audit_findings", "--out", tmp_path, "--where", where, "--columns", "author,sequence", "--csv"
    )
    removed = place.injected[0]
    assert out.splitlines() == ["author,sequence", f"{removed.author},{removed.sequence}"]
    code, out, _ = broadloom("show", "audit_findings", "--out", tmp_path, "--limit", "1")
    assert (code, "Which deliveries break a guarantee?" in out) == (0, True)
    code, out, _ = broadloom("show", "delivery_balances", "--out", tmp_path, "--limit", "2", "--csv")
    assert len(out.splitlines()) == 3
    code, _, error = broadloom("show", "audit_summary", "--out", tmp_path)
    assert code == 2
    assert "no table 'audit_summary'" in error
    for wrong in (["--where", "nonsense ="], ["--where", "nonsense = 1"], ["--columns", "nonsense"]):
        code, _, error = broadloom("show", "audit_findings", "--out", tmp_path, *wrong)
        assert code == 2
        assert "cannot select rows" in error
        assert len(error.splitlines()) == 1


def test_usage_errors_exit_2(tmp_path: Path, place: TapeFolders) -> None:
    for words, message in (
        (["run", "--tapes", tmp_path / "nowhere", "--out", tmp_path / "out"], "no directory of tapes"),
        (["audit", "--tapes", tmp_path], "no tapes in"),
        (["run", "--tapes", place.good, "--out", tmp_path / "out", "--only", "all"], "unknown table 'all'"),
        (["run", "--tapes", place.good, "--out", tmp_path / "out", "--set", "x"], "NAME=VALUE"),
        (["run", "--tapes", place.good, "--out", tmp_path / "out", "--set", "x=1"], "unknown setting 'x'"),
        (["show", "nonsense", "--out", tmp_path], "unknown table 'nonsense'"),
    ):
        code, out, error = broadloom(*words)
        assert (code, out) == (2, "")
        assert message in error
        assert len(error.splitlines()) == 1


def test_tables_command_lists_questions_columns_and_settings() -> None:
    code, out, _ = broadloom("tables")
    assert code == 0
    assert "Did every guarantee hold?" in out
    code, out, _ = broadloom("tables", "--json")
    report = {each["table"]: each for each in map(json.loads, out.splitlines())}
    assert report["recorded_peers"]["settings"][0]["name"] == "settle_s"
    assert all(column["about"] for each in report.values() for column in each["columns"])


def test_show_does_not_import_pyspark() -> None:
    code = "import sys; from broadloom.cli.pipeline_data import tables; tables(); print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


def test_missing_extra_is_reported_with_install_command(
    place: TapeFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_codes, "find_spec", lambda name: None if name == "pyspark" else True)
    code, _, error = broadloom("run", "--tapes", place.good, "--out", tmp_path)
    assert code == 3
    assert "pip install '.[pipeline]'" in error
