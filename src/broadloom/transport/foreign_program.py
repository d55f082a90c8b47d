"""What a program that is not a peer of this channel seems to be, from its first bytes."""

from broadloom.wire import WireError, decode
from broadloom.wire.exchange_messages import Reject, RejectReason

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
    return plain_reject(data) is not None


def plain_reject(data: bytes) -> Reject | None:
    try:
        message = decode(data[: 4 + int.from_bytes(data[:4], "big")])
    except WireError:
        return None
    return message if isinstance(message, Reject) else None


def reject_plain_peer(data: bytes, channel_id: bytes) -> Reject:
    """The answer of a peer with TLS to one without, which names its channel in clear text."""
    if channel_id in data:
        return Reject(RejectReason.CHANNEL_TLS_MISMATCH, "this channel uses TLS; connect without tls=False")
    return Reject(RejectReason.TLS_MISMATCH, "this peer uses TLS")


def reject_tls_peer(data: bytes, server_name: str, problem: WireError) -> Reject:
    """The answer of a peer without TLS to data that is not a frame. A peer with TLS names its channel, hashed."""
    if server_name.encode() in data:
        return Reject(RejectReason.CHANNEL_TLS_MISMATCH, "this channel does not use TLS; connect with tls=False")
    return Reject(RejectReason.WRONG_PROTOCOL, str(problem)[:200])
