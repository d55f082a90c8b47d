"""What a program that is not a peer of this channel seems to be, from its first bytes."""

from broadloom.wire import WireError, decode
from broadloom.wire.exchange_messages import Reject

TEXT_MAX = 40
"""Characters of an unknown greeting that are quoted."""
PLAIN_PEER = "a Broadloom peer without TLS"


def describe_foreign(data: bytes) -> str:
    """A noun phrase; empty if the bytes say nothing."""
    if data.startswith(b"SSH-"):
        return "an SSH server"
    if data.startswith((b"HTTP/", b"GET ", b"POST ")):
        return "an HTTP server"
    if _is_reject(data):
        return PLAIN_PEER
    line = data.splitlines()[0][:TEXT_MAX] if data.strip() else b""
    if line.isascii() and line.decode("ascii").isprintable() and len(line) > 3:
        return f"a program that sends {line.decode('ascii')!r}"
    return ""


def _is_reject(data: bytes) -> bool:
    """A peer without TLS rejects a TLS handshake with this message."""
    try:
        return isinstance(decode(data[: 4 + int.from_bytes(data[:4], "big")]), Reject)
    except WireError:
        return False
