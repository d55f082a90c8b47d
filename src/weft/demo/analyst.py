"""The demo's side of the process that Spark runs in: what it is asked, and how far it is, in words."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.demo.options import WrongUse
from weft.errors import WeftError
from weft.fabric import ChannelName

READY_S = 180.0
"""For Spark to start; on a machine that is busy with everything else, this takes a while."""
TABLES_S = 900.0
END_S = 2.0
FIRST_TABLES_S = 120.0
"""The live tables come first, unless they take longer than this."""
FIRST_TABLES = ("verdict", "latency", "repairs")
"""What people want to know first; all tables take several times as long."""
TABLES_EVERY_S = 150.0
"""And then again, so long after they were done: they take the machine from everything else for a while."""
PARTS = ("pyarrow", "polars", "pyspark")


class NoAnalysis(WeftError):
    """Spark did not start, or failed; says why, or where that is told."""


def needs_spark() -> None:
    for each in PARTS:
        if find_spec(each) is None:
            raise WrongUse(f"{each} is not installed: pip install 'weft[pipeline]', or leave Spark out with --no-spark")


class Analyst:
    """Use it with `async with`. `follow`: live tables too, and all tables again and again."""

    def __init__(self, channel: str, tapes: Path, out: Path, log: Path, *, follow: bool) -> None:
        from weft.record.schema import CHANNEL_DIGITS

        self._channel = ChannelName.parse(channel).id.hex()[:CHANNEL_DIGITS]
        """The folder may hold tapes of other channels too, from an earlier demo."""
        self.began_s = time.monotonic()
        self.ready_s: float | None = None
        """How long Spark took to start."""
        self.first_tables_s: float | None = None
        """From the start to the first live tables."""
        self.failed: str | None = None
        self.verdict: dict[str, Any] | None = None
        """Of the last audit."""
        self._log = log
        self._follow = follow
        self._problem = ""
        """Why the last tables could not be made."""
        self._news = asyncio.Event()
        self._answer: dict[str, Any] | None = None
        ours, theirs = socket.socketpair()
        words = [str(theirs.fileno()), str(os.getpid()), str(tapes), str(out), *(["follow"] if follow else [])]
        tapes.mkdir(parents=True, exist_ok=True)
        program = "import sys; from weft.demo.analysis import main; main(sys.argv[1:])"
        with log.open("ab") as said:
            # In a session of its own: Ctrl-C at a terminal is the demo's business.
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        theirs.close()
        self._ours = ours
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Analyst":
        reader, self._writer = await asyncio.open_connection(sock=self._ours, limit=16 << 20)
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._read(reader)))
        if self._follow:
            self._tasks.append(loop.create_task(self._make_tables()))
        return self

    async def __aexit__(self, *_problem: object) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(OSError):
            self._order(do="end")
        deadline = time.monotonic() + END_S
        while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        # Results are replaced whole, so nothing is harmed if it is in the middle of something.
        self._process.kill()
        self._process.wait()
        self._writer.close()

    # -- how far it is

    def progress(self) -> str:
        """A sentence on what is still waited for; empty when the first tables are there."""
        seconds = f"{time.monotonic() - self.began_s:.0f} s"
        if self.failed is not None:
            return f"Spark failed: {self.failed}"
        if self._problem:
            return f"the last tables could not be made: {self._problem}"
        if self.ready_s is None:
            return f"Spark is starting ({seconds})"
        if self.first_tables_s is None:
            return f"Spark is there after {self.ready_s:.0f} s; the first tables are being made ({seconds})"
        if self.verdict is None:
            return f"first live tables after {self.first_tables_s:.0f} s; the audit is being made"
        return ""

    # -- asking

    async def ready(self, within_s: float = READY_S) -> None:
        await self._until(lambda: self.ready_s is not None, within_s, "Spark has not started")

    async def audit(self, only: tuple[str, ...] = ("verdict",), within_s: float = TABLES_S) -> dict[str, Any]:
        """Make these tables (none: all) of all that is on the tapes now; the verdict, with how long it took."""
        await self.ready()
        self._answer = None
        self._order(do="tables", only=list(only))
        await self._until(lambda: self._answer is not None, within_s, "the tables are not made")
        answer: dict[str, Any] | None = self._answer
        assert answer is not None
        if "tables_failed" in answer:
            raise NoAnalysis(answer["tables_failed"])
        verdicts = [row for row in answer["verdicts"] if row["channel"] == self._channel]
        if not verdicts:
            raise NoAnalysis("there is nothing on the tapes that could be judged")
        self.verdict = verdicts[0]
        guilty = [row for row in answer["guilty"] if row["channel"] == self._channel]
        return {"verdict": verdicts[0], "guilty": guilty, "seconds": answer["seconds"]}

    async def _make_tables(self) -> None:
        """All tables, again and again. What fails is tried again, and told."""
        await self.ready()
        with suppress(NoAnalysis):  # whatever became of the live tables, these are made
            await self._until(lambda: self.first_tables_s is not None, FIRST_TABLES_S, "there are no live tables")
        only: tuple[str, ...] = FIRST_TABLES
        while True:
            try:
                await self.audit(only)
                self._problem = ""
            except NoAnalysis as problem:
                self._problem = str(problem)
                if self._process.poll() is not None:
                    return
            await asyncio.sleep(TABLES_EVERY_S if not only else 0.0)
            only = ()

    async def _until(self, holds: Any, within_s: float, lacking: str) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            if self.failed is not None:
                raise NoAnalysis(self.failed)
            self._news.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                raise NoAnalysis(f"{lacking} after {within_s:g} s; what it said is in {self._log}") from None

    def _order(self, **content: Any) -> None:
        self._writer.write(json.dumps(content).encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                told = json.loads(line)
                if "ready_s" in told:
                    self.ready_s = told["ready_s"]
                elif "failed" in told:
                    self.failed = told["failed"]
                elif "batch" in told:
                    if self.first_tables_s is None:
                        self.first_tables_s = time.monotonic() - self.began_s
                else:
                    self._answer = told
                self._news.set()
        if self.failed is None:
            self.failed = f"its process has ended; what it said is in {self._log}"
        self._news.set()
