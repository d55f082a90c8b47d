"""A full disk, a killed Java and hostile text end in one line that says what to do, not in a traceback."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.cli.main import app
from broadloom.pipeline.build import BuildError, build_tables
from broadloom.pipeline.results import Results, ResultsManifest, ResultsWriteError, TableBuild
from broadloom.record.arrow_import import pa, pq
from broadloom.record.schema import SCHEMA
from tests.pipeline.growing import BEGIN_S, Clock, RecordedPeers
from tests.small_disk import SIZE_BYTES, fill, small_disk
from tests.support import wait_until
from tools.synthetic.generate import SyntheticConfig, generate

__all__ = ["small_disk"]

HOSTILE = "\x1b[2Jgone \u202etxt.exe\u202c [/red] \x9b31m"
SMALL = SyntheticConfig(rows=6_000, peers=16, arrivals=0, leaves=0, crashes=0, machines=2, seconds=60)


def test_full_disk_at_commit_keeps_previous_results(small_disk: Path) -> None:
    results = Results(small_disk / "out")
    with results.transaction() as transaction:
        _stage(transaction.staging_path / "first")
        transaction.commit(ResultsManifest({"first": TableBuild(transaction.build, "", 1, 1, 0.0, ["a.parquet"])}))
    before = results.files("first")
    with results.transaction() as transaction:
        _stage(transaction.staging_path / "first")
        tables = {"first": TableBuild(transaction.build, "", 1, 1, 0.0, ["a.parquet"])}
        fill(small_disk)
        with pytest.raises(ResultsWriteError, match="No space left on device; the previous results are unchanged"):
            transaction.commit(ResultsManifest(tables, settings={"long": "x" * 100_000}))
    assert results.files("first") == before == list(results.folder.rglob("*.parquet"))


def _stage(folder: Path) -> None:
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), folder / "a.parquet")


def test_tables_that_do_not_fit_on_the_disk_are_reported(small_disk: Path, tmp_path: Path, spark) -> None:
    generate(tmp_path / "tapes", SMALL)
    os.truncate(fill(small_disk), SIZE_BYTES - 40_000)
    with pytest.raises(BuildError, match="No space left on device"):
        build_tables(tmp_path / "tapes", small_disk / "out", spark=spark)
    assert not [path for path in (small_disk / "out").rglob("*") if path.name != ".lock"]


@pytest.mark.long
@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_killed_java_is_reported_in_one_line(tmp_path: Path, follow: list[str]) -> None:
    generate(tmp_path / "tapes", SMALL)
    command = ["pipeline", "run", "--tapes", str(tmp_path / "tapes"), "--out", str(tmp_path / "out"), *follow]
    program = "import sys; from broadloom.cli.main import main; main()"
    with subprocess.Popen([sys.executable, "-c", program, *command], stderr=subprocess.PIPE, text=True) as process:
        # Python workers are the last to start.
        java = wait_until(lambda: _java_with_workers(process.pid), timeout_s=120)
        os.kill(java, signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "Java, in which Spark runs, has ended" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("moment", ["java", "connected", "workers"])
def test_ctrl_c_ends_java_without_a_traceback(tmp_path: Path, moment: str) -> None:
    generate(tmp_path / "tapes", SMALL)
    program = "import sys; from broadloom.cli.main import main; main()"
    command = [sys.executable, "-c", program, "pipeline", "audit", "--tapes", str(tmp_path / "tapes")]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        java = wait_until(lambda: next(iter(_children(process.pid)), None), timeout_s=60)
        if moment == "connected":  # its folder goes when the address of the gateway was read
            wait_until(lambda: not [*temporary.glob("broadloom-java-*")], timeout_s=60)
        elif moment == "workers":
            wait_until(lambda: _java_with_workers(process.pid), timeout_s=60)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not Path(f"/proc/{java}").exists()
    assert not [*temporary.glob("broadloom-*")]


def _java_with_workers(process: int) -> int | None:
    """Java, once a Python worker runs."""
    for child in _children(process):
        for each in (child, *_children(child)):  # a launcher may be in between
            if _name(each) == "java" and any(_name(worker).startswith("python") for worker in _children(each)):
                return each
    return None


def _children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for path in found for each in path.read_text().split()]


def _name(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


def test_text_from_tapes_is_escaped(tmp_path: Path, spark) -> None:
    with RecordedPeers(tmp_path / "tapes", Clock(BEGIN_S), peers=(1, 2)) as peers:
        peers.join()
        peers.recorders[1].identification(HOSTILE, 2)
    (path,) = (tmp_path / "tapes").rglob("*.parquet")
    table = pq.read_table(path, partitioning=None)
    path.with_name(f"{HOSTILE.replace('/', '')}.parquet").write_bytes(b"torn")
    build_tables(tmp_path / "tapes", tmp_path / "out", spark=spark)
    shown = {}
    for words in ("show sessions", "show quarantine", "show sessions --json"):
        done = CliRunner().invoke(app, ["pipeline", *words.split(), "--out", str(tmp_path / "out")])
        assert done.exit_code == 0
        assert "txt.exe" in done.stdout
        assert all(char.isprintable() for line in done.stdout.splitlines() for char in line)
        shown[words] = done.stdout
    assert HOSTILE in [json.loads(line)["subscriber"] for line in shown["show sessions --json"].splitlines()]
    forged = table.set_column(2, SCHEMA.field("kind"), pa.array([HOSTILE] * table.num_rows))
    pq.write_table(forged.cast(table.schema), path)
    info = CliRunner().invoke(app, ["tape", "info", str(tmp_path / "tapes")])
    assert info.exit_code == 1
    assert "cannot be read" in info.stderr
    assert "txt.exe" in info.stdout
    assert all(char.isprintable() for line in (info.stdout + info.stderr).splitlines() for char in line)
