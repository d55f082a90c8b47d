"""TLS on one line, without sockets: bytes from the network in, bytes for the network out.

Driven by `line.py`. The standard library's `ssl` does the work, through memory; so plain and encrypted lines have one
way of reading, writing and closing, and every error is seen where it happens.
"""

import ssl
from contextlib import suppress

READ_BYTES = 16 << 10
"""A TLS record, which is what one read gives at most. Room for more would be taken and given back, and break up
memory."""


class TlsStream:
    """One end of an encrypted line."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ready")

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        """The one who dialled names the channel (`server_name`); the other end has no name to give."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self.ready = False
        """Both ends have shown their certificates."""

    def do_handshake(self) -> bool:
        """One step further; True if this was the last one. ssl.SSLError if the other end is not acceptable."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.ready = True
        return True

    @property
    def certificate(self) -> bytes:
        """The other end's, in DER. There always is one: both contexts require it."""
        return self._tls.getpeercert(binary_form=True) or b""

    def feed(self, data: bytes) -> None:
        """Bytes came from the network."""
        self._incoming.write(data)

    def decrypt(self) -> bytes:
        """All that can be read by now. A goodbye of the other end reads as nothing: the line will end."""
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, data: bytes | memoryview) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def pending_output(self) -> bytes:
        """What TLS itself wants to say: the handshake, alerts."""
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """So that the other end can tell the end from a break."""
        with suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        return self._outgoing.read()
