"""The channel's certificate authority: it signs members, directly or through tickets.

With a shared key, every member derives the same authority from the key and signs its own certificate. With tickets,
only the owner holds the authority's private key, and members know its certificate. The rest of the code does not
distinguish the two.
"""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from broadloom.errors import InvalidKeyError, InvalidKeyFileError
from broadloom.private_files import warn_if_readable_by_others
from broadloom.protocol.identity import Role
from broadloom.security.certificates import (
    ALWAYS_VALID,
    Clock,
    PeerCertificate,
    build_certificate,
    new_peer_certificate,
    single_attribute,
    utc_now,
    x509_name,
)
from broadloom.security.keys import fingerprint_of, server_name_of
from broadloom.security.pem import encode_pem, read_contents, read_file, write_private
from broadloom.security.ticket import Ticket

TICKET_CLOCK_SKEW = timedelta(minutes=5)
"""A new ticket is valid at once for members whose clock is a little behind the owner's."""
NAME_BYTES_MAX = 64
"""The limit of X.509 for a common name, in UTF-8."""
SERIAL_BITS = 63

_ADVICE = "restore it from your backup, or create a new authority and new tickets"


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: Ed25519PrivateKey | None = field(default=None, repr=False)
    """None if only the certificate is known."""

    @classmethod
    def from_seed(cls, seed: bytes, channel_id: bytes) -> "Authority":
        """Deterministic: the same bytes for every member that knows the seed."""
        return cls._self_signed(Ed25519PrivateKey.from_private_bytes(seed), channel_id)

    @classmethod
    def generate(cls, channel_id: bytes | None = None) -> "Authority":
        """A new authority for an owner: for one channel, or (without a channel id) for all of the owner's channels."""
        return cls._self_signed(Ed25519PrivateKey.generate(), channel_id)

    @classmethod
    def _self_signed(cls, key: Ed25519PrivateKey, channel_id: bytes | None) -> "Authority":
        # With the key in the name, TLS reports "unknown authority" and not "bad signature" for another key.
        subject = x509_name(
            f"broadloom {fingerprint_of(key.public_key())}",
            organization="" if channel_id is None else server_name_of(channel_id),
        )
        return cls(
            build_certificate(subject, key.public_key(), subject, key, ALWAYS_VALID, serial=1, path_length=1), key
        )

    @classmethod
    def load(cls, path: str | Path) -> "Authority":
        """Load an authority file, with or without the private key."""
        what = f"the authority {path}"
        contents = read_contents(read_file(Path(path), "the authority"), what, _ADVICE)
        if len(contents.certificates) == 2:
            raise InvalidKeyFileError(
                f"{path} is a ticket, not an authority file; pass the file from `broadloom authority create`"
            )
        if len(contents.certificates) != 1 or len(contents.keys) > 1:
            raise InvalidKeyFileError(f"{what} is incomplete (expected one certificate and a private key): {_ADVICE}")
        authority = cls(contents.certificates[0], contents.keys[0] if contents.keys else None)
        if authority.key is not None:
            warn_if_readable_by_others(Path(path), "the authority")
        try:
            authority.certificate.verify_directly_issued_by(authority.certificate)
            may_sign = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except Exception:
            raise InvalidKeyFileError(f"{what} is damaged: {_ADVICE}") from None
        if not may_sign or (authority.key and authority.key.public_key() != authority.certificate.public_key()):
            raise InvalidKeyFileError(f"{what} contains a key and a certificate that do not match: {_ADVICE}")
        return authority

    def save(self, path: str | Path) -> None:
        """Write the private key and the certificate to a new file; an existing file is never overwritten."""
        write_private(Path(path), encode_pem(self.certificate, self.private_key()))

    def private_key(self) -> Ed25519PrivateKey:
        if self.key is None:
            raise InvalidKeyError("this needs the authority's private key, which only the channel's owner has")
        return self.key

    def issue_ticket(self, name: str, role: Role, expires_at: datetime, *, now: Clock = utc_now) -> Ticket:
        """Issue a ticket for one member. It can be used any number of times and in several programs at once."""
        key = Ed25519PrivateKey.generate()
        return Ticket(self.certify(key.public_key(), name, role, expires_at, now=now), key, self.certificate)

    def certify(
        self,
        key: Ed25519PublicKey,
        name: str,
        role: Role,
        expires_at: datetime,
        *,
        serial: int | None = None,
        now: Clock = utc_now,
    ) -> x509.Certificate:
        """The certificate of a ticket whose private key only the member has. Without a serial, a random one."""
        if not (name.strip() and name.isprintable()) or len(name.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"name={name!r}: must be printable and have at most {NAME_BYTES_MAX} bytes")
        if expires_at.tzinfo is None:
            raise ValueError("expires_at must have a time zone")
        issued = now()
        if expires_at <= issued:
            raise ValueError(f"expires_at={expires_at:%Y-%m-%d %H:%M} is in the past")
        return build_certificate(
            x509_name(name, unit=role.value),
            key,
            self.certificate.subject,
            self.private_key(),
            (issued - TICKET_CLOCK_SKEW, expires_at),
            serial=serial or secrets.randbits(SERIAL_BITS) | 1,
            path_length=0,
        )

    def issue_certificate(self, now: Clock = utc_now) -> PeerCertificate:
        return new_peer_certificate(self.certificate, self.private_key(), now(), ticket=False)


def is_for_channel(authority: x509.Certificate, channel_id: bytes) -> bool:
    """Whether an authority is valid for a channel: it was created for this one, or for all."""
    return single_attribute(authority.subject, NameOID.ORGANIZATION_NAME) in {"", server_name_of(channel_id)}
