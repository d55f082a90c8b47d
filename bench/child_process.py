"""One process, seen from the driver: its lines, its end. Every wait has a deadline.

Each child is the head of a session of its own, so that what it starts ends with it; and where the machine has
`setpriv`, the kernel ends it should the driver be killed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_S = 3.0
LINE_BYTES_MAX = 1 << 26
LOG_CHARS_MAX = 300


class MeasurementError(Exception):
    """A case that could not be measured, and why."""


class ChildProcess:
    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._lines: defaultdict[str, list[list[str]]] = defaultdict(list)
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def start(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        guard = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *guard,
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=directory,
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            keyword, *rest = line.decode(errors="replace").split() or [""]
            self._lines[keyword].append(rest)
            self._changed.set()
        self._lines["ended"].append([])
        self._changed.set()

    def has_reported(self, keyword: str) -> bool:
        return bool(self._lines[keyword])

    def clear(self, *keywords: str) -> None:
        for keyword in keywords:
            self._lines[keyword].clear()

    def check(self) -> None:
        if self.has_reported("ended"):
            raise MeasurementError(f"{self.name} ended: {self.log_tail()}")

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def wait_for(self, keyword: str, seconds: float) -> list[str]:
        """What came after this word, in the next line that begins with it."""
        end = time.monotonic() + seconds
        while not self._lines[keyword]:
            self.check()
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise MeasurementError(f"{self.name}: no {keyword!r} within {seconds:g} s. {self.log_tail()}") from None
        return self._lines[keyword].pop(0)

    async def request(self, line: str, response: str, seconds: float) -> list[str]:
        self.clear(response)
        self.send(line)
        return await self.wait_for(response, seconds)

    def log_tail(self) -> str:
        try:
            return self._log.read_text(errors="replace").strip()[-LOG_CHARS_MAX:]
        except OSError:
            return ""

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """Ask, then kill, its whole session."""
        if self._reader is None:
            return
        try:
            if self._process.returncode is None:
                self.send("stop")
                await asyncio.wait_for(self._process.wait(), STOP_S)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self.kill()
            await self._process.wait()
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    def terminate(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
