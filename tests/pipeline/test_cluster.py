"""The same command on a real Spark cluster: a master and two workers, started here, and the same rows as embedded.

The workers' Python has the packages but not Broadloom, which has to come along with the job; and their working folders
are not ours, so nothing may depend on that.
"""

import os
import re
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from broadloom.pipeline import build
from broadloom.pipeline.quarantine import examine
from broadloom.pipeline.results import Results
from broadloom.pipeline.spark_session import SparkUnavailableError, session
from broadloom.pipeline.table import Table
from broadloom.pipeline.tables import all_tables, table
from broadloom.pipeline.tape_set import TapesNotFoundError, check_shared, examine_tapes, file_ids
from broadloom.record.arrow_import import pa, pq
from tests.pipeline.spark_daemon import FRUGAL, LISTEN, Daemon
from tools.synthetic.fault_injection import FaultKind, InjectedFault, inject
from tools.synthetic.generate import SyntheticConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

CONFIG = SyntheticConfig(rows=3_000, peers=12, arrivals=1, leaves=1, crashes=1, machines=2, seconds=60, channels=2)
COMMAND_S = 400.0
"""A machine that does much else at the same time is slow."""


class Cluster(NamedTuple):
    folder: Path
    master: str
    workers: tuple[Path, ...]
    """What each of them works in."""
    environment: dict[str, str]
    """For whoever runs something on it."""

    def broadloom(self, *words: Any) -> "subprocess.CompletedProcess[str]":
        """From inside the folder."""
        command = [
            Path(sys.executable).with_name("broadloom"),
            "pipeline",
            *words,
            "--master",
            self.master,
            "--driver-memory",
            "1g",
        ]
        return subprocess.run(
            list(map(str, command)),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )


class BuiltOnCluster(NamedTuple):
    cluster: Cluster
    injected: InjectedFault


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "conf").mkdir()
    settings = f"spark.executor.memory 512m\nspark.executor.extraJavaOptions {FRUGAL}\n"
    # On a busy machine, executors need longer to start than Spark waits before it warns.
    settings += f"spark.starvation.timeout {COMMAND_S:.0f}s\n"
    (folder / "conf" / "spark-defaults.conf").write_text(settings)
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(folder / "conf"),
        "PYSPARK_PYTHON": str(_without_package(folder)),
    }
    workers = (folder / "one", folder / "two")
    with ExitStack() as running:
        head = Daemon("org.apache.spark.deploy.master.Master", *LISTEN)
        running.callback(head.stop)
        master = head.wait_for_log(r"Starting Spark master at (spark://\S+)")
        hands = []
        for place in workers:
            place.mkdir()
            own = ["--cores", "1", "--memory", "600m", "--work-dir", str(place), master]
            hands.append(Daemon("org.apache.spark.deploy.worker.Worker", *LISTEN, *own))
            running.callback(hands[-1].stop)
        for hand in hands:
            hand.wait_for_log(r"(Successfully registered) with master")
        yield Cluster(folder, master, workers, environment)


@pytest.fixture(scope="module")
def ran(cluster: Cluster, spark: "SparkSession") -> BuiltOnCluster:
    """On the cluster, and embedded."""
    generate(cluster.folder / "good", CONFIG)
    (planted,) = inject(cluster.folder / "good", cluster.folder / "bad", [FaultKind.REMOVED])
    whole = next((cluster.folder / "bad").rglob("*.parquet"))
    _add_layers(whole)
    whole.with_name("torn.parquet").write_bytes(whole.read_bytes()[:-100])
    done = cluster.broadloom("run", "--tapes", "bad", "--out", "there")
    assert (done.returncode, _unexpected(done.stderr)) == (0, [])
    build.build_tables(cluster.folder / "bad", cluster.folder / "here", spark=spark)
    return BuiltOnCluster(cluster, planted)


def test_cluster_builds_the_same_rows_as_embedded_spark(ran: BuiltOnCluster) -> None:
    folder = ran.cluster.folder
    for each in all_tables():
        there = _rows(folder / "there", each)
        assert there == _rows(folder / "here", each), each.name
        assert there, f"{each.name}: nothing is easily the same as nothing"
    assert [row["file_path"].rpartition("/")[2] for row in _rows(folder / "there", table("quarantine"))] == [
        "torn.parquet"
    ]
    found = [row for row in _rows(folder / "there", table("audit_findings")) if row["is_violation"]]
    assert [(row["finding"], row["author"], row["sequence"], row["receiver"]) for row in found] == [
        (ran.injected.finding, ran.injected.author, ran.injected.sequence, ran.injected.receiver)
    ]


