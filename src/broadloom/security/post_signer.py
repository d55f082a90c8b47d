"""`PostSigner`: signatures of group messages, which any member can pass on and verify later (`groups/proofs.py`).

A post is signed with the session key of its author. The credential is checked for the time at which the post was sent,
so that history stays valid after the author's ticket has expired; posts of a revoked ticket are not.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from broadloom.security.certificates import PeerCertificate
from broadloom.security.verification import CertificateVerifier, Statements
from broadloom.wire import PeerId

POST_PREFIX = b"broadloom post\0"
"""Domain separation: the session key also signs channel messages and TLS handshakes."""


class PostSigner:
    def __init__(
        self, channel_id: bytes, certificate: PeerCertificate, verifier: CertificateVerifier, name: str
    ) -> None:
        self.name = name
        self.credential = certificate.der
        self.credential_of: Callable[[PeerId], bytes] = lambda _peer_id: b""
        """Set by the channel, which knows the credentials of its authors."""
        self._key = certificate.key
        self._prefix = POST_PREFIX + channel_id
        self._statements = Statements(verifier)

    def __repr__(self) -> str:
        return f"PostSigner({self.name!r})"

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(self._prefix + data)

    def accepts(self, credential: bytes) -> bool:
        return self._statements.accepts(credential)

    def verify(
        self, credential: bytes, data: bytes, signature: bytes, sent_at_ms: int, *, even_if_revoked: bool = False
    ) -> str | None:
        try:
            at = datetime.fromtimestamp(sent_at_ms / 1000, UTC)
            return self._statements.verify(
                credential, self._prefix + data, signature, at, even_if_revoked=even_if_revoked
            )
        except (OverflowError, OSError, ValueError):
            return None
