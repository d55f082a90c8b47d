"""What the coordinator and its processes say to each other: JSON, one object a line, over a socket pair.

The coordinator gives orders (`do`); those with an `ask` are answered with the same number. Processes also tell things
unasked (`tell`): a peer is connected, links changed, a promise was broken.
"""

import json
from dataclasses import dataclass
from typing import Any

LINE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What all peers of a trial have in common."""

    channel: str
    key: str | None
    """None: plain TCP."""
    degree: int = 4
    size_bytes: int = 100
    connect_timeout_s: float = 60.0
    tape: str = ""


def encode_line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(line)
    return content