def test_worker_that_ran_the_task_received_the_package_archive(ran: BuiltOnCluster) -> None:
    """A tape of this size is one task; `test_lost_worker` has many."""
    assert [zip for worker in ran.cluster.workers for zip in worker.glob("app-*/*/broadloom-*-code.zip")]


def test_audit_on_cluster_has_the_same_exit_status(ran: BuiltOnCluster) -> None:
    done = ran.cluster.broadloom("audit", "--tapes", "good")
    assert (done.returncode, _unexpected(done.stderr)) == (0, [])
    assert "verdict: held (" in done.stdout
    done = ran.cluster.broadloom("audit", "--tapes", "bad", "--out", "there")
    assert (done.returncode, _unexpected(done.stderr)) == (1, [])
    assert ": broken: " in done.stdout
    assert ran.injected.receiver in done.stdout


def test_unshared_tapes_raise_error_instead_of_quarantine(tmp_path: Path) -> None:
    (truth,) = generate(
        tmp_path / "tapes", SyntheticConfig(rows=200, peers=4, arrivals=0, leaves=0, crashes=0, seconds=10)
    )
    known = file_ids(tmp_path / "tapes")
    elsewhere = [
        examine(str(tmp_path / "elsewhere"), path, examine_tapes(tmp_path / "tapes").latest) for path, _, _ in known
    ]
    with pytest.raises(
        TapesNotFoundError, match=rf"cannot read .*channel={truth.channel}.*: tapes must be in a directory that all"
    ):
        check_shared(tmp_path / "tapes", known, elsewhere)


def test_invalid_master_is_reported_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, so that no other program listens there
        port = nobody.getsockname()[1]
        for master, told in (
            (f"spark://127.0.0.1:{port}", "no Spark master answers"),
            ("spark://127.0.0.1", "use spark://host:7077"),
            ("127.0.0.1:7077", "is not a Spark master"),
            ("sc://127.0.0.1", "Spark Connect cannot run the pipeline"),
            ("yarn", "set HADOOP_CONF_DIR"),
        ):
            with pytest.raises(SparkUnavailableError, match=told):
                session(master)


def _add_layers(path: Path) -> None:
    """Append what synthetic traffic lacks: a request on the switch, a rule that was hit, a value in a mailbox, a lot
    that was sold, a round of a game, a meeting."""
    events = pq.read_table(path)
    last = events.slice(events.num_rows - 1).to_pylist()[0]
    common = dict.fromkeys(last) | {name: last[name] for name in ("run_id", "event_time", "peer")}
    request = common | {"kind": "request_step", "author": last["peer"], "sequence": 1, "name": "print"}
    added = [
        request | {"status": "sent", "is_notice": False, "is_repeatable": False},
        request | {"status": "failed", "reason": "no_handler", "is_notice": False, "is_repeatable": False},
        common | {"kind": "rule_hit", "name": "rule 1", "rule_number": 1, "actions": "stop", "status": "passed"},
        request | {"kind": "mailbox_change", "name": "price", "owner": "shop", "status": "put", "size_bytes": 9},
        request | {"kind": "app_entry", "name": "auction", "status": "sold", "actions": '{"lot":"7","amount":"5"}'},
        request | {"kind": "app_entry", "name": "game", "status": "started", "actions": '{"game":"chain","round":1}'},
        request | {"kind": "app_entry", "name": "meeting", "status": "arrive", "owner": "Anna", "actions": "{}"},
    ]
    for place, row in enumerate(added, last["ordinal"] + 1):
        row["ordinal"] = place
    both = pa.concat_tables([events, pa.Table.from_pylist(added, schema=events.schema)])
    pq.write_table(both, path)


def _unexpected(errors: str) -> list[str]:
    """Lines on standard error other than the phases of a build."""
    return [line for line in errors.splitlines() if not re.match(r" *\d+\.\d s  \w", line)]


def _rows(out: Path, of: Table) -> list[dict[str, Any]]:
    """In an order of their own: a table has none."""
    return sorted(Results(out).read(of).to_pylist(), key=repr)


def _without_package(folder: Path) -> Path:
    """A Python with the packages of this one, but not what is installed by a link to its sources: Broadloom."""
    packages = ":".join(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    tried = subprocess.run([program, "-c", "import pyarrow, broadloom"], capture_output=True, text=True, check=False)
    assert "No module named 'broadloom'" in tried.stderr, "Broadloom is to be installed as `make setup` does it"
    return program
