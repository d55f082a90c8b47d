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

from weft.errors import WeftError
from weft.trial.processes import die_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "2g"
NICE = 10
FOLLOW_END_S = 10.0
GUILTY_TOLD_MAX = 1000
SPARK = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}
"""The many small files of a tape are listed at once, and not by a task each."""
SETTINGS = {"clock_s": "0.05", "settle_s": "5"}
"""Of the audit: all peers are on one machine, and have one clock."""


def main(arguments: list[str]) -> None:
    """`arguments`: our end of the socket, the demo's process, the folders of tapes and results, perhaps `follow`."""
    number, parent, tapes, out, *words = arguments
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which will end us
    if "follow" in words:
        os.nice(NICE)  # there are peers, and a page, that shall not wait for it
    with socket.socket(fileno=int(number)) as end:
        Analysis(end, Path(tapes), Path(out)).run(follow="follow" in words)


class Analysis:
    def __init__(self, end: socket.socket, tapes: Path, out: Path) -> None:
        self._end = end
        self._tapes = tapes
        self._out = out
        self._telling = threading.Lock()
        self._stop = threading.Event()

    def run(self, *, follow: bool) -> None:
        from weft.pipeline.session import session, stop

        began = time.monotonic()
        try:
            spark = session(name="weft demo", memory=MEMORY, quick=True, settings=SPARK)
        except WeftError as problem:
            self._tell(failed=str(problem))
            return
        self._tell(ready_s=time.monotonic() - began)
        following = threading.Thread(target=self._follow, args=(spark,), daemon=True)
        if follow:
            following.start()
        for line in self._end.makefile("rb"):
            order = json.loads(line)
            if order["do"] == "end":
                break
            self._tables(spark, order["only"])
        self._stop.set()
        if follow:
            following.join(FOLLOW_END_S)
        stop()

    def _tell(self, **content: Any) -> None:
        with self._telling:
            self._end.sendall(json.dumps(content, default=str).encode() + b"\n")

    def _follow(self, spark: "SparkSession") -> None:
        from weft.pipeline.follow import Progress, follow

        def told(done: Progress) -> None:
            self._tell(batch=done.batch, rows=done.rows, seconds=done.seconds)

        try:
            follow(self._tapes, self._out, stop=self._stop, on_progress=told, spark=spark)
        except WeftError as problem:
            self._tell(failed=f"the live tables have ended: {problem}")

    def _tables(self, spark: "SparkSession", only: list[str]) -> None:
        from weft.pipeline import job
        from weft.pipeline.results import Results
        from weft.pipeline.tables import table

        began = time.monotonic()
        try:
            outcome = job.run(self._tapes, self._out, only=only or None, settings=SETTINGS, spark=spark)
        except WeftError as problem:
            self._tell(tables_failed=str(problem))
            return
        results = Results(self._out)
        verdicts = results.read(table("verdict")).to_pylist()
        guilty = [row for row in results.read(table("audit")).to_pylist() if row["guilty"]][:GUILTY_TOLD_MAX]
        took_s = time.monotonic() - began
        self._tell(tables=len(outcome.built), seconds=took_s, verdicts=verdicts, guilty=guilty)
