"""The protocol between a `WorkerPool` and its workers: JSON objects, one per line, over a socket pair.

| direction | object |
|---|---|
| pool to worker, first line | the `WorkerConfig` |
| pool to worker | `{"do": command, "id": n, ...}`; `id` only if a reply is wanted |
| worker to pool | `{"reply": n, ...}` |
| worker to pool | `{"report": kind, ...}`, unsolicited |

A command is a method `do_<command>` of the worker class; the rest of the object is its arguments. Reports of all
workers: `connected` and `failed` (a peer), `views` (links changed), `left`, `violation` (of a guarantee), `error` (an
uncaught exception or a logged error).
"""

import json
from dataclasses import dataclass
from typing import Any

LINE_BYTES_MAX = 64 << 20
CONNECT_TIMEOUT_S = 60.0
"""Of one attempt of a peer."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What all peers of a pool have in common."""

    channel: str
    key: str | None = None
    """A shared key; None derives one from the channel name."""
    tls: bool = True
    signed: bool = False
    degree: int = 4
    size_bytes: int = 100
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    tape: str = ""
    """Directory of the tapes; empty disables recording."""
    file_duration_s: float = 60.0
    """Age at which a tape file is finished."""


def encode_line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(line)
    return content
