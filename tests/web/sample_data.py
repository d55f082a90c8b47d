"""Things for the pages to show: a simulated tape, and tables as the pipeline writes them, without Spark."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


def make_tables(folder: Path, *, missing: int = 0, waits_for: str | None = None, due: int = 46_597) -> Path:
    """An audit summary, and this number of missing deliveries."""
    verdict = "broken" if missing else "unsettled" if waits_for else "held" if due else "unjudged"
    summary = {each.name: 0 for each in table("audit_summary").columns} | {
        "channel": CHANNEL,
        "verdict": verdict,
        "verdict_time": NOON,
        "waits_for": waits_for,
        "message_count": 259,
        "peer_count": 200,
        "due_count": due,
        "delivered_count": due - missing,
        "missing_count": missing,
        "notes": None,
    }
    audit = [
        {
            "channel": CHANNEL,
            "finding": "missing",
            "is_violation": True,
            "author": f"{number:016x}",
            "sequence": 10 * number,
            "receiver": f"{7:016x}",
            "event_time": NOON,
            "detail": '=a "quoted" detail, <b>of</b> others',
        }
        for number in range(1, missing + 1)
    ]
    write_tables(folder, {"audit_summary": [summary], "audit_findings": audit})
    return folder


def write_tables(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    with Results(folder).transaction() as writing:
        manifest = ResultsManifest()
        for name, table_rows in rows.items():
            place = writing.staging_path / name
            place.mkdir(parents=True)
            arrow_table = pa.Table.from_pylist(table_rows, schema=table(name).schema)
            pq.write_table(arrow_table, place / "part-0.parquet")
            manifest.tables[name] = TableBuild(writing.build, "", arrow_table.num_rows, 1, 0.1)
        writing.commit(manifest)


def make_live_tables(folder: Path, sent: int) -> None:
    traffic = {each.name: 0 for each in TABLES["traffic"].columns} | {
        "channel": CHANNEL,
        "start_time": NOON,
        "sent_count": sent,
        "is_final": True,
    }
    states = pa.table({"channel": [CHANNEL], "state": [b""]})
    tables = {"traffic": pa.Table.from_pylist([traffic], schema=TABLES["traffic"].schema)}
    LiveStore(folder / "live").commit(LiveManifest(0, rows=1), None, tables, states)
