"""Compacting tapes keeps every row, and says what it leaves out."""

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.pipeline.tape_set import examine_tapes
from broadloom.protocol import ChannelName
from tests.pipeline.growing import BEGIN_S, Clock, RecordedPeers, on_tape


def test_compacted_tapes_have_the_same_rows_in_few_files(tmp_path: Path) -> None:
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    for run in range(2):
        for channel in (ChannelName("test", "one"), ChannelName("test", "two")):
            clock = Clock(BEGIN_S + 100 * run)
            with RecordedPeers(tapes, clock, peers=(1, 2), channel=channel, file_bytes_max=1, batch_rows=50) as peers:
                peers.join()
                for _ in range(100):
                    peers.send(1, delay_s=0.01, step_s=0.1)
    before = len(list(tapes.rglob("*.parquet")))
    assert before > 8
    done = CliRunner().invoke(app, ["pipeline", "compact", "--tapes", str(tapes), "--out", str(out), "--json"])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["files"], report["before"]["files"], report["excluded"]) == (0, 4, before, [])
    assert on_tape(out).equals(on_tape(tapes))
    assert len(examine_tapes(out).used) == 4
    assert sum(path.stat().st_size for path in out.rglob("*.parquet")) == report["bytes"] < report["before"]["bytes"]


def test_compacting_reports_files_that_are_not_in_the_copy(tmp_path: Path) -> None:
    tapes, out = tmp_path / "tapes", tmp_path / "out"
    with RecordedPeers(tapes, Clock(), peers=(1, 2)) as peers:
        peers.join()
    rows = on_tape(tapes)
    (path,) = tapes.rglob("*.parquet")
    shutil.copy(path, path.with_name("copy.parquet"))
    done = CliRunner().invoke(app, ["pipeline", "compact", "--tapes", str(tapes), "--out", str(out)])
    assert done.exit_code == 0
    assert "duplicate" in done.stdout
    assert on_tape(out).equals(rows)
    again = CliRunner().invoke(app, ["pipeline", "compact", "--tapes", str(tapes), "--out", str(out)])
    assert (again.exit_code, "is not empty" in again.stderr) == (2, True)
    path.with_name(f"{path.name[:24]}-000009.parquet").write_bytes(b"PAR1 torn")
    lossy = CliRunner().invoke(app, ["pipeline", "compact", "--tapes", str(tapes), "--out", str(tmp_path / "third")])
    assert lossy.exit_code == 1
    assert "unreadable" in lossy.stdout
