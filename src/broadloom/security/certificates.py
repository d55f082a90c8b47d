"""The one way in which certificates are made here: X.509 with Ed25519 keys and as few fields as will do.

There are three kinds. The authority's signs itself. A ticket's is signed by the authority and may sign leaves, and
nothing else. A leaf's is the one that a peer shows; it signs no certificates.
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
"""In a leaf: the ticket that it was signed with. A number of our own (a random UUID), in no register."""

ALWAYS_VALID = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""From when, until when. The end is the one that RFC 5280 names for "no end"."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def x509_name(common_name: str, *, organization: str = "", unit: str = "") -> x509.Name:
    parts = [(NameOID.ORGANIZATION_NAME, organization), (NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
    attributes = [x509.NameAttribute(kind, text) for kind, text in parts if text]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def single_attribute(subject: x509.Name, kind: ObjectIdentifier) -> str:
    """The one value of this kind in a name; empty if there is none, or if it is said twice."""
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
    """`signs`: how many certificates deep the new one may sign others below those it signs itself; None: it may not
    sign any. (X.509's CA and path length.)"""
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
        # Not critical: TLS has the ticket from the chain, and OpenSSL refuses what is critical and unknown to it.
        inside = x509.UnrecognizedExtension(TICKET_EXTENSION, ticket.public_bytes(Encoding.DER))
        builder = builder.add_extension(inside, critical=False)
    return builder.sign(issuer_key, None)


def _key_usage(path_length: int | None) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=path_length is None,
        key_cert_sign=path_length is not None,
        # Of those who sign certificates, the authority alone also signs what is withdrawn.
        crl_sign=bool(path_length),
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


# The certificate that a peer shows, with a session key drawn anew at each connect.
#
# The key is the peer's identity: its id is a hash of it, and its messages are signed with it. Who may issue a leaf (the
# holder of the shared key, or of a ticket) makes no difference here.


CLOCK_SKEW = timedelta(days=1)
"""Clocks differ: a leaf is good for those whose clock is behind ours."""
VALIDITY = timedelta(days=365)


class PeerCertificate(NamedTuple):
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
    def peer_id(self) -> PeerId:
        return peer_id_of(self.key.public_key())

    def __repr__(self) -> str:
        return f"PeerCertificate({self.peer_id:016x})"


def new_peer_certificate(
    issuer: x509.Certificate, issuer_key: Ed25519PrivateKey, now: datetime, *, ticket: bool
) -> PeerCertificate:
    """A new key, certified. A ticket is put inside the leaf, so that the leaf alone proves all."""
    key = Ed25519PrivateKey.generate()
    peer_id = peer_id_of(key.public_key())
    begin = max(now - CLOCK_SKEW, issuer.not_valid_before_utc)
    end = min(now + VALIDITY, issuer.not_valid_after_utc)
    certificate = build_certificate(
        x509_name(f"{peer_id:016x}"),
        key.public_key(),
        issuer.subject,
        issuer_key,
        (begin, end),
        # Leaves are not withdrawn one by one, so the number only has to be a number, and not zero.
        serial=peer_id | 1,
        ticket=issuer if ticket else None,
    )
    return PeerCertificate(key, (certificate, issuer) if ticket else (certificate,))
