"""The certificate that a peer shows, with a session key drawn anew at each connect.

The key is the peer's identity: its id is a hash of it, and its messages are signed with it. Who may issue a leaf (the
holder of the shared key, or of a ticket) makes no difference here.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from weft.security.certificates import certify, name
from weft.security.fingerprints import peer_id_of
from weft.wire import PeerId

VALID_BEFORE = timedelta(days=1)
"""Clocks differ: a leaf is good for those whose clock is behind ours."""
VALID_FOR = timedelta(days=365)


class Leaf(NamedTuple):
    """A session's key and the certificates that speak for it."""

    key: Ed25519PrivateKey
    chain: tuple[x509.Certificate, ...]
    """What is sent in TLS: the leaf's own, then the ticket's if there is one."""

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def peer(self) -> PeerId:
        return peer_id_of(self.key.public_key())

    def __repr__(self) -> str:
        return f"Leaf({self.peer:016x})"


def draw_leaf(issuer: x509.Certificate, issuer_key: Ed25519PrivateKey, now: datetime, *, ticket: bool) -> Leaf:
    """A new key, certified. A ticket is put inside the leaf, so that the leaf alone proves all."""
    key = Ed25519PrivateKey.generate()
    peer = peer_id_of(key.public_key())
    begin = max(now - VALID_BEFORE, issuer.not_valid_before_utc)
    end = min(now + VALID_FOR, issuer.not_valid_after_utc)
    certificate = certify(
        name(f"{peer:016x}"),
        key.public_key(),
        issuer.subject,
        issuer_key,
        (begin, end),
        # Leaves are not withdrawn one by one, so the number only has to be a number, and not zero.
        serial=peer | 1,
        ticket=issuer if ticket else None,
    )
    return Leaf(key, (certificate, issuer) if ticket else (certificate,))
