"""`Launcher`: starts programs as processes, and reports how they ended. A command is a list of words, never a shell."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable

from broadloom.switch import settings
from broadloom.switch.program_types import ProgramType

STDERR_TIMEOUT_S = 0.1
"""After the end of a program: its children may keep its standard error open."""
TERMINATE_TIMEOUT_S = 3.0
CHANNEL_VARIABLE = "BROADLOOM_SWITCH_CHANNEL"
PROGRAM_VARIABLE = "BROADLOOM_SWITCH_PROGRAM"
SESSION_VARIABLE = "BROADLOOM_SWITCH_SESSION"


class Launcher:
    def __init__(self, channel: str, session: str) -> None:
        self._channel = channel
        self._session = session
        self._launched: dict[asyncio.Task[None], LaunchedProgram] = {}

    def start(self, program: ProgramType, on_exit: Callable[[str], None]) -> "LaunchedProgram":
        variables = {
            CHANNEL_VARIABLE: self._channel,
            PROGRAM_VARIABLE: program.name,
            SESSION_VARIABLE: self._session,
        }
        launched = LaunchedProgram(on_exit)
        task = asyncio.get_running_loop().create_task(launched.run(program.start, {**os.environ, **variables}))
        self._launched[task] = launched
        task.add_done_callback(lambda task: self._launched.pop(task, None))
        return launched

    async def close(self) -> None:
        """End all programs that were started here, and wait for them."""
        for launched in self._launched.values():
            launched.terminate()
        await asyncio.gather(*self._launched, return_exceptions=True)


class LaunchedProgram:
    def __init__(self, on_exit: Callable[[str], None]) -> None:
        self._on_exit: Callable[[str], None] | None = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._stderr = b""
        self._is_terminated = asyncio.Event()

    @property
    def last_lines(self) -> str:
        lines = self._stderr.decode(errors="replace").splitlines()[-settings.STDERR_LINES_MAX :]
        return " | ".join(line.strip() for line in lines if line.strip())

    async def run(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as problem:
            self._report(f"cannot be started: {problem.strerror or problem}")
            return
        reading = asyncio.ensure_future(self._read(process))
        terminating = asyncio.ensure_future(self._terminate(process))
        try:
            status = await process.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, STDERR_TIMEOUT_S)
            what = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
            self._report(f"{what}: {self.last_lines}" if self.last_lines else what)
        finally:
            reading.cancel()
            terminating.cancel()
            process._transport.close()  # type: ignore[attr-defined]  # a child may keep its standard error open

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(4096):
            self._stderr = (self._stderr + data)[-settings.STDERR_BYTES_MAX :]

    async def _terminate(self, process: asyncio.subprocess.Process) -> None:
        await self._is_terminated.wait()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            await asyncio.sleep(TERMINATE_TIMEOUT_S)
            process.kill()

    def terminate(self) -> None:
        self._on_exit = None
        self._is_terminated.set()

    def _report(self, text: str) -> None:
        on_exit, self._on_exit = self._on_exit, None
        if on_exit is not None:
            on_exit(text)
