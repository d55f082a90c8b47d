"""Tickets: issued by the owner of a channel to one member, with a name, a role and an expiry.

A ticket file has three parts: the ticket's certificate (signed by the owner's authority), the member's private key, and
the authority's certificate. The member uses it to sign its own peer certificate at each connect. A ticket cannot sign
other tickets. Name and role are always read from the ticket, never from the peer certificate.
"""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from broadloom.errors import InvalidKeyFileError
from broadloom.private_files import warn_if_readable_by_others
from broadloom.protocol.identity import Role
from broadloom.security.certificates import Clock, PeerCertificate, new_peer_certificate, single_attribute, utc_now
from broadloom.security.pem import encode_pem, read_contents, read_file, write_private

SERIAL_DIGITS = 16

_ADVICE = "ask the channel's owner for a new one"


class TicketClaims(NamedTuple):
    """What the owner certified."""

    name: str
    role: Role
    serial: str


def read_ticket(certificate: x509.Certificate) -> TicketClaims:
    """Raises `ValueError` if it is not a ticket. The caller checks the authority's signature."""
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    if not constraints.ca or constraints.path_length != 0:
        raise ValueError("not a ticket: a ticket signs peer certificates only")
    role = Role(single_attribute(certificate.subject, NameOID.ORGANIZATIONAL_UNIT_NAME))
    return TicketClaims(
        single_attribute(certificate.subject, NameOID.COMMON_NAME), role, serial_text(certificate.serial_number)
    )


def serial_text(serial: int) -> str:
    return f"{serial:0{SERIAL_DIGITS}x}"


@dataclass(frozen=True, slots=True)
class Ticket:
    certificate: x509.Certificate
    key: Ed25519PrivateKey = field(repr=False)
    authority: x509.Certificate

    @classmethod
    def load(cls, source: str | Path) -> "Ticket":
        """Load a ticket from a file, or from its text (for example from an environment variable)."""
        if isinstance(source, str) and ("\n" in source or "-----BEGIN" in source):
            what, raw = "the ticket", source.encode(errors="replace")
        else:
            what, raw = f"the ticket {source}", read_file(Path(source), "the ticket")
            warn_if_readable_by_others(Path(source), "the ticket")
        contents = read_contents(raw, what, _ADVICE)
        if len(contents.certificates) != 2 or len(contents.keys) != 1:
            raise InvalidKeyFileError(
                f"{what} is incomplete (expected two certificates and a private key): copy it again, or {_ADVICE}"
            )
        ticket = cls(contents.certificates[0], contents.keys[0], contents.certificates[1])
        ticket._validate(what)
        return ticket

    def _validate(self, what: str) -> None:
        try:
            read_ticket(self.certificate)
            self.certificate.verify_directly_issued_by(self.authority)
        except Exception:
            raise InvalidKeyFileError(f"{what} was not signed by the authority it names: {_ADVICE}") from None
        if self.certificate.public_key() != self.key.public_key():
            raise InvalidKeyFileError(f"{what} contains the private key of another ticket: {_ADVICE}")

    def save(self, path: str | Path) -> None:
        write_private(Path(path), encode_pem(self.certificate, self.key, self.authority))

    def to_pem(self) -> str:
        """The file as text. It contains the member's private key."""
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
