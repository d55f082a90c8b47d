"""Things for the pages to show: a simulated tape, and tables as the pipeline writes them, without Spark."""

from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.pipeline.live.store import BatchManifest as LiveManifest
from broadloom.pipeline.live.store import LiveStore
from broadloom.pipeline.live.tables import TABLES
from broadloom.pipeline.results import Results, ResultsManifest, TableBuild
from broadloom.pipeline.tables import table
from broadloom.record.arrow_import import pa, pq

CHANNEL = "9bae618a73998c1e"
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


def make_tape(folder: Path, peers: int, scenario: str = "kill", seed: int = 3) -> Path:
    args = ["sim", "run", scenario, "--peers", str(peers), "--seeds", str(seed), "--jobs", "1", "--tape", str(folder)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    return folder


def make_tables(folder: Path, *, missing: int = 0) -> Path:
    """A verdict, and the audit's rows: so many deliveries that never happened."""
    verdict = {each.name: 0 for each in table("verdict").columns} | {
        "channel": CHANNEL,
        "clean": not missing,
        "messages": 259,
        "members": 200,
        "owed": 46_597,
        "delivered": 46_597 - missing,
        "missing": missing,
        "remarks": None,
    }
    audit = [
        {
            "channel": CHANNEL,
            "finding": "missing",
            "guilty": True,
            "author": f"{number:016x}",
            "sequence": 10 * number,
            "receiver": f"{7:016x}",
            "time": NOON,
            "detail": '=a "quoted" detail, <b>of</b> others',
        }
        for number in range(1, missing + 1)
    ]
    rows = {"verdict": [verdict], "audit": audit}
    results = Results(folder)
    with results.transaction() as writing:
        manifest = ResultsManifest()
        for name, table_rows in rows.items():
            place = writing.staging_path / name
            place.mkdir(parents=True)
            arrow_table = pa.Table.from_pylist(table_rows, schema=table(name).schema)
            pq.write_table(arrow_table, place / "part-0.parquet")
            manifest.tables[name] = TableBuild(writing.build, "", arrow_table.num_rows, 1, 0.1)
        writing.commit(manifest)
    return folder


def make_live_tables(folder: Path, sent: int) -> None:
    rates = {each.name: 0 for each in TABLES["rates"].columns} | {
        "channel": CHANNEL,
        "start": NOON,
        "sent": sent,
        "final": True,
    }
    states = pa.table({"channel": [CHANNEL], "state": [b""]})
    tables = {"rates": pa.Table.from_pylist([rates], schema=TABLES["rates"].schema)}
    LiveStore(folder / "live").commit(LiveManifest(0, rows=1), None, tables, states)
