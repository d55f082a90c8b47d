"""Status of the peers on this machine, over private Unix sockets: server (`expose_status`) and client.

`broadloom status` and `broadloom top` are clients. Any program can expose its own channels:

    async with broadloom.connect("chess/club-42") as channel, broadloom.expose_status(channel):
        ...

A client sends the line `status` and gets one line of JSON: `channel.status()` with program name and process id. The
sockets are in a directory that only this user can access (`runtime_directory`). A socket file without a listener was
left behind by a killed process; clients remove it.
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
RESPONSE_TIMEOUT_S = 2.0
RESPONSE_BYTES_MAX = 16 << 20
HIDDEN_S = 60.0
"""A socket that is still hidden after this time was left behind by a killed process."""

StatusJson = dict[str, Any]


class InsecureDirectoryError(OSError):
    """Other users can access the directory of the sockets, so they could impersonate our peers."""


def runtime_directory() -> Path:
    """The directory of this user's sockets; it may not exist yet."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and Path(given).is_dir():
        return Path(given) / "broadloom"
    return Path(tempfile.gettempdir()) / f"broadloom-{os.getuid()}"


def private_directory() -> Path:
    """`runtime_directory`, created if necessary and checked."""
    path = runtime_directory()
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_private(path)
    return path


def check_private(path: Path) -> None:
    """In a shared directory such as /tmp another user may have created it. Symbolic links are not followed."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise InsecureDirectoryError(
            f"{path} is not a private directory of this user (mode 700): remove it, or set XDG_RUNTIME_DIR"
        )


@asynccontextmanager
async def expose_status(channel: "Channel", *, program: str = "") -> AsyncIterator[None]:
    """Let `broadloom status` see this channel inside the `async with` block. A failure is logged, not raised."""
    process = {"program": program or Path(sys.argv[0]).name, "pid": os.getpid()}
    try:
        listener, path = _listen(str(channel.peer_id))
    except (OSError, AttributeError) as problem:  # AttributeError: no Unix sockets on this system
        log.warning("%s: `broadloom status` cannot show this peer: %s", channel.name, problem)
        yield
        return

    clients: set[asyncio.StreamWriter] = set()

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(writer)
        try:
            while request := await reader.readline():
                response = (
                    {**process, **channel.status().as_dict()} if request == REQUEST else {"error": "expected: status"}
                )
                writer.write(json.dumps(response, ensure_ascii=False).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # disconnected, or the line is too long
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
    """Listen under a hidden name first: a client that finds a socket without a listener removes it."""
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


class LocalPeersError(BroadloomError):
    """No peer found, or the directory of the sockets cannot be read or is not private."""


class PeerExitedError(Exception):
    """No process listens on the socket any more."""


class LocalPeer(NamedTuple):
    path: Path
    status: StatusJson | None
    """None: the process did not answer in time."""

    @property
    def peer_id(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


class StatusClient:
    """A connection to the status socket of one peer, for any number of requests."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(RESPONSE_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            self._socket.close()
            raise PeerExitedError from None
        except OSError as problem:
            self._socket.close()
            raise TimeoutError(str(problem)) from None

    def request_status(self) -> StatusJson:
        """Raises `TimeoutError` if the peer does not answer."""
        try:
            self._socket.sendall(REQUEST)
            response = bytearray()
            while not response.endswith(b"\n"):
                part = self._socket.recv(1 << 16)
                if not part or len(response) > RESPONSE_BYTES_MAX:
                    raise PeerExitedError
                response += part
        except ConnectionError:
            raise PeerExitedError from None
        status = json.loads(response)
        if not isinstance(status, dict):
            raise PeerExitedError
        return status

    def close(self) -> None:
        self._socket.close()


def find_local_peers(channel: str = "", peer: str = "") -> list[LocalPeer]:
    """Peers of this user, sorted by channel; optionally only those of a channel, or whose id begins with `peer`."""
    found = [each for path in _sockets(peer) if (each := _query(path)) is not None]
    if channel:
        found = [each for each in found if each.status is not None and each.status["channel"] == channel]
    return sorted(found, key=lambda each: (each.status["channel"] if each.status else "", each.peer_id))


def require_local_peers(channel: str, peer: str) -> list[LocalPeer]:
    """As `find_local_peers`; raises `LocalPeersError` if there are none."""
    found = find_local_peers(channel, peer)
    if not found:
        of_channel = f" of {channel}" if channel else ""
        with_id = f" with an id that begins with {peer}" if peer else ""
        raise LocalPeersError(
            f"no peer{of_channel}{with_id} of this user exposes its status on this machine; start one "
            "with `broadloom join`, or call broadloom.expose_status in your program"
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
    except PeerExitedError:
        with suppress(OSError):
            path.unlink()
        return None
    except TimeoutError:
        return LocalPeer(path, None)
    try:
        return LocalPeer(path, client.request_status())
    except PeerExitedError:
        return None  # it is just leaving, and removes its socket itself
    except TimeoutError:
        return LocalPeer(path, None)
    finally:
        client.close()
