"""Things for the pages to show: a simulated tape, and tables as the pipeline writes them, without Spark."""

from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from weft.cli import app
from weft.pipeline.live.contract import TABLES
from weft.pipeline.live.store import Manifest as LiveManifest
from weft.pipeline.live.store import Store
from weft.pipeline.results import Built, Manifest, Results
from weft.pipeline.tables import table
from weft.record.arrow import pa, pq

CHANNEL = "9bae618a73998c1e"
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


def a_tape(folder: Path, peers: int, scenario: str = "kill", seed: int = 3) -> Path:
    words = ["sim", scenario, "--peers", str(peers), "--seeds", str(seed), "--jobs", "1", "--tape", str(folder)]
    played = CliRunner().invoke(app, words)
    assert played.exit_code == 0, played.output
    return folder


def some_tables(folder: Path, *, missing: int = 0) -> Path:
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
    with results.writing() as writing:
        manifest = Manifest()
        for name, told in rows.items():
            place = writing.place / name
            place.mkdir(parents=True)
            made = pa.Table.from_pylist(told, schema=table(name).schema)
            pq.write_table(made, place / "part-0.parquet")
            manifest.tables[name] = Built(writing.build, "", made.num_rows, 1, 0.1)
        writing.commit(manifest)
    return folder


def live_tables(folder: Path, sent: int) -> None:
    rates = {each.name: 0 for each in TABLES["rates"].columns} | {
        "channel": CHANNEL,
        "start": NOON,
        "sent": sent,
        "final": True,
    }
    states = pa.table({"channel": [CHANNEL], "state": [b""]})
    tables = {"rates": pa.Table.from_pylist([rates], schema=TABLES["rates"].schema)}
    Store(folder / "live").commit(LiveManifest(0, rows=1), None, tables, states)
