"""The X.509 profile: Ed25519 keys and as few fields as possible.

There are three kinds of certificates. The authority's is self-signed. A ticket is signed by the authority and may only
sign peer certificates. A peer certificate is what a peer presents; it signs no certificates.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from broadloom.security.keys import peer_id_of
from broadloom.wire import PeerId

Clock = Callable[[], datetime]

TICKET_EXTENSION = ObjectIdentifier("2.25.285128789430728554379915930875669494955")
"""Extension of a peer certificate that holds the ticket it was signed with. An unregistered, UUID-based OID."""

ALWAYS_VALID = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The end is the value that RFC 5280 defines for "no expiration"."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def x509_name(common_name: str, *, organization: str = "", unit: str = "") -> x509.Name:
    parts = [(NameOID.ORGANIZATION_NAME, organization), (NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
    attributes = [x509.NameAttribute(kind, text) for kind, text in parts if text]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def single_attribute(subject: x509.Name, kind: ObjectIdentifier) -> str:
    """The value of this attribute; empty if it is missing or repeated."""
    found = subject.get_attributes_for_oid(kind)
    return str(found[0].value) if len(found) == 1 else ""


def build_certificate(
    subject: x509.Name,
    key: Ed25519PublicKey,
    issuer: x509.Name,
    issuer_key: Ed25519PrivateKey,
    validity: tuple[datetime, datetime],
    *,
    serial: int,
    path_length: int | None = None,
    ticket: x509.Certificate | None = None,
) -> x509.Certificate:
    """`path_length`: as in X.509's basic constraints; None for a certificate that may not sign others."""
    begin, end = validity
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .issuer_name(issuer)
        .serial_number(serial)
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=path_length is not None, path_length=path_length), critical=True)
        .add_extension(_key_usage(path_length), critical=True)
    )
    if ticket is not None:
        # Not critical: OpenSSL rejects unknown critical extensions, and TLS finds the ticket in the chain.
        extension = x509.UnrecognizedExtension(TICKET_EXTENSION, ticket.public_bytes(Encoding.DER))
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, None)


def _key_usage(path_length: int | None) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=path_length is None,
        key_cert_sign=path_length is not None,
        # Only the authority (path length 1) signs revocation lists.
        crl_sign=bool(path_length),
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


CLOCK_SKEW = timedelta(days=1)
"""A new certificate is valid at once for peers whose clock is behind ours."""
VALIDITY = timedelta(days=365)


class PeerCertificate(NamedTuple):
    """A session key, new at each connect, and its certificate. The key signs messages; the peer id is a hash of the key
    and the ticket."""

    key: Ed25519PrivateKey
    chain: tuple[x509.Certificate, ...]
    """As sent in TLS: the peer certificate, then the ticket if there is one."""

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def peer_id(self) -> PeerId:
        return peer_id_of(self.key.public_key(), self.chain[1] if len(self.chain) > 1 else None)

    def __repr__(self) -> str:
        return f"PeerCertificate({self.peer_id:016x})"


def new_peer_certificate(
    issuer: x509.Certificate, issuer_key: Ed25519PrivateKey, now: datetime, *, ticket: bool
) -> PeerCertificate:
    """A new session key with its certificate. A ticket is embedded, so that the certificate alone proves everything."""
    key = Ed25519PrivateKey.generate()
    peer_id = peer_id_of(key.public_key(), issuer if ticket else None)
    begin = max(now - CLOCK_SKEW, issuer.not_valid_before_utc)
    end = min(now + VALIDITY, issuer.not_valid_after_utc)
    certificate = build_certificate(
        x509_name(f"{peer_id:016x}"),
        key.public_key(),
        issuer.subject,
        issuer_key,
        (begin, end),
        # Peer certificates are not revoked one by one: the serial number only has to be positive.
        serial=peer_id | 1,
        ticket=issuer if ticket else None,
    )
    return PeerCertificate(key, (certificate, issuer) if ticket else (certificate,))
