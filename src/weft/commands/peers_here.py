"""The peers of this user that run on this machine and can be looked at: who they are, and what they tell.

The other side of `visible.py`. Sockets whose process has died are removed on the way.
"""

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from weft.commands.errors import Failed
from weft.commands.visible import REQUEST, SUFFIX, prove_private, runtime_directory

ANSWER_S = 2.0
ANSWER_BYTES_MAX = 16 << 20
HIDDEN_S = 60.0
"""A socket that still has no name after this was left by a process that died at once."""

Told = dict[str, Any]


class Gone(Exception):
    """Nobody listens there any more."""


class PeerHere(NamedTuple):
    path: Path
    told: Told | None
    """None: the process is there, but does not answer in time."""

    @property
    def peer(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


class Line:
    """To one peer; may be asked again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_S)
        try:
            self._socket.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            self._socket.close()
            raise Gone from None
        except OSError as problem:
            self._socket.close()
            raise TimeoutError(str(problem)) from None

    def ask(self) -> Told:
        """TimeoutError if it does not answer."""
        try:
            self._socket.sendall(REQUEST)
            answer = bytearray()
            while not answer.endswith(b"\n"):
                part = self._socket.recv(1 << 16)
                if not part or len(answer) > ANSWER_BYTES_MAX:
                    raise Gone
                answer += part
        except ConnectionError:
            raise Gone from None
        told = json.loads(answer)
        if not isinstance(told, dict):
            raise Gone
        return told

    def close(self) -> None:
        self._socket.close()


def peers_here(channel: str = "", peer: str = "") -> list[PeerHere]:
    """Those of this channel and with this beginning of an id, if given; in the order of their channels."""
    found = [each for path in _sockets(peer) if (each := _look(path)) is not None]
    if channel:
        found = [each for each in found if each.told is not None and each.told["channel"] == channel]
    return sorted(found, key=lambda each: (each.told["channel"] if each.told else "", each.peer))


def some_peers_here(channel: str, peer: str) -> list[PeerHere]:
    """The same; `Failed` if there are none."""
    found = peers_here(channel, peer)
    if not found:
        of = f" of {channel}" if channel else ""
        whose = f" whose id begins with {peer}" if peer else ""
        raise Failed(f"no peer{of}{whose} runs on this machine under your name, or none that made itself visible")
    return found


def _sockets(peer: str) -> list[Path]:
    directory = runtime_directory()
    try:
        prove_private(directory)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise Failed(str(problem)) from None
    paths = sorted(directory.glob(f"*{SUFFIX}"))
    for hidden in (path for path in paths if path.name.startswith(".")):
        with suppress(OSError):
            if time.time() - hidden.stat().st_mtime > HIDDEN_S:
                hidden.unlink()
    return [path for path in paths if not path.name.startswith(".") and path.name.startswith(peer)]


def _look(path: Path) -> PeerHere | None:
    try:
        line = Line(path)
    except Gone:
        with suppress(OSError):
            path.unlink()
        return None
    except TimeoutError:
        return PeerHere(path, None)
    try:
        return PeerHere(path, line.ask())
    except Gone:
        return None  # it leaves at this moment, and removes its socket itself
    except TimeoutError:
        return PeerHere(path, None)
    finally:
        line.close()
