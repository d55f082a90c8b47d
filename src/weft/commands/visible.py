"""A peer that can be looked at: a socket on this machine, for its own user alone, where its status can be asked for.

`weft status` and `weft watch` ask there. Programs may make their own peers visible too:

    async with weft.connect("chess/club-42") as channel, visible(channel):
        ...

Who connects sends a line `status` as often as it likes, and gets one line of JSON each time: `channel.status()` and
which program it is. The sockets are in a private directory (`runtime_directory`); a socket has its name only while
somebody listens, or has died without removing it: `peers_here.py` tells the two apart.
"""

import asyncio
import json
import logging
import os
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.channel import Channel

log = logging.getLogger("weft")

SUFFIX = ".sock"
REQUEST = b"status\n"
REQUEST_BYTES_MAX = 1024
BACKLOG = 16


class NotPrivate(OSError):
    """The directory for sockets is not ours alone: whoever else may write there could speak for our peers."""


def runtime_directory() -> Path:
    """Where this user's sockets are. It need not exist yet."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and Path(given).is_dir():
        return Path(given) / "weft"
    return Path(tempfile.gettempdir()) / f"weft-{os.getuid()}"


def private_directory() -> Path:
    """The same, made if it is not there, and proven to be ours."""
    path = runtime_directory()
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    prove_private(path)
    return path


def prove_private(path: Path) -> None:
    """In a directory for all, such as /tmp, another user may have been there first. Links are not followed."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise NotPrivate(f"{path} is not a directory of this user alone (mode 700): remove it, or set XDG_RUNTIME_DIR")


@asynccontextmanager
async def visible(channel: "Channel", *, program: str = "") -> AsyncIterator[None]:
    """While this lasts, `weft status` sees the channel. If that is not possible a warning says why, and all goes on."""
    who = {"program": program or Path(sys.argv[0]).name, "pid": os.getpid()}
    try:
        listener, path = _listen(f"{channel.peer:016x}")
    except (OSError, AttributeError) as problem:  # the latter: a system without such sockets
        log.warning("this peer cannot be seen by `weft status`: %s", problem)
        yield
        return

    callers: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers.add(writer)
        try:
            while request := await reader.readline():
                told = {**who, **channel.status().as_dict()} if request == REQUEST else {"error": "ask for: status"}
                writer.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # it went away, or its line has no end
        finally:
            callers.discard(writer)
            writer.close()

    server = await asyncio.start_unix_server(answer, sock=listener, limit=REQUEST_BYTES_MAX)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        server.close()
        for writer in callers:
            writer.close()


def _listen(name: str) -> tuple[socket.socket, Path]:
    """It gets its name when it can be called: until then others would take it for a dead one, and remove it."""
    directory = private_directory()
    path, hidden = directory / f"{name}{SUFFIX}", directory / f".{name}{SUFFIX}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(hidden))
        listener.listen(BACKLOG)
        hidden.rename(path)
    except OSError as problem:
        listener.close()
        with suppress(OSError):
            hidden.unlink()
        raise OSError(f"{path}: {problem.strerror or problem}") from None
    return listener, path
