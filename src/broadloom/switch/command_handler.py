"""A command as a handler: it gets the data of a request as its input, and what it prints is the reply."""

import asyncio
import contextlib
from collections.abc import Sequence
from subprocess import PIPE

from broadloom.errors import RefusedError
from broadloom.switch import settings
from broadloom.switch.handled_request import HandledRequest


async def run_command(words: Sequence[str], request: HandledRequest) -> bytes:
    """Run the command, without a shell, and return its output. Raises `RefusedError` if it fails. A command whose
    sender no longer waits is killed."""
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    except OSError as problem:
        raise RefusedError(f"{words[0]} cannot be started: {problem.strerror or problem}") from None
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        reading = process.stdout.read(), process.stderr.read(), _feed(process.stdin, request.data)
        output, errors, _ = await asyncio.gather(*reading)
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        text = errors[-settings.STDERR_BYTES_MAX :].decode(errors="replace").strip()
        raise RefusedError(f"{words[0]} exited with status {process.returncode}{f': {text}' if text else ''}")
    return output


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    """A command need not read its input. uvloop raises `RuntimeError` if it has already closed it."""
    with contextlib.suppress(OSError, RuntimeError):
        stream.write(data)
        await stream.drain()
    with contextlib.suppress(OSError, RuntimeError):
        stream.close()
        await stream.wait_closed()
