"""A peer that can be looked at: a socket on this machine, for its own user alone, where its status can be asked for.

`broadloom status` and `broadloom watch` ask there. Programs may make their own peers visible too:

    async with broadloom.connect("chess/club-42") as channel, visible(channel):
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
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broadloom.errors import BroadloomError

if TYPE_CHECKING:
    from broadloom.channel import Channel


log = logging.getLogger("broadloom")

SUFFIX = ".sock"
REQUEST = b"status\n"
REQUEST_BYTES_MAX = 1024
BACKLOG = 16


class InsecureDirectoryError(OSError):
    """The directory for sockets is not ours alone: whoever else may write there could speak for our peers."""


def runtime_directory() -> Path:
    """Where this user's sockets are. It need not exist yet."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and Path(given).is_dir():
        return Path(given) / "broadloom"
    return Path(tempfile.gettempdir()) / f"broadloom-{os.getuid()}"


def private_directory() -> Path:
    """The same, made if it is not there, and proven to be ours."""
    path = runtime_directory()
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_private(path)
    return path


def check_private(path: Path) -> None:
    """In a directory for all, such as /tmp, another user may have been there first. Links are not followed."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise InsecureDirectoryError(
            f"{path} is not a directory of this user alone (mode 700): remove it, or set XDG_RUNTIME_DIR"
        )


@asynccontextmanager
async def expose_status(channel: "Channel", *, program: str = "") -> AsyncIterator[None]:
    """While this lasts, `broadloom status` sees the channel. If that is not possible a warning says why, and all goes
    on."""
    process = {"program": program or Path(sys.argv[0]).name, "pid": os.getpid()}
    try:
        listener, path = _listen(f"{channel.peer_id:016x}")
    except (OSError, AttributeError) as problem:  # the latter: a system without such sockets
        log.warning("this peer cannot be seen by `broadloom status`: %s", problem)
        yield
        return

    clients: set[asyncio.StreamWriter] = set()

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(writer)
        try:
            while request := await reader.readline():
                response = (
                    {**process, **channel.status().as_dict()} if request == REQUEST else {"error": "ask for: status"}
                )
                writer.write(json.dumps(response, ensure_ascii=False).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # it went away, or its line has no end
        finally:
            clients.discard(writer)
            writer.close()

    server = await asyncio.start_unix_server(serve_client, sock=listener, limit=REQUEST_BYTES_MAX)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        server.close()
        for writer in clients:
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


# The peers of this user that run on this machine and can be looked at: who they are, and what they tell.
#
# The other side of `visible.py`. Sockets whose process has died are removed on the way.


RESPONSE_TIMEOUT_S = 2.0
RESPONSE_BYTES_MAX = 16 << 20
HIDDEN_S = 60.0
"""A socket that still has no name after this was left by a process that died at once."""

StatusJson = dict[str, Any]


class LocalPeersError(BroadloomError):
    """No peer to look at: none is there, or the directory of the sockets cannot be trusted or read."""


class PeerExited(Exception):
    """Nobody listens there any more."""


class LocalPeer(NamedTuple):
    path: Path
    status: StatusJson | None
    """None: the process is there, but does not answer in time."""

    @property
    def peer_id(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


class StatusClient:
    """To one peer; may be asked again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(RESPONSE_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            self._socket.close()
            raise PeerExited from None
        except OSError as problem:
            self._socket.close()
            raise TimeoutError(str(problem)) from None

    def request_status(self) -> StatusJson:
        """TimeoutError if it does not answer."""
        try:
            self._socket.sendall(REQUEST)
            response = bytearray()
            while not response.endswith(b"\n"):
                part = self._socket.recv(1 << 16)
                if not part or len(response) > RESPONSE_BYTES_MAX:
                    raise PeerExited
                response += part
        except ConnectionError:
            raise PeerExited from None
        status = json.loads(response)
        if not isinstance(status, dict):
            raise PeerExited
        return status

    def close(self) -> None:
        self._socket.close()


def find_local_peers(channel: str = "", peer: str = "") -> list[LocalPeer]:
    """Those of this channel and with this beginning of an id, if given; in the order of their channels."""
    found = [each for path in _sockets(peer) if (each := _query(path)) is not None]
    if channel:
        found = [each for each in found if each.status is not None and each.status["channel"] == channel]
    return sorted(found, key=lambda each: (each.status["channel"] if each.status else "", each.peer_id))


def require_local_peers(channel: str, peer: str) -> list[LocalPeer]:
    """The same; `LocalPeersError` if there are none."""
    found = find_local_peers(channel, peer)
    if not found:
        of = f" of {channel}" if channel else ""
        whose = f" whose id begins with {peer}" if peer else ""
        raise LocalPeersError(
            f"no peer{of}{whose} runs on this machine under your name, or none that made itself visible"
        )
    return found


def _sockets(peer: str) -> list[Path]:
    directory = runtime_directory()
    try:
        check_private(directory)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise LocalPeersError(str(problem)) from None
    paths = sorted(directory.glob(f"*{SUFFIX}"))
    for hidden in (path for path in paths if path.name.startswith(".")):
        with suppress(OSError):
            if time.time() - hidden.stat().st_mtime > HIDDEN_S:
                hidden.unlink()
    return [path for path in paths if not path.name.startswith(".") and path.name.startswith(peer)]


def _query(path: Path) -> LocalPeer | None:
    try:
        client = StatusClient(path)
    except PeerExited:
        with suppress(OSError):
            path.unlink()
        return None
    except TimeoutError:
        return LocalPeer(path, None)
    try:
        return LocalPeer(path, client.request_status())
    except PeerExited:
        return None  # it leaves at this moment, and removes its socket itself
    except TimeoutError:
        return LocalPeer(path, None)
    finally:
        client.close()
