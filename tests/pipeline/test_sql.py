"""Spark SQL over tapes and tables by name, and the tables in a catalog that other sessions see."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.cli.pipeline_output import print_rows
from broadloom.pipeline.build import build_tables
from broadloom.pipeline.live.follow import follow
from broadloom.pipeline.results import Results
from broadloom.pipeline.sql import register_tables
from broadloom.pipeline.tables import all_tables
from broadloom.record.arrow_import import pq
from tests.pipeline.growing import BEGIN_S, Clock, RecordedPeers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def place(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    with RecordedPeers(folder / "tapes", Clock(BEGIN_S), peers=(1, 2, 3)) as peers:
        peers.join()
        for number in range(30):
            peers.send(1 + number % 3, delay_s=0.01, step_s=0.1)
    (path,) = (folder / "tapes").rglob("*.parquet")
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    path.with_name("torn.parquet").write_bytes(b"PAR1")
    build_tables(folder / "tapes", folder / "out", spark=spark)
    follow(folder / "tapes", folder / "out", spark=spark, once=True)
    return folder


def sql(place: Path, statement: str, *options: str) -> tuple[int, str, str]:
    words = ["pipeline", "sql", statement, "--out", str(place / "out"), "--tapes", str(place / "tapes"), *options]
    done = CliRunner().invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_sql_queries_tapes_tables_and_live_tables_by_name(place: Path) -> None:
    statement = (
        "SELECT (SELECT count(*) FROM tape) AS rows, (SELECT count(*) FROM deliveries) AS deliveries, "
        "(SELECT sum(event_count) FROM live_traffic) AS live, to_date(min(sent_time)) AS day FROM messages"
    )
    code, out, _ = sql(place, statement, "--json")
    (path,) = (place / "tapes").rglob("2*.parquet")
    rows = pq.read_metadata(path).num_rows
    assert code == 0
    assert json.loads(out) == {"rows": rows, "deliveries": 60, "live": rows, "day": "2026-05-28"}
    code, out, _ = sql(place, "SELECT author, count(*) AS n FROM messages GROUP BY author ORDER BY author", "--csv")
    assert [each["n"] for each in csv.DictReader(io.StringIO(out))] == ["10", "10", "10"]
    code, out, _ = sql(place, "SELECT * FROM deliveries", "--limit", "7", "--csv")
    assert len(out.splitlines()) == 8


def test_wrong_statements_are_usage_errors(place: Path) -> None:
    for statement, words in (
        ("SELEKT 1", "Syntax error"),
        ("SELECT * FROM nonsense", "tables: tape, quarantine, messages"),
        ("SELECT nonsense FROM messages", "nonsense"),
    ):
        code, out, error = sql(place, statement)
        assert (code, out) == (2, "")
        assert words in error
        assert len(error.splitlines()) == 1


def test_tables_are_registered_in_the_catalog_of_a_session(place: Path, spark: "SparkSession") -> None:
    names = register_tables(spark, place / "out", "registered")
    assert set(names) == {each.name for each in all_tables()}
    try:
        assert spark.sql("SELECT count(*) FROM registered.deliveries").collect()[0][0] == 60
        assert "Which messages" in str(spark.sql("DESCRIBE EXTENDED registered.messages").collect())
        assert register_tables(spark, place / "out", "registered") == names
    finally:
        spark.sql("DROP DATABASE registered CASCADE")
    assert Results(place / "out").files("deliveries")[0].is_file()


@pytest.mark.long
def test_catalog_folder_outlives_its_session(place: Path, tmp_path: Path) -> None:
    program = "from broadloom.cli.main import main; main()"
    command = [sys.executable, "-c", program, "pipeline", "sql", "--catalog", str(tmp_path / "catalog"), "--json"]
    make = "CREATE TABLE mine AS SELECT author, count(*) AS n FROM messages GROUP BY author"
    subprocess.run([*command, "--out", str(place / "out"), make], check=True, timeout=400, cwd=tmp_path)
    ask = "SELECT (SELECT sum(n) FROM mine) AS sent, (SELECT count(*) FROM deliveries) AS delivered"
    done = subprocess.run([*command, ask], check=True, timeout=400, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(done.stdout) == {"sent": 30, "delivered": 60}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog"]


def test_single_wide_row_is_shown_vertically(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column_{number}" for number in range(40)]
    print_rows("Wide", names, [tuple(range(40))])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 40
    assert any("column_7" in line and "7" in line for line in lines)
    print_rows("Wide", names, [tuple(range(40))] * 2)
    assert "column_7 " not in capsys.readouterr().out
    print_rows("Narrow", names[:2], [(1, 2)])
    assert len(capsys.readouterr().out.splitlines()) == 6
