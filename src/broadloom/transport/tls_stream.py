"""TLS over memory BIOs: bytes from the network in, bytes for the network out.

Driven by `connection.py`. Plain and encrypted connections therefore share one way of reading, writing and closing, and
every TLS error is raised where it happens.
"""

import ssl
from contextlib import suppress

from broadloom.security import APPLICATION_PROTOCOL

READ_BYTES = 16 << 10
"""One TLS record, the maximum that one read returns. A larger buffer would only fragment memory."""


class TlsStream:
    """One end of an encrypted connection."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ready")

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        """The initiator passes the `server_name` of the channel, the responder None."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self.ready = False
        """The handshake is complete: both ends have presented certificates."""

    def do_handshake(self) -> bool:
        """Continue the handshake; True if it is complete. Raises `ssl.SSLError` if it failed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.ready = True
        return True

    @property
    def certificate(self) -> bytes:
        """The certificate of the other end in DER; both contexts require one."""
        return self._tls.getpeercert(binary_form=True) or b""

    @property
    def is_peer(self) -> bool:
        """Whether the other end has selected our application protocol; known before its certificate is checked."""
        return self._tls.selected_alpn_protocol() == APPLICATION_PROTOCOL

    def feed(self, data: bytes) -> None:
        """Add bytes from the network."""
        self._incoming.write(data)

    def decrypt(self) -> bytes:
        """Everything that can be decrypted so far. A close_notify reads as nothing: EOF follows."""
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
                if not self._incoming.pending:
                    break  # reading on would raise an error, which takes longer than reading a short record
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, data: bytes | memoryview) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def pending_output(self) -> bytes:
        """Output of TLS itself: handshake and alerts."""
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """The close_notify alert, which lets the other end distinguish a close from a truncation."""
        with suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        return self._outgoing.read()
