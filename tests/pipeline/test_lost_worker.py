"""A worker of a real cluster is killed in the middle of a build: the rows are the same as without a cluster."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broadloom.pipeline import build
from broadloom.pipeline.results import Results
from broadloom.pipeline.table import Table
from broadloom.pipeline.tables import all_tables
from tests.pipeline.spark_daemon import FRUGAL, LISTEN, Daemon
from tests.support import wait_until
from tools.synthetic.generate import SyntheticConfig, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BUILD_S = 600.0
CONFIG = SyntheticConfig(rows=60_000, peers=40, arrivals=3, leaves=3, crashes=3, machines=8, seconds=300, channels=2)
DRIVER = """
import sys
from broadloom.pipeline import build
from broadloom.pipeline.spark_session import session
build.WHOLE_ROWS = 1  # cut into parts, as tapes of many millions of events are
tapes, out, master = sys.argv[1:]
spark = session(master, memory="1g", quick=True)
build.build_tables(tapes, out, spark=spark, on_phase=lambda text: print(text, flush=True))
print("built", flush=True)
"""


@pytest.mark.parametrize("phase", ["scanning the tapes", "pairing deliveries and building tables"])
def test_results_are_the_same_after_a_worker_was_killed(tmp_path: Path, spark: "SparkSession", phase: str) -> None:
    generate(tmp_path / "tapes", CONFIG)
    (tmp_path / "conf").mkdir()
    settings = f"spark.executor.memory 512m\nspark.executor.extraJavaOptions {FRUGAL}\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(settings)
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")}
    with ExitStack() as running:
        head = Daemon("org.apache.spark.deploy.master.Master", *LISTEN)
        running.callback(head.stop)
        master = head.wait_for_log(r"Starting Spark master at (spark://\S+)")
        workers = []
        for name in ("one", "two"):
            own = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / name), master]
            workers.append(Daemon("org.apache.spark.deploy.worker.Worker", *LISTEN, *own))
            running.callback(workers[-1].stop)
        for worker in workers:
            worker.wait_for_log(r"(Successfully registered) with master")
        command = [sys.executable, "-c", DRIVER, str(tmp_path / "tapes"), str(tmp_path / "there"), master]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            for line in driver.stdout:
                if line.strip() == phase:
                    break
            else:
                pytest.fail(f"the build had no phase {phase!r}")
            killed = wait_until(lambda: _tree(workers[0].pid)[1:] and _tree(workers[0].pid), timeout_s=60)
            for process in killed:  # the worker first, so that it does not start another executor
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            rest, _ = driver.communicate(timeout=BUILD_S)
        assert (driver.returncode, rest.splitlines()[-1]) == (0, "built")
    build.build_tables(tmp_path / "tapes", tmp_path / "here", spark=spark)
    for each in all_tables():
        assert _rows(tmp_path / "there", each) == _rows(tmp_path / "here", each), each.name


def _tree(process: int) -> list[int]:
    """A process and all below it."""
    found = [process]
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += [each for child in path.read_text().split() for each in _tree(int(child))]
    return found


def _rows(out: Path, of: Table) -> list[dict[str, Any]]:
    """In an order of their own: a table has none."""
    return sorted(Results(out).read(of).to_pylist(), key=repr)
