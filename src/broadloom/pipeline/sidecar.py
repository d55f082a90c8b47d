"""Spark in its own process beside the demo: live tables while tapes grow, and all tables on request.

A separate process with low priority keeps pages and peers responsive whatever Spark does. Requests and reports are JSON
lines over a socket. The process ends on request, and with the demo.
"""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.testing.processes.forkserver import die_with_parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "2g"
NICE = 10
FOLLOW_STOP_TIMEOUT_S = 10.0
VIOLATIONS_SENT_MAX = 1000
SPARK_SETTINGS = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}
"""List the many small files of a tape in the driver, not with one task each."""
AUDIT_SETTINGS = {"clock_tolerance_s": "0.05"}
"""All peers are on one machine and share its clock."""


def main(arguments: list[str]) -> None:
    """Arguments: number of the socket, process id of the demo, directories of tapes and results, optionally
    `follow`."""
    number, parent, tapes, out, *flags = arguments
    die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which stops this process
    if "follow" in flags:
        os.nice(NICE)  # peers and pages come first
    with socket.socket(fileno=int(number)) as sock:
        Sidecar(sock, Path(tapes), Path(out)).run(follow="follow" in flags)


class Sidecar:
    def __init__(self, sock: socket.socket, tapes: Path, out: Path) -> None:
        self._socket = sock
        self._tapes = tapes
        self._out = out
        self._send_lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, *, follow: bool) -> None:
        from broadloom.pipeline.spark_session import session, stop

        began = time.monotonic()
        try:
            spark = session(name="broadloom demo", memory=MEMORY, quick=True, settings=SPARK_SETTINGS)
        except BroadloomError as error:
            self._send(failed=str(error))
            return
        self._send(ready_s=time.monotonic() - began)
        following = threading.Thread(target=self._follow, args=(spark,), daemon=True)
        if follow:
            following.start()
        for line in self._socket.makefile("rb"):
            request = json.loads(line)
            if request["do"] == "stop":
                break
            if request["do"] == "build":
                self._build(spark, request)
            else:
                self._build_tables(spark, request["only"])
        self._stop.set()
        if follow:
            following.join(FOLLOW_STOP_TIMEOUT_S)
        stop()

    def _send(self, **content: Any) -> None:
        with self._send_lock:
            self._socket.sendall(json.dumps(content, default=str).encode() + b"\n")

    def _follow(self, spark: "SparkSession") -> None:
        from broadloom.pipeline.live.follow import FollowProgress, follow

        def on_progress(done: FollowProgress) -> None:
            self._send(batch=done.batch, rows=done.rows, seconds=done.seconds)

        try:
            follow(self._tapes, self._out, stop=self._stop, on_progress=on_progress, spark=spark)
        except BroadloomError as error:
            self._send(failed=f"the live tables failed: {error}")

    def _build(self, spark: "SparkSession", request: dict[str, Any]) -> None:
        """Tables of other tapes."""
        from broadloom.pipeline import build

        began = time.monotonic()
        tapes, out = Path(request["tapes"]), Path(request["out"])
        try:
            build.build_tables(tapes, out, only=request["only"], settings=request["settings"], spark=spark)
        except BroadloomError as error:
            self._send(tables_failed=str(error))
            return
        self._send(seconds=time.monotonic() - began)

    def _build_tables(self, spark: "SparkSession", only: list[str]) -> None:
        from broadloom.pipeline import build
        from broadloom.pipeline.results import Results
        from broadloom.pipeline.tables import table

        began = time.monotonic()
        try:
            result = build.build_tables(self._tapes, self._out, only=only or None, settings=AUDIT_SETTINGS, spark=spark)
        except BroadloomError as error:
            self._send(tables_failed=str(error))
            return
        results = Results(self._out)
        audits = results.read(table("audit_summary")).to_pylist()
        findings = results.read(table("audit_findings")).to_pylist()
        violations = [row for row in findings if row["is_violation"]][:VIOLATIONS_SENT_MAX]
        took_s = time.monotonic() - began
        self._send(tables=len(result.built), seconds=took_s, summaries=audits, violations=violations)
