"""The one way in which certificates are made here: X.509 with Ed25519 keys and as few fields as will do.

There are three kinds. The authority's signs itself. A ticket's is signed by the authority and may sign leaves, and
nothing else. A leaf's is the one that a peer shows; it signs no certificates.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

Clock = Callable[[], datetime]

TICKET_EXTENSION = ObjectIdentifier("2.25.285128789430728554379915930875669494955")
"""In a leaf: the ticket that it was signed with. A number of our own (a random UUID), in no register."""

ALWAYS = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""From when, until when. The end is the one that RFC 5280 names for "no end"."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def name(common_name: str, *, organization: str = "", unit: str = "") -> x509.Name:
    parts = [(NameOID.ORGANIZATION_NAME, organization), (NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
    said = [x509.NameAttribute(kind, text) for kind, text in parts if text]
    return x509.Name([*said, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def only(subject: x509.Name, kind: ObjectIdentifier) -> str:
    """The one value of this kind in a name; empty if there is none, or if it is said twice."""
    found = subject.get_attributes_for_oid(kind)
    return str(found[0].value) if len(found) == 1 else ""


def certify(
    subject: x509.Name,
    key: Ed25519PublicKey,
    issuer: x509.Name,
    issuer_key: Ed25519PrivateKey,
    validity: tuple[datetime, datetime],
    *,
    serial: int,
    signs: int | None = None,
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
        .add_extension(x509.BasicConstraints(ca=signs is not None, path_length=signs), critical=True)
        .add_extension(_usage(signs), critical=True)
    )
    if ticket is not None:
        # Not critical: TLS has the ticket from the chain, and OpenSSL refuses what is critical and unknown to it.
        inside = x509.UnrecognizedExtension(TICKET_EXTENSION, ticket.public_bytes(Encoding.DER))
        builder = builder.add_extension(inside, critical=False)
    return builder.sign(issuer_key, None)


def _usage(signs: int | None) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs is None,
        key_cert_sign=signs is not None,
        # Of those who sign certificates, the authority alone also signs what is withdrawn.
        crl_sign=bool(signs),
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
