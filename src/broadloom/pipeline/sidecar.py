"""The process that Spark runs in, beside the demo: live tables while tapes grow, all tables when it is asked for them.

By itself, and with low priority, so that the page and the peers stay fluid whatever Spark does. It is told what to do
over a socket, and tells what it has done, a line of JSON each. It ends when it is told to, and when the demo is gone.
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
from broadloom.testing.chaos.processes import die_with_parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "2g"
NICE = 10
FOLLOW_STOP_TIMEOUT_S = 10.0
VIOLATIONS_SENT_MAX = 1000
SPARK_SETTINGS = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}
"""The many small files of a tape are listed at once, and not by a task each."""
AUDIT_SETTINGS = {"clock_tolerance_s": "0.05", "settle_s": "5"}
"""Of the audit: all peers are on one machine, and have one clock."""


def main(arguments: list[str]) -> None:
    """`arguments`: our end of the socket, the demo's process, the folders of tapes and results, perhaps `follow`."""
    number, parent, tapes, out, *flags = arguments
    die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which will end us
    if "follow" in flags:
        os.nice(NICE)  # there are peers, and a page, that shall not wait for it
    with socket.socket(fileno=int(number)) as end:
        Sidecar(end, Path(tapes), Path(out)).run(follow="follow" in flags)


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
        except BroadloomError as problem:
            self._send(failed=str(problem))
            return
        self._send(ready_s=time.monotonic() - began)
        following = threading.Thread(target=self._follow, args=(spark,), daemon=True)
        if follow:
            following.start()
        for line in self._socket.makefile("rb"):
            request = json.loads(line)
            if request["do"] == "end":
                break
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
        except BroadloomError as problem:
            self._send(failed=f"the live tables have ended: {problem}")

    def _build_tables(self, spark: "SparkSession", only: list[str]) -> None:
        from broadloom.pipeline import build
        from broadloom.pipeline.results import Results
        from broadloom.pipeline.tables import table

        began = time.monotonic()
        try:
            result = build.build_tables(self._tapes, self._out, only=only or None, settings=AUDIT_SETTINGS, spark=spark)
        except BroadloomError as problem:
            self._send(tables_failed=str(problem))
            return
        results = Results(self._out)
        audits = results.read(table("audit_summary")).to_pylist()
        findings = results.read(table("audit_findings")).to_pylist()
        violations = [row for row in findings if row["is_violation"]][:VIOLATIONS_SENT_MAX]
        took_s = time.monotonic() - began
        self._send(tables=len(result.built), seconds=took_s, audit_summaries=audits, violations=violations)
