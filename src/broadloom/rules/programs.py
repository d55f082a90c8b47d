"""Running the programs that rules name: without a shell, with limits of time, output and number.

A program gets the data on standard input. It has a session of its own, so that its children end with it, and an
environment without the variables of Broadloom, which may hold keys.
"""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from broadloom.rules.compiled import Program

ERROR_BYTES_MAX = 2000
"""What is kept of standard error, for the error message."""
READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Limits of the programs that rules run."""

    timeout_s: float = 5.0
    """From the time it is wanted, so that waiting for another program counts."""
    output_bytes_max: int = 64 << 20
    at_once_max: int = 4
    """Programs that run at the same time; others wait."""

    def __post_init__(self) -> None:
        if not self.timeout_s > 0 or self.output_bytes_max < 0 or self.at_once_max < 1:
            raise ValueError("limits of programs must be greater than 0")


class ProgramFailedError(Exception):
    """A program did not end, ended with an error, or wrote too much."""


class ProgramRunner:
    def __init__(self, limits: ProgramLimits, directory: str | os.PathLike[str] | None) -> None:
        self.limits = limits
        self._directory = directory
        self._running = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def run(self, program: Program, data: bytes) -> bytes:
        """The output. Raises `ProgramFailedError`."""
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                await self._acquire()
                try:
                    return await self._run(program, data)
                finally:
                    self._release()
        except TimeoutError:
            raise ProgramFailedError(
                f"the program {program.name} did not end within {self.limits.timeout_s:g} s"
            ) from None

    async def _acquire(self) -> None:
        """Not a semaphore: rules may be used by several event loops, one after the other."""
        while self._running >= self.limits.at_once_max:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                self._waiting.remove(future)
        self._running += 1

    def _release(self) -> None:
        self._running -= 1
        for future in self._waiting:
            if not future.done():
                future.get_loop().call_soon_threadsafe(_wake, future)

    async def _run(self, program: Program, data: bytes) -> bytes:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BROADLOOM_")}
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._directory,
                env=environment,
                start_new_session=True,
            )
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError, ValueError):  # it is ended even if it was only just being started
                await _end(await starting)
            raise
        except (OSError, ValueError) as problem:
            text = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise ProgramFailedError(f"cannot start the program {program.name}: {text}") from None
        try:
            return await self._exchange(program, process, data)
        finally:
            await _end(process)

    async def _exchange(self, program: Program, process: asyncio.subprocess.Process, data: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.ensure_future(_feed(process.stdin, data))
        errors = asyncio.ensure_future(_beginning(process.stderr))
        try:
            output = bytearray()
            while chunk := await process.stdout.read(READ_BYTES):
                output += chunk
                if len(output) > self.limits.output_bytes_max:
                    raise ProgramFailedError(
                        f"the program {program.name} wrote more than {self.limits.output_bytes_max:,} bytes"
                    )
            code = await process.wait()
            if code:
                text = (await errors).decode(errors="replace").strip()
                how = f"was ended by signal {-code}" if code < 0 else f"failed with status {code}"
                raise ProgramFailedError(f"the program {program.name} {how}" + (f": {text}" if text else ""))
            return bytes(output)
        finally:
            for task in (feeding, errors):
                task.cancel()
            await asyncio.gather(feeding, errors, return_exceptions=True)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    """A program need not read its input. uvloop raises `RuntimeError` if it has already closed it."""
    with suppress(OSError, RuntimeError):
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    """The first bytes; the rest is read and dropped, so that the program does not wait."""
    kept = b""
    while chunk := await stream.read(READ_BYTES):
        kept = (kept + chunk)[:ERROR_BYTES_MAX]
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program and its children, and wait for it, so that no zombie remains."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()  # before waiting: asyncio waits for pipes that nobody reads any more
    await asyncio.shield(process.wait())


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
