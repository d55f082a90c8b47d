"""Revoked tickets: an X.509 certificate revocation list (CRL) in a file, signed by the authority.

The owner writes and distributes it; each peer is given the path and checks the file periodically. A list that cannot be
read or verified is never treated as empty.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from broadloom.errors import InvalidKeyFileError
from broadloom.security.authority import Authority
from broadloom.security.certificates import ALWAYS_VALID, Clock, utc_now
from broadloom.security.pem import read_file, replace_public
from broadloom.security.ticket import SERIAL_DIGITS, serial_text

_SERIAL = re.compile(rf"[0-9a-f]{{{SERIAL_DIGITS}}}")
_ADVICE = "get it again from the channel's owner"


def revoke_tickets(authority: Authority, path: str | Path, serials: Iterable[str], *, now: Clock = utc_now) -> None:
    """Add tickets to the list by their serial numbers in hex. The file is created if necessary."""
    path = Path(path)
    added = {_serial(text) for text in serials}
    secret = authority.private_key()
    entries = list(_load(path, authority.certificate)) if path.exists() else []
    entries += [
        x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now()).build()
        for serial in sorted(added - {each.serial_number for each in entries})
    ]
    # A list is valid until a newer one replaces it.
    builder = x509.CertificateRevocationListBuilder(
        authority.certificate.subject, now(), ALWAYS_VALID[1], revoked_certificates=entries
    )
    replace_public(path, builder.sign(secret, None).public_bytes(Encoding.PEM))


class RevocationList:
    """The revoked tickets known to a peer."""

    def __init__(self, path: str | Path, authority: x509.Certificate) -> None:
        self.authority = authority
        self._path = Path(path)
        self._file_stamp = self._stat()
        self._serials = self._read()

    def __repr__(self) -> str:
        return f"RevocationList({str(self._path)!r}, {len(self._serials)} tickets)"

    def is_revoked(self, serial: str) -> bool:
        return serial in self._serials

    def reload_if_changed(self) -> bool:
        """Returns whether the file has changed. If it is invalid, raises an error and keeps the old list."""
        seen = self._stat()
        if seen == self._file_stamp:
            return False
        self._serials = self._read()
        self._file_stamp = seen
        return True

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as problem:
            raise InvalidKeyFileError(
                f"cannot read the revocation list {self._path}: {problem.strerror}; {_ADVICE}"
            ) from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> frozenset[str]:
        return frozenset(serial_text(each.serial_number) for each in _load(self._path, self.authority))


def _load(path: Path, authority: x509.Certificate) -> x509.CertificateRevocationList:
    raw = read_file(path, "the revocation list")
    try:
        found = x509.load_pem_x509_crl(raw)
        key = authority.public_key()
        is_valid = (
            isinstance(key, Ed25519PublicKey) and found.issuer == authority.subject and found.is_signature_valid(key)
        )
    except Exception:
        raise InvalidKeyFileError(f"the revocation list {path} is damaged: {_ADVICE}") from None
    if not is_valid:
        raise InvalidKeyFileError(
            f"the revocation list {path} was not signed by the channel's owner, or was modified: {_ADVICE}"
        )
    return found


def _serial(text: str) -> int:
    # All sixteen digits are required: a name such as "ada" is valid hex too, and would revoke nothing.
    if not _SERIAL.fullmatch(text.strip().lower()):
        raise ValueError(f"{text!r} is not a ticket serial number ({SERIAL_DIGITS} hexadecimal digits)")
    return int(text, 16)
