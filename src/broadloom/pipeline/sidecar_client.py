"""The demo's side of the Spark process: requests, and its progress for display."""

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
from typing import TYPE_CHECKING, Any

from broadloom.errors import BroadloomError
from broadloom.extras import missing_package
from broadloom.protocol import ChannelName
from broadloom.testing.errors import ConfigError

if TYPE_CHECKING:
    from broadloom.testing.cluster.cluster import LocalCluster

START_TIMEOUT_S = 180.0
"""For Spark to start, on a machine that is busy with peers and pages."""
TABLES_TIMEOUT_S = 900.0
STOP_TIMEOUT_S = 2.0
FIRST_TABLES_TIMEOUT_S = 120.0
"""Time to wait for live tables before the first audit."""
FIRST_TABLES = ("audit_summary", "latency", "repairs")
"""Built first; all tables take several times as long."""
TABLES_INTERVAL_S = 150.0
"""Pause between two builds of all tables, which keep the machine busy for a while."""
REQUIRED_PACKAGES = ("pyarrow", "polars", "pyspark")


class SidecarError(BroadloomError):
    """Spark did not start or failed. The message says why, or names its log file."""


def require_spark() -> None:
    for name in REQUIRED_PACKAGES:
        if find_spec(name) is None:
            raise ConfigError(f"{missing_package(name, 'pipeline')}; or use --no-spark")


def start_tape_audit(cluster: "LocalCluster", directory: Path) -> "SidecarClient":
    """Start Spark to audit the tapes of a cluster (`run_demo` calls this)."""
    tapes, results, log = directory / "tapes", directory / "results", directory / "spark.log"
    return SidecarClient(cluster.channel, tapes, results, log, follow=False)


class SidecarClient:
    """Use it with `async with`. With `follow` it maintains live tables and rebuilds all tables regularly."""

    def __init__(self, channel: str, tapes: Path, out: Path, log: Path, *, follow: bool) -> None:
        from broadloom.record.schema import CHANNEL_DIGITS

        self._channel = ChannelName.parse(channel).id.hex()[:CHANNEL_DIGITS]
        """The directory may hold tapes of other channels, from an earlier demo."""
        self.started_s = time.monotonic()
        self.ready_s: float | None = None
        """Seconds that Spark took to start."""
        self.first_tables_s: float | None = None
        """Seconds from the start to the first live tables."""
        self.error: str | None = None
        self.audit_summary: dict[str, Any] | None = None
        """Result of the last audit."""
        self._log = log
        self._follow = follow
        self._tables_error = ""
        self._changed = asyncio.Event()
        self._reply: dict[str, Any] | None = None
        self._asking = asyncio.Lock()
        ours, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), str(os.getpid()), str(tapes), str(out), *(["follow"] if follow else [])]
        tapes.mkdir(parents=True, exist_ok=True)
        program = "import sys; from broadloom.pipeline.sidecar import main; main(sys.argv[1:])"
        with log.open("ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,  # Ctrl-C at a terminal reaches the demo only
            )
        theirs.close()
        self._ours = ours
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SidecarClient":
        reader, self._writer = await asyncio.open_connection(sock=self._ours, limit=16 << 20)
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._read(reader)))
        if self._follow:
            self._tasks.append(loop.create_task(self._rebuild_tables()))
        return self

    async def __aexit__(self, *_problem: object) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(OSError):
            self._send(do="stop")
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        # Safe at any time: results are replaced atomically.
        self._process.kill()
        self._process.wait()
        self._writer.close()

    # -- progress

    def progress(self) -> str:
        """Return what is still pending, for display; empty when the first tables and audit are done."""
        seconds = f"{time.monotonic() - self.started_s:.0f} s"
        if self.error is not None:
            return f"Spark failed: {self.error}"
        if self._tables_error:
            return f"building the tables failed: {self._tables_error}"
        if self.ready_s is None:
            return f"Spark is starting ({seconds})"
        if self.first_tables_s is None:
            return f"Spark started after {self.ready_s:.0f} s; building the first tables ({seconds})"
        if self.audit_summary is None:
            return f"first live tables after {self.first_tables_s:.0f} s; auditing"
        return ""

    # -- requests

    async def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        await self._wait_until(lambda: self.ready_s is not None, timeout_s, "Spark did not start")

    async def audit(
        self, only: tuple[str, ...] = ("audit_summary",), timeout_s: float = TABLES_TIMEOUT_S
    ) -> dict[str, Any]:
        """Build these tables (none: all) from the tapes; returns `summary`, `violations` and `seconds`."""
        reply = await self._ask(timeout_s, do="tables", only=list(only))
        summaries = [row for row in reply["summaries"] if row["channel"] == self._channel]
        if not summaries:
            raise SidecarError("the tapes hold nothing to audit")
        self.audit_summary = summaries[0]
        violations = [row for row in reply["violations"] if row["channel"] == self._channel]
        return {"summary": summaries[0], "violations": violations, "seconds": reply["seconds"]}

    async def build(
        self,
        tapes: Path,
        out: Path,
        only: tuple[str, ...],
        settings: dict[str, str],
        timeout_s: float = TABLES_TIMEOUT_S,
    ) -> None:
        """Build these tables from other tapes."""
        await self._ask(timeout_s, do="build", tapes=str(tapes), out=str(out), only=list(only), settings=settings)

    async def _ask(self, timeout_s: float, **request: Any) -> dict[str, Any]:
        await self.wait_until_ready()
        async with self._asking:
            self._reply = None
            self._send(**request)
            await self._wait_until(lambda: self._reply is not None, timeout_s, "the tables were not built")
            reply: dict[str, Any] | None = self._reply
        assert reply is not None
        if "tables_failed" in reply:
            raise SidecarError(reply["tables_failed"])
        return reply

    async def _rebuild_tables(self) -> None:
        """Rebuild all tables regularly; errors are shown and retried."""
        await self.wait_until_ready()
        with suppress(SidecarError):  # without live tables, too
            await self._wait_until(lambda: self.first_tables_s is not None, FIRST_TABLES_TIMEOUT_S, "no live tables")
        only: tuple[str, ...] = FIRST_TABLES
        while True:
            try:
                await self.audit(only)
                self._tables_error = ""
            except SidecarError as error:
                self._tables_error = str(error)
                if self._process.poll() is not None:
                    return
            await asyncio.sleep(TABLES_INTERVAL_S if not only else 0.0)
            only = ()

    async def _wait_until(self, condition: Any, timeout_s: float, problem: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.error is not None:
                raise SidecarError(self.error)
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                raise SidecarError(f"{problem} after {timeout_s:g} s; see {self._log}") from None

    def _send(self, **content: Any) -> None:
        self._writer.write(json.dumps(content).encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                if "ready_s" in message:
                    self.ready_s = message["ready_s"]
                elif "failed" in message:
                    self.error = message["failed"]
                elif "batch" in message:
                    if self.first_tables_s is None:
                        self.first_tables_s = time.monotonic() - self.started_s
                else:
                    self._reply = message
                self._changed.set()
        if self.error is None:
            self.error = f"its process exited; see {self._log}"
        self._changed.set()
