"""A ticket: what the owner of a channel gives to one member. It names the member, its role and an expiry.

It is a file with three parts: the ticket's certificate (signed by the owner's authority), the member's private key,
and the authority's certificate. With it the member signs its own leaf at each connect. The ticket's certificate may
sign leaves and no further tickets, and others read name and role from it and never from the leaf.
"""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from broadloom.errors import InvalidKeyFileError
from broadloom.protocol.identity import Role
from broadloom.security.certificates import Clock, PeerCertificate, new_peer_certificate, single_attribute, utc_now
from broadloom.security.pem import encode_pem, read_contents, read_file, write_private

SERIAL_DIGITS = 16

_ADVICE = "ask the channel's owner for a new one"


class TicketClaims(NamedTuple):
    """What the owner wrote on a ticket."""

    name: str
    role: Role
    serial: str


def read_ticket(certificate: x509.Certificate) -> TicketClaims:
    """ValueError if it is no ticket. Whether the authority has signed it is for the caller to check."""
    may = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    if not may.ca or may.path_length != 0:
        raise ValueError("a ticket signs leaves, and nothing else")
    # Raises ValueError for what is no role.
    role = Role(single_attribute(certificate.subject, NameOID.ORGANIZATIONAL_UNIT_NAME))
    return TicketClaims(
        single_attribute(certificate.subject, NameOID.COMMON_NAME), role, serial_text(certificate.serial_number)
    )


def serial_text(serial: int) -> str:
    """As people write it, and as it stands in an `Identity`."""
    return f"{serial:0{SERIAL_DIGITS}x}"


@dataclass(frozen=True, slots=True)
class Ticket:
    certificate: x509.Certificate
    key: Ed25519PrivateKey = field(repr=False)
    authority: x509.Certificate

    @classmethod
    def load(cls, source: str | Path) -> "Ticket":
        """From a file, or from the text of one (as from an environment variable)."""
        if isinstance(source, str) and ("\n" in source or "-----BEGIN" in source):
            what, raw = "the ticket", source.encode(errors="replace")
        else:
            what, raw = f"the ticket {source}", read_file(Path(source), "the ticket")
        contents = read_contents(raw, what, _ADVICE)
        if len(contents.certificates) != 2 or len(contents.keys) != 1:
            raise InvalidKeyFileError(
                f"{what} is not whole (two certificates and a private key): copy it again, or {_ADVICE}"
            )
        ticket = cls(contents.certificates[0], contents.keys[0], contents.certificates[1])
        ticket._validate(what)
        return ticket

    def _validate(self, what: str) -> None:
        try:
            read_ticket(self.certificate)
            self.certificate.verify_directly_issued_by(self.authority)
        except Exception:
            raise InvalidKeyFileError(f"{what} was not signed by the authority that it names: {_ADVICE}") from None
        if self.certificate.public_key() != self.key.public_key():
            raise InvalidKeyFileError(f"{what} holds the private key of another ticket: {_ADVICE}")

    def save(self, path: str | Path) -> None:
        write_private(Path(path), encode_pem(self.certificate, self.key, self.authority))

    def to_pem(self) -> str:
        """The file as text. It holds the member's private key."""
        return encode_pem(self.certificate, self.key, self.authority).decode()

    @property
    def name(self) -> str:
        return read_ticket(self.certificate).name

    @property
    def role(self) -> Role:
        return read_ticket(self.certificate).role

    @property
    def serial(self) -> str:
        return serial_text(self.certificate.serial_number)

    @property
    def expires_at(self) -> datetime:
        return self.certificate.not_valid_after_utc

    def is_expired(self, now: datetime) -> bool:
        return now > self.expires_at

    def issue_certificate(self, now: Clock = utc_now) -> PeerCertificate:
        return new_peer_certificate(self.certificate, self.key, now(), ticket=True)
